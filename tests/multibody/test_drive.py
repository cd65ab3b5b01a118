# SPDX-License-Identifier: Apache-2.0
"""Drives: each stage against its equation, in a step and its derivatives, and what cannot be."""

import math

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.description.drive import DRIVE_KINDS, DRIVE_NUMBERS, Drive
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.multibody.engine import Engine, EngineConfig
from tests.multibody import machines

F64 = torch.float64
DT, SUBSTEPS = 0.01, 4
STEP = DT / SUBSTEPS
INERTIA = 0.02
WHOLE = Drive(
    kind="pd", kp=30.0, kd=0.6, delay=0.013, longest_delay=0.03, gain=0.9, effort_limit=8.0, saturation_effort=9.0,
    velocity_limit=20.0, lag=0.004, coulomb=0.1, viscous=0.02, stribeck=0.2, stribeck_speed=0.3, stiffness=60.0,
    elastic_damping=0.2, rotor_inertia=0.01, backlash=0.02, feedback="motor", bias=0.05, stribeck_exponent=1.4,
    load_motor=0.1, load_external=0.05, stribeck_load_motor=0.04, stribeck_load_external=0.03, square_load_motor=0.02,
    square_load_external=0.01, dead_band=0.01, supply=1.0,
)  # fmt: skip
"""Every stage at once."""


def wheel(**passive: float) -> Link:
    joint = machines.joint("wheel", "revolute")
    return Link(joint=joint, mass=1.0, com=(0.0, 0.0, 0.0), inertia=(INERTIA,) * 3 + (0.0,) * 3, **passive)


def mechanism(drive: Drive) -> Mechanism:
    """A wheel without gravity, whose acceleration is torque / INERTIA."""
    link = Link(
        joint=machines.joint("wheel", "revolute"), mass=1.0, com=(0.0, 0.0, 0.0), inertia=(INERTIA,) * 3 + (0.0,) * 3
    )
    return Mechanism(links=(link,), gravity=(0.0, 0.0, 0.0), drives={"wheel": drive})


def spec(drive: Drive) -> StateSpec:
    return machines.spec(mechanism(drive), ("wheel",), DT, DRIVE_KINDS[drive.kind].command)


def engine(drive: Drive, *free: str) -> Engine:
    names = tuple(f"actuator.wheel.{name}" for name in free)
    return Engine(mechanism(drive), spec(drive), EngineConfig(substeps=SUBSTEPS, free=names))


def roll(made: Engine, commands, q=0.0, qd=0.0, parameters=None):
    """Return positions and velocities, each as a list."""
    start = torch.tensor([[q, qd] + [0.0] * made.memory], dtype=F64)
    control = torch.tensor(commands, dtype=F64)[None, :, None]
    path = made.program.rollout(
        start, frames=control.shape[1], substeps=SUBSTEPS, control=control, parameters=parameters
    )[0]
    return path[:, 0].numpy(), path[:, 1].numpy()


def impulse(torques):
    """Return the velocity of the wheel after frames of these mean torques."""
    return np.cumsum(np.asarray(torques) * DT / INERTIA)


def test_a_drive_without_numbers_is_none():
    _, qd = roll(engine(Drive()), [1.0, -0.5, 0.25])
    np.testing.assert_allclose(qd[1:], impulse([1.0, -0.5, 0.25]), rtol=1e-12)


@pytest.mark.parametrize("delay", [0.0, 0.0013, 0.01, 0.0175, 0.02])
def test_a_delay_shifts_the_command_by_so_much(delay):
    commands = np.array([0.0, 1.0, 0.0, -2.0, 0.5, 0.5, 0.5])
    _, qd = roll(engine(Drive(delay=delay, longest_delay=0.02)), commands)
    # The impulse up to t is that of the command up to t - delay - half a step.
    ends = np.arange(1, len(commands) + 1) * DT - delay - 0.5 * STEP
    whole = np.interp(ends, np.arange(len(commands) + 1) * DT, np.concatenate(([0.0], np.cumsum(commands) * DT)))
    np.testing.assert_allclose(qd[1:], whole / INERTIA, atol=1e-12)


