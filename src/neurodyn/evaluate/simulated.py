# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a model against its reference simulator.

Passive and driven roll-outs from the same states, the simulator's own errors, and energy drift.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import torch
from msgspec import UNSET, UnsetType
from torch import Tensor

from neurodyn.core.config import to_dict
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.progress import counted, stage, tracked
from neurodyn.core.seeds import generator
from neurodyn.core.workers import Workers, resolve_threads
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Environment, State, Trajectory, WorldParameters, present_state
from neurodyn.dynamics.conditions import Condition
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import displace, finite_worlds
from neurodyn.dynamics.rollout_errors import RolloutErrors, horizons_up_to
from neurodyn.dynamics.rollouts import ControlSequence, RolloutBatch, follow
from neurodyn.evaluate.calibration import member_calibration
from neurodyn.evaluate.metrics import compare, draw_conditions, errors_by_condition, percentiles, summaries
from neurodyn.evaluate.named_scenarios import Scenario, drive_at_random, passive, scenario
from neurodyn.evaluate.records import (
    ConditionErrors,
    Drift,
    EnergyDrift,
    ErrorSummary,
    PartialComparison,
    ReferenceErrors,
    Simulated,
)
from neurodyn.evaluate.requests import SEED
from neurodyn.evaluate.rollouts import RolloutResult, about, measure_time
from neurodyn.learn.devices import threads
from neurodyn.multibody.engine import nominal
from neurodyn.robots import Robot

_PIECE, _FLOATING_PIECE = 128, 64
"""Worlds per simulation, for fixed-base robots and for floating robots, which are slower."""

SIZE = 1e-6
"""Size of the perturbation of starts [rad, m, rad/s or m/s]."""
_SAMPLES, _DRIFT_WORLDS = 101, 256
_WORLDS, _REFERENCES = 512, 256
_SLOWER = 4
"""Factor by which floating robots get fewer roll-outs, because their simulators are slower."""
_DRAWN_OUT = 1000
_MOST_BYTES = 8_000_000_000


@dataclass(frozen=True)
class RolloutRequest:
    """Roll-outs to simulate.

    Attributes:
        batch: Initial states and controls.
        half_step: Whether the simulator uses half the time step.
    """

    batch: RolloutBatch
    half_step: bool = False


class SimulatorRollouts:
    """Rolls out a robot's simulator in one or several processes; a context manager.

    Requested roll-outs start at once and run in other processes while this one continues.
    """

    def __init__(self, robot: Robot, threads: int | None = None) -> None:
        """Prepare roll-outs in `threads` processes (None: one per available core), which do not affect results.

        Raises:
            InputError: `threads` is below 1.
        """
        self._size = _PIECE if robot.fixed_base else _FLOATING_PIECE
        self._workers = Workers(_Simulate(robot), resolve_threads(threads))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workers.__exit__(kind, error, trace)

    def begin(self, asked: Mapping[str, RolloutRequest]) -> Callable[[], dict[str, RolloutResult]]:
        """Start named roll-outs; the function returned waits for them, and sums times over processes."""
        pieces = [(name, piece) for name, one in asked.items() for piece in self._pieces(one)]
        results = self._workers.map([piece for _, piece in pieces])

        def collect() -> dict[str, RolloutResult]:
            parts: dict[str, list[RolloutResult]] = {name: [] for name in asked}
            for (name, _), result in zip(pieces, counted(results, len(pieces)), strict=True):
                parts[name].append(result)
            return {name: _concatenate(some) for name, some in parts.items()}

        return collect

    def _pieces(self, asked: RolloutRequest) -> Iterator[RolloutRequest]:
        batch, size = asked.batch, self._size
        for begin in range(0, len(batch.past.q), size):
            yield replace(asked, batch=_compact_rows(batch, slice(begin, begin + size)))


def _concatenate(parts: list[RolloutResult]) -> RolloutResult:
    path = Trajectory.concatenate([part.path for part in parts])
    return RolloutResult(path, sum(part.seconds for part in parts), sum(part.cpu_seconds for part in parts))


