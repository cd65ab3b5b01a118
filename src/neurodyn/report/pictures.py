# SPDX-License-Identifier: Apache-2.0
"""Recordings as images: two labelled panels side by side with the time, encoded as GIF, WebP or MP4."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neurodyn.core.artifacts import atomic
from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.report.page import moving_picture, paragraph
from neurodyn.report.recording import Recording
from neurodyn.robots import Robot

if TYPE_CHECKING:
    from PIL import Image


RATE = 20.0
"""Approximate pictures per second; playback is in real time."""
_SMOOTH = 0.4
"""Averaging time of the camera position [s]."""
PREDICTED = (255, 146, 43)
TRUTH = (77, 171, 247)
_BAND, _INK, _QUIET, _GAP = (20, 24, 31), (236, 240, 245), (139, 148, 160), 6
_ALARM = (240, 62, 62)


def pictures(
    recording: Recording, *, world: int = 0, width: int = 360, height: int = 240, rate: float = RATE
) -> tuple[np.ndarray, float]:
    """Render roll-out `world` beside the truth, in two panels of `width` x `height` pixels.

    Return pictures, uint8, shape [T, H, W, 3], about `rate` per second, and the time between them [s].
    """
    from neurodyn.sim.pictures import render

    dt = recording.robot.dt
    stride = max(1, round(1.0 / (rate * dt)))
    shown = [_held(x.q[world, ::stride]) for x in (recording.predicted, recording.truth)]
    # One call renders both panels with the same camera.
    ground = recording.ground
    if ground is not None and ground.pose is not None:
        ground = ground.posed(ground.pose[world : world + 1])
    path = _path(recording.robot, shown[1], stride * dt)
    both = None if path is None else np.concatenate([path, path])
    panels = np.asarray(render(recording.robot, torch.cat(shown), width=width, height=height, ground=ground, path=both))
    count = len(shown[0])
    frames = [
        _compose(recording, left, right, k * stride * dt)
        for k, (left, right) in enumerate(zip(panels[:count], panels[count:], strict=True))
    ]
    return np.stack(frames), stride * dt


def gif_bytes(frames: np.ndarray, interval: float, *, colours: int = 64) -> bytes:
    """Encode pictures, shape [T, H, W, 3], as a looping GIF with one palette."""
    from PIL import Image

    images = [Image.fromarray(frame) for frame in frames]
    sample = Image.fromarray(np.concatenate(frames[:: max(1, len(frames) // 8)]))
    palette = sample.quantize(colours)
    indexed = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    return _animation(indexed, interval, "GIF", optimize=False)


def webp_bytes(frames: np.ndarray, interval: float, *, quality: int = 70) -> bytes:
    """Encode pictures, shape [T, H, W, 3], as a looping WebP animation."""
    from PIL import Image

    return _animation([Image.fromarray(frame) for frame in frames], interval, "WEBP", quality=quality, method=4)


def still_bytes(frame: np.ndarray, *, quality: int = 80) -> bytes:
    """Encode one picture, shape [H, W, 3], as WebP."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "WEBP", quality=quality)
    return buffer.getvalue()


def film_writer() -> Any:
    """Return the package that encodes MP4; refuse if it is not installed."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise InputError(
            f"mp4 needs a package that is not installed ({error}); install it with: pip install 'neurodyn[view]', "
            "or ask for --format gif or html"
        ) from None
    return imageio_ffmpeg


def write_mp4(frames: np.ndarray, interval: float, path: Path) -> None:
    """Write pictures, shape [T, H, W, 3], as H.264 in MP4, atomically."""
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


def _held(q: torch.Tensor) -> torch.Tensor:
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
    """Return the HTML of an animation of pictures [frames, height, width, 3], `interval` [s] apart.

    Readers who prefer reduced motion see the picture at a third.
    """
    size = (frames.shape[2], frames.shape[1])
    return moving_picture(webp_bytes(frames, interval), still_bytes(frames[len(frames) // 3]), size, caption)


def film_of(record: Callable[[], Recording], caption: Callable[[Recording], str] = lambda made: made.title) -> str:
    """Return the HTML of a recording's animation with a caption, by default its title.

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
