# SPDX-License-Identifier: Apache-2.0
"""Free quantities by name: those of the engine, and a default set in which a robot may differ from its declaration.

The names are those of the engine's quantities ("elbow.damping", "actuator.elbow.gain"), and of coordinates that move
several of them: "LIMB.mass_scale", "payload.mass" (with x, y, z and radius), and "motors.delay".
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType

import msgspec
from msgspec import UNSET

from neurodyn.core.description.elements import QUANTITY, Attachment, ForceElement
from neurodyn.core.description.mechanism import Link, Mechanism
from neurodyn.core.description.parameter import Parameter, select_parameters
from neurodyn.core.errors import InputError, among, nearest
from neurodyn.dynamics.hybrid.parameters import size_of
from neurodyn.identify.unknowns.priors import prior_of
from neurodyn.identify.unknowns.search_space import (
    EXTENT,
    INERTIA_SCALE,
    MASS_SCALE,
    PAYLOAD,
    Coordinate,
    CoordinateSpace,
)
from neurodyn.robots import Robot

_DRY, _VISCOUS, _ROTOR = 0.01, 0.01, 0.1
"""Sizes below which friction, damping and armature do not matter: shares of the largest torque, of that torque at the
typical speed, and of the inertia that the joint moves."""
_SPEED = 5.0
"""Typical speed of a joint [rad/s or m/s]."""
_LAG, _BIAS = 0.005, 0.02
_SPRING = 1.5
_SCALE, _GAIN, _GRIP, _SOFT = 0.05, 0.3, 0.5, 0.7
_GUESSED, _EXPORTED = (0.7, 0.5), (0.2, 0.25)
"""Prior deviations of guessed bodies and of those that a program exported: of the logarithm of the inertia, and of the
centre in radii of gyration."""
_MEASURED, _DRAWN = 0.02, 0.003
"""Prior deviation of the place of a joint in its parent, as a share of its distance from the parent's joint: of guessed
bodies, whose lengths one measures, and of those that a program exported."""
_DIGITS = 2
"""Most significant digits of a mass that somebody guessed; exporters and scales give more."""
_LIGHTEST = 0.05
"""Least factor on the mass of a limb."""
_LEAST_ROTOR = 1e-6
"""Least inertia of a rotor before a spring [kg m^2]."""
_TOOL, _CARRIERS = 0.1, 3
"""Prior deviation of a tool's place, as a share of the arm's reach; last links of a chain that may carry it."""
_STOP = 0.03
"""Prior deviation of a joint limit, as a share of the joint's range."""
_ADDED = 0.3
"""Prior deviation of quantities outside of the default set, as a share of their size."""
DELAY = "motors.delay"
"""The delay of all motors, one coordinate."""
LAG = "motors.lag"
"""The lag of all servos' commands, one coordinate: their firmware is the same, and damping trades for it."""
LIMITS = (".lower", ".upper")
"""Suffixes of the names of joint limits."""


def limbs_of(mechanism: Mechanism) -> dict[str, tuple[str, ...]]:
    """Return the links of each limb: the subtree of each joint on a floating base, or each link of a bolted robot."""
    links = mechanism.links
    if not mechanism.floating:
        return {link.joint.name: (link.joint.name,) for link in links}
    root: list[int] = []
    for index, link in enumerate(links):
        parent = link.joint.parent
        root.append(index if parent < 0 or links[parent].joint.parent < 0 else root[parent])
    limbs: dict[str, list[str]] = {}
    for index, link in enumerate(links):
        limbs.setdefault(links[root[index]].joint.name, []).append(link.joint.name)
    return {name: tuple(members) for name, members in limbs.items()}


def is_coupled(robot: Robot, mechanism: Mechanism, declared: Mapping[str, float], asked: Sequence[str]) -> bool:
    """Return whether a text asks for a coordinate of the default set that moves several of the engine's quantities."""
    names = [one.name for one in default_coordinates(robot, mechanism, declared) if one.name not in declared]
    return any(not matching(text, declared) and matching(text, names) for text in asked)


