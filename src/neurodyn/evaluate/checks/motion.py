# SPDX-License-Identifier: Apache-2.0
"""Motion of the simulator: accuracy, energy, rest, and behaviour under random control.

The simulator is compared with itself at smaller steps and, over one frame, with the hybrid engine.
"""

import math
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.seeds import generator
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.measures import finite_worlds, persistence
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.evaluate.checks.findings import CheckFinding, CheckResult, Figures, finite, no_fault, or_infinite, rate
from neurodyn.evaluate.checks.subject import SimulatedMotion, Subject, more_substeps, roll_out_free, some
from neurodyn.evaluate.metrics import METRICS, summaries
from neurodyn.evaluate.named_scenarios import Scenario, drive_at_random, passive, scenario
from neurodyn.evaluate.records import ErrorSummary, Result
from neurodyn.multibody.engine import EngineConfig
from neurodyn.robots import Robot, locate
from neurodyn.robots.plausible import PlausibleBounds
from neurodyn.robots.sections import matching

_ENERGY_FRAMES = 100
ENERGY_GAIN = (0.05, 0.3)
"""Energy gain relative to the largest kinetic energy, in the median world: warning and failure."""

_CROSSING = 0.25  # time in which a joint may cross a quarter of its range [s]
_NEAR = 0.02  # fraction of its range within which a joint is near a limit
SECONDS, LAST = 3.0, 0.5
"""Settling time, and time over which the state at rest is measured [s]."""
DEEP = (0.01, 0.05)
"""Depth of the deepest contact point in the ground: warning and failure [m]."""
JITTER = (0.1, 1.0)
"""Standard deviation of a velocity at rest: warning and failure [rad/s or m/s]."""


class PassiveEnergy(Figures, frozen=True):
    """Energy change of passive motion relative to the largest kinetic energy; None if not finite.

    Attributes:
        gain: Largest gain, median over worlds.
        gain_p90: Largest gain, 90th percentile over worlds.
        change: Final change, median over worlds.
        frames: Frames until a joint comes near a limit, median over worlds.
    """

    gain: float | None
    gain_p90: float | None
    change: float | None
    frames: float


def check_passive_energy(subject: Subject) -> CheckResult:
    """Measure the energy of passive motion."""
    from neurodyn.sim.energies import EnergyMeter

    if subject.built.couplings.get("equalities"):  # a random state violates them, and closing them accelerates bodies
        return no_fault("passive energy: its equalities do work")
    robot, worlds = subject.robot, subject.few
    start = inside(robot, subject.draw("energy", worlds))
    gravity = (0.0, 0.0, 0.0) if robot.spec.floating else robot.gravity
    environment = Environment(gravity=torch.tensor(gravity))
    limp = subject.passive
    path = roll_out_free(limp, start, torch.zeros(worlds, _ENERGY_FRAMES, limp.spec.nu), environment)
    meter = EnergyMeter(subject.built, gravity=gravity)
    parts = [meter.measure(path.q[:, frame], path.qd[:, frame]) for frame in range(_ENERGY_FRAMES + 1)]
    kinetic, potential = (torch.stack(column, 1) for column in zip(*parts, strict=True))
    free = _free(robot, path.q)
    gained = torch.where(free, kinetic + potential - (kinetic + potential)[:, :1], 0.0)
    scale = torch.where(free, kinetic, 0.0).amax(1).clamp_min(1e-12)
    gain = gained.amax(1) / scale
    last = (free.sum(1) - 1)[:, None]
    figures = PassiveEnergy(
        gain=finite(float(gain.median())), gain_p90=finite(float(gain.quantile(0.9))),
        change=finite(float((gained.gather(1, last)[:, 0] / scale).median())), frames=float(last.double().median()),
    )  # fmt: skip
    finding = rate(
        "energy gained by passive motion",
        figures.gain,
        ENERGY_GAIN,
        unit="%",
        scale=100.0,
        note=f"of the kinetic energy, over {figures.frames:.0f} frames",
        advice=more_substeps(robot),
    )
    return CheckResult(findings=[finding], figures=figures)


