# SPDX-License-Identifier: Apache-2.0
"""Identifiable quantities: names, name patterns, and bounds."""

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from neurodyn.core.config import Config
from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.core.errors import InputError, among, notice

_POSITIVE = ("mass", "inertia.xx", "inertia.yy", "inertia.zz", *JOINT_PROPERTIES)
_POSITIVE_CONTACT = ("slip_speed", "cfm", "restitution", "baumgarte")
_SOLREF = ("solref.timeconst", "solref.dampratio")
_POSITIVE_SOLIMP = ("solimp.width", "solimp.power")
_SHARES = ("solimp.d0", "solimp.dwidth", "solimp.midpoint")


CONFIDENCE = 0.95
"""Coverage of confidence intervals."""


def student_t(degrees: int, confidence: float = CONFIDENCE) -> float:
    """Return the half width of a confidence interval in standard deviations, for some degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(max(1, degrees), 0.5 + 0.5 * confidence))


class Parameter(Config, frozen=True):
    """A quantity to identify."""

    name: str
    nominal: float
    """Initial value."""
    lower: float | None = None
    upper: float | None = None

    def __post_init__(self) -> None:
        lower = -math.inf if self.lower is None else self.lower
        upper = math.inf if self.upper is None else self.upper
        if not all(math.isfinite(x) for x in (self.nominal, self.lower, self.upper) if x is not None):
            raise ValueError(
                f"parameter {self.name!r}: {self.nominal:g} in [{lower:g}, {upper:g}] is not finite; valid: finite "
                "numbers, and no bound at all where there is none"
            )
        if not lower < upper:
            raise ValueError(f"parameter {self.name!r}: bounds are {lower:g} and {upper:g}; valid: lower below upper")
        if not lower <= self.nominal <= upper:
            raise ValueError(
                f"parameter {self.name!r}: its nominal value {self.nominal:g} lies outside of the bounds [{lower:g}, "
                f"{upper:g}]; valid: bounds that hold it, or another nominal value"
            )


Bounds = Mapping[str, tuple[float | None, float | None]]
"""Lower and upper bounds by name; None for no bound."""


_OF_DRIVES = {"delay": "longest_delay: 0.03", "lag": "lag: 0.01", "backlash": "backlash: 0.01"}
"""Entry of a declared drive that makes a quantity of it, for those that a drive does not have without."""


def _hint(pattern: str, nominal: Mapping[str, float]) -> str:
    """Return how a robot gets quantities of drives, or how those of links are named, if a pattern asks for them."""
    what = pattern.rpartition(".")[2]
    if what not in _OF_DRIVES and not pattern.startswith("actuator."):
        rest = pattern.partition(".")[2]
        of_others = rest and any(name.endswith(f".{rest}") for name in nominal)
        return "; a link's quantities are named after the joint that moves it" if of_others else ""
    entry = _OF_DRIVES.get(what, "coulomb: 0.1")
    return f"; quantities of drives are those that its declaration gives, as in drives: {{JOINT: {{{entry}}}}}"


def select_parameters(
    nominal: Mapping[str, float], asked: Sequence[str], bounds: Bounds = MappingProxyType({})
) -> tuple[Parameter, ...]:
    """Select parameters by text from nominal values, with `bounds` where names do not imply them.

    A text is a name or a shell pattern ("*.damping"; "elbow" also matches "elbow.*", "*.com" also "*.com.*"). After "="
    it may give bounds, or a start with or without bounds: "elbow.damping=0:1", "elbow.mass=2.5", "elbow.mass=2.5:1:4";
    empty entries keep their defaults. Masses, inertias, frictions and stiffnesses are at least zero, solref values keep
    their sign, and solimp impedances are between 0 and 1. If texts overlap, the last one wins.

    Raises:
        InputError: A pattern matches nothing, bounds are malformed, or they exclude the nominal value.
    """
    selected: dict[str, Parameter] = {}
    for text in asked:
        pattern, given, numbers = current_name(text).partition("=")
        names = [name for name in nominal if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]
        if not names:
            valid = f"{among(pattern, nominal)}, or patterns of them{_hint(pattern, nominal)}"
            raise InputError(f"parameter {pattern!r} matches no quantity{valid}")
        _report_skipped(pattern, names, nominal)
        start, lower, upper = _numbers(text, numbers) if given else (None, None, None)
        for name in names:
            least, most = bounds[name] if name in bounds else _range(name, nominal[name])
            if lower is not None and least is not None and least >= 0.0 and lower < 0.0:
                raise InputError(f"parameter {text!r}: {name} is never negative; valid: a lower bound of at least 0")
            if upper is not None and most is not None and upper > most:
                raise InputError(f"parameter {text!r}: {name} is never above {most:g}; valid: an upper bound up to it")
            value = nominal[name] if start is None else start
            least, most = least if lower is None else lower, most if upper is None else upper
            try:
                selected[name] = Parameter(name, value, least, most)
            except ValueError as error:
                raise InputError(str(error)) from None
    return tuple(selected[name] for name in nominal if name in selected)


def current_name(name: str) -> str:
    """Return the name of a quantity, of which older files may use a former one: a controller's gain is its drive's."""
    return f"actuator.{name.removeprefix('controller.')}" if name.startswith("controller.") else name


def current_names(table: Any) -> Any:
    """Return a table by quantity with current names; see `current_name`."""
    return {current_name(name): value for name, value in table.items()} if isinstance(table, dict) else table


def _report_skipped(pattern: str, names: Sequence[str], nominal: Mapping[str, float]) -> None:
    """Report which links a pattern such as "*.armature" skips because they have no such quantity."""
    what = pattern.removeprefix("*.")
    if what == pattern or any(sign in what for sign in "*?[."):
        return
    links = [name.removesuffix(".mass") for name in nominal if name.endswith(".mass")]
    lacking = [link for link in links if f"{link}.{what}" not in nominal]
    if lacking and any(f"{link}.{what}" in names for link in links):
        notice(f"{pattern}: skips {', '.join(lacking)}, which has no {what}")


def _numbers(text: str, numbers: str) -> tuple[float | None, float | None, float | None]:
    """Parse start, lower and upper bound from the text after "="."""
    try:
        values = [float(number) if number else None for number in numbers.split(":")]
    except ValueError:
        values = []
    if len(values) == 1 and values[0] is not None:
        return values[0], None, None
    if len(values) == 2:
        return None, values[0], values[1]
    if len(values) == 3:
        return values[0], values[1], values[2]
    raise InputError(
        f"parameter {text!r} is malformed; valid: NAME, NAME=START, NAME=LOWER:UPPER, NAME=START:LOWER:UPPER"
    )


def _range(name: str, nominal: float) -> tuple[float | None, float | None]:
    """Return the lower and upper bound implied by a quantity's name."""
    if name.endswith(_SHARES):
        return 0.0, 1.0
    if name.endswith(_SOLREF):  # a time constant and a damping ratio, or both negative
        return (0.0, None) if nominal > 0.0 else (None, 0.0)
    positive = name.endswith((*_POSITIVE, *_POSITIVE_SOLIMP))
    positive |= name.startswith("contact.") and name.endswith(_POSITIVE_CONTACT)
    return (0.0, None) if positive else (None, None)
