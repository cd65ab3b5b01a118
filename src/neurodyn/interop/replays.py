# SPDX-License-Identifier: Apache-2.0
"""Replays of a held-out log in the simulator that an export is for: the original's, the exported file's and our errors.

All start from the same logged states and are driven by the same logged commands. The commands before a start fill the
memories of actuators. A player reads the exported files alone: nothing of the engine, nor of the run, is added to them.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor

from neurodyn.core.artifacts import PRETRAINED, resolve_run
from neurodyn.core.config import Record
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.data.split import held_out_split
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.rollout_errors import RolloutErrors
from neurodyn.dynamics.rollouts import truth_of
from neurodyn.evaluate.run import training_logs
from neurodyn.identify.ladder.rungs import held_out_windows, settle_and_roll_out
from neurodyn.identify.run import open_logs
from neurodyn.identify.settings import AdaptationSettings
from neurodyn.identify.stages.stage_windows import past_frames
from neurodyn.interop.replay_scene import NotReplayedError, Played, ReplayScene
from neurodyn.robots import Robot
from neurodyn.robots.data import drives_of_log

if TYPE_CHECKING:
    from neurodyn.interop.c_code.source import CUnit

_HORIZONS = (0.5, 0.2, 0.1, 0.05)
"""Lengths of the roll-outs [s]: the first that the held-out episodes reach."""
WINDOWS = 100
"""Largest number of roll-outs."""
WORSE = 1.02
"""Error relative to the original's from which a file counts as worse."""
_LOSES = 1.2
"""Error relative to the model's from which a file loses something."""


REPLAYS: Registry[Callable[[Path, ReplayScene], Played]] = Registry("target that is replayed")
"""Players by target: (exported folder, scene) -> roll-outs; they raise `NotReplayedError` for what they cannot play."""

NOT_REPLAYED = {"isaaclab": "Isaac Lab is not installed", "newton": "its files are applied to a builder of your own"}
"""Why other targets are not replayed here."""


@REPLAYS.register("mjcf")
def _mjcf(folder: Path, scene: ReplayScene) -> Played:
    from neurodyn.interop import replay_mujoco

    return _beside(replay_mujoco.version(), replay_mujoco.play_mjcf(folder, scene), scene)


@REPLAYS.register("urdf")
def _urdf(folder: Path, scene: ReplayScene) -> Played:
    from neurodyn.interop import replay_mujoco

    return _beside(replay_mujoco.version(), replay_mujoco.play_urdf(folder, scene), scene)


@REPLAYS.register("mjlab")
def _mjlab(folder: Path, scene: ReplayScene) -> Played:
    from neurodyn.interop import replay_mjlab

    return _beside(replay_mjlab.simulator(), replay_mjlab.play_mjlab(folder, scene), scene)


def _beside(simulator: str, exported: Trajectory, scene: ReplayScene) -> Played:
    """Return the roll-outs of a file beside those of the robot's asset, if MuJoCo can replay that."""
    from neurodyn.interop import replay_mujoco

    try:
        return Played(simulator, exported, replay_mujoco.play_asset(scene))
    except (NotReplayedError, InputError) as reason:
        return Played(f"{simulator}, without the original ({reason})", exported, None)


class Replay(Record, frozen=True):
    """Errors of open-loop roll-outs along a held-out log, in a target's own simulator.

    Attributes:
        target: Name of the target.
        simulator: Where original and exported file were replayed; empty if they were not.
        reason: Why nothing was replayed; empty if it was.
        horizon: Length of the roll-outs [s].
        windows: Their number.
        split: Episodes that they are of: "test" or "validation".
        units: Unit of each error by coordinate, "rad" or "m".
        original: Root mean square error at the horizon of the robot's own file, by coordinate; None if not finite.
            Empty if it cannot be replayed.
        exported: That of the exported file.
        model: That of the model which was exported.
    """

    target: str
    simulator: str = ""
    reason: str = ""
    horizon: float = 0.0
    windows: int = 0
    split: str = ""
    units: dict[str, str] = msgspec.field(default_factory=dict)
    original: dict[str, float | None] = msgspec.field(default_factory=dict)
    exported: dict[str, float | None] = msgspec.field(default_factory=dict)
    model: dict[str, float | None] = msgspec.field(default_factory=dict)

    @property
    def worse(self) -> bool:
        """Whether the exported file predicts the log worse than the original."""
        before, after = total(self, "original"), total(self, "exported")
        return any(after[unit] > WORSE * error for unit, error in before.items())

    @property
    def ratio(self) -> float:
        """Error of the exported file over that of the model, the largest of the units; NaN without a replay."""
        pairs = zip(total(self, "exported").values(), total(self, "model").values(), strict=True)
        return max((exported / model for exported, model in pairs if model > 0.0), default=math.nan)


def total(result: Replay, which: str) -> dict[str, float]:
    """Return the root mean square of `which` ("original", "exported" or "model") by unit; infinite if not finite."""
    squares: dict[str, list[float]] = {}
    for name, error in getattr(result, which).items():
        squares.setdefault(result.units[name], []).append(math.inf if error is None else error * error)
    return {unit: math.sqrt(sum(each) / len(each)) for unit, each in squares.items()}


def worse(result: Replay) -> str:
    """Return in words how much worse an exported file predicts than the original."""
    before, after = (total(result, which) for which in ("original", "exported"))
    unit = max(before, key=lambda unit: after[unit] / max(before[unit], 1e-12))
    return (
        f"{result.target} predicts the held-out log worse than the original, {after[unit]:.3g} beside "
        f"{before[unit]:.3g} {unit} at {result.horizon:g} s"
    )