def joint_limits(robot: Robot) -> list[tuple[int, float, float]]:
    """Return column, lower and upper limit of each joint with limits."""
    columns = {name: column for column, name in enumerate(robot.spec.q_names)}
    return [
        (columns[joint.name], joint.lower, joint.upper)
        for joint in robot.joints
        if joint.lower is not None and joint.upper is not None
    ]


def inside(robot: Robot, state: State) -> State:
    """Return states with limited joints in the middle half of their range, slow enough to stay clear of the limits."""
    spec, q, qd = robot.spec, state.q.clone(), state.qd.clone()
    for column, lower, upper in joint_limits(robot):
        quarter, dof = 0.25 * (upper - lower), spec.qd_names.index(spec.q_names[column])
        q[:, column] = q[:, column].clamp(lower + quarter, upper - quarter)
        qd[:, dof] = qd[:, dof].clamp(-quarter / _CROSSING, quarter / _CROSSING)
    return State(q, qd)


def _free(robot: Robot, q: Tensor) -> Tensor:
    """Return the frames before the first in which a joint is near a limit, as a mask [worlds, frames]."""
    near = torch.zeros(q.shape[:2], dtype=torch.bool)
    for column, lower, upper in joint_limits(robot):
        slack = _NEAR * (upper - lower)
        near |= (q[..., column] < lower + slack) | (q[..., column] > upper - slack)
    return near.cumsum(1) == 0


class Rest(Result, frozen=True):
    """A robot at rest on a ground, medians over worlds; None if not finite.

    Attributes:
        depth: Depth of the deepest contact point in the ground [m].
        jitter: Largest standard deviation of a velocity from its trend over time, as a ball may roll down a slope
            [rad/s or m/s].
        coordinate: Name of that velocity.
        speed: Largest mean velocity, nonzero if the robot creeps [rad/s or m/s].
    """

    depth: float | None
    jitter: float | None
    coordinate: str
    speed: float | None


class AtRest(Figures, frozen=True):
    """Results at rest, by ground."""

    grounds: dict[str, Rest]


def check_rest(subject: Subject) -> CheckResult:
    """Let a floating robot settle on each of its grounds."""
    robot, layout = subject.robot, subject.layout
    if robot.fixed_base or layout is None:
        return no_fault("rest on a ground: only of floating bases")
    if robot.legs is not None:
        soles = [pattern for foot in robot.legs.feet for pattern in robot.contacts[foot]]
        if all(matching(point.shape, soles) for point in layout.contact_points):
            return no_fault("rest on a ground: its feet alone touch it")
    by_ground: dict[str, Rest] = {}
    findings: list[CheckFinding] = []
    for where in _grounds(subject):
        by_ground[where.name or ""] = _settle(subject, where)
        findings = [_depth(by_ground), _jitter(robot, by_ground)]
        if subject.brief and any(finding.verdict == "fails" for finding in findings):
            break
    if not by_ground:
        return no_fault("rest on a ground: none is declared")
    return CheckResult(findings=findings, figures=AtRest(grounds=by_ground))


def _grounds(subject: Subject) -> list[Scenario]:
    """Return the requested ground, or all of the robot's grounds, without empty scenes."""
    robot = subject.robot
    names = [subject.ground] if subject.ground is not None else list(robot.grounds)
    return [where for where in (scenario(robot, name) for name in names) if where.grounded]


def _settle(subject: Subject, where: Scenario) -> Rest:
    from neurodyn.sim.sampling import Clearance

    robot, layout = subject.robot, subject.layout
    frames, last = math.ceil(SECONDS / robot.dt), max(4, round(LAST / robot.dt))
    state, environment = where.begin(robot, subject.few, generator(subject.seed, "check", "rest", where.name or ""))
    path = subject.record(state, environment, passive(robot, subject.few, frames)).path
    assert environment.ground is not None
    assert layout is not None
    depth = Clearance(layout).depth(environment.ground, path.q[:, -1].contiguous())
    qd = path.qd[:, -last:]
    jitter, speed = _from_trend(qd).std(1).median(0).values, qd.mean(1).abs().median(0).values
    column = int(jitter.nan_to_num(nan=math.inf).argmax())
    return Rest(
        depth=finite(float(depth.median())), jitter=finite(float(jitter[column])),
        coordinate=robot.spec.qd_names[column], speed=finite(float(speed.max())),
    )  # fmt: skip


