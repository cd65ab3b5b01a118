# SPDX-License-Identifier: Apache-2.0
"""Random numbers that can be repeated: one seed, many independent named streams."""

import zlib

import numpy as np

from neurodyn.core.errors import InputError


def require_seed(seed: int) -> None:
    """Refuse a seed that some generator does not take, with an InputError."""
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed is {seed}; valid: a whole number of at least 0 and below 2^63")


def derive_seed(seed: int, *names: str | int) -> int:
    """Return the seed of a named stream; streams of different names are independent.

    Args:
        seed: The seed that the user gave.
        names: What the stream is for, for example ("generate", batch); numbers are at least 0.

    Raises:
        InputError: As of `require_seed`.
    """
    require_seed(seed)
    # SeedSequence takes missing words for zeros: one is added so that ("a", 0) is another stream than ("a",).
    words = [zlib.crc32(name.encode()) if isinstance(name, str) else name + 1 for name in names]
    return int(np.random.SeedSequence([seed, *words]).generate_state(1, dtype=np.uint64)[0] >> np.uint64(1))


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return a NumPy generator for a named stream of `seed`."""
    return np.random.default_rng(derive_seed(seed, *names))
