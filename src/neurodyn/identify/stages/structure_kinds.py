# SPDX-License-Identifier: Apache-2.0
"""Kinds of structures that a declaration may lack, and those of bodies: a payload, another centre of mass."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from neurodyn.identify.ladder.structures import FitModel
from neurodyn.identify.unknowns.quantities import (
    body_coordinates,
    carriers,
    gyration,
    payload_spread,
    reach,
    turning_links,
)
from neurodyn.identify.unknowns.search_space import ADDED, EXTENT, INERTIA_SCALE, PAYLOAD, Coordinate

EVERY = "*"
"""Place of a structure in every joint."""
_HEAVY = 0.1
"""Prior deviation of an added mass, as a share of the robot's; its first moment is that at a tenth of the reach."""
_LIGHTEST = 0.01
"""Least mass that a payload begins with, as a share of the link's."""
_HEAVIER = (2.0, 4.0, 8.0, 16.0)
"""Multiples of the least mass of a payload with its moment with which fits may begin, too."""
_WITHIN = 1.5
"""Prior deviations within which a payload's place begins."""
_CENTRE = 0.5
"""Prior deviation of a centre of mass, in radii of gyration."""


@dataclass(frozen=True)
class StructureCandidate:
    """A structure at one place.

    Attributes:
        kind: Its entry of `STRUCTURES`.
        place: Joint of the link.
        columns: Coordinates that stand for it in the screening.
    """

    kind: str
    place: str
    columns: tuple[Coordinate, ...]


@dataclass(frozen=True)
class StructureKind:
    """A kind of structure.

    Attributes:
        words: Begin of its name, before the place.
        candidates: Returns its candidates for a robot.
        build: Returns the robot with it, without coordinates yet.
        starts: Returns first values of its coordinates from the screening's step, by name of the column, among which
            the best count.
        frees: Names of quantities of which settings free at least one, or none is tried.
        effects: Patterns of the names of its coordinates that are as declared where it has no effect; empty for none.
        probe: Returns the robot with the quantities of all columns, at values without effect; None if it has them.
        screened: Whether the screening tells of it. If not, as its effect is far from linear, it is fitted in the few
            joints that err most.
        last: Whether it is tried last, as it frees more than the others and explains what they do.
    """

    words: str
    candidates: Callable[[FitModel], list[StructureCandidate]]
    build: Callable[[FitModel, str], FitModel]
    starts: Callable[[FitModel, str, Mapping[str, float]], list[dict[str, float]]]
    frees: tuple[str, ...]
    effects: tuple[str, ...] = ()
    probe: Callable[[FitModel], FitModel] | None = None
    screened: bool = True
    last: bool = False


def _added(link: str, *, mass: bool) -> tuple[str, ...]:
    return tuple(f"{link}.{what}" for what in (ADDED if mass else ADDED[1:]))


def _columns(model: FitModel, link: str, *, mass: bool) -> tuple[Coordinate, ...]:
    total = sum(one.mass for one in model.mechanism.links)
    size = 0.1 * max(reach(model.mechanism), gyration(model.mechanism.links[0]))
    return tuple(
        Coordinate(name, 0.0, _HEAVY * total * (1.0 if name.endswith(ADDED[0]) else size), signed=True)
        for name in _added(link, mass=mass)
    )


def _payloads(model: FitModel) -> list[StructureCandidate]:
    assert model.space is not None
    if model.space.has(PAYLOAD[0]):
        return []
    return [StructureCandidate("payload", link, _columns(model, link, mass=True)) for link in carriers(model.mechanism)]


def _payload_starts(model: FitModel, link: str, step: Mapping[str, float]) -> list[dict[str, float]]:
    mass, *moment = (step[name] for name in _added(link, mass=True))
    return payload_starts(model, link, mass, moment)


def payload_starts(model: FitModel, link: str, mass: float, moment: Sequence[float]) -> list[dict[str, float]]:
    """Return first values of a payload on a link, from its mass [kg] and first moment [kg m]."""
    # The moment is known better than the mass, which trades with those of links: no lighter than a tool within reach
    # with this moment.
    index = model.mechanism.names.index(link)
    farthest = _WITHIN * payload_spread(model.mechanism, index) + math.hypot(*model.mechanism.links[index].com)
    least = max(math.hypot(*moment) / farthest, _LIGHTEST * model.mechanism.links[index].mass)
    return [
        {"payload.mass": m} | {f"payload.{axis}": h / m for axis, h in zip("xyz", moment, strict=True)}
        for m in (max(mass, least), *(factor * least for factor in _HEAVIER))
    ]


ADDED_PAYLOAD = StructureKind(
    "a payload on the link of", _payloads, lambda model, link: replace(model, carrier=link), _payload_starts,
    ("payload.mass",), PAYLOAD[:-1],
)  # fmt: skip


def _centres(model: FitModel) -> list[StructureCandidate]:
    assert model.space is not None
    links = model.mechanism.names[: len(model.mechanism.names) - (model.mechanism.hidden or 0)]
    known = {*model.space.names, *(one.name for one, _ in model.space.known)}
    return [
        StructureCandidate("centre", link, _columns(model, link, mass=False))
        for link in links
        if link != model.space.carrier and f"{link}.com.x" not in known
    ]


def _with_centre(model: FitModel, link: str) -> FitModel:
    body = model.mechanism.links[model.mechanism.names.index(link)]
    more = [
        Coordinate(
            f"{link}.com.{axis}", body.com[k], _CENTRE * gyration(body), signed=True,
            quantities=(f"{link}.com.{axis}",), unit="m",
        )
        for k, axis in enumerate("xyz")
    ]  # fmt: skip
    return replace(model, more=(*model.more, *more))


def _centre_starts(model: FitModel, link: str, step: Mapping[str, float]) -> list[dict[str, float]]:
    body = model.mechanism.links[model.mechanism.names.index(link)]
    moments = [step[name] for name in _added(link, mass=False)]
    return [{f"{link}.com.{axis}": at + h / body.mass for axis, at, h in zip("xyz", body.com, moments, strict=True)}]


MOVED_CENTRE = StructureKind(
    "another centre of mass of the link of", _centres, _with_centre, _centre_starts, ("centre.mass",), ("*.com.*",)
)


def _bodies(model: FitModel) -> list[StructureCandidate]:
    """Return other centres and inertias of all links as one candidate."""
    assert model.space is not None
    known = {*model.space.names, *(one.name for one, _ in model.space.known)}
    names = [model.mechanism.names[index] for index in turning_links(model.mechanism)]
    names = [name for name in names if f"{name}.{INERTIA_SCALE}" not in known and f"{name}.{EXTENT[0]}" not in known]
    return [StructureCandidate("bodies", place := ", ".join(names), _bodies_of(model, place))] if names else []


def _bodies_of(model: FitModel, place: str) -> tuple[Coordinate, ...]:
    known = {one.name for one in model.more}
    return tuple(
        one
        for name in place.split(", ")
        for one in body_coordinates(model.mechanism, model.mechanism.names.index(name))
        if one.name not in known
    )


def _with_bodies(model: FitModel, place: str) -> FitModel:
    return replace(model, more=(*model.more, *_bodies_of(model, place)))


OTHER_BODIES = StructureKind(
    "other centres of mass and inertias of the links of", _bodies, _with_bodies, lambda *_: [{}], ("bodies.mass",),
    ("*",), last=True,
)  # fmt: skip