def _from_trend(values: Tensor) -> Tensor:
    """Return what values, shape [worlds, frames, columns], differ by from straight lines over time."""
    time = torch.linspace(-1.0, 1.0, values.shape[1], dtype=values.dtype)[:, None]
    slopes = (time * values).sum(1, keepdim=True) / (time * time).sum()
    return values - values.mean(1, keepdim=True) - slopes * time


def _depth(by_ground: dict[str, Rest]) -> CheckFinding:
    name, worst = max(by_ground.items(), key=lambda entry: or_infinite(entry[1].depth))
    advice = "raise material.stiffness, and material.damping with its square root; more substeps if it jitters then"
    return rate("depth in the ground at rest", worst.depth, DEEP, unit="m", note=name, advice=advice)


def _jitter(robot: Robot, by_ground: dict[str, Rest]) -> CheckFinding:
    name, worst = max(by_ground.items(), key=lambda entry: or_infinite(entry[1].jitter))
    advice, spec = more_substeps(robot), robot.spec
    if robot.gains is not None:
        advice += ", or lower the stiffness in gains.hold"
    unit = spec.qd_units[spec.qd_names.index(worst.coordinate)]
    note = f"{worst.coordinate} on {name}"
    return rate("jitter at rest", worst.jitter, JITTER, unit=unit, note=note, advice=advice)


class RandomControl(Figures, frozen=True):
    """Result of random control.

    Attributes:
        worlds: Number of worlds.
        beyond: Worlds that leave the plausible bounds.
        not_finite: Worlds with a non-finite state.
        departures: Descriptions of the coordinates that leave the bounds.
        greatest_speeds: Largest speed by kind of coordinate; None if not finite.
    """

    worlds: int
    beyond: int
    not_finite: int
    departures: list[str]
    greatest_speeds: dict[str, float | None]


def check_random_control(subject: Subject) -> CheckResult:
    """Drive many worlds with random controls and count those that leave the plausible bounds."""
    from neurodyn.sim.batches import MOST_CUT, MOST_IMPLAUSIBLE, Departure, EarlyEndCount, early_ends

    robot, path, bounds = subject.robot, subject.driven.path, subject.bounds
    tally = EarlyEndCount(robot, bounds, subject.worlds)
    tally.add(early_ends(robot.name, bounds, path.q, path.qd), subject.worlds)
    speeds = greatest_speeds(robot.spec, bounds, path.qd)
    whole = finite_worlds(path)

    def row(what: str, bounds: tuple[float, float], departures: list[Departure], advice: str) -> CheckFinding:
        share = sum(departure.trajectories for departure in departures) / subject.worlds
        note = departures[0].words if departures else ""
        return rate(what, share, bounds, unit="%", scale=100.0, note=note, advice=advice)

    physical = [departure for departure in tally.departures if not departure.declared]
    declared = [departure for departure in tally.departures if departure.declared]
    findings = [row("worlds beyond plausible bounds", (0.0, MOST_IMPLAUSIBLE), physical, _advice(subject))]
    cut = "widen `range`, or narrow the gains and `sampling`"
    if declared:
        findings.append(row("worlds beyond the declared range", (0.5 * MOST_CUT, MOST_CUT), declared, cut))
    for kind, speed in speeds.items():
        what, bounds = f"greatest {kind} speed", (speed.bound, math.inf)
        change = _advice(subject) if physical else cut
        findings.append(rate(what, speed.value, bounds, unit=speed.unit, note=speed.name, advice=change))
    figures = RandomControl(
        worlds=subject.worlds,
        beyond=sum(departure.trajectories for departure in tally.departures),
        not_finite=int((~whole).sum()),
        departures=[departure.words for departure in tally.departures],
        greatest_speeds={kind: finite(speed.value) for kind, speed in speeds.items()},
    )
    return CheckResult(findings=findings, figures=figures)


@dataclass(frozen=True)
class Speed:
    """Largest speed of one kind of coordinate, its plausible bound, and the name of the coordinate."""

    value: float
    bound: float
    unit: str
    name: str


