# SPDX-License-Identifier: Apache-2.0
"""A model beside its reference simulator: passive and driven roll-outs from the same states."""

from dataclasses import dataclass

import msgspec
import torch
from msgspec import UNSET

from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage, tracked
from neurodyn.core.seeds import generator
from neurodyn.dynamics.interface import Dynamics, Environment, State
from neurodyn.evaluate.comparison import compare
from neurodyn.evaluate.energy_drift import energy_drift
from neurodyn.evaluate.engine import SEED, Batch, Drive, Rolled, about, follow, roll_out
from neurodyn.evaluate.member_calibration import member_calibration
from neurodyn.evaluate.records import PartialComparison, Simulated
from neurodyn.evaluate.reference_errors import reference_errors, reference_rollouts
from neurodyn.evaluate.scenario import Scenario, driven_at_random, passive, scenario
from neurodyn.evaluate.simulator_rollouts import Asked, SimulatorRollouts
from neurodyn.learn.devices import threads as torch_threads
from neurodyn.robots import Robot

_WORLDS, _REFERENCES = 512, 256
_SLOWER = 4
"""The simulator of a floating robot is slower by more than this, so that it gets so many fewer roll-outs."""
_DRAWN_OUT = 1000
_MOST_BYTES = 8_000_000_000


@dataclass(frozen=True)
class Sampled:
    """Starts that are drawn at random, and what drives the robot from there on.

    Attributes:
        start: First states.
        environment: What the worlds are in.
        drive: What drives the robot.
    """

    start: State
    environment: Environment
    drive: Drive

    @classmethod
    def draw(
        cls, robot: Robot, frames: int, count: int, seed: int, *, driven: bool, where: Scenario | None = None
    ) -> "Sampled":
        """Draw starts.

        Args:
            robot: The robot.
            frames: Frames of a roll-out.
            count: Number of roll-outs.
            seed: Seed of initial states and torques.
            driven: Whether random torques or targets drive the robot; otherwise its motion is passive.
            where: Ground, starts and controller; None for the robot's default ground.
        """
        rng, where = generator(seed, "evaluate"), scenario(robot) if where is None else where
        start, environment = where.begin(robot, count, rng)
        drive = passive(robot, count, frames, where.hold)
        return cls(start, environment, driven_at_random(robot, count, frames, rng) if driven else drive)

    def rows(self, rows: slice) -> Batch:
        """Return some of the starts."""
        return Batch(self.start.rows(rows), self.drive.worlds(rows), self.environment.rows(rows))

    def batches(self) -> list[Batch]:
        """Return the starts in batches of worlds."""
        return [self.rows(slice(begin, begin + _WORLDS)) for begin in range(0, self.start.worlds, _WORLDS)]


def both(model: Dynamics, robot: Robot, starts: Sampled) -> tuple[Rolled, Rolled]:
    """Roll model and simulator out from the same starts; return both."""
    with SimulatorRollouts(robot, 1) as simulator:
        with stage(0.0, 0.4, "simulator"):
            pending = simulator.begin({"all": Asked(starts.rows(slice(None)))})
        with stage(0.4, 0.6, "model"):
            found = roll_model_out(model, starts)
        with stage(0.6, 1.0, "simulator"):
            return found, pending.collect()["all"]