def test_a_command_is_taken_to_have_been_there_before_the_start():
    _, qd = roll(engine(Drive(delay=0.02)), [1.0, 1.0])
    np.testing.assert_allclose(qd[1:], impulse([1.0, 1.0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("drive", "qd", "torque"),
    [
        (Drive(gain=2.0), 0.0, 6.0),
        (Drive(effort_limit=2.5), 0.0, 2.5),
        (Drive(saturation_effort=4.0, velocity_limit=10.0), 5.0, 2.0),
        (Drive(saturation_effort=4.0, velocity_limit=10.0, effort_limit=1.5), 5.0, 1.5),
        (Drive(saturation_effort=4.0, velocity_limit=10.0, effort_limit=3.0), 40.0, -3.0),
        (Drive(coulomb=0.5, viscous=0.1), 4.0, 3.0 - 0.5 - 0.4),
        (Drive(stribeck=0.5, stribeck_speed=2.0), 2.0, 3.0 - 0.5 * math.exp(-1.0)),
        (Drive(kind="pd", kp=10.0, kd=0.5), 2.0, 10.0 * 3.0 - 1.0),
        (Drive(kind="pd", kp=10.0, kd=0.0, bias=0.5), 0.0, 30.0),
    ],
)
def test_a_stage_is_its_equation(drive, qd, torque):
    made = engine(drive)
    state = torch.tensor([[0.0, qd] + [0.0] * made.memory], dtype=F64)
    control = torch.full((1, 1, 1), 3.0, dtype=F64)
    after = made.program.rollout(state, frames=1, substeps=1, control=control)[0, -1]
    assert float(after[1]) == pytest.approx(qd + STEP * torque / INERTIA, abs=1e-9)


def test_a_lag_is_of_first_order():
    lag = 0.03
    _, qd = roll(engine(Drive(lag=lag)), [0.0, *[1.0] * 30])
    time = np.arange(30 * SUBSTEPS) * STEP + STEP
    torque = (1.0 - np.exp(-time / lag)).reshape(30, SUBSTEPS).mean(1)
    np.testing.assert_allclose(qd[2:], impulse(torque), rtol=1e-7)


def test_a_servo_lags_behind_its_command_and_not_behind_its_own_motion():
    lag, drive = 0.03, Drive(kind="servo", kp=2.0, kd=5.0)
    _, slow = roll(engine(msgspec.structs.replace(drive, lag=lag)), [0.0, *[1.0] * 10])
    time, qd, q = np.arange(10 * SUBSTEPS) * STEP + STEP, 0.0, 0.0
    velocities = []
    for command in 1.0 - np.exp(-time / lag):  # kp and kd are implicit in the velocity, as without lag
        qd = (INERTIA * qd + STEP * drive.kp * (command - q)) / (INERTIA + STEP * drive.kd)
        q += STEP * qd
        velocities.append(qd)
    np.testing.assert_allclose(slow[2:], velocities[SUBSTEPS - 1 :: SUBSTEPS], rtol=1e-6)


def test_a_spring_has_the_frequency_of_two_inertias_and_keeps_momentum():
    stiffness, rotor = 20.0, 0.01
    made = engine(Drive(stiffness=stiffness, rotor_inertia=rotor))
    state = torch.tensor([[0.3, 0.0] + [0.0] * made.memory], dtype=F64)
    # The first step takes the motor to be where the joint is; a push then winds the spring up.
    control = torch.zeros(1, 400, 1, dtype=F64)
    control[:, 0] = 5.0
    path = made.program.rollout(state, frames=400, substeps=SUBSTEPS, control=control)[0]
    mean = 5.0 * DT / (INERTIA + rotor)  # velocity of the centre
    relative = path[2:, 1] - mean
    crossings = (relative[1:] * relative[:-1] < 0).sum()
    omega = math.sqrt(stiffness * (1 / INERTIA + 1 / rotor))
    assert float(path[2:, 1].mean()) == pytest.approx(mean, rel=0.02)
    assert int(crossings) == pytest.approx(398 * DT * omega / math.pi, abs=3)


def test_a_dead_zone_lets_the_motor_move_alone():
    made = engine(Drive(stiffness=500.0, rotor_inertia=0.01, backlash=0.2))
    _, qd = roll(made, [0.2] * 20)
    travel = 0.5 * (0.2 / 0.01) * (np.arange(1, 21) * DT) ** 2
    alone = travel < 0.1
    assert not qd[1:][alone].any()
    assert qd[-1] > 0.05


def test_with_a_bias_states_are_readings():
    """A spring of the joint sees the true angle, the drive what its encoder reads."""
    plain, biased = (
        msgspec.structs.replace(
            mechanism(Drive(kind="pd", kp=5.0, kd=0.1, bias=bias)), links=(wheel(stiffness=3.0, rest=0.1),)
        )
        for bias in (0.0, 0.1)
    )
    state = spec(Drive(kind="pd", kp=1.0, kd=0.0))
    control = torch.full((1, 20, 1), 0.4, dtype=F64)
    roll_of = [
        Engine(m, state, EngineConfig(substeps=4)).program.rollout(x, frames=20, substeps=4, control=control + shift)
        for m, x, shift in (
            (plain, torch.tensor([[0.2, 0.0]], dtype=F64), 0.0),
            (biased, torch.tensor([[0.3, 0.0]], dtype=F64), 0.1),
        )
    ]
    torch.testing.assert_close(roll_of[0][..., 0] + 0.1, roll_of[1][..., 0])


def test_every_number_and_the_command_have_the_derivative_of_finite_differences():
    names = tuple(WHOLE.quantities())
    assert set(names) == set(DRIVE_NUMBERS) - {
        "per_command",
        "offset",
        "per_position",
        "per_velocity",
    }  # of an affine law
    made = engine(WHOLE, *names)
    generator = torch.Generator().manual_seed(3)
    commands = 0.6 * torch.randn(2, 9, 1, generator=generator, dtype=F64)
    values = torch.tensor(list(WHOLE.quantities().values()), dtype=F64)
    start = torch.zeros(2, 2 + made.memory, dtype=F64)
    start[:, :2] = torch.tensor([[0.1, 0.5], [-0.2, 1.0]], dtype=F64)

    def end(values, commands, first):
        x = torch.cat([first, start[:, 2:]], -1)
        path = made.program.rollout(x, frames=9, substeps=SUBSTEPS, control=commands, parameters=values)
        return path[..., :2]

    given = [x.clone().requires_grad_(True) for x in (values, commands, start[:, :2])]
    assert torch.autograd.gradcheck(end, given, eps=1e-7, atol=1e-4, rtol=1e-3)
    slopes = torch.autograd.grad(end(*given).square().sum(), given[0])[0]
    # Without gravity, and with the law on the motor's side, only what the joint's readings are relative to moves.
    # Without gravity, nothing but the motor loads the gear; a supply above 0 matters to none but dc motors.
    none = ["load_external", "stribeck_load_external", "square_load_motor", "square_load_external", "supply", "bias"]
    assert [name for name, slope in zip(names, slopes, strict=True) if slope == 0] == none


def test_a_drive_takes_the_commands_of_its_spec():
    drive = Drive(kind="pd", kp=1.0, kd=0.1)
    state = msgspec.structs.replace(spec(drive), control_kind="torque")
    with pytest.raises(InputError, match="controls are torques and its drives take targets"):
        Engine(mechanism(drive), state, EngineConfig())
