# SPDX-License-Identifier: Apache-2.0
"""Friction by load and direction, motors at a voltage, dead bands and motors that are off."""

import math

import msgspec
import pytest
import torch

from neurodyn.core.description.contacts import ConstraintParameters
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.multibody.engine import Engine, EngineConfig
from tests.multibody import machines

F64 = torch.float64
DT, SUBSTEPS = 0.01, 4
STEP = DT / SUBSTEPS
MASS, LENGTH, TILT = 0.8, 0.15, 0.3
INERTIA = 0.01
TORQUE = 9.81 * MASS * LENGTH
LOADED = Drive(
    kind="dc_servo", kp=2.0, kd=0.05, saturation_effort=0.9, supply=0.95, dead_band=0.02, coulomb=0.03, viscous=0.01,
    stribeck=0.04, stribeck_speed=0.4, stribeck_exponent=1.5, load_motor=0.2, load_external=0.15,
    stribeck_load_motor=0.1, stribeck_load_external=0.12, square_load_motor=0.05, square_load_external=0.06,
    delay=0.004, longest_delay=0.01,
)  # fmt: skip


def arm(drive: Drive) -> Mechanism:
    """Return an arm with its mass off the axis, on a base that is rotated about the joint's axis by TILT."""
    turn = (0.0, math.sin(0.5 * TILT), 0.0, math.cos(0.5 * TILT))
    plain = machines.bare_pendulum().links[0]
    link = msgspec.structs.replace(
        plain, joint=machines.joint("arm", "revolute", turn=turn), mass=MASS, com=(0.0, 0.02, -LENGTH),
        inertia=(INERTIA,) * 3 + (0.0,) * 3,
    )  # fmt: skip
    friction = {"arm": ConstraintParameters(solimp=(0.999, 0.999, 0.001, 0.5, 2.0))}
    made = Mechanism(links=(link,), drives={"arm": drive})
    return msgspec.structs.replace(made, constraints=msgspec.structs.replace(made.constraints, joint_friction=friction))


def engine(drive: Drive, *free: str, contact: str | None = None) -> Engine:
    made = arm(drive)
    kind = "target" if drive.kind in ("pd", "dc_servo") else "torque"
    spec = machines.spec(made, ("arm",), DT, kind)
    names = tuple(f"actuator.arm.{name}" for name in free)
    return Engine(made, spec, EngineConfig(substeps=SUBSTEPS, free=names, contact=contact))


def roll(made: Engine, command: float, q: float, qd: float, frames: int = 1, substeps: int = SUBSTEPS):
    """Return positions and velocities at the ends of frames, shape [frames, 2]."""
    start = torch.tensor([[q, qd] + [0.0] * made.memory], dtype=F64)
    control = torch.full((1, frames, 1), command, dtype=F64)
    return made.program.rollout(start, frames=frames, substeps=substeps, control=control)[0, 1:, :2]


def external(q: float) -> float:
    """Return the torque of gravity on the arm [N m]."""
    return -TORQUE * math.sin(q + TILT)


@pytest.mark.parametrize(
    ("numbers", "friction"),
    [
        ({"coulomb": 0.1}, lambda m, e, rest: 0.1),
        ({"coulomb": 0.1, "stribeck": 0.2}, lambda m, e, rest: 0.1 + 0.2 * rest),
        ({"load_motor": 0.2}, lambda m, e, rest: 0.2 * abs(m - e)),
        ({"load_motor": 0.2, "load_external": 0.1}, lambda m, e, rest: abs(0.2 * m - 0.1 * e)),
        ({"stribeck_load_motor": 0.3}, lambda m, e, rest: 0.3 * abs(m - e) * rest),
        ({"square_load_external": 0.5}, lambda m, e, rest: 0.5 * e * e * rest * (m * e < 0 and abs(e) < abs(m))),
        ({"square_load_motor": 0.5}, lambda m, e, rest: 0.5 * m * m * rest * (m * e < 0 and abs(m) < abs(e))),
    ],
)
@pytest.mark.parametrize("contact", [None, "soft"])
@pytest.mark.parametrize("motor", [2.0, 0.4, -0.5])
def test_friction_is_its_law(numbers, friction, contact, motor):
    """At 1 rad/s, where neither smooth nor sticking friction differs from its limit."""
    q, qd, speed, exponent = 0.4, 1.0, 2.0, 1.5
    drive = Drive(**numbers, stribeck_speed=speed, stribeck_exponent=exponent)
    rest = math.exp(-((qd / speed) ** exponent))
    whole = INERTIA + MASS * LENGTH**2
    # The acceleration that a step of MuJoCo's friction comes to is the limit's, as the joint slides.
    expected = motor + external(q) - friction(motor, external(q), rest)
    assert float(roll(engine(drive, contact=contact), motor, q, qd, substeps=1)[0, 1]) == pytest.approx(
        qd + STEP * expected / whole, abs=2e-9
    )


def test_a_loaded_gear_sticks_where_smooth_friction_creeps():
    """A worm gear holds its load at rest, and what it does not hold falls."""
    holds, falls = Drive(load_motor=0.0, load_external=1.2), Drive(load_motor=0.0, load_external=0.8)
    rests = roll(engine(holds, contact="soft"), 0.0, 0.5, 0.0, frames=50)
    assert float((rests[-1, 0] - 0.5).abs()) < 2e-3
    assert float(roll(engine(falls, contact="soft"), 0.0, 0.5, 0.0, frames=50)[-1, 0]) < 0.3
    assert float(roll(engine(holds), 0.0, 0.5, 0.0, frames=50)[-1, 0]) < 0.49


