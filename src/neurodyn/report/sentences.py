# SPDX-License-Identifier: Apache-2.0
"""An adaptation or identification in a few sentences, as an engineer would say them: for the terminal and the page.

They hold what the logs determine, largest changes first, with as many digits as its interval supports; how much better
the model predicts; and what stays unknown.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from msgspec import UNSET

from neurodyn.core.verdict import grade_of
from neurodyn.identify.ladder.references import GRU, WORLD
from neurodyn.identify.ladder.rungs import DECLARED, IDENTIFIED, NETWORKS
from neurodyn.identify.result import IdentificationFigures, IdentifiedParameter, JointRegion, Reference, Rung
from neurodyn.report.numbers import capital, count, share, times, title_of

_LATE = ("delay of commands", "motor lag")
"""Kinds of quantities of which the logs may determine the sum alone."""
_MOST = 6
"""Most sentences."""
_EACH = 2
"""Most quantities of a kind that are named."""
_NAMED = 5
"""Most kinds of undetermined quantities that are named."""
_NEXT = 0.1
"""Distance from a bound below which a value counts as being at it, in standard deviations of the prior."""
_ZERO = 0.01
"""Share of the declared value below which the lower end of an interval is zero."""
_EQUAL = 0.05
"""Relative difference of two errors below which they count as equal."""


@dataclass(frozen=True)
class QuantityKind:
    """A kind of quantity and how it is called.

    Attributes:
        pattern: Pattern of the names.
        noun: What it is.
        link: Word before the part that it belongs to.
        say: Sentence about one quantity, from its part, value and declared value; None for "NOUN LINK PART is VALUE".
        unit: Replaces the quantity's unit; None to keep it.
    """

    pattern: str
    noun: str
    link: str = "of"
    say: Callable[[str, str, str], str] | None = None
    unit: str | None = None

    def part(self, name: str) -> str:
        """Return the part of the robot in the name of a quantity."""
        begin, _, end = self.pattern.partition("*")
        if "?" in end:  # a component
            return name.removeprefix(begin)[: -len(end)]
        return name.removeprefix(begin).removesuffix(end.replace("*", ""))


def _carries(part: str, value: str, _: str) -> str:
    return f"It carries {value} on {part}" if part else f"It carries {value}"


def _late(_part: str, value: str, declared: str) -> str:
    return f"Commands act {value} late, declared {declared}"


QUANTITY_KINDS: tuple[QuantityKind, ...] = (
    QuantityKind("payload.mass", "payload", say=lambda _, value, __: _carries("", value, "")),
    QuantityKind("payload.*.mass", "payload", "on", _carries),
    QuantityKind("payload.*", "place of the payload", ""),
    QuantityKind("motors.delay", "delay of commands", "", _late),
    QuantityKind("motors.lag", "lag of commands", ""),
    QuantityKind("actuator.*.delay", "delay of commands", "to"),
    QuantityKind("contact.friction", "friction of the floor", ""),
    QuantityKind("contact.*", "softness of the floor", ""),
    QuantityKind("actuator.*.gain", "torque per command", "of", unit="times"),
    QuantityKind("actuator.*.kp", "servo stiffness (kp)"),
    QuantityKind("actuator.*.kd", "servo damping (kd)"),
    QuantityKind("actuator.*.lag", "motor lag"),
    QuantityKind("actuator.*.bias", "encoder offset"),
    QuantityKind("*.mass_scale", "mass", unit="times"),
    QuantityKind("*.inertia_scale", "inertia", unit="times"),
    QuantityKind("*.extent.?", "extent", unit="times"),
    QuantityKind("element.*.at_?", "place of the drag", "of"),
    QuantityKind("element.*.turn_?", "drag of turning", "of"),
    QuantityKind("element.*.?", "drag", "of"),
    QuantityKind("*.mass", "mass"),
    QuantityKind("*.com.?", "centre of mass"),
    QuantityKind("*.friction", "friction", "at"),
    QuantityKind("*.damping", "damping", "at"),
    QuantityKind("*.armature", "rotor inertia", "at"),
    QuantityKind("*.stiffness", "stiffness", "at"),
    QuantityKind("*.lower", "lower limit"),
    QuantityKind("*.upper", "upper limit"),
    QuantityKind("*", "", ""),
)
"""Kinds of quantities; the first that fits counts."""


def kind_of(name: str) -> QuantityKind:
    """Return the kind of a quantity."""
    return next(kind for kind in QUANTITY_KINDS if fnmatchcase(name, kind.pattern))


def sentences(result: IdentificationFigures) -> list[str]:
    """Return up to six sentences on what was found, how well it predicts, and what is not known."""
    first = [*_network(result), *_bounds(result)]  # what else is said then rests on it
    others = [
        *_structure(result), *_stated_gains(result), *_delay(result), *_together(result), *_differences(result),
        *_convergence(result), *_prediction(result), *_silent(result),
    ]  # fmt: skip
    if result.chosen == DECLARED:
        first = f"The model of {result.robot} stays as declared: no fitted model predicts held-out motion better."
        return [first, *_prediction(result)]
    return [*first, *_changes(result, max(_MOST - len(first) - len(others), 2)), *others]


def _network(result: IdentificationFigures) -> list[str]:
    """Return that the run's model is a network, and why; and why it is none where any kind may be."""
    if not result.network:
        stays = _MODELS.get(str(result.chosen), str(result.chosen))
        return [f"The model stays {stays}: {_compared(result)}."] if result.kinds else []
    return [f"The model is a {_KINDS[result.network]} ({_compared(result)}); see RUN/mechanism, too."]


