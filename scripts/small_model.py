# SPDX-License-Identifier: Apache-2.0
"""Halve the weights of a model shipped with the package: matrices are stored in half precision and computed in single.

    python scripts/small_model.py runs/ant src/neurodyn/pretrained/ant-learned-large

What rounding them costs, `neurodyn evaluate` shows: up to a twentieth of the error after 500 frames of the ant.
"""

import argparse
import shutil
from pathlib import Path

import torch

from neurodyn.core.artifacts import read_tensors, write_tensors


def main() -> None:
    """Copy the model and the settings of a run, with its matrices in half precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    shutil.copytree(arguments.run / "model", arguments.out / "model")
    shutil.copyfile(arguments.run / "config.yaml", arguments.out / "config.yaml")
    weights = arguments.out / "model/model.safetensors"
    write_tensors(weights, {name: rounded(tensor) for name, tensor in read_tensors(weights).items()})
    print(f"{weights}: {weights.stat().st_size / 1e6:.2f} MB")


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Return a matrix of single precision in half precision, everything else unchanged."""
    return tensor.half() if tensor.ndim == 2 and tensor.dtype is torch.float32 else tensor


if __name__ == "__main__":
    main()
