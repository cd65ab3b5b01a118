# SPDX-License-Identifier: Apache-2.0
"""One Ray of two workers on this machine, for all tests of a process: its start takes seconds."""

from collections.abc import Iterator

import pytest

from neurodyn.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    with Cluster("local", workers=2) as started:
        yield started