def greatest_speeds(spec: StateSpec, bounds: PlausibleBounds, qd: Tensor) -> dict[str, Speed]:
    """Return the largest speeds of joints, slides and a floating base from velocities [..., nv]."""
    fastest = qd.abs().nan_to_num(nan=math.inf).flatten(0, -2).amax(0).tolist()
    names = [name for joint in spec.joints for name in [joint.name] * joint.nv]
    speeds: dict[str, Speed] = {}
    for dof, (joint, unit, value) in enumerate(zip(names, spec.qd_units, fastest, strict=True)):
        base = spec.floating and joint == spec.joints[0].name
        kind = ("base" if base else "joint") if unit == "rad/s" else ("base linear" if base else "slide")
        kind = "base angular" if kind == "base" else kind
        speed = Speed(value, bounds.qd[dof][1], unit, spec.qd_names[dof])
        if kind not in speeds or speed.value > speeds[kind].value:
            speeds[kind] = speed
    return speeds


def _advice(subject: Subject) -> str:
    robot = subject.robot
    springs = [joint.name for joint in robot.joints if joint.limit_ke is not None or joint.limit_kd is not None]
    if springs and robot.simulator.solver != "featherstone":
        return f"remove limit_ke and limit_kd of {some(springs)}"
    light = [joint.name for joint in robot.joints if joint.scalar and not joint.armature]
    if light:
        return f"{more_substeps(robot)}, or declare the armature of {some(light)}"
    return f"{more_substeps(robot)}, or lower efforts and gains"


_HORIZONS = (10, 100, 500)
JUDGED = 10
"""Horizon of the verdict [frames]."""

STEP_ERROR = (0.1, 0.3)
"""Error at the declared step relative to the motion; above it a model learns the error, not the robot."""

_STILL = 1e-3  # lower bound of the motion that errors are divided by, for a robot at rest [m or rad]
FREE = (0.05, 0.3)
"""Relative difference of the velocity changes, away from limits: warning and failure."""
AT_LIMITS = 0.5
"""Same at joint limits: warning."""
_SPEED = 1.0  # speed of joints moving into limits [rad/s or m/s]


class StepErrors(Result, frozen=True):
    """Errors relative to a quarter of the step, and the robot's motion, by horizon."""

    declared: dict[str, ErrorSummary]
    half: dict[str, ErrorSummary]
    motion: dict[str, ErrorSummary]


class StepConvergence(Figures, frozen=True):
    """Errors from random states under random control, and from resets in passive or held motion."""

    driven: StepErrors
    settling: StepErrors


def check_convergence(subject: Subject) -> CheckResult:
    """Compare the declared step with half and a quarter of it."""
    robot, frames = subject.robot, max(JUDGED, max((h for h in _HORIZONS if h <= subject.frames), default=JUDGED))
    by_motion: dict[str, StepErrors] = {}
    for name, starts in (("driven", "sampling"), ("settling", "reset")):
        rng = generator(subject.seed, "check", "convergence", name)
        state, environment = replace(subject.scenario, starts=starts).begin(robot, subject.few, rng)
        drive = drive_at_random(robot, subject.few, frames, rng) if name == "driven" else None
        recording = subject.record(state, environment, drive or passive(robot, subject.few, frames))
        by_motion[name] = _errors(subject, recording, frames)
    words = {"driven": "step error of motion, random", "settling": "step error of motion, resets"}
    findings = [_row(subject, words[name], errors) for name, errors in by_motion.items()]
    return CheckResult(findings=findings, figures=StepConvergence(**by_motion))


def _errors(subject: Subject, recording: SimulatedMotion, frames: int) -> StepErrors:
    half, truth = (recording.replay(subject.finer(factor)) for factor in (2, 4))
    marks = [mark for mark in _HORIZONS if mark <= frames]
    declared, halved, moved = (
        summaries(RolloutErrors.of(subject.robot, path, truth), marks)
        for path in (recording.path, half, persistence(truth))
    )
    return StepErrors(declared=declared, half=halved, motion=moved)


