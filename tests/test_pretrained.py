# SPDX-License-Identifier: Apache-2.0
"""The models that ship with the package do what they are shipped for."""

import pytest

from neurodyn.core.artifacts import PRETRAINED, pretrained_names, resolve_run
from neurodyn.core.errors import InputError

SIZE_LIMIT = 4_000_000


def test_a_cartpole_ships():
    assert "cartpole" in pretrained_names()


@pytest.mark.parametrize("name", pretrained_names())
def test_a_shipped_model_is_small_and_says_how_it_was_made(name):
    from neurodyn.fit.train import read_run_config

    run = resolve_run(PRETRAINED + name)
    assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < SIZE_LIMIT
    assert read_run_config(run).settings.phases


def test_the_cartpole_beats_the_paper_at_its_shortest_horizon_on_states_never_seen():
    pytest.importorskip("newton", reason="the extra sim is not installed")
    from neurodyn.fit.evaluation import evaluate_run

    result = evaluate_run("pretrained:cartpole", horizon=100, rollouts=256, seed=91)
    # NeRD, table of passive motion, 100 steps: .0002 m and .0004 rad.
    assert result["base_position_m"] < 2e-4
    assert result["joint_rad"] < 4e-4
    assert result["finite_fraction"] == 1.0


def test_more_than_memory_holds_is_refused_at_once():
    pytest.importorskip("newton", reason="the extra sim is not installed")
    from neurodyn.fit.evaluation import evaluate_run

    with pytest.raises(InputError, match=r"--rollouts 2 of --horizon 1000000000 need about 400 GB of memory; valid"):
        evaluate_run("pretrained:cartpole", horizon=10**9, rollouts=2)
