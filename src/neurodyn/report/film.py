# SPDX-License-Identifier: Apache-2.0
"""Films on pages: a moving picture and the still that stands for it, or the reason why there is none."""

from collections.abc import Callable

import numpy as np

from neurodyn.core.errors import InputError
from neurodyn.core.progress import stage
from neurodyn.report.page import moving_picture, paragraph
from neurodyn.report.pictures import pictures, still_bytes, webp_bytes
from neurodyn.report.recording import Recording


def film(frames: np.ndarray, interval: float, caption: str) -> str:
    """Return the moving picture of some frames.

    Args:
        frames: Pictures, shape [frames, height, width, 3]; the one at a third is the still.
        interval: Time between two of them [s].
        caption: What they show.
    """
    size = (frames.shape[2], frames.shape[1])
    return moving_picture(webp_bytes(frames, interval), still_bytes(frames[len(frames) // 3]), size, caption)


def film_of(record: Callable[[], Recording], caption: Callable[[Recording], str] = lambda made: made.title) -> str:
    """Return the moving picture of a recording, or why it cannot be made.

    Args:
        record: Makes the recording; may raise an InputError, which is what the page then says.
        caption: What it shows; by default its title.
    """
    try:
        with stage(0.0, 0.5):
            made = record()
        with stage(0.5, 1.0):
            frames, interval = pictures(made)
    except InputError as error:
        return paragraph(str(error))
    return film(frames, interval, caption(made))
