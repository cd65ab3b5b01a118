# SPDX-License-Identifier: Apache-2.0
"""Velocity tracking: the reward by hand, commands and pushes in their turn, and what counts as a fall."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy.worlds.disturbances import Disturbances
from neurodyn.tasks import Memory, load
from neurodyn.tasks.anymal import AnymalVelocity
from neurodyn.tasks.velocity import COMMAND_FRAMES, PUSH, PUSH_FRAMES
from tests.tasks.quantities import rates, standing, walking_memory

_NAMES = ("LF_FOOT", "RF_FOOT", "LH_FOOT", "RH_FOOT", "LF_KNEE", "RF_KNEE", "LH_KNEE", "RH_KNEE", "BASE")


def _quantities(worlds: int = 1, **given: Tensor) -> Quantities:
    return standing(AnymalVelocity(), _NAMES, worlds, **given)


def _memory(command: tuple[float, float, float] = (0.0, 0.0, 0.0), worlds: int = 1) -> Memory:
    return walking_memory(AnymalVelocity(), command, worlds)


def test_standing_as_asked_is_worth_the_tracking_rewards() -> None:
    terms = rates(AnymalVelocity(), _quantities(), _memory(), torch.zeros(1, 12))
    assert terms.pop("track_velocity") == pytest.approx(1.0)
    assert terms.pop("track_turning") == pytest.approx(0.5)
    assert all(term == 0.0 for term in terms.values())


def test_terms_by_hand() -> None:
    task = AnymalVelocity()
    nominal = torch.tensor(task.declaration().nominal_q())
    contact = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0]])
    quantities = _quantities(
        base_linear_velocity=torch.tensor([[0.5, 0.25, 0.1]]),
        base_angular_velocity=torch.tensor([[1.0, 2.0, 0.3]]),
        projected_gravity=torch.tensor([[0.6, 0.0, -0.8]]),
        joint_position=nominal[None] + 0.1,
        joint_velocity=torch.full((1, 12), 0.2),
        joint_torque=torch.full((1, 12), 10.0),
        contact=contact,
    )
    air_time = torch.tensor([[0.68, 0.3, 0.0, 0.0]])
    memory = replace(_memory((1.0, 0.0, -0.2)), air_time=air_time)
    terms = rates(task, quantities, memory, torch.full((1, 12), 0.5))
    assert terms["track_velocity"] == pytest.approx(math.exp(-(0.5**2 + 0.25**2) / 0.25), rel=1e-5)
    assert terms["track_turning"] == pytest.approx(0.5 * math.exp(-(0.5**2) / 0.25), rel=1e-5)
    assert terms["vertical_velocity"] == pytest.approx(-2.0 * 0.01, rel=1e-5)
    assert terms["roll_and_pitch"] == pytest.approx(-0.05 * 5.0, rel=1e-5)
    assert terms["torque"] == pytest.approx(-2.5e-5 * 1200.0, rel=1e-5)
    assert terms["acceleration"] == pytest.approx(-2.5e-7 * 12 * (0.2 / 0.02) ** 2, rel=1e-5)
    assert terms["action_change"] == pytest.approx(-0.01 * 12 * 0.25, rel=1e-5)
    assert terms["air_time"] == pytest.approx(0.5 * (0.7 - 0.5), rel=1e-4)  # of the one foot that has landed
    assert terms["knee_contact"] == pytest.approx(-2.0)
    assert terms["stand_still"] == 0.0  # it is asked to move
    assert terms["tilt"] == pytest.approx(-5.0 * 0.36, rel=1e-5)
    assert rates(task, quantities, _memory(), torch.zeros(1, 12))["stand_still"] == pytest.approx(-1.2, rel=1e-4)


def test_time_in_the_air_counts_until_a_foot_lands() -> None:
    task, generator = AnymalVelocity(), torch.Generator().manual_seed(0)
    up = torch.zeros(1, 9)
    up[:, 1:4] = 1.0
    memory = _memory()
    for _ in range(3):
        memory = task.advance(memory, _quantities(contact=up), torch.zeros(1, 12), generator)
    assert memory.air_time[0].tolist() == pytest.approx([0.06, 0.0, 0.0, 0.0])
    memory = task.advance(memory, _quantities(), torch.zeros(1, 12), generator)
    assert memory.air_time.sum().item() == 0.0


def test_commands_and_pushes_come_in_their_turn() -> None:
    task, generator = AnymalVelocity(), torch.Generator().manual_seed(0)
    quantities = _quantities(64)
    memory = task.begin(quantities, generator)
    asked, changed, pushed = memory.command[:, :3], [], []
    spec = task.declaration().spec
    pushes = Disturbances((), task, SimpleNamespace(spec=msgspec.structs.replace(spec, dt=task.dt), device="cpu"))
    at = pushes.begin(task.observe(quantities, memory), memory.action, None, generator)
    for frame in range(1, 400):
        memory = task.advance(memory, quantities, torch.zeros(64, 12), generator)
        if bool((memory.command[0, :3] != asked[0]).any()):
            changed.append(frame)
            asked = memory.command[:, :3]
        at, change = pushes.push(at, None, generator)
        assert change.abs().max() <= PUSH
        assert change[:, 2].abs().max() == 0.0
        if bool(change[0].any()):
            pushed.append(frame)
    spaces = [b - a for a, b in pairwise([0, *changed])]
    assert len(spaces) >= 3
    assert all(COMMAND_FRAMES[0] <= space <= COMMAND_FRAMES[1] for space in spaces)
    spaces = [b - a for a, b in pairwise(pushed)]
    assert len(spaces) >= 3
    assert all(PUSH_FRAMES[0] <= space <= PUSH_FRAMES[1] + 1 for space in spaces)


def test_commands_fill_their_range_and_some_ask_to_stand() -> None:
    commands = AnymalVelocity().commands(4000, torch.Generator().manual_seed(0))[:, :3]
    assert commands.abs().max() <= 1.0
    assert commands.std(0).tolist() == pytest.approx([3**-0.5] * 3, rel=0.05)
    assert 0.01 < float((commands == 0.0).all(-1).float().mean()) < 0.03


def test_a_robot_that_lies_has_fallen() -> None:
    task = AnymalVelocity()
    gravity = torch.tensor([[0.0, 0.0, -1.0], [0.9, 0.0, -0.4], [0.0, 0.0, -1.0]])
    contact = torch.zeros(3, 9)
    contact[2, 8] = 1.0
    memory = _memory(worlds=3)
    assert task.terminated(_quantities(3, projected_gravity=gravity, contact=contact), memory).tolist() == [0, 1, 1]
    bare = _quantities(3, projected_gravity=gravity)
    bare.contact_names = _NAMES[:8]  # what a log knows
    assert task.terminated(bare, memory).tolist() == [False, True, False]


def test_observations_have_their_names_and_noise() -> None:
    task = load("anymal-velocity")
    assert len(task.observations) == len(task.noise) == 48
    memory = replace(_memory((0.1, 0.2, 0.3)), action=torch.full((1, 12), 0.7))
    seen = dict(zip(task.observations, task.observe(_quantities(), memory)[0].tolist(), strict=True))
    assert seen["command.vy"] == pytest.approx(0.2)
    assert seen["projected_gravity.z"] == -1.0
    assert seen["joint_position.LF_KFE"] == 0.0
    assert seen["last_action.RH_KFE"] == pytest.approx(0.7)


def test_dynamics_without_a_foot_are_refused_by_name() -> None:
    quantities = _quantities()
    quantities.contact_names = _NAMES[1:]
    with pytest.raises(InputError, match="does not offer the contact of 'LF_FOOT'"):
        load("anymal-velocity").require(quantities)
