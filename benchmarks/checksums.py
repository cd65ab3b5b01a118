# SPDX-License-Identifier: Apache-2.0
"""Cost of checksums: CPU time of opening and streaming a store, and of reading weights, with and without them."""

import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import load_file

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.core.artifacts import read_tensors, write_tensors
from neurodyn.data import Store, StoreHeader, StoreWriter
from neurodyn.robots import load

EPISODES, FRAMES = 8000, 249
WEIGHTS = 16
"""Layers of 1 MiB."""


def main() -> None:
    parser = result_parser(__doc__)
    arguments = parser.parse_args()
    single_thread()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        new, old = folder / "new.h5", folder / "old.h5"
        write_store(new)
        shutil.copy(new, old)
        with h5py.File(old, "r+") as file:  # as other programs write it
            del file["checksums"]
        require(np.array_equal(Store.open(new).frames, Store.open(old).frames), "both stores hold the same")
        weights = folder / "weights.safetensors"
        write_tensors(weights, {f"layer.{i}": torch.randn(512, 512) for i in range(WEIGHTS)})
        times = compare(
            {
                "open": lambda: Store.open(new),
                "open_without": lambda: Store.open(old),
                "stream": lambda: stream(new),
                "stream_without": lambda: stream(old),
                "weights": lambda: read_tensors(weights),
                "weights_without": lambda: load_file(weights),
            },
            seconds=0.5,
        )
        size = new.stat().st_size / 1e6
    figures = {"store_MB": size, **{f"{name}_cpu_ms": value * 1e3 for name, value in times.items()}}
    ratios = {f"{name}_vs_without_b1": times[name] / times[f"{name}_without"] for name in ("open", "stream", "weights")}
    write_result(arguments.json, "checksums", figures, ratios)


def write_store(path: Path) -> None:
    """Write random numbers in the layout of a cartpole's trajectories."""
    draw = np.random.default_rng(0)
    with StoreWriter(path, StoreHeader(source="log", spec=load("cartpole").spec)) as writer:
        for _ in range(EPISODES // 500):
            q, qd = (draw.normal(size=(500, FRAMES + 1, 2)) for _ in range(2))
            writer.append(q, qd, draw.normal(size=(500, FRAMES, 1)))


def stream(path: Path) -> None:
    """Open a store without loading its rows, which are read once for checking, and read them again block by block."""
    store = Store.open(path, memory=0)
    for begin in range(0, len(store.frames), 65536):
        store.frames[begin : begin + 65536]


if __name__ == "__main__":
    main()
