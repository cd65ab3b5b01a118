# SPDX-License-Identifier: Apache-2.0
"""Recording of logs: episodes of policies, as a robot would log them or in the coordinates of its simulator.

A robot that declares `rows` logs those rows: no base pose, contacts from forces, and the targets of its controller. Any
robot can log what it would measure (`measured_spec`), or generalised coordinates and torques, as `sim.generate` does. A
log in coordinates can be used like generated data; it has no pushes, because no torque explains them.

Each episode follows one of several behaviour policies, with action noise of random strength, so that the log covers
good and bad motions. The noise is white or an Ornstein-Uhlenbeck process: smooth commands move a robot further before
it falls. Windows k of a log depends on (seed, k) alone. Rewards and failures are computed as in every environment
(`control.task_frames`). Implausible states are left out of the log.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from neurodyn.control.resolve import ANALYTIC, TASK, is_declared, open_dynamics
from neurodyn.control.returns import EpisodeOutcomes
from neurodyn.control.robot.in_loop import REHEARSED, RobotDynamics, robot_file, robot_in_loop
from neurodyn.control.robot.sensed import FORCE_COLUMNS, STREAMS, why_not_scored
from neurodyn.control.starts import plausible_starts
from neurodyn.control.task_frames import FrameEnd, MeasurementNoise, TaskFrames, WorldsState, add_noise, require_fit
from neurodyn.core.artifacts import require_writable
from neurodyn.core.config import from_dict, read_config, to_dict
from neurodyn.core.description.spec import Channel, StateSpec
from neurodyn.core.errors import InputError, notice
from neurodyn.core.progress import stage, tell
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request, names_of
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import SIMULATED, Status, StoreHeader
from neurodyn.data.readers import write_rows
from neurodyn.data.readers.floating import UNMEASURED
from neurodyn.data.row_layout import RowLayout
from neurodyn.data.split import assign_splits
from neurodyn.data.store import Store
from neurodyn.data.writer import MEASURED, StoreWriter, require_store_name
from neurodyn.dynamics.batch import State, Step
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.quantities import Quantities
from neurodyn.policy.artifact import Behaviour, Excitation, acting, behaviour, common_task, load_policy
from neurodyn.policy.episodes.sensed_scores import SensedEpisode, model_of_states, score
from neurodyn.policy.requests import LogPolicyRequest
from neurodyn.policy.settings import BEHAVIOURS
from neurodyn.policy.worlds.disturbances import Disturbances, EpisodeDraws
from neurodyn.tasks import Task
from neurodyn.tasks.views import SENSORS

TEST_FRACTION = 0.1
"""Default share of test episodes in a log."""
_WORLDS, _LEAST_WORLDS = 256, 4
_TRANSITIONS, ROBOT_TRANSITIONS = 200_000, 20_000
"""Default number of transitions: in simulators, on robots."""
_SPLIT_TOGETHER, _MOST_EMPTY = 10, 5
"""Episodes of a robot that are split as one block; consecutive empty episodes after which recording fails."""
_TRUE = {"q": "true_q", "qd": "true_qd"}
"""Arrays of a batch with the true states of a base without motion capture."""
_OF_SIMULATORS = {"dynamics": ANALYTIC, "worlds": None, "position_noise": 0.0, "velocity_noise": 0.0}
"""Flags that a robot excludes, with their defaults."""
_BASE: tuple[tuple[str, tuple[str, ...], str, Literal["", "world", "base"]], ...] = (
    ("base_height", ("",), "m", ""),
    ("base_orientation", ("x", "y", "z", "w"), "1", "world"),
    ("base_linear_velocity", ("x", "y", "z"), "m/s", "base"),
    ("base_angular_velocity", ("x", "y", "z"), "rad/s", "base"),
    ("projected_gravity", ("x", "y", "z"), "1", "base"),
)


def usual_worlds(task: Task, transitions: int, behaviours: int = 1) -> int:
    """Return the default number of parallel episodes, fewer (at least four) if that would record twice the request."""
    wasteful = _WORLDS * task.frames > 2 * transitions
    return max(_LEAST_WORLDS, behaviours, math.ceil(transitions / task.frames)) if wasteful else _WORLDS


@dataclass(frozen=True)
class LogSummary:
    """Contents of a log.

    Attributes:
        failed: Share of episodes that failed.
        implausible: Share of episodes that failed because of an implausible state.
        returns: Mean return of each behaviour's episodes, with noise.
        outcomes: Outcomes of each behaviour's episodes, with noise.
        cpu_seconds: CPU time of the recording [s].
        why_not_scored: Why episodes have no return, in words; "" if they have one.
        true_states: Path of the same log with the true states of the base, of a stand-in without motion capture; "" for
            others.
    """

    path: str
    transitions: int
    episodes: int
    failed: float
    implausible: float
    returns: dict[str, float]
    outcomes: dict[str, "EpisodeOutcomes"]
    cpu_seconds: float
    why_not_scored: str = ""
    true_states: str = ""


def row_layout(task: Task) -> RowLayout:
    """Return the layout of the task robot's log rows.

    Raises:
        InputError: The robot declares no rows, or they do not fit the task.
    """
    robot = task.declaration()
    if robot.rows_path is None:
        raise InputError(f"robot {robot.name!r} declares no rows to log; valid: `rows:` in its declaration")
    layout = read_config(robot.rows_path, RowLayout)
    if abs(layout.dt - robot.dt) > 1e-6 * robot.dt or layout.joints != robot.spec.controls:
        raise InputError(f"{robot.rows_path}: rows of other joints or another dt than task {task.name!r}")
    return layout


def measured_spec(task: Task) -> StateSpec:
    """Return the state that the robot can measure: joints and, of a floating base, all but position and heading."""
    robot = task.declaration()
    if robot.rows_path is not None:
        return row_layout(task).spec
    channels = [
        Channel(f"{name}.{part}" if part else name, unit, frame)
        for name, parts, unit, frame in (_BASE if robot.spec.floating else ())
        for part in parts
    ]
    joints = tuple(joint for joint in robot.spec.joints if joint.kind != "free")
    return msgspec.structs.replace(
        robot.spec, joints=joints, channels=tuple(channels), contacts=tuple(robot.contacts), control_kind="torque"
    )


@accepts_request(LogPolicyRequest)
def log_policies(request: LogPolicyRequest) -> "LogSummary":
    """Record the motions of several policies for one task in the simulator or a model, with rewards and episode ends.

    Raises:
        InputError: An argument is out of range or excludes another, no task is named, the policies are for several
            tasks, or the file already exists or cannot be written.
    """
    names, out = names_of(request.folder), Path(request.out)
    if not names:
        raise InputError("no policy given; expected at least one folder written by `neurodyn policy train`")
    if request.csv is not None and request.coordinates:
        raise InputError("--csv writes the rows that a robot declares; valid: --csv or --coordinates")
    if request.coordinates and request.measured:
        raise InputError("--coordinates and --measured exclude each other; valid: one of them, or neither")
    require_writable(out, request.csv)
    if request.robot is not None:
        for name, default in _OF_SIMULATORS.items():
            if getattr(request, name) != default:
                raise InputError(f"--{name.replace('_', '-')} is for simulators; leave it out with --robot")
    elif request.states is not None:
        raise InputError("--states is for a robot without motion capture; valid with --robot")
    elif out.exists() and not request.overwrite:
        raise InputError(f"{out}: already exists; valid: another --out, or --overwrite")
    noise = {"position": request.position_noise, "velocity": request.velocity_noise}
    measurement = from_dict(noise, MeasurementNoise, "log")
    networks = {name: load_policy(name) for name in names if name not in BEHAVIOURS}
    task = common_task(names, {name: config for name, (config, _) in networks.items()}, request.task)
    layout = None if request.csv is None else row_layout(task)
    behaviours = [Behaviour(name, networks[name][1]) if name in networks else behaviour(name, task) for name in names]
    declared = is_declared(request.dynamics) and request.robot is None
    states = None if request.states is None else model_of_states(task.declaration(), request.states)
    worlds, transitions = request.worlds, request.transitions
    if transitions is None:
        transitions = _TRANSITIONS if request.robot is None else ROBOT_TRANSITIONS
    with ExitStack() as opened:
        with stage(0.0, 0.05, f"opening {request.robot or request.dynamics}"):
            if request.robot is not None:
                robot = opened.enter_context(robot_in_loop(task, request.robot, robot_file(out), states)).dynamics
            else:
                robot = open_dynamics(task, request.dynamics, starts=None if declared else TASK).dynamics
        with stage(0.05, 1.0):
            summary = record_log(
                task, robot, behaviours, out, transitions=transitions,
                worlds=usual_worlds(task, transitions, len(names)) if worlds is None else worlds,
                noise=request.noise, correlation=request.correlation, seed=request.seed, measurement=measurement,
                declared=declared,
                coordinates=request.coordinates if request.coordinates or request.measured else None,
                resume=request.robot is not None and not request.overwrite, states=states,
            )  # fmt: skip
    if request.csv is not None and layout is not None:
        write_rows(Store.open(out), request.csv, layout)
    return summary


def record_log(
    task: Task,
    dynamics: Dynamics,
    behaviours: Sequence[Behaviour],
    out: str | Path,
    *,
    transitions: int,
    worlds: int = _WORLDS,
    noise: float = 0.5,
    correlation: float = 0.0,
    seed: int = 0,
    coordinates: bool | None = None,
    measurement: MeasurementNoise | None = None,
    declared: bool = True,
    test: float = TEST_FRACTION,
    resume: bool = False,
    states: HybridDynamics | None = None,
) -> LogSummary:
    """Record a log of several policies in a task.

    On a robot (`control.robot`) episodes run one after the other. If it stops, or on Ctrl-C, the file is completed with
    the episodes so far.

    Args:
        task: The task; its commands and pushes are part of the log.
        dynamics: Dynamics of the robot.
        behaviours: The policies, with equal numbers of episodes.
        out: Path of the file (.h5).
        transitions: Minimum number of transitions, rounded up to whole batches of episodes.
        worlds: Number of parallel episodes.
        noise: Largest standard deviation of the action noise; each episode draws one between 0 and this.
        correlation: Correlation of the action noise from one frame to the next; 0 for white noise.
        seed: Seed of starts, commands, pushes and noise.
        coordinates: Whether to log generalised coordinates and torques instead of what the robot would measure. None
            for coordinates unless the robot declares rows.
        measurement: Measurement noise on the policies' observations and on the log; None for none. Rewards and failures
            follow the true state.
        declared: Whether the dynamics are the simulator that the robot declares. Coordinates then count as its data and
            name it; otherwise they count as a log.
        test: Share of test episodes.
        resume: On a robot, whether to continue the log of an earlier call with the same arguments.
        states: Model by which the states of a robot's base are estimated where nothing tracks it; None for the
            declared one.

    Raises:
        InputError: An argument is out of range, the robot's rows do not fit the task, or the file cannot be written.
    """
    path = Path(out)
    require_store_name(path)
    for name, value in (("transitions", transitions), ("worlds", worlds), ("policies", len(behaviours))):
        if value < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    if not 0 <= noise < math.inf:
        raise InputError(f"noise is {noise:g}; valid: a finite number of at least 0")
    if not 0 <= correlation < 1:
        raise InputError(f"correlation is {correlation:g}; valid: at least 0 and below 1")
    require_fit(task, dynamics)
    begin = time.process_time()
    notes: dict[str, Any] = {"correlation": correlation} if correlation else {}
    notes |= {"task": task.name, "policies": [b.name for b in behaviours], "noise": noise, SIMULATED: declared}
    rows = task.declaration().rows_path is not None if coordinates is None else not coordinates
    if measurement is not None and (measurement.position or measurement.velocity):
        notes["measurement_noise"] = to_dict(measurement)
    if rows:
        header = _log_header(measured_spec(task), seed, notes)
    elif declared and not isinstance(dynamics, RobotDynamics):
        header = _simulated_header(task, seed, notes)
    else:
        spec = msgspec.structs.replace(_coordinates(task), control_kind=dynamics.spec.control_kind)
        header = _log_header(spec, seed, notes)
    if isinstance(dynamics, RobotDynamics) and dynamics.base is not None:
        spec = msgspec.structs.replace(header.spec, contacts=())
        header = msgspec.structs.replace(header, spec=spec, base=UNMEASURED, streams=STREAMS)
    plan = _Plan(
        task, dynamics, behaviours, noise, correlation, seed, measurement or MeasurementNoise(), rows, test, states
    )
    if isinstance(dynamics, RobotDynamics):
        written, outcomes = _record_robot(plan, dynamics, path, header, transitions, resume=resume)
    else:
        written, outcomes = _record_batches(plan, path, header, transitions, worlds)
    every = EpisodeOutcomes.concatenate(list(outcomes.values()))
    beside = _true_states(path)
    return LogSummary(
        path=str(path),
        transitions=written,
        episodes=len(every.returns),
        failed=float(every.failed.float().mean()),
        implausible=float(every.implausible.float().mean()),
        returns={name: float(outcome.returns.mean()) for name, outcome in outcomes.items()},
        outcomes=outcomes,
        cpu_seconds=time.process_time() - begin,
        why_not_scored=why_not_scored(task) if bool(every.returns.isnan().any()) else "",
        true_states=str(beside) if header.base == UNMEASURED and beside.exists() else "",
    )


@dataclass(frozen=True)
class _Plan:
    """Arguments of a recording; see `record_log`."""

    task: Task
    dynamics: Dynamics
    behaviours: Sequence[Behaviour]
    noise: float
    correlation: float
    seed: int
    measurement: MeasurementNoise
    rows: bool
    test: float
    states: HybridDynamics | None

    def batch(self, number: int, policy: np.ndarray) -> "_Batch":
        """Return batch `number`; `policy` holds the index of each world's behaviour."""
        return _Batch(self, policy, derive_seed(self.seed, "log", number))

    def splits(self, episodes: int, number: int) -> np.ndarray:
        return assign_splits(episodes, derive_seed(self.seed, "log split", number), test=self.test)

    def outcomes(self, ended: list[list[EpisodeOutcomes]]) -> dict[str, EpisodeOutcomes]:
        """Return the outcomes by behaviour, without behaviours that have none."""
        return {
            b.name: EpisodeOutcomes.concatenate(parts) for b, parts in zip(self.behaviours, ended, strict=True) if parts
        }


