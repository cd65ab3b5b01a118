# SPDX-License-Identifier: Apache-2.0
"""One Ray on this machine for all tests of a process, because its start takes seconds: two workers, two trials."""

from collections.abc import Iterator

import pytest

from neurodyn.cluster import Cluster
from neurodyn.cluster.connection import connect


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    with connect("local", 4), Cluster("local", workers=2) as started:
        yield started
