# SPDX-License-Identifier: Apache-2.0
r"""Delay and other slowness of motors: what the logs say of each, and of their sum.

A slow motion follows its command after $\tau = d + l + kd / kp$: delay, lag, and the time that a servo needs. Only fast
motion tells them apart, so the sum may be known where its parts are not.
"""

import math

import torch
from torch import Tensor

from neurodyn.core.description.parameter import student_t
from neurodyn.data.header import CONTROL, StoreHeader
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.result import CONFIDENCE, DelayFigures
from neurodyn.identify.unknowns.quantities import DELAY
from neurodyn.identify.unknowns.search_space import BoxedSpace, CoordinateSpace
from neurodyn.robots import Robot

_APART = 3.0
"""Ratio of the deviations of a delay and of its sum with the rest, from which on only the sum counts as known."""
_LEAST = 5e-4
"""Deviation of a delay up to which it is known in any case [s]."""


def delay_figures(
    space: BoxedSpace, x: Tensor, analysis: Identifiability, robot: Robot, header: StoreHeader
) -> DelayFigures | None:
    """Return what the logs say of the delay of motors; None if it was not free.

    Args:
        space: Coordinates of the free quantities.
        x: Fitted coordinates, shape [n].
        analysis: Identifiability there.
        robot: The robot with its motors.
        header: Header of the logs.
    """
    if not isinstance(space, CoordinateSpace) or DELAY not in space.names:
        return None
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_(True)
        delay = space.value(DELAY, leaf)
        lag, servo = _mean_lag(space, leaf), _mean_servo_time(space, leaf, robot)
        parts = {name: part for name, part in (("delay", delay), ("lag", lag), ("kd / kp", servo)) if part is not None}
        total = torch.stack(list(parts.values())).sum()
        deviations = {name: _deviation(part, leaf, analysis) for name, part in {**parts, "sum": total}.items()}
    reach = student_t(analysis.degrees, CONFIDENCE)
    values = {name: float(part.detach()) for name, part in parts.items()}
    split = len(parts) == 1 or deviations["delay"] <= max(_LEAST, _APART * deviations["sum"])
    measured = header.delays.get(CONTROL)
    return DelayFigures(
        delay=values["delay"], delay_error=reach * deviations["delay"], lag=values.get("lag"),
        lag_error=None if lag is None else reach * deviations["lag"], parts=" + ".join(parts),
        total=sum(values.values()), total_error=reach * deviations["sum"], split=split,
        measured=None if measured is None or not measured.usable else measured.seconds,
        measured_error=None if measured is None else measured.error, shift=header.shift,
        text=_text(values, deviations, reach, split, header.shift),
    )  # fmt: skip


def _mean_lag(space: CoordinateSpace, x: Tensor) -> Tensor | None:
    lags = [space.value(name, x) for name in space.names if name.endswith(".lag")]
    return torch.stack(lags).mean() if lags else None


def _mean_servo_time(space: CoordinateSpace, x: Tensor, robot: Robot) -> Tensor | None:
    """Return the mean of kd / kp over the drives whose gains are free [s]; None if none are."""
    times: list[Tensor] = []
    for joint, drive in robot.drives.items():
        names = [f"actuator.{joint}.{what}" for what in ("kd", "kp")]
        if drive.kp and drive.kd and any(name in space.names for name in names):
            gains = zip(names, (drive.kd, drive.kp), strict=True)
            kd, kp = (space.value(n, x) if n in space.names else x.new_tensor(own) for n, own in gains)
            times.append(kd / kp)
    return torch.stack(times).mean() if times else None


def _deviation(value: Tensor, x: Tensor, analysis: Identifiability) -> float:
    (slope,) = torch.autograd.grad(value, x, retain_graph=True, allow_unused=True)
    if slope is None:
        return 0.0
    sizes = slope * analysis.deviations.clamp(max=1.0)
    correlation = analysis.correlation.clone()
    correlation.fill_diagonal_(1.0)
    return math.sqrt(max(float(sizes @ correlation @ sizes), 0.0))


def _text(values: dict[str, float], deviations: dict[str, float], reach: float, split: bool, shift: float) -> str:
    def text_of(name: str, value: float) -> str:
        return f"{1e3 * value:.3g} +- {1e3 * reach * deviations[name]:.2g} ms"

    text = f"{' + '.join(values)} = {text_of('sum', sum(values.values()))}; how it splits is not known"
    if split:
        text = ", ".join(f"{name} {text_of(name, value)}" for name, value in values.items() if name != "kd / kp")
    if shift:
        text += f"; the column map shifts commands by {1e3 * shift:.3g} ms, beside which this is the rest"
    return text
