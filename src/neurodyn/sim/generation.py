# SPDX-License-Identifier: Apache-2.0
"""Data from a reference simulator: short trajectories from random states, on random grounds, under random torques."""

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from neurodyn.core.artifacts import regular_file
from neurodyn.core.config import Config, to_dict
from neurodyn.core.description.drive import Drive, require_simulated
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted, Interruption
from neurodyn.core.locks import exclusive
from neurodyn.core.progress import tell
from neurodyn.core.provenance import package_versions
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import derive_seed, require_seed
from neurodyn.core.workers import Workers, resolve_threads
from neurodyn.data.header import Status, StoreHeader, dataset
from neurodyn.data.split import assign_splits
from neurodyn.data.writer import StoreWriter, open_store_file, require_store_name
from neurodyn.robots import Robot, load
from neurodyn.robots.assets import source_digest
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.batches import BatchMaker, Departure, EarlyEndCount
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.draws import QuantityDraws, draws_of_drives, quantity_draws
from neurodyn.sim.interface import Simulator
from neurodyn.sim.requests import GenerationRequest
from neurodyn.sim.simulators import SIMULATORS, declared_values, mechanism, require_consistent

MOST_POINTS = 64
"""Number of contact points beyond which a mechanism has only the declared ones: every one is compiled."""


def simulated_header(
    robot: Robot, built: Articulation, scene: Scene | None, *, seed: int, simulator: dict[str, Any], **others: Any
) -> StoreHeader:
    """Return the header of data of a robot, in its reference simulator or another.

    `built` is the robot as built, `scene` the ground of the data; `simulator` says how the data were made, in addition
    to the simulator's own settings; `others` are further fields of the header.
    """
    return StoreHeader(
        spec=others.pop("spec", robot.spec),
        source="teacher",
        simulator={
            **to_dict(robot.simulator), **simulator, "material": to_dict(robot.material), "gains": to_dict(robot.gains)
        },
        seed=seed,
        fingerprint=built.fingerprint,
        sources=others.pop("sources", None) or source_digest(robot),
        versions=package_versions("newton", "warp-lang"),
        scene=scene,
        contact_points=None if robot.contact_points is None else contact_point_layout(built, robot),
        mechanism=_known_mechanism(built, robot),
        **others,
    )  # fmt: skip


def _known_mechanism(built: Articulation, robot: Robot) -> Mechanism:
    """Return the mechanism with all contact points of the simulator, or the declared ones if there are too many."""
    every = SIMULATORS[robot.simulator.solver].contacts is not None
    whole = mechanism(built, robot, every_contact=every)
    return whole if len(whole.points) <= MOST_POINTS else mechanism(built, robot)


VALIDATION_FRACTION = 0.05
TEST_FRACTION = 0.05

_LEAST_WORLDS, _MOST_WORLDS = 64, 512
"""Bounds of the default number of trajectories that are simulated at once."""


class GenerationSummary(Config, frozen=True):
    """Result of a run of `generate`."""

    path: str  # the file
    episodes: int  # in the file, including empty ones
    transitions: int  # in the file; fewer than requested if trajectories end early
    early_ends: dict[str, int]  # trajectories that ended early, by reason
    departures: tuple[
        Departure, ...
    ]  # coordinates by which trajectories of this run left plausible bounds, most frequent first
    empty: int  # trajectories that ended before their first transition
    simulated: int  # transitions of this run; a resumed one simulates fewer than the file holds
    seconds: float  # wall time of this run
    cpu_seconds: float  # of simulating and writing in all processes, without building the worlds
    bytes: int  # size of the file

    @property
    def rate(self) -> float:
        """Simulated transitions per CPU-second, writing included."""
        return self.simulated / max(self.cpu_seconds, 1e-9)