def free_space(
    robot: Robot, mechanism: Mechanism, declared: Mapping[str, float], quantities: Sequence[str],
    asked: Sequence[str] = (), prior: Mapping[str, float | str] = MappingProxyType({}),
    known: Mapping[str, float] = MappingProxyType({}), *, more: Sequence[Coordinate] = (), carrier: str = "",
    spare: Sequence[str] = (), recorded: Sequence[str] = (),
) -> CoordinateSpace:  # fmt: skip
    """Return the coordinates of free quantities, each in standard deviations of its prior.

    Args:
        robot: The robot, with drives (see `motors.with_motors`).
        mechanism: Its mechanism.
        declared: Declared values of all quantities of the engine.
        quantities: Names or patterns of quantities in the default set.
        asked: Further quantities, in the user's notation (`core.description.parameter.select_parameters`): of the
            engine, or of the default set.
        prior: Standard deviations of priors by name or pattern of the free quantities, in place of the default ones.
        known: Values that the user knows, by name or pattern of any quantity; they are held.
        more: Further coordinates of the default set, as of another structure.
        carrier: Joint of the link with a payload; empty for the floating base, if there is one.
        spare: Further quantities of the space's values (`CoordinateSpace`).
        recorded: Quantities that the log gives by run, and that are not fitted.

    Raises:
        InputError: A name matches nothing, or a width, bound or known value is invalid.
    """
    default = {one.name: one for one in (*default_coordinates(robot, mechanism, declared, carrier), *more)}
    free = {name: default[name] for name in _chosen(robot, tuple(default), quantities)}
    values = dict(declared) | {one.name: one.nominal for one in default.values() if one.name not in declared}
    for text in asked:
        among = declared if matching(text, declared) else values
        for spec in select_parameters(among, [text], mechanism.bounds()):
            one = default[spec.name] if spec.name in default else _added(spec, mechanism)
            free[spec.name] = replace(
                one, nominal=spec.nominal, least=spec.lower, most=one.most if spec.upper is None else spec.upper,
                declared=one.declared_value,
            )  # fmt: skip
    free |= {one.name: one for one in more}
    free = {name: one for name, one in free.items() if not one.quantities or not set(one.quantities) <= set(recorded)}
    held = _known(known, default, mechanism, declared)
    if (set(free) | {one.name for one, _ in held}) & set(PAYLOAD):  # a payload is one body
        free |= {name: free.get(name, default[name]) for name in PAYLOAD}
    for one, _ in held:
        free.pop(one.name, None)
    coordinates = list(free.values())
    specs = [Parameter(name=one.name, nominal=one.nominal) for one in coordinates]
    widths = prior_of(specs, prior)
    for k, width in () if widths is None else zip(widths.columns.tolist(), widths.deviations(specs), strict=True):
        one = coordinates[k]
        coordinates[k] = replace(one, width=width if one.signed else width / (one.nominal + one.size))
    return CoordinateSpace(
        mechanism,
        coordinates,
        limbs_of(mechanism),
        declared,
        known=held,
        carrier=carrier,
        spare=spare,
        recorded=recorded,
    )


def _known(
    known: Mapping[str, float], default: Mapping[str, Coordinate], mechanism: Mechanism, declared: Mapping[str, float]
) -> list[tuple[Coordinate, float]]:
    held: dict[str, tuple[Coordinate, float]] = {}
    for pattern, value in known.items():
        names = matching(pattern, default) or matching(pattern, declared)
        if not names:
            raise InputError(f"known: {pattern!r} matches no quantity{among(pattern, [*declared, *default])}")
        for name in names:
            one = default.get(name) or Coordinate(name, declared[name], 1.0, signed=True, quantities=(name,))
            bounds = mechanism.bounds() if name in declared else {name: (one.least_value, one.most)}
            try:
                select_parameters({name: value}, [name], bounds)
            except InputError as error:
                raise InputError(f"known: {error}") from None
            held[name] = one, float(value)
    return list(held.values())