_KINDS = {GRU: "plain recurrent network", WORLD: "world model"}
_MODELS = {IDENTIFIED: "the identified mechanism", NETWORKS: "the mechanism with networks", DECLARED: "as declared"}
"""Kinds of networks, and rungs of the ladder, in a sentence."""


def _compared(result: IdentificationFigures) -> str:
    return "; ".join(f"{_KINDS[name]} {reason}" for name, reason in result.kinds.items())


def phrase(one: IdentifiedParameter) -> str:
    """Return a value with its 90 % interval and unit, with as many digits as the interval supports.

    "5.7 N m (5.5 to 5.9)"; without an interval "about 5.7 N m".
    """
    factor, unit = _scale(one)
    if one.interval is None:
        return f"about {one.value * factor:.2g} {unit}".strip()
    low, high = (end * factor for end in one.interval)
    value, digits = one.value * factor, _decimals(one.value * factor, low, high)
    return f"{_round(value, digits)} {unit}".strip() + f" ({_round(low, digits)} to {_round(high, digits)})"


def declared_text(one: IdentifiedParameter) -> str:
    """Return the declared value in the unit of `phrase`."""
    return f"{one.nominal * _scale(one)[0]:.4g}"


def has_changed(one: IdentifiedParameter) -> bool:
    """Return whether the logs determine a quantity, within its bounds, and its declared value is not in the interval.

    Without an interval, a value counts as changed if it is not the declared one.
    """
    if not one.determined or at_bound(one):
        return False
    if one.interval is None:
        return abs(one.value - one.nominal) > _EQUAL * max(abs(one.nominal), 1e-12)
    return not _holds_declared(one)


def at_bound(one: IdentifiedParameter) -> bool:
    """Return whether a quantity was fitted to a bound, or next to one, that is not its declared value."""
    if not one.determined or one.value == one.nominal:
        return False
    if one.in_prior is UNSET or one.bound:
        return one.bound
    zero = one.interval is not None and one.interval[0] <= _ZERO * abs(one.nominal)  # which is no bound of the search
    near = any(abs(one.in_prior.value - end) < _NEXT for end in one.in_prior.bounds[zero:])
    return near and not _holds_declared(one)


def _holds_declared(one: IdentifiedParameter) -> bool:
    return one.interval is not None and one.interval[0] <= one.nominal <= one.interval[1]


def change(one: IdentifiedParameter) -> float:
    """Return how far a quantity is from its declared value, in standard deviations of its prior.

    Without a prior it is the change over the declared value, or in lengths of the interval if that is zero.
    """
    away = abs(one.value - one.nominal)
    if one.in_prior is not UNSET:
        return abs(one.in_prior.value - one.in_prior.declared)
    if one.prior is not UNSET and one.prior > 0:
        return away / one.prior
    low, high = one.interval or (one.value, one.value)
    return away / max(abs(one.nominal) or high - low, 1e-12)


