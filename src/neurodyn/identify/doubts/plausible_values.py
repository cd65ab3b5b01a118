# SPDX-License-Identifier: Apache-2.0
"""Doubts about identified values: at a bound of the search, beyond what the robot can have, far from its declaration.

A value that takes up a motor's whole torque in the logged motion, or an inertia or a place larger than the robot, is
not of the robot: the fit uses it for something that its mechanism lacks, or the log is not what it is taken for.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec import UNSET

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.verdict import Finding
from neurodyn.data.header import Split
from neurodyn.data.windows import select_windows
from neurodyn.identify.doubts.evidence import FitEvidence
from neurodyn.identify.result import IdentifiedParameter, InPriorDeviations
from neurodyn.identify.unknowns.quantities import LIMITS, carried
from neurodyn.identify.unknowns.search_space import IMPLAUSIBLE, MASS_SCALE, PAYLOAD

_STALLS: tuple[float, float] = (0.5, 0.9)
"""Shares of a motor's torque that one quantity takes up in the logged motion: one for a remark, one to worry."""
_ROTOR = 30.0
"""Armature, relative to the inertia that its joint moves and to the declared one, above which it is none."""
_FACTOR = 4.0
"""Factor between a declared gain and its identified value above which the declaration is of another controller."""
_FAR = 2.0
"""Deviations of its prior from its declared inertia beyond which a rotor is doubted: it does not wear, as joints do."""
_MASS = 2.0
_HEAVY = 0.5
"""Payload of a bolted robot, as a share of its mass, above which it is another robot."""
_NAMED = 3
_QUANTILE = 0.95
_BOUNDARY = 1e-9
_CHECK = "check the declared drives and the log's columns and units, and see what is unexplained"


