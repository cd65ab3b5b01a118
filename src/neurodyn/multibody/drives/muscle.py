# SPDX-License-Identifier: Apache-2.0
"""The force of a muscle in a traced step, and the rate of its activation; see `core.description.actuation`."""

from typing import Any

from neurodyn.core.description.drive import Number
from neurodyn.multibody.trace import maximum, minimum, select_less

_TINY = 1e-15  # MuJoCo's mjMINVAL


def muscle_force(number: Number, command: Any, q: Any, qd: Any) -> Any:
    """Return the force of a muscle of length `q`, rate `qd` and activation `command`, below 0 where it pulls [N]."""
    return _active(number, q, qd)[0] * command + _passive(number, q)


def muscle_damping(number: Number, command: Any, q: Any, qd: Any) -> Any:
    """Return minus the derivative of the force by the rate [N s/m]."""
    return -(_active(number, q, qd)[1] * command)


def _normalised(number: Number, q: Any) -> tuple[Any, Any]:
    """Return L and the optimal length."""
    least, span = number("muscle.lengths.lower"), number("muscle.spans.lower")
    optimal = (number("muscle.lengths.upper") - least) / (number("muscle.spans.upper") - span)
    return span + (q - least) / optimal, optimal


def _active(number: Number, q: Any, qd: Any) -> tuple[Any, Any]:
    """Return the force per unit of activation, and its derivative by the rate."""
    length, optimal = _normalised(number, q)
    fastest = number("muscle.speed") * optimal
    rate = qd / fastest
    most = number("muscle.eccentric")
    knee = most - 1.0
    shortening = rate + 1.0
    drawn = knee - rate
    curve = select_less(knee, rate, most, most - drawn * drawn / knee)
    slope = select_less(knee, rate, 0.0, 2.0 * drawn / knee)
    curve = select_less(0.0, rate, curve, shortening * shortening)
    slope = select_less(0.0, rate, slope, 2.0 * shortening)
    curve, slope = (select_less(-1.0, rate, x, 0.0) for x in (curve, slope))
    force = -(number("muscle.force") * _by_length(number, length))
    return force * curve, force * slope / fastest


def _by_length(number: Number, length: Any) -> Any:
    """Return the active force by length: parabolas through 0, 1/2, 1, 1/2 and 0."""
    shortest, longest = number("muscle.shortest"), number("muscle.longest")
    rising, falling = 0.5 * (shortest + 1.0), 0.5 * (1.0 + longest)
    parts = [(length - shortest) / (rising - shortest), (1.0 - length) / (1.0 - rising),
             (length - 1.0) / (falling - 1.0), (longest - length) / (longest - falling)]  # fmt: skip
    first, second, third, fourth = (0.5 * x * x for x in parts)
    found = select_less(falling, length, fourth, 1.0 - third)
    found = select_less(1.0, length, found, 1.0 - second)
    found = select_less(rising, length, found, first)
    return select_less(length, shortest, 0.0, select_less(longest, length, 0.0, found))


def _passive(number: Number, q: Any) -> Any:
    """Return the force without activation: a parabola above the optimal length, then its tangent."""
    length = _normalised(number, q)[0]
    half = 0.5 * (1.0 + number("muscle.longest")) - 1.0
    x = maximum(length - 1.0, 0.0) / half
    share = select_less(1.0, x, x - 0.5, 0.5 * x * x)
    return -(number("muscle.force") * number("muscle.passive") * share)


def activation_rate(command: Any, state: Any, rising: Any, falling: Any, smoothing: float) -> Any:
    """Return the rate of a muscle's activation [1/s] from the time constants of its rise and fall [s]."""
    command, within = (minimum(maximum(x, 0.0), 1.0) for x in (command, state))
    factor = 0.5 + 1.5 * within
    rising, falling = rising * factor, falling / factor
    excess = command - state
    if smoothing < _TINY:
        constant = select_less(0.0, excess, rising, falling)
    else:
        x = minimum(maximum(excess / smoothing + 0.5, 0.0), 1.0)
        constant = falling + (rising - falling) * (x * x * x * (3.0 * x * (2.0 * x - 5.0) + 10.0))
    return excess / constant