def _changes(result: IdentificationFigures, most: int) -> list[str]:
    """Return a sentence for each kind with the largest changes, and one that names the other kinds."""
    kinds: dict[QuantityKind, list[IdentifiedParameter]] = {}
    for one in sorted(filter(has_changed, result.parameters), key=change, reverse=True):
        summed = result.delay is not UNSET and not result.delay.split and kind_of(one.name).noun in _LATE
        if not summed and (not fnmatchcase(one.name, "payload.*") or one.name.endswith(".mass")):
            kinds.setdefault(kind_of(one.name), []).append(one)
    told = list(kinds.items())
    if not told:
        return ["No quantity clearly differs from its declared value."]
    own = told if len(told) <= most else told[: most - 1]
    said = [f"{_about(kind, found)}{_carrier(result, found)}." for kind, found in own]
    return said if own is told else [*said, f"Also changed: {_list_kinds(told[most - 1 :], _NAMED)}."]


def _carrier(result: IdentificationFigures, found: Sequence[IdentifiedParameter]) -> str:
    return f" on the link of {result.carrier}" if result.carrier and found[0].name == "payload.mass" else ""


def _bounds(result: IdentificationFigures) -> list[str]:
    bounds = [one for one in result.parameters if at_bound(one)]
    if not bounds:
        return []
    ends = [
        f"{one.name} ({f'{one.value * factor:.4g} {unit}'.strip()}, declared {declared_text(one)})"
        for one in bounds[:_EACH]
        for factor, unit in (_scale(one),)
    ]
    if len(bounds) > _EACH:
        ends.append(f"{len(bounds) - _EACH} more")
    verb = "ends at its bound" if len(bounds) == 1 else "end at their bounds"
    tried = [one.name for one in result.tried if not one.kept]
    what = f"; tried and no better: {_and(tried[:_EACH])}" if tried else ""
    return [f"{_and(ends)} {verb}: something else may differ{what}."]


def _convergence(result: IdentificationFigures) -> list[str]:
    return [] if result.converged else [f"The search did not converge ({result.reason}): all values are rough."]


def _about(kind: QuantityKind, found: Sequence[IdentifiedParameter]) -> str:
    first = found[0]
    if kind.say is not None and len(found) == 1:
        return kind.say(kind.part(first.name), phrase(first), declared_text(first))
    noun = capital(kind.noun) or first.name
    named = found[:_EACH] if kind.noun else found[:1]
    if len(found) == 1:
        return f"{_join(noun, kind, first)} is {phrase(first)}, declared {declared_text(first)}"
    clauses = [f"{kind.part(one.name)} {phrase(one)}" for one in named]
    more = f", and {len(found) - len(named)} more differ" if len(found) > len(named) else ""
    return f"{noun}: {', '.join(clauses)}; declared {' and '.join(dict.fromkeys(map(declared_text, named)))}{more}"


def _join(noun: str, kind: QuantityKind, one: IdentifiedParameter) -> str:
    part = kind.part(one.name) if kind.noun and kind.link else ""
    return f"{noun} {kind.link} {part}" if part else noun


def _structure(result: IdentificationFigures) -> list[str]:
    return [f"The logs call for {result.structure}, which the declaration lacks."] if result.structure else []


def _stated_gains(result: IdentificationFigures) -> list[str]:
    """Return which values are held as stated, by the last part of their names."""
    values: dict[str, set[float]] = {}
    for name, value in result.stated.items():
        values.setdefault(name.rpartition(".")[2], set()).add(value)
    words = [f"{what} {' or '.join(f'{value:.4g}' for value in sorted(some))}" for what, some in values.items()]
    return [f"Gains of servos are held as the map states them: {', '.join(words)}."] if words else []


def _delay(result: IdentificationFigures) -> list[str]:
    """Return how late commands act if only the sum of delay and lag is known."""
    if result.delay is UNSET or result.delay.split:
        return []
    return [f"Commands act late: {result.delay.text}."]