def losses(result: Replay, left_out: Sequence[str]) -> tuple[str, ...]:
    """Return a remark if an exported file errs clearly more than the model, for what it cannot hold."""
    if not result.ratio > _LOSES or not left_out:
        return ()
    return (f"errs {result.ratio:.2g} times as much as the model, as it lacks what is left out",)


def replay_export(
    run: str | Path | Dynamics, target: str, folder: Path, data: Store | str | Path | None = None
) -> Replay:
    """Replay the exported folder of a run; the result says why if it cannot be. Arguments: see `replay`.

    Raises:
        InputError: The given log is missing, or of another robot.
    """
    if target not in REPLAYS:
        return Replay(target=target, reason=NOT_REPLAYED.get(target, f"nothing replays {target}"))
    return replay_with(run, target, partial(REPLAYS[target], folder), data)


def replay_code(run: str, unit: "CUnit", files: dict[str, str], name: str, data: Store | Path | None = None) -> Replay:
    """Replay a model's C code, `files` by name (NAME.c, NAME.h); see `replay_export`."""

    def play(scene: ReplayScene) -> Played:
        from neurodyn.interop import replay_c, replay_mujoco

        exported = replay_c.play_code(unit, name, files[f"{name}.c"], files[f"{name}.h"], scene)
        return _beside(f"C, the original in {replay_mujoco.version()}", exported, scene)

    return replay_with(run, "c", play, data)


def replay_with(
    run: str | Path | Dynamics, target: str, play: Callable[[ReplayScene], Played], data: Store | str | Path | None
) -> Replay:
    """Replay the log of a run with a player; errors: see `replay_export`."""
    try:
        dynamics = _model_of(run)
        if dynamics.robot is None:
            raise NotReplayedError("the declaration of its robot is gone")
        store = _log_of(run, dynamics.robot, data)
    except NotReplayedError as reason:
        return Replay(target=target, reason=str(reason))
    try:
        return _replay(dynamics, store, target, play)
    except (NotReplayedError, InputError) as reason:  # such as a simulator that is not installed
        return Replay(target=target, reason=str(reason))


def _model_of(run: str | Path | Dynamics) -> HybridDynamics:
    model = run
    if isinstance(run, str | Path):
        if not str(run).startswith(PRETRAINED) and not (Path(run) / "model").is_dir():
            raise NotReplayedError("an actuator network alone moves nothing")
        model = load(run)
    if not isinstance(model, HybridDynamics):
        raise NotReplayedError("the run holds no identified robot")
    return model


def _log_of(run: str | Path | Dynamics, robot: Robot, data: Store | str | Path | None) -> Store:
    """Return the given log, or that of a run; raises `NotReplayedError` if there is none."""
    if data is not None:
        return open_logs(robot, data)
    if not isinstance(run, str | Path) or not (resolve_run(run) / "config.yaml").exists():
        raise NotReplayedError("no log; name one with --data")
    try:
        logs = training_logs(run)
        if not any(logs):
            raise NotReplayedError("no log; name one with --data")
        return open_logs(robot, logs)
    except InputError as error:
        raise NotReplayedError(str(error).removeprefix(f"{run}: ")) from None


def _replay(dynamics: HybridDynamics, store: Store, target: str, play: Callable[[ReplayScene], Played]) -> Replay:
    robot, split = dynamics.robot, held_out_split(store)
    assert robot is not None
    windows = _windows(dynamics, store, split)
    drives = drives_of_log(robot, store.header)
    step = dynamics.spec.dt / dynamics.config.substeps
    x, y, z = dynamics.base_com.tolist()
    played = play(ReplayScene(robot.behind(drives) if drives else robot, windows, step, (x, y, z)))
    ours, metres = settle_and_roll_out(dynamics, store, windows), _metres(dynamics)
    return Replay(
        target=target, simulator=played.simulator, horizon=windows.frames * dynamics.spec.dt, windows=windows.count,
        split=split.name.lower(), units={n: "m" if n in metres else "rad" for n in dynamics.spec.tangent_names},
        original={} if played.original is None else _errors(dynamics, played.original, windows),
        exported=_errors(dynamics, played.exported, windows), model=_errors(dynamics, ours, windows),
    )  # fmt: skip


def _windows(dynamics: HybridDynamics, store: Store, split: int) -> Windows:
    """Return held-out windows of the longest horizon that the episodes reach, with the past that actuators need."""
    past = max(past_frames(dynamics, AdaptationSettings()), 1)
    reason = ""
    for horizon in _HORIZONS:
        try:
            windows, _ = held_out_windows(store, split, past, (horizon,), WINDOWS)
        except InputError as error:
            reason = str(error)
            continue
        rows = torch.linspace(0, windows.count - 1, min(windows.count, WINDOWS)).round().long()
        return windows.rows(rows)
    raise NotReplayedError(reason)


def _errors(dynamics: HybridDynamics, path: Trajectory, windows: Windows) -> dict[str, float | None]:
    errors: Tensor = RolloutErrors(dynamics.spec, path, truth_of(windows)).tangents[:, -1]
    size = errors.square().mean(0).sqrt().tolist()
    return {
        name: value if math.isfinite(value) else None
        for name, value in zip(dynamics.spec.tangent_names, size, strict=True)
    }


def _metres(dynamics: HybridDynamics) -> set[str]:
    """Return the coordinates of positions that are lengths."""
    names: set[str] = set()
    for joint in dynamics.spec.joints:
        if joint.kind == "prismatic":
            names |= set(joint.tangent_names)
        elif joint.kind == "free":
            names |= set(joint.tangent_names[:3])
    return names