def test_a_servo_at_full_duty_has_its_stall_torque_less_the_back_emf():
    drive = Drive(kind="dc_servo", kp=5.0, kd=0.2, saturation_effort=0.6, gain=2.0, supply=0.5)
    whole = INERTIA + MASS * LENGTH**2

    def acceleration(error: float, qd: float) -> float:
        after = roll(engine(drive), 0.4 + error, 0.4, qd, substeps=1)[0, 1]
        return (float(after) - qd) / STEP * whole - external(0.4)

    assert acceleration(0.03, 1.0) == pytest.approx(0.5 * 10.0 * 0.03 - 0.2, abs=1e-9)
    assert acceleration(1.0, 1.0) == pytest.approx(0.5 * 0.6 - 0.2, abs=1e-9)


@pytest.mark.parametrize(
    "drive",
    [
        Drive(kind="dc_motor", kd=0.2, supply=0.0),
        Drive(kind="dc_servo", kp=3.0, kd=0.2, saturation_effort=1.0, supply=0.0),
        Drive(kind="pd", kp=3.0, kd=0.2, supply=0.0),
    ],
)
def test_a_motor_without_supply_neither_drives_nor_brakes(drive):
    torch.testing.assert_close(
        roll(engine(drive), 1.0, 0.3, 1.0, frames=20), roll(engine(Drive()), 0.0, 0.3, 1.0, frames=20)
    )


def test_a_controller_rests_within_its_dead_band():
    drive = Drive(kind="pd", kp=10.0, kd=0.0, dead_band=0.05)
    for error, felt in ((0.04, 0.0), (-0.05, 0.0), (0.2, 0.15), (-0.2, -0.15)):
        without = Drive(kind="pd", kp=10.0, kd=0.0)
        torch.testing.assert_close(
            roll(engine(drive), 0.1 + error, 0.1, 0.0, substeps=1),
            roll(engine(without), 0.1 + felt, 0.1, 0.0, substeps=1),
        )


@pytest.mark.parametrize("contact", [None, "soft"])
def test_every_number_has_the_derivative_of_finite_differences(contact):
    names = tuple(name for name in LOADED.quantities() if name != "bias")
    made = engine(LOADED, *names, contact=contact)
    values = torch.tensor([LOADED.quantities()[name] for name in names], dtype=F64)
    commands = torch.tensor([0.9, 0.5, 0.5, 0.5, -0.8, 0.1], dtype=F64)[None, :, None]
    first = torch.tensor([[0.3, 1.0]], dtype=F64)

    def end(values, commands, first):
        x = torch.cat([first, torch.zeros(1, made.memory, dtype=F64)], -1)
        path = made.program.rollout(x, frames=6, substeps=SUBSTEPS, control=commands, parameters=values)
        return path[..., :2]

    given = [x.clone().requires_grad_(True) for x in (values, commands, first)]
    assert torch.autograd.gradcheck(end, given, eps=1e-7, atol=1e-4, rtol=1e-3)
    slopes = torch.autograd.grad(end(*given).square().sum(), given[0])[0]
    assert bool((slopes != 0).all()), [n for n, slope in zip(names, slopes, strict=True) if slope == 0]


@pytest.mark.parametrize("contact", [None, "soft"])
def test_behind_a_spring_the_state_is_that_of_the_motor(contact):
    """Motor and link against their equations, integrated in fine steps."""
    stiffness, damping, rotor, bias = 30.0, 0.1, 0.02, 0.05
    drive = Drive(
        kind="servo", kp=20.0, kd=0.5, stiffness=stiffness, elastic_damping=damping, rotor_inertia=rotor,
        feedback="motor", encoder="motor", bias=bias,
    )  # fmt: skip
    made = arm(drive)
    spec = machines.spec(made, ("arm",), DT, "command")
    free = ("stiffness", "elastic_damping", "rotor_inertia", "kd")
    names = tuple(f"actuator.arm.{name}" for name in free)
    one = Engine(made, spec, EngineConfig(substeps=40, free=names, contact=contact))
    start = torch.tensor([[0.2 + bias, 0.0] + [0.0] * one.memory], dtype=F64)
    control = torch.full((1, 40, 1), 0.8 + bias, dtype=F64)
    values = torch.tensor([drive.quantities()[name] for name in free], dtype=F64, requires_grad=True)

    def reading(values):
        return one.program.rollout(start, frames=40, substeps=40, control=control, parameters=values)[0, :, 0]

    fine, whole = 1e-5, INERTIA + MASS * LENGTH**2
    motor = link = 0.2
    spin = speed = 0.0
    for step in range(round(40 * DT / fine)):
        if step % round(DT / fine) == 0:
            assert float(reading(values)[step // round(DT / fine)]) == pytest.approx(motor + bias, abs=4e-3)
        twist = stiffness * (motor - link) + damping * (spin - speed)
        spin += fine * (20.0 * (0.8 - motor) - 0.5 * spin - twist) / rotor
        speed += fine * (twist + external(link)) / whole
        motor, link = motor + fine * spin, link + fine * speed
    assert torch.autograd.gradcheck(reading, [values], eps=1e-6, atol=1e-5, rtol=1e-4)
