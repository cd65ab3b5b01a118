# SPDX-License-Identifier: Apache-2.0
r"""Statistics of motion under the logged commands: speeds and spectra of roll-outs beside those of the robot.

After seconds, nobody can say where a robot without motion capture is, and impacts make paths part. Its rates still have
a size and a spectrum. With the power $P_k$ of a quantity's deviations from the window's mean, over its components and
windows, in the octaves k between one period a window and half the frame rate (Welch 1967, with Hann windows), the
distance of two spectra is the root mean square over k of $10 \log_{10} (P_k / \hat P_k)$.
"""

import torch
from torch import Tensor

from neurodyn.identify.ladder.sensed_errors import SensedErrors
from neurodyn.identify.result import MotionLikeness

SECONDS = 4.0
"""Longest roll-out [s]."""
_LEAST = 1e-12


def motion_likeness(errors: SensedErrors) -> dict[str, MotionLikeness]:
    """Return how like the logged motion that of finite roll-outs is: joints, and each vector that sensors read."""
    finite, joints = errors.finite, slice(errors.spec.joints[0].nv, None)
    rates = errors.truth.qd[finite][..., joints], errors.predicted.qd[finite][..., joints]
    found = {"joints [rad/s or m/s]": _likeness(*rates)} if len(rates[0]) else {}
    first = column = 0
    for one in errors.measured.observation.mounted:
        for part in one.stream.parts:
            logged = errors.measured.readings[finite][..., first : first + len(part.components)]
            off = errors.sensed[finite][..., column : column + len(part.residuals)]
            first, column = first + len(part.components), column + len(part.residuals)
            whole = logged.isfinite().all(-1).all(-1)
            if part.name != "quaternion" and bool(whole.any()):
                found[f"{one.name}.{part.name} [{part.unit}]"] = _likeness(logged[whole], (logged + off)[whole])
    return found


def _likeness(logged: Tensor, predicted: Tensor) -> MotionLikeness:
    """Compare quantities along windows, shape [W, T, n]."""
    size, own = ((x - x.mean(1, keepdim=True)).square().mean().sqrt() for x in (predicted, logged))
    ratio = 10.0 * torch.log10(_octaves(predicted) / _octaves(logged))
    return MotionLikeness(speed=float(size / own.clamp_min(_LEAST)), spectrum=float(ratio.square().mean().sqrt()))


def _octaves(values: Tensor) -> Tensor:
    """Return the power in octaves of frequency, shape [octaves]."""
    frames = values.shape[1]
    weights = torch.hann_window(frames, dtype=values.dtype)[:, None]
    power = torch.fft.rfft((values - values.mean(1, keepdim=True)) * weights, dim=1).abs().square().sum((0, 2))
    edges = [2**k for k in range(len(power).bit_length()) if 2**k < len(power)]
    return torch.stack([power[low : 2 * low].sum() for low in edges]).clamp_min(_LEAST)
