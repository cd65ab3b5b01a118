# SPDX-License-Identifier: Apache-2.0
"""Distributions for domain randomisation, per world or per step, in the user's notation."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from neurodyn.core.config import Config
from neurodyn.core.errors import InputError, among, choices

Change = Literal["set", "add", "scale"]
Shape = Literal["uniform", "log", "normal"]
"""Distribution of the drawn number; `sim.draws.QUANTILES` draws it."""
Each = Literal["episode", "step"]

_SIGNS: dict[str, Change] = {"+": "add", "x": "scale"}
_SHAPES: tuple[Shape, ...] = get_args(Shape)
_EACH: tuple[Each, ...] = get_args(Each)
_FORMS = (
    "NAME=LOWER:UPPER, NAME=+LOWER:UPPER (added), NAME=xLOWER:UPPER (times), each also with :log, :normal or :one, "
    "NAME=A|B|C"
)
_MJLAB = {
    "body_mass": "*.mass", "body_com_offset": "*.com.*", "body_ipos": "*.com.*", "joint_damping": "*.damping",
    "dof_damping": "*.damping", "joint_armature": "*.armature", "dof_armature": "*.armature",
    "joint_friction": "*.friction", "dof_frictionloss": "*.friction", "joint_stiffness": "*.stiffness",
    "jnt_stiffness": "*.stiffness", "geom_friction": "contact.friction",
    "pd_gains": "actuator.*.k[pd]", "encoder_bias": "observation.joint_position.*",
    "push_by_setting_velocity": "push.velocity.[xyz]",
}  # fmt: skip
"""Terms of mjlab's `dr` module and events, and the quantities they randomise, for all bodies or joints."""
_NO_LINKS = ("contact.", "actuator.", "gravity.")


class RandomisedQuantity(Config, frozen=True):
    """A random draw shared by one or more quantities."""

    names: tuple[str, ...]
    change: Change = "set"
    """How the drawn number applies: as the value, as an offset to the declared value, or as a factor on it."""
    lower: float = 0.0
    upper: float = 0.0
    shape: Shape = "uniform"
    """"uniform", "log" (uniform in the logarithm), or "normal" (about the middle, truncated at the bounds, which are
    two standard deviations away)."""
    values: tuple[float, ...] = ()
    """Discrete values to draw from instead of a range; empty for a range."""
    one: bool = False
    """Whether the draw applies to a single, randomly chosen quantity while the others keep their declared values."""
    each: Each | None = None
    """How often it is drawn: once per episode, or at every step; None if not specified."""

    @property
    def greatest(self) -> float:
        """The largest number that can be drawn."""
        return max(self.values, default=self.upper)

    @property
    def least(self) -> float:
        """The smallest number that can be drawn."""
        return min(self.values, default=self.lower)


def randomised_quantities(
    texts: Sequence[str],
    nominal: Mapping[str, float],
    *,
    bounds: Mapping[str, float | None] | None = None,
    stepwise: bool = False,
) -> tuple[RandomisedQuantity, ...]:
    """Parse the draws that texts describe.

    A text is NAME=LOWER:UPPER for values, NAME=+LOWER:UPPER for offsets to the declared value, NAME=xLOWER:UPPER for
    factors on it, or NAME=A|B|C for a choice of values; ":log" or ":normal" after a range sets its shape, and ":step"
    redraws it at every step. NAME is a quantity or a shell pattern ("*.damping"), each match of which is drawn
    independently, or "dr.TERM", a term of mjlab; with ":one", as in "actuator.*.gain=.6:1:one", one random match is
    drawn and the others keep their declared values. Names joined by "&" ("leg.mass&leg.inertia.*=x.8:1.2") share one
    draw.

    Args:
        texts: The texts.
        nominal: Declared values by name.
        bounds: Smallest possible values by name, where bounded.
        stepwise: Whether these quantities may be drawn at every step. Then one quantity may have several draws, each
            with a different kind of change.

    Raises:
        InputError: A text is malformed, matches nothing, a quantity is named twice, or a draw is not possible.
    """
    draws: list[RandomisedQuantity] = []
    for text in texts:
        left, given, right = text.partition("=")
        if not given or not left or not right:
            raise _malformed_error(text)
        draw = _range(text, right)
        if draw["each"] == "step" and not stepwise:
            raise InputError(f"randomise {text!r}: {left} is a quantity of the robot; valid: one draw per episode")
        together = "&" in left
        if together and draw.get("one"):
            raise InputError(f"randomise {text!r}: names joined by & share a draw; valid with :one: a pattern")
        names = [name for pattern in left.split("&") for name in _matching(pattern.strip(), nominal)]
        groups = [tuple(dict.fromkeys(names))] if together or draw.get("one") else [(name,) for name in names]
        for group in groups:
            one = RandomisedQuantity(names=group, **draw)
            _require_possible(text, one, nominal, bounds or {})
            draws.append(one)
    _require_once(draws, by_way=stepwise)
    return tuple(draws)