def roll_model_out(model: Dynamics, starts: Sampled) -> Rolled:
    """Roll a model out from all starts."""
    batches = starts.batches()
    # Compile kernels and fill caches before anything is timed; sizes as they will be.
    for batch in {len(b.past.q): b for b in batches}.values():
        with torch.no_grad():
            follow(model, Batch(batch.past, batch.drive.until(2), batch.environment))
    with torch_threads(1):
        return roll_out(model, tracked(batches))


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
    """Measure a model beside its reference simulator.

    Passive motion is without torque; a robot with `gains` is held at its nominal pose by a PD controller, which acts on
    each one's own state.

    Args:
        model: The model.
        robot: The robot that it was made for.
        horizon: Frames of a roll-out; None for the robot's own.
        rollouts: Number of roll-outs; None for 2048, of a floating robot 512.
        seed: Seed of initial states and torques; not that of any training data.
        where: Ground, starts and controller; None for the robot's default ground.
        driven: Whether motion under random torques (of a robot with gains: random targets) is measured too.
        references: Roll-outs by which the simulator's own errors are measured; None for 256, of a floating robot 64.
        threads: Processes that simulate, each on one core; None for one on each available core. Results do not depend
            on it, and where one process is soon done there is but one.

    Raises:
        InputError: The roll-outs do not fit into memory, or `threads` is below 1.
    """
    where = scenario(robot) if where is None else where
    horizon, rollouts = horizon or robot.evaluation_horizon, rollouts or default_rollouts(robot)
    _require_memory(robot, horizon, rollouts)
    starts = Sampled.draw(robot, horizon, rollouts, seed, driven=False, where=where)
    count = _few(robot, starts, references)
    asked = {"passive": Asked(starts.rows(slice(None)))}
    if count:
        asked |= reference_rollouts(robot, starts.rows(slice(0, count)), seed)
    wild = _driven(robot, horizon, rollouts, seed + 1, where) if driven and robot.spec.nu else None
    if wild is not None:
        asked["driven"] = Asked(wild.rows(slice(None)))
    with SimulatorRollouts(robot, threads) as simulator:
        with stage(0.0, 0.1, "simulator"):  # the first of many pieces; others may go on beside the model
            pending = simulator.begin(asked)
        with stage(0.1, 0.25, "model"):
            found = roll_model_out(model, starts)
        with stage(0.25, 0.3, "model, driven"):
            found_driven = None if wild is None else roll_model_out(model, wild)
        with stage(0.3, 0.98, "simulator"):
            truths = pending.collect()
    truth = truths["passive"]
    drive, steps = starts.drive, rollouts * horizon
    # Contacts and controllers take and give energy of their own.
    conserves = robot.fixed_base and not where.grounded and drive.target is None
    return Simulated(
        about=about(model, horizon, rollouts, seed),
        ground=where.name,
        starts=where.starts,
        hold=None if drive.kp is None or drive.kd is None else [float(x[0, 0]) for x in (drive.kp, drive.kd)],
        comparison=compare(robot, found.path, truth.path, simulated=True),
        reference_errors=reference_errors(robot, truths) if count else None,
        energy=energy_drift(robot, found.path, truth.path) if conserves else None,
        driven=None
        if found_driven is None
        else PartialComparison(
            rollouts=found_driven.path.worlds,
            seed=seed + 1,
            comparison=compare(robot, found_driven.path, truths["driven"].path, simulated=True),
            calibration=UNSET
            if wild is None
            else member_calibration(model, found_driven.path, truths["driven"].path, wild.rows(slice(0, _DRAWN_OUT))),
        ),
        env_steps_per_second=steps / found.seconds,
        env_steps_per_cpu_second=steps / found.cpu_seconds,
        simulator_steps_per_cpu_second=steps / truth.cpu_seconds,
        worlds=min(rollouts, _WORLDS),
        simulator=to_dict(robot.simulator),
        calibration=member_calibration(model, found.path, truth.path, starts.rows(slice(0, _DRAWN_OUT))),
    )


def with_grounds(results: list[Simulated]) -> Simulated:
    """Return the first of several results, with what differs between their grounds and means over them."""
    means: dict[str, float | None] = {}
    for key in results[0].comparison.summary.means:
        values = [result.comparison.summary.means[key] for result in results]
        there = [value for value in values if value is not None]
        means[key] = sum(there) / len(there) if len(there) == len(values) else None
    return msgspec.structs.replace(
        results[0], grounds={str(result.ground): result for result in results}, grounds_mean=means
    )


def default_rollouts(robot: Robot) -> int:
    """Return the number of roll-outs where none is asked for: fewer where contacts make the simulator slow."""
    return 2048 if robot.fixed_base else 2048 // _SLOWER


def _driven(robot: Robot, horizon: int, rollouts: int, seed: int, where: Scenario) -> Sampled:
    count = min(rollouts, _WORLDS if robot.fixed_base else _WORLDS // _SLOWER)
    return Sampled.draw(robot, horizon, count, seed, driven=True, where=where)


def _few(robot: Robot, starts: Sampled, asked: int | None) -> int:
    """Return the number of roll-outs by which the simulator's own errors are measured."""
    usual = _REFERENCES if robot.fixed_base else _REFERENCES // _SLOWER
    return min(starts.start.worlds, _WORLDS, usual if asked is None else asked)


def _require_memory(robot: Robot, horizon: int, rollouts: int) -> None:
    # Model, simulator, two baselines and the simulator again, each with errors beside it, all in memory at once.
    needed = 10 * 4 * (robot.spec.nq + robot.spec.nv + robot.spec.nu) * horizon * rollouts
    if needed > _MOST_BYTES:
        raise InputError(
            f"--rollouts {rollouts} of --horizon {horizon} need about {needed / 1e9:,.0f} GB of memory; valid: at most "
            f"{_MOST_BYTES // (needed // (horizon * rollouts)):,} frames in all"
        )
