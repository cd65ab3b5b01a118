# SPDX-License-Identifier: Apache-2.0
"""Evaluation of floating robots that touch things, from the data to the report."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.evaluate import Evaluation, evaluate
from neurodyn.evaluate.named_scenarios import scenario
from neurodyn.evaluate.simulated import both, draw_starts, perturb
from neurodyn.evaluate.stability import stability
from neurodyn.learn.neural.settings import Settings
from neurodyn.learn.neural.train import train
from neurodyn.report import write_report
from neurodyn.robots import Robot, load
from tests.report.pages import check_self_contained

pytest.importorskip("newton")
KEYS = {"base_position_m", "base_orientation_rad"}


@pytest.fixture(scope="module")
def cube() -> Robot:
    return load("cube")


@pytest.fixture(scope="module")
def run(cube: Robot, quick: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cube that learned next to nothing: how well it predicts is no matter here."""
    from neurodyn.data.store import Store
    from neurodyn.sim.generation import generate

    folder = tmp_path_factory.mktemp("cube")
    generate(cube, transitions=1920, out=folder / "cube.h5", worlds=32, seed=3, frames=60)
    settings = msgspec.structs.replace(quick, steps=10, validations=2)
    train(cube, "cube", str(folder / "cube.h5"), Store.open(folder / "cube.h5"), folder / "run", settings)
    return folder / "run"


@pytest.fixture(scope="module")
def result(run: Path) -> Evaluation:
    return evaluate(run, horizon=20, rollouts=8, ground="all")


@pytest.fixture(scope="module")
def report(result: Evaluation) -> dict:
    return result.plain()


def test_a_floating_robot_has_errors_of_its_base(report: dict, cube: Robot):
    assert report["ground"] == "flat"
    assert set(report["by_horizon"]) == {"10", "20"}
    for entry in (report, report["by_horizon"]["10"], report["grounds"]["flat"]):
        assert all(entry[key] > 0 for key in KEYS)
        assert "joint_rad" not in entry
    assert report["grounds_mean"] == {key: report[key] for key in KEYS}
    assert list(report["grounds"]) == list(cube.grounds)
    assert report["driven"] is None  # nothing drives a cube
    assert report["energy"] is None
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_simulator_is_nearer_to_itself_than_nothing_that_moves(report: dict):
    for floor in ("twice_substeps", "perturbed_1e-6"):
        for key in KEYS:
            assert 0 < report["floors"][floor]["20"][key] < 0.1 * report["baselines"]["hold_last"]["20"][key]


@pytest.mark.trains
def test_a_ground_of_ones_own_is_the_ground_in_the_roll_outs(run: Path, report: dict, cube: Robot, tmp_path: Path):
    flat, none = tmp_path / "flat.yaml", tmp_path / "none.yaml"
    flat.write_text("shapes: [{kind: plane}]")
    none.write_text("shapes: []")
    found = evaluate(run, horizon=20, rollouts=8, ground=str(flat)).plain()
    assert found["ground"] == str(flat)
    assert {key: found[key] for key in KEYS} == {key: report[key] for key in KEYS}, "flat is flat by any name"
    # Sixty frames end on the ground where there is one, and metres below it where there is none.
    grounds = [scenario(cube, str(path)) for path in (flat, none)]
    starts = [draw_starts(cube, 60, 8, 1, driven=False, where=where) for where in grounds]
    paths = [both(NEURAL.load(run), cube, one)[1].path for one in starts]
    lowest = [path.q[..., 2].min() for path in paths]
    assert lowest[0] > 0 > lowest[1] + 1


def test_grounds_that_cannot_be_used_are_refused(run: Path):
    with pytest.raises(InputError, match="'moon' is no ground of robot 'cube'; valid: all, flat, or a file"):
        evaluate(run, ground="moon")
    with pytest.raises(InputError, match="leave out --data"):
        evaluate(run, ground="flat", data="tosses.npz")


def test_the_report_shows_the_base_and_the_ground(run: Path, result: Evaluation, tmp_path: Path):
    html = write_report(run, result, path=tmp_path / "report.html", moving=False).read_text(encoding="utf-8")
    text = check_self_contained(html).text
    assert "Base orientation" in text
    assert "ground flat" in text
    assert "base.x" in text
    assert "base.qx" not in text


@pytest.mark.parametrize(("fate", "finite", "above"), [("sinks", 1.0, 0.5), ("bursts", 0.5, 0.5), ("stays", 1.0, 1.0)])
def test_long_roll_outs_are_counted_by_what_becomes_of_them(fate: str, finite: float, above: float, cube: Robot):
    class Fate:
        """Half of the worlds come to a bad end."""

        spec: StateSpec = cube.spec
        differentiable, conditions = False, ()
        device = "cpu"

        def begin(self, context, environment=None):
            return 0

        def step_(self, carry, state, control):
            q, half = state.q.clone(), state.worlds // 2
            if fate == "sinks":
                q[:half, 2] -= 0.02
            if fate == "bursts" and carry == 30:
                q[:half] = torch.nan
            return carry + 1, Step(State(q, state.qd))

        def reset(self, carry, context, mask): ...

        def rollout(self, context, controls, environment=None): ...

    found = stability(Fate(), cube, worlds=6, frames=50).plain()  # type: ignore[arg-type]
    assert set(found) == {"frames", "worlds", "deepest_allowed_m", "ground", "passive"}
    assert found["passive"]["finite_fraction"] == finite
    assert found["passive"]["above_ground_fraction"] == found["passive"]["stable_fraction"] == above
    if fate == "sinks":
        assert found["passive"]["deepest_m"] > 0.5


def test_starts_are_off_by_a_millionth_in_every_coordinate(cube: Robot):
    q = torch.zeros(4, 7)
    q[:, 6] = 1.0
    moved = perturb(cube.spec, State(q, torch.zeros(4, 6)), np.random.default_rng(0))
    difference = position_difference(cube.spec, moved.q, q)
    torch.testing.assert_close(difference.abs(), torch.full((4, 6), 1e-6), rtol=0.1, atol=0)
    assert torch.equal(moved.qd.abs(), torch.full((4, 6), 1e-6))
