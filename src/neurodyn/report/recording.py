# SPDX-License-Identifier: Apache-2.0
"""Recordings: a model and the truth from the same states under the same torques, for images and plots.

The truth is the analytic simulator or a log. Starts are drawn by seed, never chosen by the model's errors. Images are
two labelled panels side by side with the time, encoded as GIF, WebP or MP4.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurodyn.core import artifacts
from neurodyn.core.artifacts import atomic
from neurodyn.core.errors import InputError
from neurodyn.core.extras import import_extra
from neurodyn.core.progress import stage
from neurodyn.core.requests import accepts_request
from neurodyn.core.seeds import generator
from neurodyn.data.split import episodes_in
from neurodyn.data.store import Store
from neurodyn.data.windows import select_windows
from neurodyn.dynamics.artifact import declared_robot, load_simulator
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.measures import MOVING
from neurodyn.dynamics.rollouts import follow, recorded_environments, starts_of, truth_of
from neurodyn.evaluate.named_scenarios import Scenario, scenario
from neurodyn.evaluate.requests import SEED, RecordingRequest
from neurodyn.evaluate.rollouts import chosen_split, split_name
from neurodyn.evaluate.simulated import both, draw_starts
from neurodyn.geometry.ground import Ground
from neurodyn.report.page import moving_picture, paragraph
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from PIL import Image


USUAL_SECONDS = 6.0
LOG_SECONDS = 2.0
_CANDIDATES = 2000


@dataclass(frozen=True)
class Ended:
    """Early end of an episode; the robot stays in its last state from then on."""

    seconds: float
    why: str  # for example "failed"

    @classmethod
    def when(cls, running: np.ndarray | torch.Tensor, dt: float, why: str) -> "Ended | None":
        """Return the end of an episode from its running frames, shape [frames], bool; None if it runs to the last."""
        frames = int(running.sum())
        return None if frames == len(running) else cls(frames * dt, why)


@dataclass(frozen=True)
class Recording:
    """Roll-outs of a model and the true motion."""

    robot: Robot
    title: str  # description of the motion
    predicted: Trajectory
    truth: Trajectory  # simulated or measured
    predicted_label: str
    truth_label: str
    worlds: tuple[str, ...]  # description of each roll-out
    ground: Ground | None = None  # with obstacles; None in free space
    ended: tuple[Ended | None, Ended | None] = (None, None)  # early ends of the first roll-out, predicted and true
    apart: bool = False  # whether the paths diverge, so that each needs its own camera
    remarks: tuple[str, ...] = ()  # for the terminal, such as commanded and achieved values

    @property
    def frames(self) -> int:
        """Number of predicted frames."""
        return self.truth.q.shape[1] - 1

    @property
    def seconds(self) -> float:
        """Length of a roll-out [s]."""
        return self.frames * self.robot.dt


def two_episodes(
    robot: Robot, path: Trajectory, running: np.ndarray | torch.Tensor, *, title: str, seed: int, seconds: float,
    why: str, ground: Ground | None,
) -> Recording:  # fmt: skip
    """Return a recording of the first two episodes, or of one twice, up to `seconds`.

    Args:
        robot: The robot.
        path: States of all episodes; each stands still after its end.
        running: Whether an episode runs in a frame, shape [episodes, frames], bool.
        title: Description of the motion.
        seed: Seed of the episodes.
        seconds: Longest time shown [s].
        why: What ends an episode early, for example "fails".
        ground: Ground to draw.
    """
    frames, rows = 1 + min(running.shape[1], round(seconds / robot.dt)), (0, min(1, len(path.q) - 1))
    first, second = (Trajectory(path.q[row : row + 1, :frames], path.qd[row : row + 1, :frames]) for row in rows)
    return Recording(
        robot=robot, title=title, predicted=first, truth=second, predicted_label="episode 1",
        truth_label=f"episode {rows[1] + 1}", worlds=(f"seed {seed}",), ground=ground,
        ended=(Ended.when(running[rows[0]], robot.dt, why), Ended.when(running[rows[1]], robot.dt, why)),
    )  # fmt: skip


def record(
    model: Dynamics,
    robot: Robot,
    *,
    frames: int,
    seed: int = SEED,
    worlds: int = 1,
    driven: bool = False,
    where: Scenario | None = None,
) -> Recording:
    """Roll out model and simulator from the robot's resets.

    Args:
        model: The model.
        robot: The robot that it was trained on.
        frames: Frames of a roll-out.
        seed: Seed of initial states and controls.
        worlds: Number of roll-outs.
        driven: Whether controls are random (torques, or targets for a robot with gains); otherwise motion is passive.
        where: Ground, initial states and controller; None for the robot's default ground.
    """
    where = scenario(robot) if where is None else where
    starts = draw_starts(robot, frames, worlds, seed, driven=driven, where=where)
    predicted, truth = both(model, robot, starts)
    held = starts.drive.target is not None
    driven_title = "driven to random targets" if held else "driven by random torques"
    passive_title = "held at its nominal pose" if held else "without torque"
    return Recording(
        robot=robot,
        title=(driven_title if driven else passive_title) + (f", ground {where.name}" if where.grounded else ""),
        predicted=predicted.path,
        truth=truth.path,
        predicted_label=f"{model.kind}: {model.caveat}" if model.caveat else model.kind,
        truth_label="analytic",
        worlds=tuple(f"start {i + 1} of seed {seed}" for i in range(worlds)),
        ground=None if starts.environment is None else starts.environment.ground,
    )


@torch.no_grad()
def record_log(
    model: Dynamics,
    robot: Robot,
    store: Store,
    *,
    frames: int,
    seed: int = SEED,
    worlds: int = 1,
    split: int | None = None,
) -> Recording:
    """Roll a model out along recorded windows.

    Windows are drawn by seed from those with motion (mean joint speed above that of the evaluation's moving windows),
    or from all if there are none. For a floating robot, windows start with an episode, and the model gets only their
    first state.

    Args:
        model: The model.
        robot: The robot of the log.
        store: The recorded trajectories.
        frames: Maximum frames of a roll-out; at most the length of the episodes.
        seed: Seed of the draw.
        worlds: Maximum number of windows.
        split: Split of the episodes; None for all of them.
    """
    floating = robot.spec.floating
    context = 0 if floating else model.spec.context
    episodes = episodes_in(store, split)
    longest = np.median(store.lengths[episodes]) if floating else store.lengths[episodes].max()
    frames = max(1, min(frames, int(longest) - context))
    total = int(np.maximum(0, store.lengths[episodes] - context - frames + 1).sum())
    stride = max(1, total if floating else total // _CANDIDATES)
    windows = select_windows(store, split, context + frames, stride=stride, dtype=torch.float32).after(context)
    moving = np.flatnonzero((windows.qd.abs().mean((1, 2)) > MOVING).numpy())
    pool = moving if len(moving) else np.arange(windows.count)
    windows = windows.rows(np.sort(generator(seed, "record").permutation(pool)[:worlds]))
    starts = starts_of(windows, model, recorded_environments(store, model))
    return Recording(
        robot=robot,
        title="along a recorded log" if split is None else f"along a log, {split_name(split)} episodes",
        predicted=follow(model, starts),
        truth=truth_of(windows),
        predicted_label="predicted",
        truth_label="measured",
        worlds=tuple(
            _where(store, episode, start + context, robot.dt) for episode, start in windows.source.places.tolist()
        ),
        ground=None if starts.environment is None else starts.environment.ground,
    )


@accepts_request(RecordingRequest)
def record_run(request: RecordingRequest) -> Recording:
    """Record a run's model and its simulator, or the log that it was trained on.

    Raises:
        InputError: Run or data are missing, damaged or of another robot, or Newton is needed and not installed.
    """
    from neurodyn.dynamics.same_robot import require_robot
    from neurodyn.evaluate.run import open_along_log, training_logs

    run, seconds, data = request.run, request.seconds, request.data
    if seconds is not None and not seconds > 0:
        raise InputError(f"--seconds is {seconds:g}; valid: above 0")
    model, robot = load_simulator(run, device=request.device), declared_robot(run)
    simulated = request.ground is not None or request.driven
    if data is None and (model.fingerprint is None or (model.from_logs and not simulated)):
        data = training_logs(str(run))
    if data is None:
        require_robot(model, robot)
        frames, where = _frames(robot, seconds or USUAL_SECONDS), scenario(robot, request.ground, words=())
        return record(model, robot, frames=frames, seed=request.seed, driven=request.driven, where=where)
    if request.ground is not None:
        raise InputError("--ground is for a recording beside the simulator; along a log the ground is the log's")
    if request.driven:
        raise InputError("--driven draws random torques for the simulator; along a log the recorded torques drive")
    model, _, robot, store = open_along_log(run, data, request.device)
    frames, split = _frames(robot, seconds or LOG_SECONDS), chosen_split(store, None)
    return record_log(model, robot, store, frames=frames, seed=request.seed, split=split)


def default_output(
    run: str | Path, stem: str, suffix: str, resolve: Callable[[str], Path] = artifacts.resolve_run
) -> Path:
    """Return the default path of a page or image: in its run's folder, or here for shipped models.

    `suffix` includes the dot; `resolve` returns the folder of the run or policy.
    """
    text = str(run)
    if text.startswith((artifacts.PRETRAINED, artifacts.PRETRAINED_POLICY)):
        return Path(f"{stem}-{text.partition(':')[2]}{suffix}")
    return resolve(text) / f"{stem}{suffix}"


def _frames(robot: Robot, seconds: float) -> int:
    return max(1, round(seconds / robot.dt))


def _where(store: Store, episode: int, start: int, dt: float) -> str:
    return f"{store.run_name(episode)}, episode {episode} from {start * dt:.2f} s"


RATE = 20.0
"""Approximate image rate [1/s]; playback is in real time."""
_SMOOTH = 0.4
"""Averaging time of the camera position [s]."""
PREDICTED = (255, 146, 43)
TRUTH = (77, 171, 247)
_BAND, _INK, _QUIET, _GAP = (20, 24, 31), (236, 240, 245), (139, 148, 160), 6
_ALARM = (240, 62, 62)
_EFFORT = 2
"""Search effort of WebP, 0 to 6: half the time of its default, 4, for 2 % larger files."""


def pictures(
    recording: Recording, *, width: int = 360, height: int = 240, rate: float = RATE
) -> tuple[np.ndarray, float]:
    """Render the first roll-out beside the truth, in two panels of `width` x `height` pixels.

    Return images, uint8, shape [T, H, W, 3], about `rate` per second, and the time between them [s].
    """
    from neurodyn.sim.pictures import render

    dt = recording.robot.dt
    stride = max(1, round(1.0 / (rate * dt)))
    shown = [_hold_finite(x.q[0, ::stride]) for x in (recording.predicted, recording.truth)]
    # One call renders both panels, with a shared camera for comparison.
    ground = recording.ground
    if ground is not None and ground.pose is not None:
        ground = ground.at_pose(ground.pose[:1])
    paths = [_path(recording.robot, q, stride * dt) for q in (shown if recording.apart else shown[1:] * 2)]
    both = None if paths[0] is None or paths[1] is None else np.concatenate([paths[0], paths[1]])
    panels = np.asarray(render(recording.robot, torch.cat(shown), width=width, height=height, ground=ground, path=both))
    count = len(shown[0])
    frames = [
        _compose(recording, left, right, k * stride * dt)
        for k, (left, right) in enumerate(zip(panels[:count], panels[count:], strict=True))
    ]
    return np.stack(frames), stride * dt


def gif_bytes(frames: np.ndarray, interval: float, *, colours: int = 64) -> bytes:
    """Encode images, shape [T, H, W, 3], as a looping GIF with one palette."""
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    sample = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)]))
    palette = sample.quantize(colours)
    indexed = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    return _animation(indexed, interval, "GIF", optimize=False)


def webp_bytes(frames: np.ndarray, interval: float) -> bytes:
    """Encode images, shape [T, H, W, 3], as a looping WebP animation."""
    from PIL import Image

    return _animation([Image.fromarray(frame) for frame in frames], interval, "WEBP", quality=70, method=_EFFORT)


def still_bytes(frame: np.ndarray, *, quality: int = 80) -> bytes:
    """Encode one image, shape [H, W, 3], as WebP."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "WEBP", quality=quality, method=_EFFORT)
    return buffer.getvalue()


def film_writer() -> Any:
    """Return the MP4 encoder package, or raise an InputError if it is not installed."""
    return import_extra("imageio_ffmpeg", "mp4", "view", instead="ask for --format gif or html")


def write_mp4(frames: np.ndarray, interval: float, path: Path) -> None:
    """Write images, shape [T, H, W, 3], as H.264 in MP4, atomically."""
    # H.264 requires even sizes.
    height, width = frames.shape[1] // 2 * 2, frames.shape[2] // 2 * 2
    module = film_writer()
    with atomic(path) as partial:
        film = module.write_frames(
            str(partial), (width, height), fps=1.0 / interval, macro_block_size=1, output_params=["-f", "mp4"]
        )
        film.send(None)
        for frame in frames:
            film.send(np.ascontiguousarray(frame[:height, :width]))
        film.close()


def _animation(images: "list[Image.Image]", interval: float, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    images[0].save(
        buffer, kind, save_all=True, append_images=images[1:], duration=round(1000 * interval), loop=0, **options
    )
    return buffer.getvalue()


def _hold_finite(q: torch.Tensor) -> torch.Tensor:
    """Return positions with non-finite ones replaced by the last finite ones."""
    finite = torch.isfinite(q).all(-1)
    last = torch.where(finite, torch.arange(len(q)), 0).cummax(0).values
    return q[last]


def _path(robot: Robot, q: torch.Tensor, interval: float) -> np.ndarray | None:
    """Return the camera path over the ground for a floating robot, shape [T, 3]; None for a fixed base."""
    if not robot.spec.floating:
        return None
    half = max(1, round(_SMOOTH / interval / 2))
    place = q[:, :2].double().numpy()
    place = np.concatenate([place[:1].repeat(half, 0), place, place[-1:].repeat(half, 0)])
    sums = np.cumsum(np.concatenate([np.zeros((1, 2)), place]), axis=0)
    mean = (sums[2 * half + 1 :] - sums[: -2 * half - 1]) / (2 * half + 1)
    return np.concatenate([mean, np.zeros((len(mean), 1))], axis=1)


def _compose(recording: Recording, left: np.ndarray, right: np.ndarray, time: float) -> np.ndarray:
    from PIL import Image, ImageDraw, ImageFont

    height, width = left.shape[:2]
    size = max(11, height // 13)
    band = 2 * size
    font = ImageFont.load_default(size)
    image = Image.new("RGB", (2 * width + _GAP, height + 2 * band), _BAND)
    image.paste(Image.fromarray(left), (0, band))
    image.paste(Image.fromarray(right), (width + _GAP, band))
    draw = ImageDraw.Draw(image)
    labels = ((0, recording.predicted_label, PREDICTED), (width + _GAP, recording.truth_label, TRUTH))
    for (x, label, colour), ended in zip(labels, recording.ended, strict=True):
        if ended is not None and time >= ended.seconds:
            label, colour = f"{label}: {ended.why} at {ended.seconds:.2f} s", _ALARM
            draw.rectangle((x, band, x + width - 1, band + height - 1), outline=_ALARM, width=max(2, height // 60))
        draw.ellipse((x + size, band // 2 - size // 3, x + size + 2 * (size // 3), band // 2 + size // 3), fill=colour)
        draw.text((x + 2.2 * size, band / 2), label, _INK, font, anchor="lm")
    middle = height + band + band / 2
    share = time / max(recording.seconds, 1e-9)
    draw.text((size, middle), f"{time:5.2f} s", _INK, font, anchor="lm")
    begin, end = 6 * size, image.width - size
    draw.line((begin, middle, end, middle), _QUIET, 1)
    draw.line((begin, middle, begin + share * (end - begin), middle), _INK, 3)
    for ended in recording.ended:
        if ended is not None and ended.seconds <= recording.seconds:
            at = begin + ended.seconds / max(recording.seconds, 1e-9) * (end - begin)
            draw.line((at, middle - size / 2, at, middle + size / 2), _ALARM, 3)
    return np.asarray(image)


def film(frames: np.ndarray, interval: float, caption: str) -> str:
    """Return the HTML of an animation of images [frames, height, width, 3], `interval` [s] apart.

    With `prefers-reduced-motion`, browsers show only the image a third of the way through.
    """
    size = (frames.shape[2], frames.shape[1])
    return moving_picture(webp_bytes(frames, interval), still_bytes(frames[len(frames) // 3]), size, caption)


def film_of(record: Callable[[], Recording], caption: Callable[[Recording], str] = lambda made: made.title) -> str:
    """Return the HTML of a recording's animation, with its title as the default caption.

    If `record` raises an InputError, the page shows its message instead.
    """
    try:
        with stage(0.0, 0.5):
            made = record()
        with stage(0.5, 1.0):
            frames, interval = pictures(made)
    except InputError as error:
        return paragraph(str(error))
    return film(frames, interval, caption(made))