@accepts_request(GenerationRequest)
def generate(request: GenerationRequest) -> GenerationSummary:
    """Write a data set of a robot from its simulator.

    A trajectory ends before its first state beyond plausible bounds (`sim.energy`). If too many do (`sim.batches`),
    nothing is written.

    Raises:
        InputError: A setting is out of range, the robot cannot be sampled, too many trajectories leave plausible
            bounds, or the file exists or cannot be written.
        Interrupted: Ctrl-C or SIGTERM; finished batches are kept.
    """
    robot = request.robot if isinstance(request.robot, Robot) else load(request.robot)
    require_simulated(robot.drives, robot.name)
    frames = robot.frames if request.frames is None else request.frames
    passive = robot.passive_fraction if request.passive_fraction is None else request.passive_fraction
    sources, path, seed, device = source_digest(robot), Path(request.out), request.seed, request.device
    robot, processes = _with_starts(robot, request.ground, request.reset_fraction), resolve_threads(request.threads)
    robot = _with_drives(robot, request.randomise)
    processes = processes if device == "cpu" else 1  # several processes on one GPU gain nothing
    transitions = request.transitions
    shares = {"passive_fraction": passive, "held_fraction": request.held_fraction}
    _check(path, transitions, request.worlds, frames, shares)
    if not 1 <= request.speed < math.inf:
        raise InputError(f"speed is {request.speed:g}; valid: at least 1")
    require_seed(seed)
    if request.executor is not None and device != "cpu":
        raise InputError(f"device is {device!r}; valid with a cluster, whose workers simulate on their cores: cpu")
    _check_space(robot, path, transitions)
    with exclusive(path):
        _check_new(path, request.resume or request.overwrite)
        start = time.perf_counter()
        episodes = math.ceil(transitions / frames)
        worlds = min(batch_worlds(episodes, device) if request.worlds is None else request.worlds, episodes)
        require_consistent(robot)
        compiled = request.dynamics == "hybrid"
        maker = BatchMaker(
            robot, worlds, frames, passive, seed, device, None, request.held_fraction, request.speed, compiled
        )
        declared: dict[str, float] = {}
        if request.randomise:
            maker.draws, declared = _draws_of(robot, maker.simulator, request.randomise)
        header = simulated_header(
            robot,
            maker.simulator.built,
            maker.scene,
            seed=seed,
            sources=sources,
            simulator={
                "sampling": {
                    "worlds": worlds,
                    "frames": frames,
                    "episodes": episodes,
                    "passive_fraction": passive,
                    **({"held_fraction": request.held_fraction} if request.held_fraction else {}),
                    **({"speed": request.speed} if request.speed != 1 else {}),
                    "reset_fraction": robot.reset_fraction,
                    **to_dict(robot.sampling),
                    **({"randomise": list(request.randomise)} if request.randomise else {}),
                },
                "ground": to_dict(robot.ground_sampling),
                **({"dynamics": request.dynamics} if compiled else {}),
            },
            parameters=declared,
        )
        if request.begun is not None:
            request.begun(header)
        tally = EarlyEndCount(robot, maker.bounds, episodes)
        simulated, cpu_seconds = 0, 0.0
        calls = Workers(maker, processes) if request.executor is None else request.executor.workers(maker)
        with (
            StoreWriter(path, header, resume=request.resume, keep=True) as writer,
            calls as workers,
            Interruption() as stop,
        ):
            left = range(writer.batches, math.ceil(episodes / worlds))
            for batch, made in zip(left, workers.map(left), strict=True):
                cpu_start, count = time.process_time(), min(worlds, episodes - batch * worlds)
                ends = made.ends
                tally.add(ends, count)
                try:
                    tally.require_few()
                except InputError:
                    writer.discard()
                    raise
                stream = derive_seed(seed, "split", batch)
                split = assign_splits(count, stream, validation=VALIDATION_FRACTION, test=TEST_FRACTION)
                writer.append(
                    made.q[:count], made.qd[:count], made.control[:count],
                    lengths=ends.lengths[:count], status=ends.status[:count], split=split, world=np.arange(count),
                    ground=None if made.ground is None else made.ground[:count],
                    parameters=None if made.parameters is None else made.parameters[:count],
                )  # fmt: skip
                simulated += count * frames
                cpu_seconds += made.cpu_seconds + time.process_time() - cpu_start
                done = min(transitions, (batch * worlds + count) * frames)
                tell(done / transitions, f"{done:,} transitions")
                if stop.signal is not None:  # between two batches: no lock of a queue or file is held
                    raise Interrupted(stop.code)
        return _summarise(path, tally, simulated, time.perf_counter() - start, cpu_seconds)