def _together(result: IdentificationFigures) -> list[str]:
    """Return what is known of two quantities together: of the most pairs of one kind in a sentence."""
    kinds: dict[tuple[str, bool], list[JointRegion]] = {}
    for one in result.together:
        (of, first), (other, second) = (name.rpartition(".")[::2] for name in one.names)
        kinds.setdefault((f"{one.form} {first} {one.sign} {second}", of == other), []).append(one)
    if not kinds:
        return []
    (kind, of_one_joint), found = max(kinds.items(), key=lambda one: len(one[1]))
    if len(found) == 1:
        return [f"{capital(found[0].text)}."]
    first, second = (name.removeprefix("actuator.") for name in found[0].names)
    if of_one_joint:
        where = f"{len(found)} joints (in {first.rpartition('.')[0]} to {found[0].width})"
    else:
        where = f"{len(found)} pairs ({first} {found[0].sign} {second} to {found[0].width})"
    return [f"The {kind} is known in {where}, neither alone."]


def _differences(result: IdentificationFigures) -> list[str]:
    if not result.differences:
        return []
    more = len(result.differences) - 1
    others = f", and in {more} more" if more else ""
    return [f"The logs disagree: {result.differences[0].text}{others}."]


@dataclass(frozen=True)
class _LastErrors:
    """Errors at the longest horizon, by group: of the declaration, of the model, and of the best other model."""

    seconds: float
    finite: float
    before: dict[str, float | None]
    now: dict[str, float | None]
    beside: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    @property
    def what(self) -> str:
        return "a held-out second" if self.seconds == 1 else f"held-out motion {self.seconds:g} s ahead"


def _prediction(result: IdentificationFigures) -> list[str]:
    """Return how errors on held-out motion compare with the declaration's, and with those of other models."""
    errors = _errors(result)
    if errors is None:
        return []
    if all(error is None for error in errors.now.values()):
        return [f"None of its roll-outs over {errors.seconds:g} s of held-out motion stays finite."]
    ends = "" if errors.finite >= 1 else f"; {share(1.0 - errors.finite)} of its roll-outs diverge"
    ends += _better_model(errors)
    if all(error is None for error in errors.before.values()):
        return [f"It predicts {errors.what}, where the roll-outs of the declaration diverge{ends}."]
    if result.chosen == DECLARED:
        return []
    compared = {  # of a sensor without a reading at the horizon there is no error
        _PARTS.get(group, group.partition(" [")[0]): _comparison(before, now)
        for group, now in errors.now.items()
        if now is not None and (before := errors.before[group]) is not None
    }
    if not compared:
        return []
    if len(errors.now) == 1:
        return [f"It predicts {errors.what} {next(iter(compared.values()))} the declaration{ends}."]
    clauses = _and(f"{name} {how.removesuffix(' than').removesuffix(' as')}" for name, how in compared.items())
    return [f"Compared with the declaration it predicts, over {errors.what}, {clauses}{ends}."]


_PARTS = {"base [m]": "the base's position", "base [rad]": "its orientation"}
"""Groups of errors in words; others by their own name."""


def _comparison(before: float, now: float) -> str:
    """Return how an error compares with that of another model: "24 times better than"."""
    if now > 0 and before / now > 1 + _EQUAL:
        return f"{times(before / now).removesuffix('×')} times better than"
    if now > before * (1 + _EQUAL):
        return f"{times(now / max(before, 1e-12)).removesuffix('×')} times worse than"
    return "no better than"


def _better_model(errors: _LastErrors) -> str:
    """Return which other model is clearly better in any group."""
    better = {
        name: max(
            (now / other for group, now in errors.now.items() if now and (other := groups.get(group))), default=0.0
        )
        for name, groups in errors.beside.items()
    }
    name = max(better, key=lambda one: better[one], default="")
    if not name or better[name] <= 1 + _EQUAL:
        return ""
    return f"; {title_of(name)} is {times(better[name]).removesuffix('×')} times better still"