def _record_batches(
    plan: _Plan, path: Path, header: StoreHeader, transitions: int, worlds: int
) -> tuple[int, dict[str, EpisodeOutcomes]]:
    """Record whole batches of episodes, and return the number of transitions and the outcomes by behaviour."""
    written, ended = 0, [[] for _ in plan.behaviours]
    with StoreWriter(path, header, rewarded=True) as writer:
        while written < transitions:
            batch = plan.batch(writer.batches, np.arange(worlds) % len(plan.behaviours))
            split = plan.splits(worlds, writer.batches)
            batch.run(header.spec)
            batch.append(writer, split)
            count = int(batch.lengths[batch.kept].sum())
            written += count
            for number, outcomes in enumerate(ended):
                outcomes.append(batch.outcome(number))
            if not count:
                raise InputError(
                    f"task {plan.task.name!r}: each of {worlds} episodes ended in its first frame, in a state that is "
                    f"implausible; valid: starts and actions within the range of robot {plan.task.robot!r}"
                )
            tell(min(written / transitions, 1.0), f"{written:,} transitions")
    return written, plan.outcomes(ended)


def _record_robot(
    plan: _Plan, robot: RobotDynamics, path: Path, header: StoreHeader, transitions: int, *, resume: bool
) -> tuple[int, dict[str, EpisodeOutcomes]]:
    """Record episodes one by one on a robot; if it stops, complete the file with the episodes so far.

    Of a stand-in without motion capture, a file beside it has the true states of the base (`_true_states`).
    """
    stopped: BaseException | None = None
    beside: StoreWriter | None = None
    empty, tracked = 0, robot.base is None
    played: list[list[tuple[EpisodeOutcomes, SensedEpisode]]] = [[] for _ in plan.behaviours]
    robot.rehearse(lambda: plan.batch(0, np.zeros(1, int)).run(header.spec, most=REHEARSED))
    with ExitStack() as opened:
        writer = opened.enter_context(StoreWriter(path, header, rewarded=tracked, keep=True, resume=resume))
        while stopped is None:
            table = writer.table()
            written, whole = int(table["length"].sum()), table[table["status"] != Status.LOG]
            if written >= transitions and len(np.unique(whole["group"])) == len(plan.behaviours):
                break
            number = writer.batches
            batch = plan.batch(number, np.array([number % len(plan.behaviours)]))
            try:
                batch.run(header.spec)
            except (KeyboardInterrupt, Exception) as error:
                stopped = error
                batch.status[:] = Status.LOG
            robot.stop()
            if stopped is None and not tracked:
                batch.sensed.end(robot)
                played[int(batch.policy[0])].append((batch.outcome(int(batch.policy[0])), batch.sensed))
            position = number % _SPLIT_TOGETHER
            if batch.started:
                split = plan.splits(_SPLIT_TOGETHER, number // _SPLIT_TOGETHER)[position]
                batch.append_pieces(writer, int(split), number)
                if batch.knows_truth:
                    if beside is None:
                        known = msgspec.structs.replace(header, base="measured")
                        beside = opened.enter_context(
                            StoreWriter(_true_states(path), known, keep=True, resume=resume)
                        )  # fmt: skip
                    batch.append_pieces(beside, int(split), number, true=True)
            empty = 0 if batch.lengths.clip(min=0).sum() else empty + 1
            if empty == _MOST_EMPTY:
                raise InputError(
                    f"{robot.process.name}: {empty} episodes ended in their first frame, in a state beyond the limits "
                    f"of robot {plan.task.robot!r}; valid: a reset within them"
                )
            tell(min(written / transitions, 1.0), f"{written:,} transitions before this episode")
        table, rewards = writer.table(), writer.rewards() if tracked else np.zeros(0)
    if isinstance(stopped, InputError):
        raise type(stopped)(f"{stopped}; logged until then: {path}") from None
    if stopped is not None:
        raise stopped
    written = int(table["length"].sum())
    if not tracked:  # the file holds no rewards
        return written, plan.outcomes([_score_sensed(plan, episodes) for episodes in played])
    ended = [_recorded_outcomes(table[table["group"] == number], rewards) for number in range(len(plan.behaviours))]
    return written, plan.outcomes([[one] if len(one.returns) else [] for one in ended])


def _true_states(path: Path) -> Path:
    """Return the file with the true states of a base that a log leaves unmeasured."""
    return path.with_suffix(f".true{path.suffix}")


def _score_sensed(plan: _Plan, episodes: Sequence[tuple[EpisodeOutcomes, SensedEpisode]]) -> list[EpisodeOutcomes]:
    """Return outcomes on a robot without motion capture, by estimated states where true ones are unknown."""
    outcomes = [outcome for outcome, _ in episodes]
    if not any(bool(outcome.returns.isnan().any()) for outcome in outcomes):
        return outcomes
    found, why = score(plan.task, [sensed for _, sensed in episodes], plan.states)
    if why:
        notice(why)
    returns = [torch.tensor([math.nan if one is None else one.earned], dtype=torch.float64) for one in found]
    return [replace(one, returns=value, penalised=value) for one, value in zip(outcomes, returns, strict=True)]


def _recorded_outcomes(table: np.ndarray, rewards: np.ndarray) -> EpisodeOutcomes:
    """Return the outcomes of finished recorded episodes; pieces of one episode share a `world`."""
    pieces, table = table, table[table["status"] != Status.LOG]
    returns, lengths = torch.zeros(len(table)), torch.zeros(len(table), dtype=torch.float64)
    for row, recorded in enumerate(table):
        for piece in pieces[pieces["world"] == recorded["world"]]:
            returns[row] += rewards[piece["start"] : piece["start"] + piece["length"]].sum(dtype=np.float64)
            lengths[row] += float(piece["length"])
    implausible = torch.from_numpy(np.isin(table["status"], (Status.OUT_OF_RANGE, Status.NOT_FINITE)))
    failed = torch.from_numpy(table["status"] != Status.COMPLETE)
    return EpisodeOutcomes(returns, returns, lengths, failed, implausible, None)


def _coordinates(task: Task) -> StateSpec:
    robot = task.declaration()
    return msgspec.structs.replace(robot.spec, contacts=tuple(robot.contacts))


def _log_header(spec: StateSpec, seed: int, notes: dict[str, Any]) -> StoreHeader:
    return StoreHeader(
        spec=spec, source="log", seed=seed, versions=package_versions("newton", "torch"), notes=notes,
        groups=tuple(notes["policies"]),
    )  # fmt: skip


def _simulated_header(task: Task, seed: int, notes: dict[str, Any]) -> StoreHeader:
    from neurodyn.sim.generation import simulated_header
    from neurodyn.sim.simulators import articulation

    robot = task.declaration()
    scene = robot.named_ground()
    return simulated_header(
        robot, articulation(robot), scene if scene is not None and scene.shapes else None, seed=seed,
        simulator={"sampling": notes}, notes=notes, groups=tuple(notes["policies"]),
        spec=_coordinates(task),
    )  # fmt: skip


class _Batch:
    """Parallel episodes. Worlds keep running after a failure, and their episodes are cut afterwards."""

    def __init__(self, plan: _Plan, policy: np.ndarray, seed: int) -> None:
        task, dynamics, worlds = plan.task, plan.dynamics, len(policy)
        self._task, self._loop = task, TaskFrames(task, dynamics)
        self._acts = [None if one.act is None else acting(one.act) for one in plan.behaviours]
        self._robot = dynamics if isinstance(dynamics, RobotDynamics) else None
        self._measured, self._measurement = plan.rows, plan.measurement
        self._generator = torch.Generator().manual_seed(seed)
        self.policy = policy
        self._excitation = Excitation(
            task, plan.behaviours, torch.from_numpy(policy), plan.noise, plan.correlation, self._generator
        )
        self._rows: list[dict[str, Tensor]] = []
        self._late_transitions: list[int] = []  # transitions of a robot that took longer than a frame
        self.lengths = np.full(worlds, task.frames)
        self.failed, self.implausible = np.zeros((2, worlds), dtype=bool)
        self.status = np.full(worlds, Status.COMPLETE, np.int8)
        self.returns = np.zeros(worlds)
        self.sensed = SensedEpisode()

    def run(self, spec: StateSpec, most: int | None = None) -> None:
        """Run the episodes; with `most`, only that many frames.

        The first frame is not logged, because torques and contacts before it are unknown.
        """
        task, loop, worlds, drawing = self._task, self._loop, len(self.policy), self._generator
        if self._robot is None:
            state = plausible_starts(task, worlds, loop.bounds, drawing, drawing)
        else:
            state = self._robot.start()
        current, change = loop.begin(state, drawing, of_mean=True), None
        seen = self._measure(current, None)[1]
        sensed = task.observes == SENSORS and self._robot is None  # a robot's readings have errors of their own
        jolts = Disturbances((), task, loop.dynamics, noisy=sensed)
        drawn = EpisodeDraws(jolts.draws).draw(worlds, drawing) if jolts.names else None
        jolted = jolts.begin(task.observe(seen, current.memory), current.memory.action, drawn, drawing)
        for frame in range(task.frames + 1 if most is None else most):
            before, action = current, self._act(jolted.seen)
            current, step, end = loop.frame(before, action, drawing, tracked=True)
            contacts = current.now.contacts(spec.contacts) if spec.contacts else torch.zeros(worlds, 0)
            if self._robot is not None and self._robot.base is not None:
                self.sensed.count(before.memory, action)
            if jolts.pushes and self._measured and self._robot is None:
                jolted, change = jolts.push(jolted, drawn, drawing)
                current = loop.push(current, change)
            shown, seen = self._measure(current, step if change is None else None)
            jolted = jolts.see(jolted, task.observe(seen, current.memory), current.memory.action, drawn, drawing)
            self._count(frame, end, current.state)
            if frame:
                driven = current.torque if step.applied is None and spec.control_kind == "torque" else step.applied
                if driven is None:
                    driven = task.control(action, before.now, before.memory).target
                assert driven is not None  # a layout of rows with targets requires them
                self._rows[-1]["control"] = driven
                self._rows[-1]["reward"] = end.reward[:, None]
                if self._robot is not None and self._robot.late:
                    self._late_transitions.append(frame - 1)
            self._rows.append(self._row(spec, shown, seen, contacts))
            if frame and self.failed.all():
                break

    @property
    def started(self) -> bool:
        """Whether there is a frame to log."""
        return any("control" in row for row in self._rows)

    def append(self, writer: StoreWriter, split: np.ndarray) -> None:
        """Append the episodes that have a logged state to a store; `split` has shape [worlds]."""
        arrays, kept = self.arrays(), self.kept
        writer.append(
            *(arrays[name][kept] for name in ("q", "qd", "control")),
            channel=arrays["channel"][kept], contact=arrays["contact"][kept], reward=arrays["reward"][kept, :, 0],
            lengths=self.lengths[kept], split=split[kept], group=self.policy[kept],
            world=np.arange(len(kept))[kept], status=self.status[kept],
        )  # fmt: skip

    @property
    def knows_truth(self) -> bool:
        """Whether a stand-in returned the true states of its unmeasured base."""
        return _TRUE["q"] in self._rows[0]

    def append_pieces(self, writer: StoreWriter, split: int, number: int, *, true: bool = False) -> None:
        """Append a robot's one episode to a store, as world `number`, in pieces that leave out late transitions.

        With `true`, in the true states of its base.
        """
        arrays, length = self.arrays(), int(self.lengths[0])
        if length < 0:
            return
        cuts = [late for late in self._late_transitions if late < length]
        ends = np.array([*cuts, length])
        begins = np.array([0, *(cut + 1 for cut in cuts)])
        kept = ends > begins
        kept[-1] = True  # it holds how the episode ended
        begins, lengths = begins[kept], (ends - begins)[kept]
        cut = {
            name: np.stack([_piece(array[0], first, lengths.max() + (name not in ("control", "reward")))
                            for first in begins])
            for name, array in arrays.items()
        }  # fmt: skip
        reward = cut["reward"][..., 0] if writer.rewarded else None
        status = np.full(len(begins), Status.LOG, np.int8)
        status[-1] = self.status[0]
        same = np.ones(len(begins), np.int64)
        names = _TRUE if true else {}
        writer.append(
            *(cut[names.get(name, name)] for name in ("q", "qd", "control")),
            channel=cut["channel"], contact=cut["contact"], reward=reward, measured=cut.get(MEASURED), lengths=lengths,
            split=(split * same).astype(np.int8), group=self.policy[0] * same, world=number * same, status=status,
        )  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a store, zero after the end of an episode."""
        arrays = {}
        sensed = [name for name in (MEASURED, *_TRUE.values()) if name in self._rows[0]]
        for name in ("q", "qd", "control", "reward", "channel", "contact", *sensed):
            rows = [row[name] for row in self._rows if name in row]
            array = torch.stack(rows, 1).numpy()
            if name == MEASURED:
                array[:, :-1, FORCE_COLUMNS], array[:, -1, FORCE_COLUMNS] = array[:, 1:, FORCE_COLUMNS], np.nan
            last = self.lengths[:, None] + (name not in ("control", "reward"))
            valid = np.arange(array.shape[1])[None] < last
            arrays[name] = np.where(valid[..., None], array, 0.0).astype(np.float32)
        self.lengths = np.minimum(self.lengths, arrays["control"].shape[1])
        return arrays

    def _measure(self, current: WorldsState, step: Step | None) -> tuple[State, Quantities]:
        shown = add_noise(self._loop.dynamics.spec, current.state, self._measurement, self._generator)
        return shown, current.now if shown is current.state else self._loop.quantities(shown, step, current.torque)

    def _act(self, observation: Tensor) -> Tensor:
        action = torch.zeros(len(observation), len(self._task.actions))
        for number, act in enumerate(self._acts):
            rows = torch.from_numpy(self.policy == number)
            if act is None:
                drawn = torch.rand(int(rows.sum()), action.shape[1], generator=self._generator)
                action[rows] = self._task.limit * (2.0 * drawn - 1.0)
            else:
                action[rows] = act(observation[rows])
        return (action + self._excitation.frame()).clamp(-self._task.limit, self._task.limit)

    def _count(self, frame: int, end: FrameEnd, state: State) -> None:
        """Record failures. A failure in the first frame, which is not logged, leaves an episode without transitions."""
        fresh = end.failed.numpy() & ~self.failed
        broken = end.implausible.numpy() & fresh
        if frame:
            self.returns += np.where(self.failed, 0.0, end.reward.double().numpy())
        self.lengths[fresh] = frame
        self.lengths[broken] = frame - 1  # -1 if not even the first state is plausible
        finite = (state.q.isfinite().all(-1) & state.qd.isfinite().all(-1)).numpy()
        self.status[fresh] = Status.TERMINATED
        self.status[broken] = np.where(finite, Status.OUT_OF_RANGE, Status.NOT_FINITE)[broken]
        self.failed |= fresh
        self.implausible |= broken

    def outcome(self, number: int) -> EpisodeOutcomes:
        """Return the outcomes of one behaviour's episodes, including those without logged states."""
        rows = np.flatnonzero(self.policy == number)
        returns = torch.from_numpy(self.returns[rows])
        lengths = torch.from_numpy(self.lengths[rows].clip(min=0).astype(np.float64))
        failed, implausible = (torch.from_numpy(values[rows]) for values in (self.failed, self.implausible))
        return EpisodeOutcomes(returns, returns, lengths, failed, implausible, None)

    @property
    def kept(self) -> np.ndarray:
        """Whether each episode has a state to log, shape [worlds], bool."""
        return self.lengths >= 0

    def _row(self, spec: StateSpec, state: State, now: Quantities, contacts: Tensor) -> dict[str, Tensor]:
        nothing, names = contacts[:, :0], dict.fromkeys(channel.quantity for channel in spec.channels)
        q, qd = (now["joint_position"], now["joint_velocity"]) if self._measured else (state.q, state.qd)
        sensed: dict[str, Tensor] = {}
        if self._robot is not None and self._robot.base is not None and self._robot.base.reading is not None:
            reading = self._robot.base.reading
            sensed = {MEASURED: reading.measured}
            if reading.truth is not None:  # of the base; joints are as measured
                known, joint = reading.truth, spec.joints[0]
                sensed[_TRUE["q"]] = torch.cat([known.q[:, : joint.nq], q[:, joint.nq :]], -1)
                sensed[_TRUE["qd"]] = torch.cat([known.qd[:, : joint.nv], qd[:, joint.nv :]], -1)
            q, qd = self._robot.base.leave_out(q, qd)
        return {
            "q": q,
            "qd": qd,
            **sensed,
            "channel": torch.cat([nothing, *(now[name] for name in names)], dim=-1),
            "contact": (contacts > 0.5).to(torch.float32),
        }


def _piece(array: np.ndarray, first: int, rows: int) -> np.ndarray:
    """Return rows of an array, with zeros beyond its end, shape [rows, ...]."""
    part = array[first : first + rows]
    return np.concatenate([part, np.zeros((rows - len(part), *part.shape[1:]), part.dtype)])