def _row(subject: Subject, what: str, errors: StepErrors) -> CheckFinding:
    """Judge the metric with the largest error relative to the motion."""
    mark, worst, note, advice = str(JUDGED), 0.0, "", ""
    for name in errors.declared[mark].percentiles:
        unit = METRICS[name].unit
        error, half, motion = (table[mark].median(name) for table in (errors.declared, errors.half, errors.motion))
        if error is None or half is None or motion is None:
            note, advice = "not finite in any world", more_substeps(subject.robot)
            return CheckFinding(what=what, verdict="fails", note=note, advice=advice)
        share = error / max(motion, _STILL)
        if share >= worst:
            worst, note = share, f"{METRICS[name].title.lower()} {error:.2g} {unit}, half step {half:.2g}"
            advice = f"{more_substeps(subject.robot)}: error falls from {error:.2g} to {half:.2g} {unit}"
            if half > 0.7 * error:
                advice = "the error does not fall with the step: correct joint limits, contact material or armature"
    return rate(what, worst, STEP_ERROR, unit="%", scale=100.0, note=note, advice=advice)


class EngineAgreement(Figures, frozen=True):
    """Relative differences over one frame, medians over worlds; None if not finite or not applicable.

    Attributes:
        free: Away from limits.
        at_limits: For joints that run into a limit.
    """

    free: float | None
    at_limits: float | None


def check_engine_agreement(subject: Subject) -> CheckResult:
    """Compare one frame of the hybrid engine with one of the simulator, in free space."""
    robot = subject.robot
    if robot.simulator.fluid is not None:
        return no_fault("hybrid engine: it has no fluid, the simulator has")
    tree = msgspec.structs.replace(subject.mechanism, points=())  # no contact in free space
    config = EngineConfig(substeps=robot.simulator.substeps, contact=robot.simulated_contact)
    engine = HybridDynamics(robot.spec, tree, config, declaration=locate(robot))
    state = inside(robot, subject.draw("engine", subject.few))
    torque = _torques(subject)
    free, velocity_name = _difference(subject, engine, state, torque)
    advice = f"{more_substeps(robot)}: their integrators differ by the step"
    findings = [
        rate("hybrid engine, one free frame", free, FREE, unit="%", scale=100.0, note=velocity_name, advice=advice)
    ]
    pressed, touching = _against_limits(subject, state), None
    if pressed is not None:
        touching, velocity_name = _difference(subject, engine, pressed, torch.zeros_like(torque))
        advice = "identify the limits before a hybrid model is used at them"
        what, bounds = "hybrid engine, one frame at limits", (AT_LIMITS, math.inf)
        findings.append(rate(what, touching, bounds, unit="%", scale=100.0, note=velocity_name, advice=advice))
    return CheckResult(findings=findings, figures=EngineAgreement(free=free, at_limits=touching))


def _torques(subject: Subject) -> Tensor:
    from neurodyn.sim.sampling import sample_torques

    return sample_torques(subject.robot, subject.few, 1, generator(subject.seed, "check", "engine torques"))


def _difference(subject: Subject, engine: HybridDynamics, state: State, torque: Tensor) -> tuple[float | None, str]:
    """Return the relative difference of the velocity changes, and the name of the velocity that differs most."""
    simulated = roll_out_free(subject.free, state, torque).qd[:, 1].double()
    double = State(state.q.double(), state.qd.double())
    with torch.no_grad():
        computed = engine.rollout(double, torque.double()).qd[:, 1]
    change, error = simulated - double.qd, (computed - simulated).abs()
    share = error.norm(dim=1) / change.norm(dim=1).clamp_min(1e-9)
    column = int(error.median(0).values.nan_to_num(nan=math.inf).argmax())
    return finite(float(share.median())), subject.robot.spec.qd_names[column]


def _against_limits(subject: Subject, state: State) -> State | None:
    """Return states in which one joint moves into a limit; None for a robot without limits."""
    bounds = joint_limits(subject.robot)
    if not bounds:
        return None
    spec, q, qd = subject.robot.spec, state.q.clone(), torch.zeros_like(state.qd)
    for world in range(len(q)):
        column, lower, upper = bounds[world // 2 % len(bounds)]
        side = 1.0 if world % 2 else -1.0
        q[world, column] = upper if world % 2 else lower
        qd[world, spec.qd_names.index(spec.q_names[column])] = side * _SPEED
    return State(q, qd)
