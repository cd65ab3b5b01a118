# SPDX-License-Identifier: Apache-2.0
"""The causal filter of a base: beside the truth, after a wrong start, and beside its C code."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from neurodyn.core.errors import InputError
from neurodyn.dynamics.hybrid.declared import declared_hybrid, write_declared_hybrid
from neurodyn.estimate import BaseFilter, filter_base
from neurodyn.estimate.robust import ModelScatter
from neurodyn.estimate.sensed import SensedBatch
from neurodyn.estimate.sensed_logs import _with_north
from neurodyn.interop.c_code.base_filter import base_filter_unit
from neurodyn.interop.formats import export_code
from neurodyn.sim.declaration.declare import declare
from tests.estimate import tripod
from tests.estimate.test_beside_imu import BESIDE, readings
from tests.estimate.test_smoother import errors_of
from tests.estimate.tripod import SETTINGS, declaration, hop, model
from tests.interop.c_programs import Program


def test_a_hopping_robot_is_followed_as_it_hops():
    runs, truths = zip(*(hop(3.0, seed) for seed in range(2)), strict=True)
    for run, truth in zip(filter_base(model(), list(runs), SETTINGS), truths, strict=True):
        landed = {name: x[50:] for name, x in truth.items()}  # nothing tells how high a robot is before it lands
        velocity, height, spin = errors_of(run.after(50), landed)
        assert velocity < 0.15
        assert height < 0.006
        assert spin < 0.06


def test_each_state_follows_from_the_readings_up_to_it():
    run, _ = hop(1.0)
    whole, part = filter_base(model(), run, SETTINGS)[0], filter_base(model(), run.until(30), SETTINGS)[0]
    torch.testing.assert_close(whole.linear[:30], part.linear)


def test_a_lost_filter_finds_back():
    run, truth = hop(3.0)
    base, sensed = BaseFilter(model(), SETTINGS), SensedBatch.of([run])
    state = base.begin(sensed.frame(0))
    for t in range(1, run.frames):
        if t == 20:  # somebody lifts the robot, and it does not notice
            state = replace(state, track=replace(state.track, height=state.track.height + 0.3))
        state = base.step(state, sensed.frame(t))
    assert abs(float(state.track.height[0, 0] - truth["position"][-1, 2])) < 0.01


def test_a_filter_doubts_a_model_that_keeps_being_wrong():
    run, _ = hop(1.5)
    scatter, sensed = BaseFilter(model(), SETTINGS).scatter, SensedBatch.of([run])

    def doubt(share: float) -> float:
        base = BaseFilter(model(), SETTINGS, scatter=replace(scatter, factor=share * scatter.factor))
        state = base.begin(sensed.frame(0))
        for t in range(1, run.frames):
            state = base.step(state, sensed.frame(t))
        return float(state.wrong)

    assert doubt(0.03) > 50.0  # far more sure of the model than it deserves
    assert doubt(1.0) < 3.0


def test_a_filter_with_a_wrong_model_is_better_than_legs_alone(tmp_path: Path):
    """On a floor that is declared hard and rough."""
    wrong = tripod.text().replace('friction=".5" solref=".03 1"', 'friction="3" solref=".004 1"')
    (tmp_path / "tripod.xml").write_text(wrong)
    declare(tmp_path / "tripod.xml", tmp_path / "robot", dt=tripod.DT)
    declared = declared_hybrid(tmp_path / "robot")
    runs, truths = zip(*(hop(3.0, seed) for seed in range(2)), strict=True)
    never = ModelScatter(1e3 * BaseFilter(declared, SETTINGS).scatter.factor, 1.0)

    def off(scatter: ModelScatter | None) -> float:
        estimate = filter_base(declared, list(runs), SETTINGS, scatter=scatter)
        errors = [
            errors_of(run.after(50), {name: x[50:] for name, x in truth.items()})[0]
            for run, truth in zip(estimate, truths, strict=True)
        ]
        return sum(errors) / len(errors)

    assert off(None) < 0.85 * off(never)


@pytest.mark.parametrize("attitude", [True, False])
def test_the_filter_in_c_is_the_filter(tmp_path: Path, attitude: bool):
    run, _ = hop(1.0)
    if not attitude:
        run = replace(run, attitude=None)
    base = BaseFilter(model(), SETTINGS)
    wanted = filter_base(model(), run, SETTINGS)[0]
    read = torch.zeros(run.frames, 4) if run.attitude is None else run.attitude
    ended = torch.cat([run.control[:1], run.control[:-1]])  # the control of the frame that ended
    given = (run.q, run.qd, run.angular_velocity, run.specific_force, read, ended)
    program = Program(base_filter_unit(base), tmp_path, "estimate")
    quaternion, linear, spin, height, deviation = (
        torch.from_numpy(x.copy()) for x in program(*map(torch.Tensor.numpy, given))
    )
    close = {"atol": 1e-8, "rtol": 1e-8}  # iterations of contacts stop at a tolerance
    torch.testing.assert_close(quaternion, wanted.quaternion, **close)
    torch.testing.assert_close(linear, wanted.linear, **close)
    torch.testing.assert_close(spin, wanted.angular, **close)
    torch.testing.assert_close(height, wanted.position[:, 2:], **close)
    torch.testing.assert_close(deviation[:, 3], wanted.deviation("height"), **close)


def test_odometry_and_magnetometer_are_those_of_the_filter_in_c(tmp_path: Path):
    """Off the IMU and turned, with rows that have no reading."""
    run, truth = hop(0.5)
    beside = {name: BESIDE[name] for name in ("compass", "way")}
    read = {name: x[:, :3].clone() for name, x in readings(run, truth).items()}
    read["way"][5:8], read["compass"][9:12] = torch.nan, 0.0
    known = torch.where(read["compass"].any(1, keepdim=True), read["compass"], torch.nan)
    settings = msgspec.structs.replace(SETTINGS, beside=beside)
    base = BaseFilter(model(), settings)
    level = base.begin(SensedBatch.of([run]).frame(0)).track.quaternion[0, 0]
    sensed = replace(run, beside={"way": read["way"], "compass": _with_north(known, level, beside["compass"].sensor)})
    wanted = filter_base(model(), sensed, settings)[0]
    assert run.attitude is not None
    ended = torch.cat([run.control[:1], run.control[:-1]])
    given = (run.q, run.qd, run.angular_velocity, run.specific_force, run.attitude, ended, read["compass"], read["way"])
    program = Program(base_filter_unit(base), tmp_path, "estimate")
    quaternion, linear, *_ = (torch.from_numpy(x.copy()) for x in program(*map(torch.Tensor.numpy, given)))
    torch.testing.assert_close(quaternion, wanted.quaternion, atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(linear, wanted.linear, atol=1e-8, rtol=1e-8)
    plain = filter_base(model(), run, SETTINGS)[0]
    assert float((plain.linear - wanted.linear).norm(dim=1).mean()) > 1e-3
    feet = msgspec.structs.replace(SETTINGS, beside={"feet": BESIDE["feet"]})
    with pytest.raises(InputError, match="takes no foot_switch; valid: odometry, magnetometer"):
        base_filter_unit(BaseFilter(model(), feet))


def test_a_filter_in_c_needs_a_compiled_model():
    with pytest.raises(InputError, match="floating base"):
        BaseFilter(declared_hybrid("cartpole"))


def test_a_filter_is_exported_as_files(tmp_path: Path):
    write_declared_hybrid(tmp_path / "run", declaration())
    folder = export_code(str(tmp_path / "run"), "c-base-filter")
    assert "void run_estimate(run_state *state" in (folder / "run.h").read_text()