class _Simulate:
    """Rolls out a simulator; each process builds its worlds on first use."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot
        self._warm: set[tuple[int, bool]] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return _Simulate, (self._robot,)

    def __call__(self, asked: RolloutRequest) -> RolloutResult:
        dynamics = self._halved if asked.half_step else self._declared
        size = len(asked.batch.past.q), asked.half_step
        with threads(1), torch.no_grad():
            if size not in self._warm:  # compile kernels and fill caches before timing
                self._warm.add(size)
                follow(dynamics, replace(asked.batch, drive=asked.batch.drive.until(2)))
            return measure_time(lambda: follow(dynamics, asked.batch))

    @cached_property
    def _declared(self) -> AnalyticDynamics:
        return AnalyticDynamics(self._robot)

    @cached_property
    def _halved(self) -> AnalyticDynamics:
        return AnalyticDynamics(self._robot, substeps=2 * self._robot.simulator.substeps)


def _compact_rows(batch: RolloutBatch, rows: slice) -> RolloutBatch:
    """Return some of the starts, in compact memory for another process."""
    some = batch.rows(rows)
    start, drive = present_state(some.past), vars(some.drive).items()
    return RolloutBatch(
        State(_compact(start.q), _compact(start.qd)),
        ControlSequence(**{name: _compact(values) for name, values in drive if values is not None}),
        some.environment,
    )


def _compact(values: Tensor) -> Tensor:
    """Return values without the rest of their storage, unless they are expanded views that need less."""
    stored_bytes = values.untyped_storage().nbytes()
    return values.clone() if stored_bytes > values.numel() * values.element_size() else values


def reference_rollouts(robot: Robot, starts: RolloutBatch, seed: int) -> dict[str, RolloutRequest]:
    """Return the roll-outs that `reference_errors` needs for the simulator's own errors.

    `starts` are the first starts of the simulator's roll-outs; `seed` is that of the perturbation.
    """
    start = perturb(robot.spec, present_state(starts.past), generator(seed, "perturb"))
    return {
        "half_step": RolloutRequest(starts, half_step=True),
        "perturbed": RolloutRequest(RolloutBatch(start, starts.drive, starts.environment)),
    }


def reference_errors(robot: Robot, rollouts: Mapping[str, RolloutResult]) -> ReferenceErrors:
    """Return the simulator's own errors by horizon: at half the time step, and from perturbed starts.

    `rollouts` holds the results of `reference_rollouts` and, as "passive", the simulator's roll-outs from these and
    further starts.
    """
    count, marks = rollouts["perturbed"].path.worlds, horizons_up_to(rollouts["passive"].path.q.shape[1] - 1)
    truth = rollouts["passive"].path.rows(slice(0, count))

    def errors(name: str) -> dict[str, ErrorSummary]:
        return summaries(RolloutErrors.of(robot, rollouts[name].path, truth), marks)

    return ReferenceErrors(rollouts=count, half_step=errors("half_step"), perturbed=errors("perturbed"))


def perturb(spec: StateSpec, state: State, rng: np.random.Generator) -> State:
    """Return states with every coordinate shifted by plus or minus `SIZE`."""
    q, qd = (torch.from_numpy(rng.choice([-SIZE, SIZE], state.qd.shape).astype(np.float32)) for _ in range(2))
    return State(displace(spec, state.q, q), state.qd + qd)


def energy_drift(robot: Robot, predicted: Trajectory, truth: Trajectory) -> EnergyDrift:
    """Return the energy drift of model and simulator in passive roll-outs."""
    frames = torch.linspace(0, truth.q.shape[1] - 1, _SAMPLES).long().unique()
    model, simulator = (_drift(robot, path, frames) for path in (predicted, truth))
    return EnergyDrift(frames=frames.tolist(), model=model, simulator=simulator)


def _drift(robot: Robot, path: Trajectory, frames: torch.Tensor) -> Drift | None:
    from neurodyn.sim.energies import energy

    kept = finite_worlds(path)
    q, qd = path.q[kept][:_DRIFT_WORLDS, frames], path.qd[kept][:_DRIFT_WORLDS, frames]
    if not len(q):
        return None
    kinetic, potential = energy(robot, q, qd)
    total = kinetic + potential
    drift = (total - total[:, :1]).abs()
    return Drift(
        mean_drift=float(drift[:, 1:].mean()), final_drift=percentiles(drift[:, -1]),
        drift_curve=drift.mean(0).tolist(), energy_range=float((total.max() - total.min()).abs()),
    )  # fmt: skip


def draw_starts(
    robot: Robot, frames: int, count: int, seed: int, *, driven: bool, where: Scenario | None = None
) -> RolloutBatch:
    """Draw random initial states, their environments, and random or passive controls.

    `where` gives ground, initial states and controller; None for the robot's default ground.
    """
    rng, where = generator(seed, "evaluate"), scenario(robot) if where is None else where
    start, environment = where.begin(robot, count, rng)
    drive = drive_at_random(robot, count, frames, rng) if driven else passive(robot, count, frames, where.hold)
    return RolloutBatch(start, drive, environment)


def _batches(starts: RolloutBatch) -> list[RolloutBatch]:
    return [starts.rows(slice(begin, begin + _WORLDS)) for begin in range(0, starts.worlds, _WORLDS)]


def both(model: Dynamics, robot: Robot, starts: RolloutBatch) -> tuple[RolloutResult, RolloutResult]:
    """Return roll-outs of model and simulator from the same starts."""
    with SimulatorRollouts(robot, 1) as simulator:
        with stage(0.0, 0.4, "simulator"):
            collect = simulator.begin({"all": RolloutRequest(starts)})
        with stage(0.4, 0.6, "model"):
            predicted = roll_model_out(model, starts)
        with stage(0.6, 1.0, "simulator"):
            return predicted, collect()["all"]


def roll_model_out(model: Dynamics, starts: RolloutBatch) -> RolloutResult:
    """Roll a model out from all starts, after a warm-up."""
    batches = _batches(starts)
    # Compile kernels and fill caches for every batch size before timing.
    for batch in {len(b.past.q): b for b in batches}.values():
        with torch.no_grad():
            follow(model, RolloutBatch(batch.past, batch.drive.until(2), batch.environment))
    with threads(1):
        return measure_time(lambda: Trajectory.concatenate([follow(model, batch) for batch in tracked(batches)]))


def beside_simulator(
    model: Dynamics,
    robot: Robot,
    *,
    horizon: int | None = None,
    rollouts: int | None = None,
    seed: int = SEED,
    where: Scenario | None = None,
    driven: bool = True,
    references: int | None = None,
    threads: int | None = None,
) -> Simulated:
    """Evaluate a model against its reference simulator.

    Passive motion is without torque. A robot with `gains` is held at its nominal pose by a PD controller, which acts on
    the model's state in its roll-outs and on the simulator's in the others.

    Args:
        model: The model.
        robot: The robot that it was made for.
        horizon: Frames of a roll-out; None for the robot's own.
        rollouts: Number of roll-outs; None for 2048, or 512 for a floating robot.
        seed: Seed of initial states and controls; different from that of any training data.
        where: Ground, initial states and controller; None for the robot's default ground.
        driven: Whether to evaluate motion under random torques too (random targets for a robot with gains).
        references: Roll-outs for the simulator's own errors; None for 256, or 64 for a floating robot.
        threads: Number of simulating processes; None for one per available core. Results do not depend on it.

    Raises:
        InputError: The roll-outs do not fit into memory, or `threads` is below 1.
    """
    where = scenario(robot) if where is None else where
    horizon, rollouts = horizon or robot.evaluation_horizon, rollouts or default_rollouts(robot)
    _require_memory(robot, horizon, rollouts)
    starts = draw_starts(robot, horizon, rollouts, seed, driven=False, where=where)
    count = _few(robot, starts, references)
    asked = {"passive": RolloutRequest(starts)}
    if count:
        asked |= reference_rollouts(robot, starts.rows(slice(0, count)), seed)
    wild = _draw_driven(robot, horizon, rollouts, seed + 1, where) if driven and robot.spec.nu else None
    if wild is not None:
        asked["driven"] = RolloutRequest(wild)
    with SimulatorRollouts(robot, threads) as simulator:
        with stage(0.0, 0.1, "simulator"):  # later pieces may run in parallel with the model
            collect = simulator.begin(asked)
        with stage(0.1, 0.25, "model"):
            predicted = roll_model_out(model, starts)
        with stage(0.25, 0.3, "model, driven"):
            predicted_driven = None if wild is None else roll_model_out(model, wild)
        with stage(0.3, 0.98, "simulator"):
            truths = collect()
    truth = truths["passive"]
    drive, steps = starts.drive, rollouts * horizon
    motion = None
    if wild is not None and predicted_driven is not None:
        path, true = predicted_driven.path, truths["driven"].path
        motion = PartialComparison(
            rollouts=path.worlds,
            seed=seed + 1,
            comparison=compare(RolloutErrors.of(robot, path, true), simulated=True),
            calibration=member_calibration(model, path, true, wild.rows(slice(0, _DRAWN_OUT))),
        )
    # Contacts and controllers change the energy.
    conserves = robot.fixed_base and not where.grounded and drive.target is None
    return Simulated(
        about=about(model, horizon, rollouts, seed),
        ground=where.name,
        starts=where.starts,
        hold=None if drive.kp is None or drive.kd is None else [float(x[0, 0]) for x in (drive.kp, drive.kd)],
        comparison=compare(RolloutErrors.of(robot, predicted.path, truth.path), simulated=True),
        reference_errors=reference_errors(robot, truths) if count else None,
        energy=energy_drift(robot, predicted.path, truth.path) if conserves else None,
        driven=motion,
        env_steps_per_second=steps / predicted.seconds,
        env_steps_per_cpu_second=steps / predicted.cpu_seconds,
        simulator_steps_per_cpu_second=steps / truth.cpu_seconds,
        worlds=min(rollouts, _WORLDS),
        simulator=to_dict(robot.simulator),
        calibration=member_calibration(model, predicted.path, truth.path, starts.rows(slice(0, _DRAWN_OUT))),
    )


def with_grounds(results: list[Simulated]) -> Simulated:
    """Combine several results into the first, with the errors on each ground and their means."""
    means: dict[str, float | None] = {}
    for key in results[0].comparison.summary.means:
        values = [result.comparison.summary.means[key] for result in results]
        known = [value for value in values if value is not None]
        means[key] = sum(known) / len(known) if len(known) == len(values) else None
    return msgspec.structs.replace(
        results[0], grounds={str(result.ground): result for result in results}, grounds_mean=means
    )


def default_rollouts(robot: Robot) -> int:
    """Return the default number of roll-outs."""
    return 2048 if robot.fixed_base else 2048 // _SLOWER


def _draw_driven(robot: Robot, horizon: int, rollouts: int, seed: int, where: Scenario) -> RolloutBatch:
    count = min(rollouts, _WORLDS if robot.fixed_base else _WORLDS // _SLOWER)
    return draw_starts(robot, horizon, count, seed, driven=True, where=where)


def _few(robot: Robot, starts: RolloutBatch, asked: int | None) -> int:
    """Return the number of roll-outs for the simulator's own errors."""
    default = _REFERENCES if robot.fixed_base else _REFERENCES // _SLOWER
    return min(starts.worlds, _WORLDS, default if asked is None else asked)