def matching(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that a quantity in the user's notation matches."""
    pattern = text.partition("=")[0]
    return [name for name in names if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")]


def _chosen(robot: Robot, names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    kept: set[str] = set()
    for pattern in patterns:
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            raise InputError(
                f"quantities: nothing in the default set of {robot.name!r} is called {pattern!r}; valid: a pattern, "
                f"{nearest(pattern, names)}; `parameters` adds others"
            )
        kept |= set(fitting)
    return [name for name in names if name in kept]


def _added(spec: Parameter, mechanism: Mechanism) -> Coordinate:
    """Return the coordinate of a quantity outside of the default set, with a wide prior."""
    signed, size = spec.lower is None or spec.lower < 0.0, size_of(spec)
    link, _, what = spec.name.partition(".")
    if what.startswith("com."):
        size = max(size, gyration(mechanism.links[mechanism.names.index(link)]))
    elif signed and spec.lower is not None and spec.upper is not None:
        size = max(size, 0.25 * (spec.upper - spec.lower) / _ADDED)
    empty = spec.nominal == 0.0 and not signed
    return Coordinate(
        spec.name, spec.nominal, 1.0 if empty else _ADDED * (size if signed else 1.0), size if empty else 0.0,
        signed=signed, quantities=(spec.name,),
    )  # fmt: skip


def default_coordinates(
    robot: Robot, mechanism: Mechanism, declared: Mapping[str, float], carrier: str = ""
) -> list[Coordinate]:
    """Return the default set for a robot with drives, as far as the mechanism has these quantities.

    Masses by limb; centres and inertias of a free body without joints, whose drag counts too, and of robots without
    motors, with their lengths; a payload of a floating base, or of the link of a joint `carrier`; friction,
    damping, armature and limits of each joint; gain, lag and encoder offset of each motor, and stiffness and
    damping of its controller; one delay, and one lag of all servos; friction and softness of the floor. Outside
    forces that a log holds are known. Static friction of motors in excess of the dry one is excluded: a fit finds
    some even if there is none (3 N m in the worn ant), and it reduces no held-out error, neither of that ant at 60
    Hz nor of a Go2 at 200 Hz.
    """
    round_numbers = {link.joint.name for link in mechanism.links if _is_round(link.mass)}
    coordinates = [
        Coordinate(f"{limb}.{MASS_SCALE}", 1.0, _SCALE, least=_LIGHTEST, guessed=round_numbers.issuperset(links))
        for limb, links in limbs_of(mechanism).items()
    ]
    if is_single(mechanism) or not robot.actuated:  # without motors, bodies are all that there is
        for index in turning_links(mechanism):
            coordinates += [*body_coordinates(mechanism, index), *place_coordinates(mechanism, index)]
    if carrier or (mechanism.floating and not is_single(mechanism)):
        coordinates += payload_coordinates(mechanism, mechanism.names.index(carrier) if carrier else 0)
    hidden = mechanism.names[len(mechanism.names) - (mechanism.hidden or 0) :]
    for index, link in enumerate(mechanism.links):
        if link.joint.scalar and link.joint.name not in hidden:
            coordinates += _joint_coordinates(mechanism, index, declared, robot)
    for name in hidden:
        for what, unit in (("stiffness", "N m/rad"), ("damping", "N m s/rad")):
            quantity = f"{name}.{what}"
            coordinates.append(Coordinate(quantity, declared[quantity], _SPRING, quantities=(quantity,), unit=unit))
    coordinates += _drive_coordinates(robot, declared)
    coordinates += _drag_coordinates(mechanism, declared)
    for name, width, unit in (("contact.friction", _GRIP, "1"), ("contact.solref.timeconst", _SOFT, "s")):
        if declared.get(name, 0.0) > 0.0:
            coordinates.append(Coordinate(name, declared[name], width, quantities=(name,), unit=unit))
    return coordinates


_DRAG, _TURN = 0.02, 1.0
"""Drag that does not matter: at 1 m/s as a share of a body's weight, and of turning as a rate of decay [1/s]."""


def _drag_coordinates(mechanism: Mechanism, declared: Mapping[str, float]) -> list[Coordinate]:
    """Return the coefficients of elements of drag, and of a free body alone the place where it acts."""
    coordinates = []
    for element in (one for one in mechanism.elements or () if one.kind == "drag"):
        body = mechanism.links[mechanism.names.index(element.attachments[0].joint)]
        begin = f"{QUANTITY}{element.name}"
        for k, axis in enumerate("xyz"):
            for what, size, unit in (
                (axis, _DRAG * 9.81 * body.mass, "N s/m"), (f"turn_{axis}", _TURN * body.inertia[k], "N m s/rad"),
            ):  # fmt: skip
                name = f"{begin}.{what}"
                coordinates.append(Coordinate(name, declared[name], 1.0, size, quantities=(name,), unit=unit))
            place = f"{begin}.at_{axis}"
            coordinates.append(
                Coordinate(place, declared[place], gyration(body), signed=True, quantities=(place,), unit="m")
            )
    return coordinates


def in_air(mechanism: Mechanism, kind: str) -> Mechanism:
    """Return a free body that rotors push with "drag" of the air around it or a "disturbance" by it.

    Declarations say little of them. Drag is at first none, at the body's centre.
    """
    wrenches = [one.wrench for one in mechanism.drives.values() if one.wrench is not UNSET]
    if not is_single(mechanism) or not wrenches or any(one.kind == kind for one in mechanism.elements or ()):
        return mechanism
    body = mechanism.links[0]
    at = Attachment(joint=body.joint.name, point=body.com)
    element = ForceElement(name={"drag": "air"}.get(kind, kind), kind=kind, attachments=(at,))
    return msgspec.structs.replace(mechanism, elements=(*(mechanism.elements or ()), element))


def is_single(mechanism: Mechanism) -> bool:
    """Return whether a mechanism is one free body: mass, centre and inertia say what a payload would."""
    return len(mechanism.links) == 1 and not mechanism.links[0].joint.scalar


def turning_links(mechanism: Mechanism) -> list[int]:
    """Return the links that turn: where a link only slides, its centre and inertia do not matter."""
    turns: list[bool] = []
    for link in mechanism.links[: len(mechanism.links) - (mechanism.hidden or 0)]:
        parent = link.joint.parent
        turns.append(link.joint.kind != "prismatic" or (parent >= 0 and turns[parent]))
    return [index for index, turning in enumerate(turns) if turning]


def _is_round(value: float) -> bool:
    digits = f"{value:.6e}".partition("e")[0].replace(".", "").rstrip("0")
    return len(digits) <= _DIGITS


def body_coordinates(mechanism: Mechanism, index: int) -> list[Coordinate]:
    """Return the coordinates of a link's centre of mass and inertia.

    They are narrow for numbers that a program exported and wide for guesses, which have a round mass, as people write
    it. Any of their values is a body (`bodies.stretched`).
    """
    link = mechanism.links[index]
    name, radius = link.joint.name, gyration(link)
    inertia, centre = _GUESSED if _is_round(link.mass) or is_single(mechanism) else _EXPORTED
    coordinates = [
        Coordinate(
            f"{name}.com.{axis}", link.com[k], centre * radius, signed=True, quantities=(f"{name}.com.{axis}",),
            unit="m",
        )
        for k, axis in enumerate("xyz")
    ]  # fmt: skip
    if not is_single(mechanism):
        return [*coordinates, Coordinate(f"{name}.{INERTIA_SCALE}", 1.0, inertia)]
    return [*coordinates, *(Coordinate(f"{name}.{what}", 1.0, 0.5 * inertia) for what in EXTENT)]


def place_coordinates(mechanism: Mechanism, index: int) -> list[Coordinate]:
    """Return the coordinates of a joint's place in its parent; none for one in the world, whose place shows nowhere."""
    link = mechanism.links[index]
    share, place = _MEASURED if _is_round(link.mass) else _DRAWN, link.joint.parent_frame[:3]
    length = math.hypot(*place) * (link.joint.parent >= 0)
    names = [f"{link.joint.name}.origin.{axis}" for axis in "xyz"]
    return [
        Coordinate(name, x, share * length, signed=True, quantities=(name,), unit="m")
        for name, x in zip(names, place, strict=True)
        if length > 0.0
    ]


def gyration(link: Link) -> float:
    """Return the radius of gyration of a link [m]."""
    return math.sqrt(max(sum(link.inertia[:3]) / 2.0 / link.mass, 1e-8))


def payload_coordinates(mechanism: Mechanism, index: int) -> list[Coordinate]:
    """Return the coordinates of a payload of a link."""
    link, total = mechanism.links[index], sum(link.mass for link in mechanism.links)
    radius, spread = gyration(link), payload_spread(mechanism, index)
    position = [
        Coordinate(f"payload.{axis}", link.com[k], spread, signed=True, unit="m") for k, axis in enumerate("xyz")
    ]
    return [
        Coordinate("payload.mass", 0.02 * total, 1.0, 0.05 * total, unit="kg", declared=0.0), *position,
        Coordinate("payload.radius", 0.5 * radius, 0.5, unit="m"),
    ]  # fmt: skip


def payload_spread(mechanism: Mechanism, index: int) -> float:
    """Return the prior deviation of the place of a payload of a link [m]."""
    radius = gyration(mechanism.links[index])
    # The tool of an arm is outside of its last link, whose size tells little.
    return radius if mechanism.floating and index == 0 else max(radius, _TOOL * reach(mechanism))


def reach(mechanism: Mechanism) -> float:
    """Return the length of the longest chain of links [m]."""
    lengths: list[float] = []
    for link in mechanism.links:
        before = lengths[link.joint.parent] if link.joint.parent >= 0 else 0.0
        lengths.append(before + math.hypot(*link.joint.parent_frame[:3]) * (link.joint.parent >= 0))
    return max(lengths)


def carriers(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the joints of links that may carry a payload: the last three of a chain, the last ones of a tree."""
    parents = [link.joint.parent for link in mechanism.links]
    usual = range(len(parents) - (mechanism.hidden or 0))
    leaves = [index for index in usual if index not in parents]
    if len(leaves) > 1:
        return tuple(mechanism.names[index] for index in leaves)
    index, chain = leaves[0], []
    while index >= 0 and len(chain) < _CARRIERS:
        chain.append(mechanism.names[index])
        index = parents[index]
    return tuple(chain)


def _joint_coordinates(
    mechanism: Mechanism, index: int, declared: Mapping[str, float], robot: Robot
) -> list[Coordinate]:
    link = mechanism.links[index]
    name = link.joint.name
    torque = effort(robot, mechanism, index)
    sizes = {"friction": _DRY * torque, "damping": _VISCOUS * torque / _SPEED, "armature": _ROTOR * carried(link)}
    units = {"friction": "N m", "damping": "N m s/rad", "armature": "kg m^2"}
    places = {what: f"{name}.{what}" for what in sizes if f"{name}.{what}" in declared}
    if name in mechanism.drives and mechanism.drives[name].elastic:  # the rotor is before the spring
        places["armature"] = f"actuator.{name}.rotor_inertia"
    coordinates = [
        Coordinate(
            f"{name}.{what}", declared[place], 1.0, sizes[what], quantities=(place,), unit=units[what],
            least=None if place == f"{name}.{what}" else _LEAST_ROTOR,
        )
        for what, place in places.items()
    ]  # fmt: skip
    if link.lower is not None and link.upper is not None and 0.0 < link.upper - link.lower < math.inf:
        width, unit = _STOP * (link.upper - link.lower), "m" if link.joint.kind == "prismatic" else "rad"
        coordinates += [
            Coordinate(f"{name}{end}", declared[f"{name}{end}"], width, signed=True, quantities=(f"{name}{end}",),
                       unit=unit)
            for end in LIMITS
            if f"{name}{end}" in declared
        ]  # fmt: skip
    return coordinates


def carried(link: Link) -> float:
    """Return the inertia of a link about its joint [kg m^2 or kg]."""
    axis, com = link.joint.axis, link.com
    if link.joint.kind == "prismatic":
        return link.mass
    frame = link.joint.child_frame[:3]
    arm = [c - f for c, f in zip(com, frame, strict=True)]
    along = sum(a * b for a, b in zip(arm, axis, strict=True))
    square = max(sum(a * a for a in arm) - along * along, 0.0)
    return link.mass * square + sum(link.inertia[:3]) / 3.0


def effort(robot: Robot, mechanism: Mechanism, index: int) -> float:
    """Return the scale of the torques at a joint [N m or N]: its limit, or what holds the link up."""
    name = mechanism.links[index].joint.name
    drive = robot.drives.get(name)
    limits = [robot.actuated.get(name), None if drive is None else drive.effort_limit]
    limits_given = [limit for limit in limits if limit is not None and 0.0 < limit < math.inf]
    return min(limits_given) if limits_given else max(9.81 * mechanism.links[index].mass * 0.1, 1e-3)


def _drive_coordinates(robot: Robot, declared: Mapping[str, float]) -> list[Coordinate]:
    coordinates, delayed, lagging, spare = [], [], [], {}
    for name in robot.actuated:
        if name in robot.drives and robot.drives[name].is_outside_force:
            continue
        begin = f"actuator.{name}"
        if name in robot.drives and robot.drives[name].lags_command:
            lagging.append(f"{begin}.lag")
        # Stiffness and gain of a controller are one number to any log, and so are kd and gain of a velocity servo; an
        # affine law has others that scale with both.
        affine = name in robot.drives and robot.drives[name].per_command is not UNSET
        one = f"{begin}.kp" in declared or (name in robot.drives and robot.drives[name].kind == "velocity_servo")
        spare[name] = "kp" if affine else "gain" if one else ""
        for what, width, size, unit in (
            ("gain", _GAIN, 0.0, "1"), ("kp", _GAIN, 0.0, "N m/rad"), ("kd", _SOFT, 0.0, "N m s/rad"),
            ("lag", 1.0, _LAG, "s"),
        ):  # fmt: skip
            quantity = f"{begin}.{what}"
            if quantity in lagging:
                continue
            if quantity in declared and what != spare[name] and declared[quantity] + size > 0.0:
                coordinates.append(
                    Coordinate(
                        quantity,
                        declared[quantity],
                        width,
                        size,
                        quantities=(quantity,),
                        unit=unit,
                        guessed=what in ("kp", "kd"),
                    )
                )
        if f"{begin}.bias" in declared:
            coordinates.append(
                Coordinate(f"{begin}.bias", declared[f"{begin}.bias"], _BIAS, signed=True,
                           quantities=(f"{begin}.bias",), unit="rad")
            )  # fmt: skip
        if f"{begin}.delay" in declared:
            delayed.append(f"{begin}.delay")
    if lagging:
        coordinates.append(Coordinate(LAG, declared[lagging[0]], 1.0, _LAG, quantities=tuple(lagging), unit="s"))
    if delayed:
        reach = min(robot.drives[name.split(".")[1]].longest_held_delay for name in delayed)
        coordinates.append(
            Coordinate(DELAY, declared[delayed[0]], 1.0, _LAG, quantities=tuple(delayed), most=reach, unit="s")
        )
    return coordinates
