# SPDX-License-Identifier: Apache-2.0
"""Memory that large arrays leave is used again."""

import resource
import sys

import numpy as np
import pytest

from neurodyn.core.memory import keeping_memory

ROUNDS = 20


def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        np.ones(4_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an option of glibc")
def test_kept_memory_is_not_cleared_by_the_system_again():
    usual = faults()
    with keeping_memory():
        faults()  # the heap grows once
        assert faults() < 0.1 * max(usual, 7000)
