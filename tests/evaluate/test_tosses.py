# SPDX-License-Identifier: Apache-2.0
"""Evaluation beside tosses: every start once, one starting state, errors that are computed independently."""

import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.measures import constant_velocity
from neurodyn.evaluate.doubts import judge
from neurodyn.evaluate.logged import beside_log
from neurodyn.robots import load

CUBE = load("cube")
SPEC = CUBE.spec


class Coasting:
    """Dynamics of free flight without gravity, exact; `spoil` changes the prediction."""

    spec = SPEC
    differentiable, measured, takes_parts, conditions, own_quantities = False, False, False, (), ()
    kind, network, caveat, device = "coasting", None, "", "cpu"

    def parameters(self):
        return iter(())

    def __init__(self, spoil=None):
        self.spoil, self.calls = spoil, []

    def rollout(self, context, controls, environment=None):
        self.calls.append((context, environment))
        frames = controls.shape[1] + 1
        first = Trajectory(*(x[:, None].expand(-1, frames, -1) for x in (context.q, context.qd)))
        found = constant_velocity(first, SPEC.dt, SPEC)
        return found if self.spoil is None else self.spoil(found)


def coasting_store(lengths=(30, 25, 20, 12), scene=None, seed=0):
    """Episodes of free flight without gravity; all for testing."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for length in lengths:
        q, qd = torch.randn(1, 7, generator=generator), torch.randn(1, 6, generator=generator)
        q[:, 3:] /= q[:, 3:].norm(dim=-1, keepdim=True)
        still = Trajectory(q[:, None].expand(-1, length + 1, -1), qd[:, None].expand(-1, length + 1, -1))
        moved = constant_velocity(still, SPEC.dt, SPEC)
        parts.append(torch.cat([moved.q[0], moved.qd[0]], dim=-1).numpy())
    table = episode_table(lengths, split=Split.TEST)
    ground = None if scene is None else np.tile(np.float32([0, 0, 0, 0, 0, 0, 1]), (len(lengths), 1))
    if ground is not None:
        ground[:, 2] = np.arange(len(lengths))
    return Store(StoreHeader(spec=SPEC, source="log", scene=scene), np.concatenate(parts), table, ground)


def score(model, store, **options):
    return beside_log(model, CUBE, store, **{"split": Split.TEST, "horizon": 10, **options}).plain()


def test_exact_dynamics_have_no_error():
    found = score(Coasting(), coasting_store())
    assert found["base_position_m"] < 1e-6
    assert found["base_orientation_rad"] < 1e-5
    assert found["baselines"]["constant_velocity"]["10"]["base_position_m"] < 1e-6
    assert found["baselines"]["hold_last"]["10"]["base_position_m"] > 0.01


def test_every_start_is_used_once():
    found = score(Coasting(), coasting_store())
    # s + 10 < number of states, in each episode.
    assert found["rollouts"] == 21 + 16 + 11 + 3
    assert found["releases"]["rollouts"] == 4
    assert score(Coasting(), coasting_store(), horizon=20)["rollouts"] == 11 + 6 + 1


def test_the_model_gets_one_state_and_the_ground_of_its_episode():
    model = Coasting()
    score(model, coasting_store(scene=Scene(shapes=(Plane(),))))
    ((context, environment),) = model.calls
    assert isinstance(context, State)
    heights = environment.ground.pose[:, 2]
    assert heights.tolist() == [0.0] * 21 + [1.0] * 16 + [2.0] * 11 + [3.0] * 3


def test_errors_are_means_over_frames_then_over_starts():
    generator = torch.Generator().manual_seed(1)
    shift = 0.01 * torch.randn(51, 11, 3, generator=generator)
    angle = torch.linspace(0.0, 0.5, 11)

    def spoil(found):
        q = found.q.clone()
        q[..., :3] += shift
        turn = torch.stack([torch.zeros(11), torch.sin(angle / 2), torch.zeros(11), torch.cos(angle / 2)], dim=-1)
        q[..., 3:] = -_multiply(turn.expand(51, -1, -1), q[..., 3:])  # the sign of a quaternion says nothing
        return Trajectory(q, found.qd)

    store = coasting_store()
    found = score(Coasting(spoil), store)
    assert found["base_position_m"] == pytest.approx(float(shift[:, 1:].norm(dim=-1).mean()), rel=1e-4)
    assert found["base_orientation_rad"] == pytest.approx(float(angle[1:].mean()), rel=1e-4)
    released = [0, 21, 37, 48]
    expected = float(shift[released, 1:].norm(dim=-1).mean())
    assert found["releases"]["base_position_m"] == pytest.approx(expected, rel=1e-4)
    assert found["curve"]["frame"] == list(range(1, 11))
    by_step = shift[:, 1:].norm(dim=-1).mean(0).tolist()
    assert found["curve"]["base_position_m"]["mean"] == pytest.approx(by_step, rel=1e-3)


def test_orientation_error_is_the_angle_of_the_paper():
    """2 asin |vec(dq)| of the rotation in between, for rotations of any size."""

    def spoil(found):
        q = found.q.clone()
        generator = torch.Generator().manual_seed(2)
        turn = torch.randn(*q.shape[:2], 4, generator=generator)
        turn /= turn.norm(dim=-1, keepdim=True)
        spoil.angle = 2 * torch.asin(turn[:, 1:, :3].norm(dim=-1).clamp(max=1.0))
        q[..., 3:] = _multiply(turn, q[..., 3:])
        return Trajectory(q, found.qd)

    found = score(Coasting(spoil), coasting_store())
    assert found["base_orientation_rad"] == pytest.approx(float(spoil.angle.mean()), rel=1e-3)


def test_a_base_that_turns_too_far_is_told_though_its_place_is_right():
    def spoil(found):
        angle, q = torch.linspace(0.0, 0.5, 11), found.q.clone()
        turn = torch.stack([torch.zeros(11), torch.sin(angle / 2), torch.zeros(11), torch.cos(angle / 2)], dim=-1)
        q[..., 3:] = _multiply(turn.expand(len(q), -1, -1), q[..., 3:])
        return Trajectory(q, found.qd)

    found = beside_log(Coasting(spoil), CUBE, coasting_store(), split=Split.TEST, horizon=10)  # type: ignore[arg-type]
    told = [one.what for one in judge(found, [])]
    assert any(one.startswith("constant velocity is better at all horizons: base orientation") for one in told)


def test_fewer_starts_are_spread_over_all_episodes_and_keep_the_releases():
    found = score(Coasting(), coasting_store(), rollouts=20)
    assert found["stride"] == 3
    assert found["rollouts"] == 7 + 6 + 4 + 1
    assert found["releases"]["rollouts"] == 4


def test_the_default_horizon_is_the_robots():
    found = beside_log(Coasting(), CUBE, coasting_store((100,)), split=Split.TEST).plain()  # type: ignore[arg-type]
    assert found["horizon"] == 80
    assert found["kind"] == "coasting"


def _multiply(a, b):
    vector = a[..., 3:] * b[..., :3] + b[..., 3:] * a[..., :3] + torch.linalg.cross(a[..., :3], b[..., :3])
    scalar = a[..., 3:] * b[..., 3:] - (a[..., :3] * b[..., :3]).sum(-1, keepdim=True)
    return torch.cat([vector, scalar], dim=-1)