def _with_drives(robot: Robot, texts: Sequence[str]) -> Robot:
    """Return the robot, with drives added if quantities of drives are drawn and it has none."""
    if robot.drives or not draws_of_drives(texts):
        return robot
    return msgspec.structs.replace(robot, drives={name: Drive() for name in robot.actuated})


def _draws_of(robot: Robot, worlds: Simulator, texts: Sequence[str]) -> tuple[QuantityDraws, dict[str, float]]:
    """Return the draws that texts specify, and the declared values of the drawn quantities, by name.

    Raises:
        InputError: A text is malformed or names an unknown quantity, or worlds of the simulator cannot differ in one.
    """
    tree, values = declared_values(worlds.built, robot)
    draws = quantity_draws(texts, values, tree.bounds())
    worlds.set_parameters(draws.names, torch.tensor([[values[name] for name in draws.names]]))
    return draws, {name: values[name] for name in draws.names}


def batch_worlds(episodes: int, device: str) -> int:
    """Return the default number of trajectories that are simulated at once.

    On a CPU, 64 worlds are as fast per world as 512. A data set therefore has at least 32 batches, which processes
    share evenly, as long as a batch has 64 trajectories. The number, and hence what is drawn, depends on the data set
    alone.
    """
    return _MOST_WORLDS if device != "cpu" else min(max(episodes // 32, _LEAST_WORLDS), _MOST_WORLDS)


def _with_starts(robot: Robot, ground: str | None, reset_fraction: float | None) -> Robot:
    if ground is not None:
        robot.named_ground(ground)
        robot = msgspec.structs.replace(robot, ground=ground, ground_sampling=None)
    if reset_fraction is None:
        return robot
    if not 0 <= reset_fraction <= 1:
        raise InputError(f"reset_fraction is {reset_fraction:g}; valid: between 0 and 1")
    return msgspec.structs.replace(robot, reset_fraction=reset_fraction)


def _check(path: Path, transitions: int, worlds: int | None, frames: int, shares: dict[str, float]) -> None:
    require_store_name(path)
    for name, value in (("transitions", transitions), ("worlds", worlds), ("frames", frames)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value}; valid: at least 1")
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InputError(f"{name} is {share:g}; valid: between 0 and 1")


def _check_new(path: Path, permitted: bool) -> None:
    """Refuse to replace a data set, finished or interrupted, which may have taken hours."""
    target = regular_file(path)
    part = target.with_name(f"{target.name}.part")
    if part.exists() and not permitted:
        raise InputError(f"{part} holds an interrupted data set; valid: --resume to continue it, or --overwrite")
    if path.exists() and not permitted:
        raise InputError(
            f"{path} exists; valid: another --out, --resume to complete it with the same settings, or --overwrite"
        )


def _check_space(robot: Robot, path: Path, transitions: int) -> None:
    """Refuse a data set that does not fit on the disk."""
    folder = next((parent for parent in regular_file(path).absolute().parents if parent.is_dir()), None)
    needed = 4 * (robot.spec.nq + robot.spec.nv + robot.spec.nu) * transitions
    disk = shutil.disk_usage(folder) if folder is not None else None
    free = disk.free if disk is not None and disk.total else math.inf  # some file systems do not report it
    if needed > free:
        raise InputError(
            f"{path}: {transitions:,} transitions need {needed / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free; give "
            "fewer transitions, or a path with more space"
        )


def _summarise(
    path: Path, tally: EarlyEndCount, simulated: int, seconds: float, cpu_seconds: float
) -> GenerationSummary:
    with open_store_file(path) as file:
        table = dataset(file, "episodes")[()]
    reasons = {Status.NOT_FINITE: "not finite", Status.OUT_OF_RANGE: "out of range"}
    return GenerationSummary(
        path=str(path),
        episodes=len(table),
        transitions=int(table["length"].sum()),
        early_ends={word: int((table["status"] == status).sum()) for status, word in reasons.items()},
        departures=tally.departures,
        empty=int((table["length"] == 0).sum()),
        simulated=simulated,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        bytes=path.stat().st_size,
    )