def at_a_bound(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt quantities that rest at a bound of the search other than zero."""
    resting = [one for one in evidence.determined if one.bound and not _is_nothing(one)]
    if resting:
        yield Finding(
            "bound", "warning", f"{_listing(resting)} {'is' if len(resting) == 1 else 'are'} at a bound of the search, "
            "beyond which the fit would go",
            "the declaration may lack something else; widen the prior only if the value is possible",
        )  # fmt: skip
    links = {name for name, _, what in (one.name.partition(".") for one in resting) if what.startswith(_OF_LINKS)}
    if len(links) >= _MANY_LINKS:
        yield Finding(
            "wrong-robot", "warning", f"masses, inertias or centres of mass of {len(links)} links stand at bounds: "
            "links differ more from the declaration than those of one robot do",
            "check that the declaration is of this robot, its version and its tools",
        )  # fmt: skip


def differs_in_masses(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt masses of links that are far from the declared ones, in deviations of their priors."""
    far = [
        one for one in evidence.determined
        if one.name.endswith(f".{MASS_SCALE}") and one.in_prior is not UNSET and abs(one.in_prior.value) > IMPLAUSIBLE
    ]  # fmt: skip
    if far:
        yield Finding(
            "masses", "warning", f"{_listing(far)} of the declared: masses of links stand in for a payload elsewhere, "
            "another centre of mass or a part that the model lacks, or the declared ones are guesses",
            "weigh a link, or state what is known (--known LINK.mass_scale=1); widen the prior if masses are guesses",
        )  # fmt: skip


def carries_another_robot(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt a bolted robot with a payload that is large beside its own mass: links of another one weigh more, too."""
    mechanism = evidence.fitted.mechanism
    total = sum(link.mass for link in mechanism.links)
    for one in evidence.determined:
        if one.name == PAYLOAD[0] and not mechanism.floating and one.value > _HEAVY * total:
            yield Finding(
                "wrong-robot", "warning", f"a payload of {one.value:.3g} kg on a robot of {total:.3g} kg: links differ "
                "more from the declaration than those of one robot do",
                "check that the declaration is of this robot, its version and its tools",
            )  # fmt: skip


def _is_nothing(one: IdentifiedParameter) -> bool:
    """Return whether a value is the natural bound 0 of a quantity that cannot be negative, or a joint's stop."""
    return one.name.endswith(LIMITS) or (
        one.value <= _BOUNDARY and one.nominal >= 0.0 and not one.name.endswith(_SIGNED)
    )


_OF_LINKS, _MANY_LINKS = ("mass_scale", "inertia_scale", "com."), 2
"""Quantities of links, and how many links have some at bounds in a fit of another robot."""
_SIGNED = (".bias", ".x", ".y", ".z")


@dataclass(frozen=True)
class _Motion:
    """Speeds and accelerations that a log's joints reach at times [rad/s or m/s, and per s], by joint."""

    speed: Mapping[str, float]
    acceleration: Mapping[str, float]

    @classmethod
    def of(cls, evidence: FitEvidence) -> "_Motion":
        store, spec = evidence.store, evidence.store.header.spec
        frames = max(2, min(round(0.05 / spec.dt), int(store.lengths.max())))
        windows = select_windows(store, Split.TRAIN, frames, most=2000)
        first, last = windows.qd[:, 0], windows.qd[:, -1]
        reached = [x.abs().quantile(_QUANTILE, 0).tolist() for x in (first, (last - first) / (frames * spec.dt))]
        return cls(*(dict(zip(spec.qd_names, values, strict=True)) for values in reached))


def beyond_the_robot(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt friction, damping and armature that motors cannot move, and masses and places beyond the robot."""
    motion, mechanism = _Motion.of(evidence), evidence.fitted.mechanism
    limits = {name: drive.effort_limit for name, drive in evidence.fitted.robot.drives.items()}
    limits |= {name: most for name, most in evidence.fitted.robot.actuated.items() if most is not None}
    stalled: list[tuple[float, str]] = []
    large: list[str] = []
    for one in evidence.determined:
        joint, _, what = one.name.rpartition(".")
        most, signal = limits.get(joint), _signal(motion, joint, what)
        share = 0.0 if most is None or not 0.0 < most < math.inf or signal is None else one.value * signal / most
        if share > _STALLS[0]:
            told = f"{_value_text(one)} takes up {share:.0%} of the motor's torque in the logged motion"
            stalled.append((share, told))
        elif (told := _too_large(one, mechanism)) is not None:
            large.append(told)
    told = [text for _, text in sorted(stalled, key=lambda pair: -pair[0])] + large
    if told:
        others = f", and {len(told) - 1} more like it" if len(told) > 1 else ""
        fails = any(share > _STALLS[1] for share, _ in stalled)
        yield Finding("limit", "fails" if fails else "warning", f"{told[0]}{others}", _CHECK)


def _signal(motion: _Motion, joint: str, what: str) -> float | None:
    return {"friction": 1.0, "damping": motion.speed.get(joint), "armature": motion.acceleration.get(joint)}.get(what)


def _too_large(one: IdentifiedParameter, mechanism: Mechanism) -> str | None:
    """Return why a value is larger than the robot; None if it is not."""
    owner, _, what = one.name.rpartition(".")
    if what == "armature" and owner in mechanism.names:
        moved = _moved_inertia(mechanism, mechanism.names.index(owner))
        if one.value > _ROTOR * max(moved, one.nominal):
            return f"{_value_text(one)} is {one.value / moved:.0f} times the inertia that the joint moves"
    if what == "mass_scale" and not 1.0 / _MASS < one.value < _MASS:
        return f"{_value_text(one)}: the declared masses are far off"
    if (
        owner.endswith("payload")
        and what in ("x", "y", "z", "radius")
        and abs(one.value) > (reach := _reach(mechanism))
    ):
        return f"{_value_text(one)} lies beyond the robot, which reaches {reach:.2g} m"
    return None


def _moved_inertia(mechanism: Mechanism, index: int) -> float:
    """Return an upper bound of the inertia about a joint of the links that it moves [kg m^2 or kg]."""
    links, reached = mechanism.links, {index: 0.0}
    total = carried(links[index])
    for k, link in enumerate(links):
        parent = link.joint.parent
        if parent in reached and k not in reached:
            reached[k] = reached[parent] + math.hypot(*link.joint.parent_frame[:3])
            total += link.mass * (reached[k] + math.hypot(*link.com)) ** 2 + sum(link.inertia[:3]) / 3.0
    return total


def _reach(mechanism: Mechanism) -> float:
    """Return how far the robot's links extend from its base, stretched [m]."""
    reached: list[float] = []
    for link in mechanism.links:
        parent, length = link.joint.parent, math.hypot(*link.joint.parent_frame[:3])
        reached.append(length if parent < 0 else reached[parent] + length)
    ends = [r + 2.0 * math.hypot(*link.com) for r, link in zip(reached, mechanism.links, strict=True)]
    base = 0.0 if mechanism.floating else reached[0]
    return max(max(ends) - base, 0.05)


def far_from_the_declaration(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt declared gains of controllers and motors that differ from the identified ones by a large factor."""
    far = [
        one for one in evidence.determined
        if one.name.endswith((".kp", ".kd", ".gain")) and one.nominal > 0.0
        and not 1.0 / _FACTOR < max(one.value, 1e-12) / one.nominal < _FACTOR and _sure(one)
    ]  # fmt: skip
    if far:
        yield Finding(
            "controller", "warning",
            f"{_listing(far)} where {_listed_nominal(far)} is declared: the controller of the log "
            "is another one, or its commands have other units",
            "declare the gains that the robot has (drives), or correct scale and columns of the commands in the map",
        )  # fmt: skip


def rotors_are_far(evidence: FitEvidence) -> Iterator[Finding]:
    """Doubt inertias of rotors that even their intervals place far from what the declaration allows."""
    far = [
        (abs(one.in_prior.value), one) for one in evidence.determined
        if one.name.endswith(".armature") and one.in_prior is not UNSET and _is_far(one.in_prior)
    ]  # fmt: skip
    if far:
        far.sort(key=lambda pair: -pair[0])
        named = [one for _, one in far]
        yield Finding(
            "rotors", "warning",
            f"{_listing(named)} where {_listed_nominal(named)} is declared, {far[0][0]:.2g} deviations of the prior "
            "off: rotors stand in for another delay, gains or a part that the model lacks, or the declared ones are "
            "guesses",
            "hold what a data sheet says (--known JOINT.armature=VALUE), or log faster motion, which tells inertia "
            "from delay",
        )  # fmt: skip


def _is_far(scaled: InPriorDeviations) -> bool:
    """Return whether a quantity is far from its declared value, and the nearer end of its interval half as far."""
    low, high = scaled.interval
    return abs(scaled.value) > _FAR and max(low, -high) > 0.5 * _FAR


def _sure(one: IdentifiedParameter) -> bool:
    """Return whether even the interval's nearer end is off by half the factor."""
    if one.interval is None:
        return True
    low, high = one.interval
    return low > 0.5 * _FACTOR * one.nominal or high < one.nominal / (0.5 * _FACTOR)


def _value_text(one: IdentifiedParameter) -> str:
    return f"{one.name} {one.value:.3g} {one.unit}".strip()


def _listing(some: list[IdentifiedParameter]) -> str:
    more = f" and {len(some) - _NAMED} more" if len(some) > _NAMED else ""
    return ", ".join(map(_value_text, some[:_NAMED])) + more


def _listed_nominal(some: list[IdentifiedParameter]) -> str:
    return ", ".join(f"{one.nominal:.3g}" for one in some[:_NAMED])
