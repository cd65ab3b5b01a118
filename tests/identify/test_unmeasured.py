# SPDX-License-Identifier: Apache-2.0
"""Fits to logs whose base nobody tracks: means over frames, unknown starts, errors of sensors, an adaptation."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest
import torch

from neurodyn.core.artifacts import write_json
from neurodyn.core.config import to_yaml
from neurodyn.core.description.parameter import student_t
from neurodyn.core.description.sensors import Sensor, Stream
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split, StoreHeader, episode_table
from neurodyn.data.store import Store
from neurodyn.data.windows import Blocks
from neurodyn.dynamics.artifact import load as load_model
from neurodyn.dynamics.batch import State, Trajectory
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.readings import MountedSensor, SensorModel, mean_force
from neurodyn.dynamics.rollout_errors import RolloutErrors, judge
from neurodyn.estimate import ERRORS, BaseEstimate, EstimatedRun
from neurodyn.identify import adapt, identify
from neurodyn.identify.base_states import (
    FREE,
    BaseEstimates,
    EstimateDoubt,
    sensors_on_base,
    split_mounting,
    with_base,
    with_one_mass,
)
from neurodyn.identify.fit.intervals import identifiability, moves_of_starts, unexplained
from neurodyn.identify.fit.least_squares import levenberg_marquardt
from neurodyn.identify.fit.readings import ComparedReadings, Noise
from neurodyn.identify.fit.residuals import ResidualOptions, Residuals
from neurodyn.identify.fit.window_starts import probe_coordinates, search_starts, settle_starts
from neurodyn.identify.ladder.forecasts import forecasts_of
from neurodyn.identify.ladder.initial_states import start_of
from neurodyn.identify.ladder.motion_likeness import motion_likeness
from neurodyn.identify.ladder.rungs import held_out_windows, noise_errors
from neurodyn.identify.ladder.sensed_errors import SensedErrors
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.result import CONFIDENCE, IdentificationFigures, MotionLikeness
from neurodyn.identify.run import at_rate_of, next_motion
from neurodyn.identify.settings import AdaptationRecord, AdaptationSettings, FitStage
from neurodyn.identify.stages.fit_judge import has_effect
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.stages.staged_fit import _shortened
from neurodyn.identify.stages.structure_choice import with_likely_steps
from neurodyn.identify.unknowns.search_space import FixedSpace
from neurodyn.robots import load
from neurodyn.sim.declaration.declare import declare
from tests.estimate import tripod
from tests.identify import sensed
from tests.identify.test_measured import IMU, flights
from tests.multibody import machines

F64 = torch.float64
MEANS = Stream(name="imu", kind="imu", averaged=("specific_force",))
ATTITUDE = Stream(name="attitude", kind="orientation")
MOTORS = Stream(name="motors", kind="joint_torque", joints=("leg0", "leg1", "leg2"))
SENSORS = {"imu": IMU, "attitude": Sensor(kind="orientation", link="base")}


def flown(worlds=6, frames=12, noise=0.0, mass=2.4):
    """Windows of a hopper in flight, whose knee drives an off-centre, turned IMU: joints, attitude, gyroscope and means
    of specific force; and the path."""
    machine, (state, control) = machines.hopper(), flights(worlds, frames)
    truth = {"base.mass": mass}
    windows = sensed.log(machine, truth, {"imu": IMU, "attitude": SENSORS["attitude"]}, state, control,
                         controls=("knee",))  # fmt: skip
    fine = sensed.model(machine, [f"base.mass={mass}"], ("knee",), fine=True)
    steps = control.repeat_interleave(sensed.PER_FRAME, 1)
    with torch.no_grad():
        path = fine.rollout(state, steps)
        mounted = [MountedSensor("imu", IMU, Stream(name="imu", kind="imu"))]
        states = State(path.q[:, :-1].flatten(0, 1), path.qd[:, :-1].flatten(0, 1))
        seen = SensorModel(fine, mounted)(
            states, steps.flatten(0, 1), fine.physical().expand(len(states.q), -1), torch.zeros(len(states.q), 0),
            fine.weights,
        )  # fmt: skip
    means = seen.view(worlds, frames, sensed.PER_FRAME, 6)[..., 3:].mean(2)
    readings = windows.readings.clone()
    readings[:, :-1, 3:6] = means
    generator = torch.Generator().manual_seed(3)
    readings += noise * torch.randn(readings.shape, generator=generator, dtype=F64)
    return replace(windows, readings=readings), means


def test_means_of_specific_force_are_those_of_an_accelerometer_between_frames():
    """Of a turned unit away from an off-centre mass, on a turning base."""
    windows, means = flown()
    dynamics = sensed.model(machines.hopper(), ["base.mass=2.4"], ("knee",))
    model = SensorModel(dynamics, [MountedSensor("imu", IMU, MEANS)])
    worlds, states = windows.q.shape[:2]
    values = dynamics.physical().detach().expand(worlds * states, -1)
    seen = model(
        State(windows.q.flatten(0, 1), windows.qd.flatten(0, 1)), torch.zeros(worlds * states, 1, dtype=F64), values,
        values[:, :0], dynamics.weights.detach(),
    ).view(worlds, states, -1)  # fmt: skip
    found = mean_force(seen[..., 3:], model.gravity(), dynamics.spec.dt, "sensor")
    assert found.shape == means.shape
    torch.testing.assert_close(found, means, rtol=0.01, atol=0.01)
    assert float(means.std()) > 0.4


def unmeasured(windows, free=("base.mass",), spread=0.05, off=0.0, **options):
    """Residuals of windows whose base is only estimated, wrong by `off` deviations."""
    dynamics = sensed.model(machines.hopper(), free, ("knee",))
    generator = torch.Generator().manual_seed(11)
    root = spread * torch.eye(12, dtype=F64)[:, [3, 4, 6, 7, 8, 2, 9, 10, 11]]
    drawn = torch.randn(windows.count, root.shape[1], generator=generator, dtype=F64)
    shift = off * drawn @ root.T
    q, qd = windows.q.clone(), windows.qd.clone()
    q[:, 0, :3] += shift[:, :3]
    turn = torch.cat([0.5 * shift[:, 3:6], torch.ones(len(shift), 1, dtype=F64)], 1)
    x, y, z, w = q[:, 0, 3:7].unbind(-1)
    a, b, c, d = turn.unbind(-1)
    turned = torch.stack(
        [d * x + a * w + b * z - c * y, d * y - a * z + b * w + c * x, d * z + a * y - b * x + c * w,
         d * w - a * x - b * y - c * z], -1)  # fmt: skip
    q[:, 0, 3:7] = turned / turned.norm(dim=-1, keepdim=True)
    qd[:, 0, :6] += shift[:, 6:]
    windows = replace(windows, q=q, qd=qd, spread=root.expand(*windows.q.shape[:2], *root.shape))
    measured = ComparedReadings.of(dynamics, SENSORS, (MEANS, ATTITUDE), windows)
    nv = dynamics.spec.nv
    noise = Noise(torch.full((nv,), 1e-3, dtype=F64), torch.full((nv,), 1e-2, dtype=F64))
    given = ResidualOptions(base=False, initial=False, huber=None, **options)
    scale = torch.cat([noise.joined, torch.full((9,), 0.02, dtype=F64)])
    return Residuals(dynamics, windows, noise, given, measured=measured, scale=scale)


def test_gradients_by_quantities_and_starts_against_differences():
    residuals = unmeasured(flown(worlds=2, frames=6, noise=0.01)[0])
    assert residuals.initials == 9
    x = residuals.space.nominal[None] * 1.05
    point = residuals.start(x)
    point = replace(point, initial=0.3 * torch.randn(point.initial.shape, generator=torch.Generator().manual_seed(1),
                                                     dtype=F64))  # fmt: skip
    _, gradient = residuals.gradients(point)
    for window in range(2):
        for k in range(9):
            step = torch.zeros_like(point.initial)
            step[0, window, k] = 1e-6
            ahead, behind = (residuals.cost(replace(point, initial=point.initial + s * step)) for s in (1, -1))
            wanted = float(ahead - behind) / 2e-6
            assert float(gradient.initial[0, window, k]) == pytest.approx(wanted, rel=2e-4, abs=2e-3)
    normal = residuals.normal(point)
    torch.testing.assert_close(normal.gradient[0, :, 1:], gradient.initial[0], rtol=1e-4, atol=1e-2)


def test_unknown_starts_are_found_with_the_mass():
    """A base of 2.4 kg, declared as 2, from windows that begin .05 rad, m/s and rad/s off."""
    windows, _ = flown(worlds=24, frames=12, noise=0.005)
    errors = {}
    for name, free in (("free", True), ("held", False)):
        residuals = unmeasured(windows, ["base.mass=2"], off=1.0)
        if not free:
            residuals = residuals.with_windows(
                replace(residuals.windows, spread=1e-6 * residuals.windows.spread), residuals.measured
            )
        start = residuals.start(residuals.space.nominal[None])
        solution = levenberg_marquardt(residuals, start, 20)
        errors[name] = abs(float(residuals.values(solution.point.x)[0, 0]) - 2.4)
    assert errors["free"] < 0.03
    assert errors["held"] > 2.0 * errors["free"]


def test_a_given_noise_is_the_least_scale_of_readings():
    residuals = unmeasured(flown(worlds=4, frames=10, noise=0.01)[0], ["base.mass=2"])
    measured = residuals.measured
    assert measured is not None
    errors = residuals.errors(residuals.start(residuals.space.nominal[None]))[0][..., -len(measured.channels) :]
    free = replace(measured, given=torch.zeros_like(measured.given)).robust(errors)
    small, large = (
        replace(measured, given=torch.ones_like(measured.given), noise=torch.full_like(free, size)).robust(errors)
        for size in (1e-4, 9.0)
    )
    torch.testing.assert_close(small, free)
    torch.testing.assert_close(large, torch.full_like(free, 9.0))


def test_a_robot_takes_the_frames_of_a_log_that_a_task_recorded(hopped, tmp_path):
    robot, store = load(hopped[0]), hopped[1]
    store.write(tmp_path / "log.h5")
    assert at_rate_of(robot, tmp_path / "log.h5") == robot
    faster = msgspec.structs.replace(robot, dt=0.5 * robot.dt)
    slowed = at_rate_of(faster, tmp_path / "log.h5")
    assert slowed.dt == robot.dt
    assert slowed.simulator.substeps == 2 * robot.simulator.substeps
    assert not slowed.spec.differences(store.header.spec)
    other = msgspec.structs.replace(robot, dt=0.7 * robot.dt)
    assert at_rate_of(other, tmp_path / "log.h5") == other


def test_no_motion_is_designed_for_an_unmeasured_base(hopped, tmp_path):
    """Of a run in the frames of its log, which are longer than the declared ones."""
    robot, store = hopped
    spec = msgspec.structs.replace(store.header.spec, dt=2.0 * store.header.spec.dt)
    replace(store, header=msgspec.structs.replace(store.header, spec=spec)).write(tmp_path / "log.h5")
    data = str(tmp_path / "log.h5")
    record = AdaptationRecord(kind="hybrid", robot=str(robot), data=data, settings=AdaptationSettings(), versions={})
    (tmp_path / "config.yaml").write_text(to_yaml(record))
    write_json(tmp_path / "adaptation.json", IdentificationFigures(robot="tripod", parameters=[]).plain())
    with pytest.raises(InputError, match="states are measured, and the base of its log is unmeasured"):
        next_motion(tmp_path)


def test_a_torque_is_a_joints_whatever_its_motor_is_called():
    dynamics = tripod.model()
    motors = SensorModel(dynamics, [MountedSensor("motors", Sensor(kind="joint_torque"), MOTORS)])
    q, qd = torch.zeros(1, 10, dtype=F64), torch.zeros(1, 9, dtype=F64)
    q[:, 2], q[:, 6], q[:, 8], qd[:, 8] = 1.0, 1.0, 0.1, 0.5
    command = torch.tensor([[0.2, 0.2, -0.1]], dtype=F64)
    values = dynamics.physical().detach()[None]
    seen = motors(State(q, qd), command, values, values[:, :0], dynamics.weights.detach())
    torch.testing.assert_close(seen, torch.tensor([[6.0, 3.0, -3.5]], dtype=F64))


def test_only_sensors_and_joints_tell_of_an_unmeasured_base():
    residuals = unmeasured(flown(worlds=2, frames=6)[0])
    point = residuals.start(residuals.space.nominal[None])
    moved = replace(residuals.windows, q=residuals.windows.q.clone())
    moved.q[:, 1:, :7] = 7.0  # rows of the base after the start are not compared
    torch.testing.assert_close(
        residuals.cost(point), residuals.with_windows(moved, residuals.measured).cost(point), rtol=1e-12, atol=0.0
    )


def test_errors_of_roll_outs_are_those_of_sensors():
    residuals = unmeasured(flown(worlds=4, frames=10)[0], ["base.mass=2.4"])
    windows, dynamics = residuals.windows, residuals.dynamics
    truth = Trajectory(windows.q, windows.qd)
    right = SensedErrors(dynamics.spec, truth, truth, measured=residuals.measured, dynamics=dynamics)
    still = right.baseline("hold_last")
    assert isinstance(still, SensedErrors)
    groups = right.by_group([3, 9])
    assert list(groups) == [
        "joints [rad or m]", "imu.angular_velocity [rad/s]", "imu.specific_force [m/s^2]", "attitude.quaternion [rad]"
    ]  # fmt: skip
    assert groups["attitude.quaternion [rad]"][1] < 1e-5
    assert still.by_group([3, 9])["attitude.quaternion [rad]"][1] > 0.02
    assert right.judged.shape == (4, 10, 1 + 9)
    part = still.rows(torch.tensor([2, 3]))
    torch.testing.assert_close(part.sensed, still.sensed[2:])
    assert isinstance(right, RolloutErrors)


def test_models_are_judged_and_doubted_by_joints_and_readings_alone():
    """Wherever the estimate has the base: it is no measurement."""
    residuals = unmeasured(flown(worlds=6, frames=10, noise=0.01)[0], ["base.mass=2.4"])
    windows, dynamics = residuals.windows, residuals.dynamics
    logged = Trajectory(windows.q, windows.qd)
    elsewhere = Trajectory(windows.q + torch.nn.functional.pad(torch.ones(3), (0, 5)), windows.qd)

    def errors(truth, predicted=logged):
        return SensedErrors(dynamics.spec, predicted, truth, measured=residuals.measured, dynamics=dynamics)

    found = errors(elsewhere)
    assert found.doubted_names == ("knee", "imu.angular_velocity", "imu.specific_force", "attitude.quaternion")
    torch.testing.assert_close(found.doubted, errors(logged).doubted)
    torch.testing.assert_close(found.doubted[..., 1], found.sensed[..., :3].norm(dim=-1))
    torch.testing.assert_close(found.doubted[..., 0], found.errors[..., 2])
    curves = forecasts_of({"declared": found, "identified": errors(logged)}, "identified", "test")
    assert curves.names == ["knee"]
    assert len(curves.windows[0].logged) == len(curves.units) == 1
    spinning = Trajectory(windows.q, windows.qd + torch.nn.functional.pad(torch.full((3,), 0.5), (3, 1)))
    blocks = Blocks(torch.arange(6), 6, logs=True)
    worse = judge(errors(logged), errors(logged, spinning), [4, 8], blocks)
    assert not worse.kept
    assert not worse.open
    assert judge(errors(logged, spinning), errors(elsewhere), [4, 8], blocks).kept


@pytest.mark.slow
def test_a_perfect_model_errs_by_starts_as_uncertain_as_the_estimate_and_by_noise_of_readings(hopped):
    robot, store = hopped
    estimates, model = BaseEstimates(store, {"imu": tripod.IMU}), declared_hybrid(robot)
    store = estimates.update(model)
    windows, _ = held_out_windows(store, Split.VALIDATION, 2, (0.2,), 12)
    nothing = Noise(torch.full((9,), 1e-9, dtype=F64), torch.full((9,), 1e-9, dtype=F64))

    def floor(spread):
        found = noise_errors(model, store, replace(windows, spread=spread * windows.spread), 2, nothing)
        assert isinstance(found, SensedErrors)
        return found

    sure, vague = floor(1e-9), floor(1.0)
    own = sure.measured.noise[:3].norm()
    assert sure.doubted_names[:4] == ("leg0", "leg1", "leg2", "imu.angular_velocity")
    assert float(sure.doubted[..., :3].max()) < 1e-5
    assert float(sure.doubted[..., 3].mean()) == pytest.approx(0.92 * float(own), rel=0.1)  # a mean norm of three
    assert float(vague.doubted[:, -1, 3].mean()) > 1.5 * float(sure.doubted[:, -1, 3].mean())
    assert float(vague.doubted[:, -1, :3].mean()) > 1e-4


def test_forecasts_from_an_estimate_begin_there_whatever_velocities_are(hopped):
    _, store = hopped
    differentiated = msgspec.structs.replace(store.header, notes={"column_map": {"qd": "differentiate"}})
    assert start_of(replace(store, header=differentiated), "auto") == "logged"
    tracked = msgspec.structs.replace(differentiated, base="measured")
    assert start_of(replace(store, header=tracked), "auto") == "past"


def header(streams, **changes):
    spec = msgspec.structs.replace(sensed.model(machines.hopper(), (), ("knee",)).spec, robot="hopper")
    return StoreHeader(spec=spec, source="log", streams=streams, base="unmeasured", **changes)


def test_an_undeclared_unit_sits_at_the_origin_of_the_base():
    streams = (MEANS, ATTITUDE, Stream(name="feet", kind="foot_switch", joints=("knee",)),
               Stream(name="force", kind="foot_force", joints=("knee",)),
               Stream(name="way", kind="odometry"),
               Stream(name="motors", kind="joint_torque", joints=("knee",)))  # fmt: skip
    assert set(sensors_on_base(header(streams), {})) == {"imu", "attitude", "motors"}
    found = sensors_on_base(header(streams), {"unit": msgspec.structs.replace(IMU, stream="imu")})
    assert found["unit"].position == IMU.position
    assert found["attitude"].quaternion == IMU.quaternion
    with pytest.raises(InputError, match="belongs to instants, which impacts spoil; valid: `averaged:"):
        sensors_on_base(header((Stream(name="imu", kind="imu"),)), {})


def test_a_payload_is_all_that_the_mass_of_an_unmeasured_base_may_lack():
    machine = machines.hopper()
    held = with_one_mass(AdaptationSettings(), machine)
    assert held.known == {"base.mass_scale": 1.0}
    for given in ({"quantities": ("*.damping",)}, {"known": {"base.mass_scale": 1.2}}):
        settings = AdaptationSettings(**given)
        assert with_one_mass(settings, machine) == settings
    asked = with_one_mass(AdaptationSettings(), machine, ("base.mass_scale=1:0.8:1.2",))
    assert asked.known == {}


def estimates(frames):
    """An estimate of one run with a covariance of correlated errors."""
    generator = torch.Generator().manual_seed(5)
    root = torch.randn(frames, 16, 16, generator=generator, dtype=F64)
    run = EstimatedRun(
        position=torch.randn(frames, 3, generator=generator, dtype=F64),
        quaternion=torch.nn.functional.normalize(torch.randn(frames, 4, generator=generator, dtype=F64), dim=-1),
        linear=torch.randn(frames, 3, generator=generator, dtype=F64), angular=torch.ones(frames, 3, dtype=F64),
        covariance=root @ root.mT, contacts=torch.zeros(frames, 1, dtype=torch.bool),
        angular_velocity_bias=torch.full((frames, 3), 0.1, dtype=F64),
        specific_force_bias=torch.full((frames, 3), 0.5, dtype=F64),
    )  # fmt: skip
    return BaseEstimate((run,), ("foot",))


def test_an_estimate_stands_in_the_rows_with_its_covariance_and_readings_lose_their_biases():
    rows = 6
    own = header((MEANS, ATTITUDE))
    frames = np.full((rows, 8 + 7 + 1), np.nan, np.float32)
    frames[:, 7], frames[:, 14:] = 0.3, 0.1
    store = Store(own, frames, episode_table([rows - 1]), measured=np.ones((rows, 10), np.float32))
    store.check("log")
    estimate = estimates(rows)
    found = with_base(store, estimate, SENSORS, EstimateDoubt(2.0, 0.5))
    found.check("log")
    assert found.header.base == "estimated"
    np.testing.assert_allclose(found.q[:, :3], estimate[0].position, rtol=1e-6)
    np.testing.assert_allclose(found.qd[:, 3:6], 1.0)
    np.testing.assert_allclose(found.measured[0], [0.9] * 3 + [0.5] * 3 + [1.0] * 4, rtol=1e-6)
    covariance = found.spread.astype(float) @ found.spread.astype(float).transpose(0, 2, 1)
    columns = [ERRORS.index(name) for name in FREE]
    places = [3, 4, 6, 7, 8, 2, 9, 10, 11]
    wanted = 4.0 * estimate[0].covariance.numpy()[:, columns][:, :, columns]
    wanted[:, 5, 5] += 0.25
    np.testing.assert_allclose(covariance[:, places][:, :, places], wanted, rtol=1e-4, atol=1e-3)
    assert not covariance[:, [0, 1, 5]].any(), "heading and horizontal position are gauge"
    assert found.select([0]).spread.shape == found.spread.shape


@pytest.fixture(scope="module")
def hopped(tmp_path_factory):
    """A tripod whose declared feet are too smooth, and a log of its motors and IMU in three runs."""
    folder = tmp_path_factory.mktemp("tripod")
    smooth = 'size=".02" mass=".2" friction=".6"'
    (folder / "tripod.xml").write_text(tripod.text().replace('size=".02" mass=".2"', smooth))
    declare(folder / "tripod.xml", folder / "robot", dt=tripod.DT)
    robot = load(folder / "robot")
    streams = (MEANS, ATTITUDE)
    runs = [tripod.hop(2.0, seed)[0] for seed in range(3)]
    rows, lengths = [], []
    for run in runs:
        count = run.frames
        force = torch.cat([run.specific_force[1:], torch.full((1, 3), torch.nan, dtype=F64)])
        nothing = torch.full((count, 7), torch.nan, dtype=F64)
        rows.append(torch.cat([nothing, run.q, nothing[:, :6], run.qd, run.control, run.angular_velocity, force,
                               run.attitude], 1))  # fmt: skip
        lengths.append(count - 1)
    both = torch.cat(rows).numpy().astype(np.float32)
    own = StoreHeader(spec=robot.spec, source="log", streams=streams, base="unmeasured", runs=("a", "b", "c"))
    table = episode_table(lengths, run=[0, 1, 2], split=[0, 1, 2])
    return folder / "robot", Store(own, both[:, :-10].copy(), table, measured=both[:, -10:].copy())


def test_where_an_imu_sits_is_found_if_nobody_says_so_or_it_is_asked_for():
    streams = (MEANS, ATTITUDE)
    assert split_mounting(("*.damping",), header(streams), {}) == (("*.damping",), True)
    declared = {"unit": msgspec.structs.replace(IMU, stream="imu")}
    assert split_mounting(("knee.damping",), header(streams), declared) == (("knee.damping",), False)
    asked = ("unit.turn.z", "knee.damping", "unit.position")
    assert split_mounting(asked, header(streams), declared) == (("knee.damping",), True)


@pytest.mark.slow
def test_a_found_place_of_an_imu_is_told_kept_and_the_models(hopped, tmp_path):
    robot, store = hopped
    said = msgspec.structs.replace(tripod.IMU, position=(0.05, -0.02, 0.05))
    estimates = BaseEstimates(store, {"imu": said}, mounting=True)
    estimates.update(tripod.model())
    found = {one.name: one for one in estimates.quantities()}
    assert list(found) == [f"imu.{what}.{x}" for what in ("position", "turn") for x in "xyz"]
    assert found["imu.position.x"].nominal == 0.05
    for axis, true in zip("xyz", tripod.IMU.position, strict=True):
        assert found[f"imu.position.{axis}"].value == pytest.approx(true, abs=0.008)
    assert estimates.store.header.sensors["imu"].position == estimates.remounted["imu"].position
    assert set(estimates.remounted) == {"imu", "attitude"}
    estimates.write(tmp_path)
    again = BaseEstimates(store, {"imu": said}, mounting=True)
    again.read(tmp_path)
    assert again.remounted == estimates.remounted
    assert again.quantities() == estimates.quantities()
    model = declared_hybrid(robot)
    model.sensors = estimates.remounted
    HYBRID.save(tmp_path / "run", model)
    loaded = load_model(str(tmp_path / "run"))
    assert loaded.robot is not None
    assert loaded.robot.sensors["imu"] == estimates.remounted["imu"]


def test_searches_of_a_walking_robot_are_alike_with_and_without_motion_capture(hopped):
    """They hold what declarations know best at first, and limit derivatives by windows; not of a robot in the air."""
    settings = AdaptationSettings(quantities=("leg*.damping", "*.mass_scale"), stages=(FitStage(0.06, 9, 1),))
    tracked = tripod.tracked_log(2)
    table = tracked.table.copy()
    table["split"] = [Split.TRAIN, Split.VALIDATION]
    tracked = replace(tracked, table=table)
    declared = FitModel.declared(load(hopped[0]), "tripod", settings)
    model = structures(declared, settings, ())[0]
    short = model.with_substeps(2 * model.engine.substeps)
    walks, flies = Fitting(short, tracked, settings, 1), Fitting(replace(short, scene=None), tracked, settings, 1)
    body = replace(FitModel.declared(load("cube"), "cube", settings), scene=model.scene)
    assert body.touches(tracked.header)
    assert not body.walks(tracked.header)
    assert [(one.walks, one.residuals(one._few).options.near) for one in (walks, flies)] == [
        (True, True),
        (False, False),
    ]
    kept = [[one.space.names[k] for k in one._screened.tolist()] for one in (walks, flies)]
    assert not any(name.endswith("mass_scale") for name in kept[0])
    assert {name for name in kept[1] if name not in kept[0]} == {n for n in walks.space.names if "mass_scale" in n}
    # Roll-outs have short steps, derivatives those that are declared.
    assert flies.tangent is None
    assert walks.tangent is not None
    assert 2 * walks.tangent.config.substeps == walks.dynamics.config.substeps
    assert with_likely_steps(Fitting(model.with_substeps(64), tracked, settings, 1)).model.engine.substeps == 64


def test_a_walk_is_shortened_with_short_steps_where_they_predict_it_better(hopped, monkeypatch):
    settings = AdaptationSettings(quantities=("leg*.damping",), stages=(FitStage(0.06, 9, 1),))
    tracked = tripod.tracked_log(2)
    table = tracked.table.copy()
    table["split"] = [Split.TRAIN, Split.VALIDATION]
    declared = FitModel.declared(load(hopped[0]), "tripod", settings).with_substeps(2)
    fitting = Fitting(structures(declared, settings, ())[0], replace(tracked, table=table), settings, 1)
    searched, finest = fitting.run(), fitting.finest
    assert finest > 2
    for sign, substeps, tangent in ((-1.0, finest, finest // 2), (1.0, 2, None)):
        monkeypatch.setattr(Fitting, "held_out_cost", lambda self, sign=sign: sign * self.model.engine.substeps)
        finished, result = _shortened(fitting, searched)
        assert finished.dynamics.config.substeps == result.residuals.dynamics.config.substeps == substeps
        assert (finished.tangent and finished.tangent.config.substeps) == tangent
    assert fitting.model.engine.substeps == 2


@pytest.mark.slow
def test_an_adaptation_from_motors_and_an_imu_alone(hopped, tmp_path):
    robot, store = hopped
    settings = AdaptationSettings(
        quantities=("contact.friction", "leg*.damping"), structures=False, networks=False, refits=0, reference_steps=0,
        base_rounds=1, stages=(FitStage(0.06, 30, 4), FitStage(0.12, 20, 3)), sensors={"imu": tripod.IMU},
        seconds=(0.1, 0.5), threads=1, screen=40,
    )  # fmt: skip
    store.write(tmp_path / "alone.h5")
    tripod.tracked_log(1).write(tmp_path / "tracked.h5")  # one log with motion capture judges, too
    logs = [tmp_path / "alone.h5", tmp_path / "tracked.h5"]
    found = adapt(robot, logs, tmp_path / "run", settings=settings)
    figures = found.figures
    friction = next(one for one in figures.parameters if one.name == "contact.friction")
    assert friction.nominal == pytest.approx(0.6)
    assert friction.value == pytest.approx(1.0, rel=0.1)  # the legs'; how far off depends on a machine's rounding
    declared, identified = figures.rungs[:2]
    assert set(identified.errors) == {
        "joints [rad or m]", "imu.angular_velocity [rad/s]", "imu.specific_force [m/s^2]", "attitude.quaternion [rad]",
        "base [m]", "base [rad]",
    }  # fmt: skip
    assert identified.kept
    assert "of the error with motion capture" in identified.reason
    assert identified.errors["base [m]"][1] < declared.errors["base [m]"][1]
    assert list(identified.motion) == [
        "joints [rad/s or m/s]", "imu.angular_velocity [rad/s]", "imu.specific_force [m/s^2]"
    ]  # fmt: skip
    assert 0.7 < identified.motion["imu.angular_velocity [rad/s]"].speed < 1.4
    assert identified.errors["imu.specific_force [m/s^2]"][0] < declared.errors["imu.specific_force [m/s^2]"][0]
    assert (tmp_path / "run" / "report.html").exists() or (tmp_path / "run" / "adaptation.json").exists()
    again = adapt(robot, logs, tmp_path / "run", settings=settings, resume=True)
    assert [one.value for one in again.figures.parameters] == [one.value for one in figures.parameters]


def test_motion_is_like_another_by_its_speed_and_spectrum():
    """Of twice as fast rates, and of rates of another pitch."""
    residuals = unmeasured(flown(worlds=3, frames=32)[0], ["base.mass=2.4"])
    windows, dynamics = residuals.windows, residuals.dynamics
    truth = Trajectory(windows.q, windows.qd)
    time = 0.01 * torch.arange(33, dtype=F64)[None, :, None]

    def likeness(pitch, size=1.0):
        wave = Trajectory(truth.q, torch.cat([truth.qd[..., :6], size * torch.sin(pitch * time).expand(3, 33, 1)], -1))
        known = replace(truth, qd=torch.cat([truth.qd[..., :6], torch.sin(20.0 * time).expand(3, 33, 1)], -1))
        errors = SensedErrors(dynamics.spec, wave, known, measured=residuals.measured, dynamics=dynamics)
        return motion_likeness(errors)["joints [rad/s or m/s]"]

    assert likeness(20.0) == MotionLikeness(speed=1.0, spectrum=0.0)
    assert likeness(20.0, 2.0).speed == pytest.approx(2.0)
    assert likeness(20.0, 2.0).spectrum == pytest.approx(6.02, abs=0.01)
    assert likeness(80.0).spectrum > 10.0


def test_an_identification_of_states_needs_a_measured_base(hopped, tmp_path):
    robot, store = hopped
    with pytest.raises(
        InputError, match="the base is unmeasured, and `identify` compares states; valid: neurodyn adapt"
    ):
        identify(robot, store, tmp_path / "run", parameters=["leg0.damping"])


def test_starts_are_settled_window_by_window():
    """From starts that are off by a deviation of the estimate, at the true mass; no window gets worse."""
    windows, _ = flown(worlds=12, frames=8, noise=0.005)
    residuals = unmeasured(windows, ["base.mass=2.4"], off=1.0)
    point = residuals.start(residuals.space.nominal[None])
    before = residuals.window_costs(point)
    settled, cost = settle_starts(residuals, point, 3)
    after = residuals.window_costs(settled)
    assert (after <= before).all()
    assert float(after.sum()) < 0.2 * float(before.sum())
    assert float(cost) == pytest.approx(float(residuals.cost(settled)))
    best = levenberg_marquardt(
        residuals.with_space(FixedSpace(residuals.space.values(residuals.space.nominal))),
        replace(point, x=point.x[:, :0]), 20,
    )  # fmt: skip
    assert float(cost) < 1.05 * float(best.cost)


def test_drawn_starts_leave_no_window_worse():
    windows, _ = flown(worlds=12, frames=8, noise=0.005)
    residuals = unmeasured(windows, ["base.mass=2.4"], off=1.0)
    point = residuals.start(residuals.space.nominal[None])
    settled = residuals.window_costs(settle_starts(residuals, point, 1)[0])
    found, cost = search_starts(residuals, point, torch.Generator().manual_seed(0))
    after = residuals.window_costs(found)
    assert (after <= residuals.window_costs(point)).all()
    assert float(after.sum()) < float(settled.sum())
    assert float(cost) == pytest.approx(float(residuals.cost(found)))


def test_a_part_of_an_estimate_has_episodes_of_each_kind(hopped):
    _, store = hopped
    longer = store.select([0, 0, 0, 0, 1, 2])
    part = BaseEstimates(longer, {"imu": tripod.IMU}).part(6.5)
    assert part.logged.table["split"].tolist() == [0, 0, 1]
    assert BaseEstimates(store, {"imu": tripod.IMU}).part(60.0).logged.table["split"].tolist() == [0, 1]
    moving = np.arange(len(store.measured)) % 101 > 60  # 40 of 101 rows of each run
    still = replace(store, measured=store.measured * moving[:, None])
    short = BaseEstimates(still, {"imu": tripod.IMU}).part(0.6).logged
    assert short.table["length"].tolist() == [30, 30]
    assert (short.measured[:, :3] != 0.0).all()


def test_a_probe_moves_one_coordinate_to_where_settled_starts_cost_least():
    windows, _ = flown(worlds=12, frames=8, noise=0.005)
    residuals = unmeasured(windows, ["base.mass=2"], off=1.0)
    point = residuals.start(residuals.space.nominal[None])
    found = probe_coordinates(residuals, point, [0])
    assert float(residuals.cost(found)) < float(settle_starts(residuals, point, 4)[1])
    assert float(residuals.values(found.x)[0, 0]) > 2.1
    assert torch.equal(probe_coordinates(residuals, point, []).x, point.x)


def test_a_solution_moves_with_what_is_left_of_a_search_and_with_a_common_error_of_starts():
    windows, _ = flown(worlds=12, frames=8, noise=0.005)
    residuals = unmeasured(windows, ["base.mass=2.4"], off=1.0)
    solution = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), 20).point
    before = replace(solution, x=solution.x - 0.01)
    left, *moves = moves_of_starts(residuals, before)
    assert float(left[0]) == pytest.approx(0.01, rel=0.2)
    moved = replace(residuals.windows, qd=residuals.windows.qd.clone())
    spread = moved.spread[:, 0]
    deviations = (spread @ spread.mT).diagonal(dim1=1, dim2=2).sqrt().median(0).values
    column = 9  # all estimates roll too fast
    moved.qd[:, 0, 3] += deviations[column]
    shifted = residuals.with_windows(moved, residuals.measured)
    there = levenberg_marquardt(shifted, solution, 20).point
    number = torch.nonzero(deviations > 0.0)[:, 0].tolist().index(column)
    again = moves_of_starts(residuals, solution)[1 + number]
    assert abs(float(again[0])) > 1e-5
    assert float(there.x - solution.x) == pytest.approx(float(again[0]), rel=0.1)
    assert len(moves) == int((deviations > 0.0).sum())


def test_an_effect_within_what_is_left_of_a_search_is_none():
    windows, _ = flown(worlds=12, frames=8, noise=0.005)
    residuals = unmeasured(windows, ["base.mass=2.4"], off=1.0)
    solution = levenberg_marquardt(residuals, residuals.start(residuals.space.nominal[None]), 20).point
    point = replace(solution, x=solution.x - 0.02)
    alone = identifiability(residuals, point).inflated(unexplained(residuals, point))
    wide = alone.widened(moves_of_starts(residuals, point))
    least, most = (student_t(alone.degrees, CONFIDENCE) * float(one.deviations[0]) for one in (alone, wide))
    assert most > 1.2 * least

    def acts(change: float, saved: float | None = None) -> bool:
        space = SimpleNamespace(names=["base.mass"], coordinates=[SimpleNamespace(value=lambda x: x)],
                                declared=point.x[0] - change)  # fmt: skip
        fitting = SimpleNamespace(space=space, x=point.x[0], windows=lambda *_: windows, residuals=lambda _: residuals,
                                  start=lambda _: point)  # fmt: skip
        cost = float(residuals.cost(point)) + (saved or 0.0)
        without = None if saved is None else cast("Fitting", SimpleNamespace(stage_cost=lambda _: cost))
        return has_effect(cast("Fitting", fitting), ["base.mass"], FitStage(0.08, 12, 4), without)

    assert [acts(0.9 * least), acts((least * most) ** 0.5), acts(1.1 * most)] == [False, False, True]
    bar = 0.5 * alone.variance * (1.0 + alone.unexplained * alone.degrees) * student_t(alone.degrees, CONFIDENCE) ** 2
    assert [acts(0.5 * least, 0.9 * bar), acts(0.5 * least, 1.1 * bar)] == [False, True]
