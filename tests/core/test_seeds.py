# SPDX-License-Identifier: Apache-2.0
"""One seed gives many streams, repeatable and independent of each other."""

import itertools

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed, generator

NAMES = [(), ("a",), ("b",), ("a", 0), ("a", 1), ("a", 0, 0), ("a", "b"), ("b", "a"), (0,), (1,)]


def test_the_same_names_give_the_same_stream():
    first, second = (generator(7, "data", 3).random(100) for _ in range(2))
    assert np.array_equal(first, second)


def test_every_name_and_every_seed_gives_another_stream():
    seeds = [derive_seed(seed, *names) for seed, names in itertools.product((0, 1, 500, 2**31), NAMES)]
    assert len(set(seeds)) == len(seeds)


def test_streams_are_not_correlated():
    streams = np.array([generator(0, "batch", k).standard_normal(20_000) for k in range(6)])
    correlation = np.corrcoef(streams) - np.eye(6)
    assert np.abs(correlation).max() < 0.03


def test_seeds_fit_what_torch_takes():
    assert all(0 <= derive_seed(seed, "x") < 2**63 for seed in range(200))


def test_a_negative_seed_is_bad_input():
    with pytest.raises(InputError, match="seed is -1; valid"):
        derive_seed(-1, "x")