def is_run(text: str) -> bool:
    """Return whether a text names a run, whose posterior is drawn from, instead of a distribution."""
    return "=" not in text


def _malformed_error(text: str) -> InputError:
    return InputError(f"randomise {text!r} is malformed; valid: {_FORMS}")


def _range(text: str, right: str) -> dict[str, Any]:
    """Parse the fields of a draw from the text after "="."""
    change = _SIGNS.get(right[0], "set")
    first, *rest = (right[1:] if change != "set" else right).split(":")
    try:
        if "|" in first:
            numbers = tuple(float(part) for part in first.split("|"))
        else:
            numbers = float(first), float(rest.pop(0))
    except (ValueError, IndexError):
        raise _malformed_error(text) from None
    words = {word: word in rest for word in ("one", *_EACH)}
    rest = [word for word in rest if word not in words]
    fields = {"change": change, "one": words["one"], "each": next((often for often in _EACH if words[often]), None)}
    shape = rest[0] if rest else "uniform"
    if len(rest) > ("|" not in first) or shape not in _SHAPES:
        raise InputError(
            f"randomise {text!r}: shape {':'.join(rest)!r}; valid: {choices(_SHAPES)}, then :one, :episode, :step or "
            "nothing"
        )
    if "|" in first:
        return {**fields, "values": numbers}
    lower, upper = numbers
    if not (math.isfinite(lower) and math.isfinite(upper) and lower <= upper):
        raise InputError(f"randomise {text!r}: from {lower:g} to {upper:g}; valid: finite numbers in ascending order")
    if shape == "log" and lower <= 0.0:
        raise InputError(f"randomise {text!r}: from {lower:g}; valid with :log: numbers above 0")
    return {**fields, "lower": lower, "upper": upper, "shape": shape}


def _matching(pattern: str, nominal: Mapping[str, float]) -> list[str]:
    """Return the quantities that match a pattern or a term of mjlab."""
    if pattern.startswith("dr."):
        term = pattern.removeprefix("dr.")
        if term not in _MJLAB:
            raise InputError(f"randomise: {pattern!r} is no term of mjlab that is known here; valid: {choices(_MJLAB)}")
        names = [name for name in nominal if fnmatchcase(name, _MJLAB[term])]
        if _MJLAB[term].startswith("*"):
            names = [name for name in names if not name.startswith(_NO_LINKS)]
    else:
        names = [name for name in nominal if fnmatchcase(name, pattern)]
    if not names:
        raise InputError(f"randomise: {pattern!r} matches no quantity{among(pattern, nominal)}, or patterns of them")
    return names


def _require_possible(
    text: str, draw: RandomisedQuantity, nominal: Mapping[str, float], least: Mapping[str, float | None]
) -> None:
    """Raise an InputError for a draw below the smallest possible value of a quantity."""
    ends = draw.values or (draw.lower, draw.upper)
    for name in draw.names:
        bound = least.get(name)
        value = min(apply_change(draw.change, nominal[name], end) for end in ends)
        if bound is not None and value < bound:
            raise InputError(f"randomise {text!r}: {name} would be {value:g}; valid: at least {bound:g}")
    if draw.change == "scale" and all(nominal[name] == 0.0 for name in draw.names):
        raise InputError(
            f"randomise {text!r}: {draw.names[0]} is declared as 0, which no factor changes; valid: + or a value"
        )


def _require_once(draws: Sequence[RandomisedQuantity], *, by_way: bool) -> None:
    ways = [(name, *((draw.change, draw.each) if by_way else ())) for draw in draws for name in draw.names]
    for way in ways:
        if ways.count(way) > 1:
            raise InputError(f"randomise: {way[0]} is drawn twice; valid: each quantity once")


def apply_change(change: Change, nominal: float, number: Any) -> Any:
    """Apply a drawn number to a quantity's nominal value; a tensor of draws gives a tensor of values."""
    if change == "set":
        return number
    return nominal + number if change == "add" else nominal * number
