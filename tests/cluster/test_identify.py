# SPDX-License-Identifier: Apache-2.0
"""Searches whose candidates the workers of a cluster share: the bits of one machine, whatever the workers."""

import pytest
import torch

from neurodyn.cluster import Cluster
from neurodyn.core.errors import InputError
from neurodyn.identify.fit.population_search import basin_hopping, cma_es
from neurodyn.identify.fit.residuals import Residuals
from neurodyn.identify.run import identify
from tests.identify import pendulum


@pytest.fixture(scope="module")
def residuals() -> Residuals:
    return pendulum.mirrored_masses(count=3, frames=30)


def test_basin_hopping_over_workers_ends_in_the_bits_of_one_machine(cluster: Cluster, residuals: Residuals):
    one = basin_hopping(residuals, 7, 3, 4, seed=1)
    many = basin_hopping(residuals, 7, 3, 4, seed=1, executor=cluster)
    assert torch.equal(one.x, many.x)
    assert torch.equal(one.cost, many.cost)
    assert torch.equal(one.settled, many.settled)
    assert not torch.equal(one.x, basin_hopping(residuals, 7, 3, 4, seed=2).x)


def test_a_population_of_cma_es_over_workers_ends_in_the_bits_of_one_machine(cluster: Cluster, residuals: Residuals):
    start = residuals.start(residuals.space.nominal[None])
    one = cma_es(residuals, start, 6, seed=1)
    many = cma_es(residuals, start, 6, seed=1, executor=cluster)
    assert torch.equal(one.point.x, many.point.x)
    assert torch.equal(one.cost, many.cost)


def test_a_gpu_beside_a_cluster_is_refused(cluster: Cluster, tmp_path):
    with pytest.raises(InputError, match="device is 'cuda'; valid with a cluster"):
        identify("pendulum", "none.h5", tmp_path / "run", device="cuda", executor=cluster)
