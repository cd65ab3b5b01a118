# SPDX-License-Identifier: Apache-2.0
"""Reproducible random numbers: one seed, many independent named streams."""

import zlib

import numpy as np

from neurodyn.core.errors import InputError


def require_seed(seed: int) -> None:
    """Raise an InputError for a seed outside the range that all generators support."""
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed is {seed}; valid: a whole number of at least 0 and below 2^63")


def derive_seed(seed: int, *names: str | int) -> int:
    """Return the seed of a named stream, such as ("generate", batch); streams of different names are independent.

    Integers among the names are at least 0. Raises an InputError if the seed is negative, or 2^63 or more.
    """
    require_seed(seed)
    # SeedSequence pads with zeros, so integers are raised by one: ("a", 0) must differ from ("a",).
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name + 1 for name in names]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, dtype=np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator for a named stream of `seed`."""
    return np.random.default_rng(derive_seed(seed, *names))