def _require_memory(robot: Robot, horizon: int, rollouts: int) -> None:
    # Model, simulator, two baselines and reference roll-outs are in memory at once, each with its errors.
    needed = 10 * 4 * (robot.spec.nq + robot.spec.nv + robot.spec.nu) * horizon * rollouts
    if needed > _MOST_BYTES:
        raise InputError(
            f"--rollouts {rollouts} of --horizon {horizon} need about {needed / 1e9:,.0f} GB of memory; valid: at most "
            f"{_MOST_BYTES // (needed // (horizon * rollouts)):,} frames in all"
        )


CONDITION_FRAMES = 100
"""Maximum frames of roll-outs in worlds with different conditions."""


def by_condition(
    model: Dynamics, robot: Robot, *, where: Scenario, horizon: int, seed: int
) -> list[ConditionErrors] | UnsetType:
    """Return errors against the simulator in worlds that differ in a model's conditions.

    The simulator is plain MuJoCo if the robot declares it, else the hybrid engine. UNSET for a model without
    conditions, or with some that the simulator does not support.

    Args:
        model: The model.
        robot: The robot that it was made for.
        where: Ground, initial states and controller.
        horizon: Maximum frames of a roll-out.
        seed: Seed of conditions, initial states and controls.
    """
    conditions, truth = model.conditions, _simulator_of(robot, model.conditions)
    if not conditions or truth is None:
        return UNSET
    numbers = draw_conditions(conditions, seed)
    frames = min(horizon, CONDITION_FRAMES)
    starts = draw_starts(robot, frames, len(numbers), seed, driven=robot.spec.nu > 0, where=where)
    parameters = WorldParameters(tuple(one.name for one in conditions), numbers)
    batch = replace(starts, environment=replace(starts.environment or Environment(), parameters=parameters))
    with torch.no_grad():
        paths = [follow(dynamics, batch) for dynamics in (model, truth)]
    return errors_by_condition(conditions, numbers, RolloutErrors.of(robot, *paths), frames)


def _simulator_of(robot: Robot, conditions: Sequence[Condition]) -> Dynamics | None:
    """Return a simulator whose worlds can differ in these conditions; None if one is not supported."""
    names = [one.name for one in conditions]
    if not names or not robot.asset:
        return None
    if not robot.drives and any(name.startswith("actuator.") for name in names):
        robot = msgspec.structs.replace(robot, drives={name: Drive() for name in robot.actuated})
    hybrid = declared_hybrid(robot)
    if any(name not in nominal(hybrid.mechanism, hybrid.config.contact) for name in names):
        return None
    return AnalyticDynamics(robot) if robot.simulator.solver == "mujoco-c" else hybrid.freeing(names)
