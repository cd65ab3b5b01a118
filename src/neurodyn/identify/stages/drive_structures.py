# SPDX-License-Identifier: Apache-2.0
"""Structures that a declaration may lack in drives and below them: friction that grows with load, a tilt, springs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
from msgspec import UNSET

from neurodyn.core.description.drive import ACTUATOR, Drive
from neurodyn.core.description.mechanism import Link
from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.stages.structure_kinds import EVERY, StructureCandidate, StructureKind
from neurodyn.identify.unknowns.quantities import carried, effort
from neurodyn.identify.unknowns.search_space import Coordinate

_SHARE, _LEAST_SHARE = 0.05, 0.02
"""Size of friction per torque below which it does not matter, and where a search begins: at 0 it has no derivative."""
_STATIC, _LEAST_STATIC = 0.05, 0.005
"""The same for static friction, as shares of the largest torque."""


def _rigid(model: FitModel) -> list[str]:
    """Return the joints with a drive of their own, without a spring, whose friction does not depend on load."""
    drives = model.mechanism.drives
    return [
        name for name in model.robot.actuated
        if name in drives and not (drives[name].acts_elsewhere or drives[name].prescribes_motion)
        and not drives[name].elastic and not drives[name].loaded
    ]  # fmt: skip


def places_of(model: FitModel, place: str, joints: Sequence[str]) -> list[str]:
    """Return the joints of a place."""
    return list(joints) if place == EVERY else [place]


def _frictions(model: FitModel) -> list[StructureCandidate]:
    joints = _rigid(model)
    places = [*joints, EVERY] if len(joints) > 1 else joints
    return [
        StructureCandidate(
            "friction", place,
            tuple(one for joint in places_of(model, place, joints) for one in _coordinates(model, joint)[:3]),
        )
        for place in places
    ]  # fmt: skip


def _coordinates(model: FitModel, joint: str) -> list[Coordinate]:
    index = model.mechanism.names.index(joint)
    torque = effort(model.robot, model.mechanism, index)
    begin, speed = f"{ACTUATOR}{joint}", model.mechanism.drives[joint].stribeck_speed

    def positive(what: str, nominal: float, size: float, unit: str) -> Coordinate:
        name = f"{begin}.{what}"
        return Coordinate(name, nominal, 1.0, size, quantities=(name,), unit=unit, declared=0.0)

    return [
        positive("load_motor", _LEAST_SHARE, _SHARE, "1"),
        positive("load_external", _LEAST_SHARE, _SHARE, "1"),
        positive("stribeck", _LEAST_STATIC * torque, _STATIC * torque, "N m"),
        Coordinate(f"{begin}.stribeck_speed", speed, 1.0, quantities=(f"{begin}.stribeck_speed",), unit="rad/s"),
    ]


def _with_loads(model: FitModel, joints: Sequence[str]) -> FitModel:
    """Return a robot whose friction in some joints may depend on load, but does not yet."""

    def with_load(drive: Drive) -> Drive:
        return msgspec.structs.replace(
            drive, load_motor=0.0, load_external=0.0 if drive.load_external is UNSET else drive.load_external
        )

    drives = {name: with_load(one) if name in joints else one for name, one in model.mechanism.drives.items()}
    return replace(model, mechanism=msgspec.structs.replace(model.mechanism, drives=drives))


def _with_friction(model: FitModel, place: str) -> FitModel:
    joints = places_of(model, place, _rigid(model))
    more = [one for joint in joints for one in _coordinates(model, joint)]
    return replace(_with_loads(model, joints), more=(*model.more, *more))


def _friction_starts(model: FitModel, place: str, step: Mapping[str, float]) -> list[dict[str, float]]:
    """Begin with what the screening says, within what gears have, or with a little: from 0 there is no slope."""
    if not step:
        joints = places_of(model, place, _rigid(model))
        return [{one.name: one.nominal for joint in joints for one in _coordinates(model, joint)}]
    return [{name: min(value, 0.5) if ".load_" in name else value for name, value in step.items()}]


def _loadable(model: FitModel) -> FitModel:
    return _with_loads(model, _rigid(model))


LOADED_FRICTION = StructureKind(
    "friction that grows with load in the drive of", _frictions, _with_friction, _friction_starts, ("friction.load",),
    ("*.load_motor", "*.load_external", "*.stribeck"), _loadable,
)  # fmt: skip


def _gains(model: FitModel) -> list[StructureCandidate]:
    assert model.space is not None
    held = tuple(one for one, _ in model.space.known if one.name in model.held)
    return [StructureCandidate("gains", EVERY, held)] if held else []


STATED_GAINS = StructureKind(
    "gains other than stated in the drive of", _gains, lambda model, _: replace(model, stated={}),
    lambda _, __, step: [dict(step)], ("actuator.kp", "actuator.kd"),
    ("*.kp", "*.kd"),
)  # fmt: skip


_TILT = 0.05
"""Prior deviation of the tilt of a base [rad]."""


def _tilts(model: FitModel) -> list[StructureCandidate]:
    """Return another direction of gravity for a bolted robot, whose base may stand askew."""
    gravity = model.mechanism.gravity
    size, places = math.hypot(*gravity), "xyz"
    across = [k for k in range(3) if abs(gravity[k]) < 0.1 * size]
    if model.mechanism.floating or len(across) < len(places) - 1:
        return []
    columns = tuple(
        Coordinate(name, gravity[k], _TILT * size, signed=True, quantities=(name,), unit="m/s^2")
        for k in across
        if (name := f"gravity.{places[k]}") not in {one.name for one in model.more}
    )
    return [StructureCandidate("tilt", model.mechanism.names[0], columns)] if columns else []


TILTED_BASE = StructureKind(
    "gravity askew at the base of", _tilts,
    lambda model, _: replace(model, more=(*model.more, *_tilts(model)[0].columns)), lambda _, __, step: [dict(step)],
    ("gravity.x",), ("gravity.*",), _loadable,
)  # fmt: skip


_PULL, _LEAST_PULL = 0.05, 0.01
"""Share of the largest torque by which a parallel spring pulls more per radian or metre, below which it is negligible,
and with which a search begins: at 0 it has no derivative by its rest."""


def _pulls(model: FitModel) -> list[StructureCandidate]:
    known = {one.name for one in model.more}
    links = {link.joint.name: link for link in model.mechanism.links}
    return [
        StructureCandidate("pull", joint, tuple(_pull_coordinates(model, joint)[:1]))
        for joint in _rigid(model)
        if joint in links and links[joint].stiffness == 0.0 and f"{joint}.stiffness" not in known
    ]


def _pull_coordinates(model: FitModel, joint: str) -> list[Coordinate]:
    index = model.mechanism.names.index(joint)
    link, torque = model.mechanism.links[index], effort(model.robot, model.mechanism, index)
    turns = link.joint.kind == "revolute"
    stiffness, rest = f"{joint}.stiffness", f"{joint}.rest"
    return [
        Coordinate(
            stiffness, _LEAST_PULL * torque, 1.0, _PULL * torque, quantities=(stiffness,), declared=0.0,
            unit="N m/rad" if turns else "N/m",
        ),
        Coordinate(
            rest, link.rest, _half_range(link), signed=True, quantities=(rest,), unit="rad" if turns else "m",
        ),
    ]  # fmt: skip


def _half_range(link: Link) -> float:
    """Return half the range of a joint [rad or m]; 1 without limits."""
    half = math.inf if link.lower is None or link.upper is None else 0.5 * (link.upper - link.lower)
    return half if 0.0 < half < math.inf else 1.0


def _with_pull(model: FitModel, joint: str) -> FitModel:
    return replace(model, more=(*model.more, *_pull_coordinates(model, joint)))


def _pull_starts(model: FitModel, joint: str, step: Mapping[str, float]) -> list[dict[str, float]]:
    """Begin with what the screening says, or with a little: from 0 there is no slope; with rests over the range."""
    stiffness, rest = _pull_coordinates(model, joint)
    first = max(step.get(stiffness.name, 0.0), stiffness.nominal)
    return [{stiffness.name: first, rest.name: rest.nominal + part * rest.width} for part in (0.0, -0.5, 0.5)]


PARALLEL_SPRING = StructureKind(
    "a spring beside the drive of", _pulls, _with_pull, _pull_starts, ("parallel.stiffness",), ("*.stiffness",),
    _loadable,
)  # fmt: skip


_SOFT, _SPREAD = 60.0, 1.5
"""Natural frequency of a spring that is [rad/s], and the prior deviation of its logarithm."""
_DAMPED = 0.1
"""Damping ratio of springs."""
_LIGHT = 1e-6
"""Least inertia of a rotor behind a spring [kg m^2]."""


def _sprung(model: FitModel, joint: str) -> FitModel:
    """Return a robot with a spring between the motor of a joint, which carries the encoder, and its link."""
    mechanism, drives, links = model.mechanism, dict(model.mechanism.drives), list(model.mechanism.links)
    index = mechanism.names.index(joint)
    inertia = carried(links[index])
    drives[joint] = msgspec.structs.replace(
        drives[joint], stiffness=inertia * _SOFT**2, elastic_damping=2.0 * _DAMPED * inertia * _SOFT,
        rotor_inertia=max(links[index].armature, _LIGHT), feedback="motor", encoder="motor",
    )  # fmt: skip
    links[index] = msgspec.structs.replace(links[index], armature=0.0)
    return replace(model, mechanism=msgspec.structs.replace(mechanism, drives=drives, links=tuple(links)))


def _with_spring(model: FitModel, joint: str) -> FitModel:
    sprung = _sprung(model, joint)
    drive = sprung.mechanism.drives[joint]
    assert drive.stiffness is not None
    more = [
        Coordinate(name, value, _SPREAD, quantities=(name,), unit=unit)
        for name, value, unit in (
            (f"{ACTUATOR}{joint}.stiffness", drive.stiffness, "N m/rad"),
            (f"{ACTUATOR}{joint}.elastic_damping", drive.elastic_damping, "N m s/rad"),
        )
    ]
    return replace(sprung, more=(*sprung.more, *more))


def _spring_starts(model: FitModel, joint: str, _: Mapping[str, float]) -> list[dict[str, float]]:
    """Begin with springs of several natural frequencies: from one that is far too soft a search does not find back."""
    inertia, begin = carried(model.mechanism.links[model.mechanism.names.index(joint)]), f"{ACTUATOR}{joint}"
    return [
        {f"{begin}.stiffness": inertia * pace**2, f"{begin}.elastic_damping": 2.0 * _DAMPED * inertia * pace}
        for pace in (_SOFT, 2.0 * _SOFT, 4.0 * _SOFT)
    ]


ELASTIC_JOINT = StructureKind(
    "a spring between motor and link of",
    lambda model: [StructureCandidate("elastic", joint, ()) for joint in _rigid(model)], _with_spring, _spring_starts,
    ("elastic.stiffness",), screened=False,
)  # fmt: skip