def _errors(result: IdentificationFigures) -> _LastErrors | None:
    if result.rungs:
        first, rung = result.rungs[0], next(one for one in result.rungs if one.name == result.chosen)
        before, now = (_last(one) for one in (first, rung))
        beside = {one.name: _last(one) for one in result.references}
        return _LastErrors(result.horizons[-1], rung.finite_fraction, before, now, beside)
    last = "hybrid" if "hybrid" in result.errors else "identified"
    marks = list(result.errors.get(last, {}))
    if not marks or "nominal" not in result.errors:
        return None
    nominal, found = (result.errors[name][marks[-1]] for name in ("nominal", last))
    return _LastErrors(float(marks[-1]), found.finite_fraction, {"": nominal.errors.q_mean}, {"": found.errors.q_mean})


def _last(model: Rung | Reference) -> dict[str, float | None]:
    return {group: errors[-1] for group, errors in held_out_errors(model).items()}


def held_out_errors(model: Rung | Reference) -> dict[str, list[float | None]]:
    """Return a model's errors on test episodes, or on those for validation if there are none."""
    return model.test or model.errors


def _silent(result: IdentificationFigures) -> list[str]:
    """Return what the logs do not determine, by kind, and whether a payload may be among what they do not tell."""
    silent, load = [one for one in result.parameters if not one.determined], result.unseen_payload
    up_to = "" if load is UNSET else f"whether the link of {load.joint} carries up to {load.mass:.2g} kg"
    if not silent:
        return [f"The logs do not tell {up_to}."] if up_to else []
    kinds: dict[QuantityKind, list[IdentifiedParameter]] = {}
    for one in silent:
        kinds.setdefault(kind_of(one.name), []).append(one)
    ordered = sorted(kinds.items(), key=lambda pair: -len(pair[1]))
    verb = "stays as declared" if len(silent) == 1 else "stay as declared"
    number = f"{len(silent)} of {len(result.parameters)} quantities"
    ends = f"; nor do they tell {up_to}" if up_to else ""
    return [f"The logs do not determine {number}, which {verb}: {_list_kinds(ordered, _NAMED)}{ends}."]


def _list_kinds(kinds: Sequence[tuple[QuantityKind, Sequence[IdentifiedParameter]]], most: int | None = None) -> str:
    """Return kinds with the number of their quantities: "damping (5), encoder offset of elbow, gravity.z"."""
    words = []
    for kind, found in kinds[:most]:
        if len(found) == 1 or not kind.noun:
            words += [_join(kind.noun, kind, one) if kind.noun else one.name for one in found]
        else:
            words.append(f"{kind.noun} ({len(found)})" if kind.link else kind.noun)
    if most is not None and kinds[most:]:
        words.append(count(sum(len(found) for _, found in kinds[most:]), "other"))
    return ", ".join(words)


def _and(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


_SMALL = {"s": ("ms", 1.0), "rad": ("mrad", 0.1), "m": ("mm", 0.1)}
"""Unit of small values, and the size below which they are small."""


def _scale(one: IdentifiedParameter) -> tuple[float, str]:
    """Return factor and unit in which a quantity is stated."""
    unit = kind_of(one.name).unit
    unit = one.unit if unit is None else unit
    if unit in _SMALL and max(abs(one.value), abs(one.nominal)) < _SMALL[unit][1]:
        return 1e3, _SMALL[unit][0]
    return 1.0, "" if unit == "1" else unit


_ROUNDING = 0.25
"""Most that rounding may move the ends of an interval, as a share of its half width."""


def _decimals(value: float, low: float, high: float) -> int:
    """Return the fewest decimals with which the ends of an interval hardly move, at most four digits of the value."""
    half, size = 0.5 * abs(high - low), abs(value)
    most = 3 - math.floor(math.log10(size)) if size > 0 else 9
    if not 0 < half < math.inf:
        return most - 1 if size > 0 else 0
    least = -math.floor(math.log10(half))
    moved = (sum(abs(round(end, decimals) - end) for end in (low, high, value)) for decimals in range(least, least + 2))
    fitting = next((k for k, off in enumerate(moved) if off <= _ROUNDING * half), 1)
    return min(least + fitting, most)


def _round(value: float, decimals: int) -> str:
    text = f"{round(value, decimals):.{max(decimals, 0)}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def usable(result: IdentificationFigures) -> bool:
    """Return whether suggestions to use the result are in place: its verdict does not fail."""
    return result.verdict is UNSET or grade_of(result.verdict) != "fails"
