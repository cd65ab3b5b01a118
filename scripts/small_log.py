# SPDX-License-Identifier: Apache-2.0
"""Write the small log shipped with a world model: some episodes of each split, compressed.

    python scripts/small_log.py walks.h5 src/neurodyn/pretrained/anymal-walks/log.h5 --episodes 24 6 6

Episodes keep their split, so that held-out data stay held out, and are spread evenly over the log, with failures in
proportion. Numbers keep 10 bits of their mantissa (a relative error below .0005, a tenth of sensor noise), which gzip
then halves.
"""

import argparse
import dataclasses
from pathlib import Path

import h5py
import msgspec
import numpy as np

from neurodyn.data import Split, Status, Store

_DROPPED = 13
"""Number of the mantissa's 23 bits that are rounded away."""


def main() -> None:
    """Write the small log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--episodes", nargs=3, type=int, default=[24, 6, 6], metavar=("TRAIN", "VALIDATION", "TEST"))
    arguments = parser.parse_args()
    store = Store.open(arguments.log)
    counts = zip((Split.TRAIN, Split.VALIDATION, Split.TEST), arguments.episodes, strict=True)
    chosen = np.concatenate([spread(store, split, count) for split, count in counts])
    plain = arguments.out.with_suffix(".plain.h5")
    part(store, chosen).write(plain)
    compress(plain, arguments.out)
    plain.unlink()
    small = Store.open(arguments.out)
    size = arguments.out.stat().st_size / 1e6
    print(f"{len(small.table)} episodes, {small.transitions:,} transitions, {size:.2f} MB: {arguments.out}")


def spread(store: Store, split: Split, count: int) -> np.ndarray:
    """Return episodes of a split, spread evenly over failed and other ones."""
    own = store.episodes(split)
    failed = store.status[own] == Status.TERMINATED
    few = max(1, round(count * failed.mean()))
    parts = [(own[failed], few), (own[~failed], count - few)]
    return np.concatenate([some[np.linspace(0, len(some) - 1, number).astype(int)] for some, number in parts])


def part(store: Store, episodes: np.ndarray) -> Store:
    """Return a store of some episodes, with rounded values and no paths of policies."""
    rows = np.concatenate([np.arange(store.offsets[e], store.offsets[e + 1]) for e in episodes])
    table = store.table[episodes].copy()
    table["start"] = np.cumsum(table["length"] + 1) - table["length"] - 1
    groups = tuple(f"policy {k + 1}" for k in range(len(store.header.groups)))
    notes = {**store.header.notes, "policies": list(groups)}
    header = msgspec.structs.replace(store.header, groups=groups, notes=notes)
    reward = None if store.reward is None else rounded(store.reward[rows])
    return dataclasses.replace(
        store, header=header, frames=rounded(np.asarray(store.frames)[rows]), table=table, reward=reward
    )


def rounded(values: np.ndarray) -> np.ndarray:
    """Return values without the last bits of their mantissa, rounded to nearest."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + (1 << (_DROPPED - 1))) & np.uint32(0xFFFFFFFF << _DROPPED & 0xFFFFFFFF)).view(np.float32)


def compress(plain: Path, out: Path) -> None:
    """Copy a store with its arrays compressed."""
    with h5py.File(plain) as source, h5py.File(out, "w") as target:
        target.attrs.update(source.attrs)
        for name, array in source.items():
            if array.ndim and len(array):
                made = target.create_dataset(
                    name, data=array[()], compression="gzip", compression_opts=9, shuffle=True, chunks=array.shape
                )
                made.attrs.update(array.attrs)
            else:
                source.copy(array, target, name)


if __name__ == "__main__":
    main()
