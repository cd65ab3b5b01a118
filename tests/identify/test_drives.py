# SPDX-License-Identifier: Apache-2.0
"""Numbers of drives from encoders and commands alone; what a memory begins from; and drives for robots without."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.cli.main import run
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.errors import InputError
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import Noise
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.motors import drive_parameters, with_drives
from neurodyn.multibody.engine import EngineConfig, nominal
from neurodyn.robots import load
from tests.multibody import machines

F64 = torch.float64
TRUTH = {
    "wheel.armature": 0.016, "wheel.damping": 0.09, "wheel.friction": 0.22, "actuator.wheel.delay": 0.0087,
    "actuator.wheel.effort_limit": 6.5, "actuator.wheel.bias": 0.03,
}  # fmt: skip
DRIVE = Drive(kind="pd", kp=40.0, kd=1.0, effort_limit=8.0, longest_delay=0.02)
PAST = 4


def model() -> HybridDynamics:
    link = machines.pendulum().links[0]
    link = msgspec.structs.replace(
        link, joint=machines.joint("wheel", "revolute"), mass=1.0, com=(0.0, 0.0, -0.15), stiffness=0.0, rest=0.0,
        inertia=(0.008, 0.008, 0.0005, 0.0, 0.0, 0.0), armature=0.01, damping=0.05, friction=0.1,
    )  # fmt: skip
    mechanism = msgspec.structs.replace(machines.pendulum(), links=(link,), drives={"wheel": DRIVE})
    spec = machines.spec(mechanism, ("wheel",), 0.005, "target")
    free = select_parameters(nominal(mechanism, None), list(TRUTH), mechanism.bounds())
    return HybridDynamics(spec, mechanism, EngineConfig(substeps=4, context=PAST), free)


@pytest.fixture(scope="module")
def residuals() -> Residuals:
    """Twelve seconds of an encoder of 14 bits, without a sensor of torque or velocity."""
    made, generator = model(), torch.Generator().manual_seed(0)
    values = torch.tensor([TRUTH[spec.name] for spec in made.physical.specs], dtype=F64)
    runs, frames = 6, 400
    time, draw = 0.005 * torch.arange(frames, dtype=F64), torch.rand(runs, 3, 1, generator=generator, dtype=F64)
    steps = 0.4 * torch.sign(torch.sin(5.0 * time + 6.0 * draw[:, 2]))
    target = 0.2 + 0.7 * torch.sin((2.0 + 12.0 * draw[:, 0]) * time + 6.0 * draw[:, 1]) + steps
    with torch.no_grad():
        start = State(target[:, :1], torch.zeros(runs, 1, dtype=F64))
        path = made.simulate(start, target[..., None], values, made.weights)
    count = 2 * np.pi / 2**14
    q = torch.round(path.q / count) * count
    qd = torch.zeros_like(q)
    qd[:, 1:-1] = (q[:, 2:] - q[:, :-2]) / 0.01
    length, parts = 60, []
    for first in range(1, frames - PAST - length, length):
        last = first + PAST + length
        parts.append((q[:, first : last + 1], qd[:, first : last + 1], target[:, first:last, None]))
    whole = [torch.cat(column) for column in zip(*parts, strict=True)]
    windows = Windows(*whole).after(PAST)
    noise = Noise(torch.full((1,), count / 12**0.5, dtype=F64), torch.full((1,), 0.3, dtype=F64))
    return Residuals(made, windows, noise, ResidualOptions(velocities=False))


def test_all_numbers_are_found_from_an_encoder_and_targets(residuals: Residuals):
    solution = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), 40)
    found = dict(zip(residuals.space.names, residuals.values(solution.point.x)[0].tolist(), strict=True))
    assert found["actuator.wheel.delay"] == pytest.approx(TRUTH["actuator.wheel.delay"], abs=2e-4)
    for name, true in TRUTH.items():
        assert found[name] == pytest.approx(true, rel=0.03), name


def test_a_past_that_is_left_out_changes_what_a_delay_explains(residuals: Residuals):
    point = residuals.start(residuals.space.of(torch.tensor([[TRUTH[n] for n in residuals.space.names]], dtype=F64)))
    bare = residuals._with(windows=replace(residuals.windows, past=None))
    assert float(bare.cost(point)) > 1.2 * float(residuals.cost(point))


def test_robots_that_declare_no_drive_get_one():
    arm = load(str(Path(__file__).resolve().parents[2] / "examples" / "own_robot"))
    driven = with_drives(arm, "torque")
    assert set(driven.drives) == {"shoulder", "elbow"}
    assert set(drive_parameters(driven)) >= {"actuator.elbow.delay", "actuator.shoulder.gain", "elbow.friction"}
    with pytest.raises(InputError, match="a drive of kind 'pd' at 'shoulder' needs kp and kd to start from"):
        with_drives(arm, "pd")
    own = load(str(Path(__file__).resolve().parents[2] / "examples" / "own_drive"))
    assert with_drives(own, "pd").drives == own.drives


@pytest.mark.parametrize(
    ("drives", "said"),
    [
        ("{hip: {delay: 0.01}}", "drives: there is no driven joint 'hip'; valid: elbow, shoulder"),
        ("{elbow: {kind: hydraulic}}", "unknown kind of drive 'hydraulic'; valid: affine, dc_motor, dc_servo, muscle"),
        ("{elbow: {delay: -0.01}}", "delay is -0.01; valid: a finite number of at least 0"),
        ("{elbow: {stiffness: 0, rotor_inertia: 0.1}}", "stiffness is 0.0; valid: a finite number above 0"),
    ],
)  # fmt: skip
def test_declared_drives_that_cannot_be_are_one_line(tmp_path, capsys, drives, said):
    folder = Path(__file__).resolve().parents[2] / "examples" / "own_robot"
    (tmp_path / "arm.urdf").write_text((folder / "arm.urdf").read_text())
    (tmp_path / "robot.yaml").write_text((folder / "robot.yaml").read_text() + f"drives: {drives}\n")
    assert run(["robots", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
