# SPDX-License-Identifier: Apache-2.0
"""Contacts of points and shapes, joint limits and joint friction as MuJoCo's soft constraints."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neurodyn.core.description.contacts import ConstraintParameters, ContactPoint, constraint_quantities
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.geometry.prisms import CONTACT_NUMBERS, contact_slots
from neurodyn.multibody.constraints.equalities import (
    ConstraintRows,
    coupling_rows,
    friction_row,
    limit_row,
    nearer_limit,
)
from neurodyn.multibody.constraints.free_bodies import ball_free_constraints, with_lone_implicit, without_lone
from neurodyn.multibody.constraints.impedance import Compliance, InverseWeights, compliance_of, tangent
from neurodyn.multibody.constraints.layout import ConstraintStructure, ContactPointGroup
from neurodyn.multibody.constraints.shape_contacts import Cones, SurfaceContacts
from neurodyn.multibody.constraints.solver import constraint_loop
from neurodyn.multibody.contacts.contact_model import POINTS_SIZE, ContactModel, ContactPush, Contacts
from neurodyn.multibody.drives.actuators import damp_implicitly
from neurodyn.multibody.mass_matrix import TreeInertia, is_zero
from neurodyn.multibody.passive import damping_slope, free_armature
from neurodyn.multibody.points import PointContact
from neurodyn.multibody.tendons.lengths import added_inertia
from neurodyn.multibody.trace import Expression, apply_loop, map_in_loop, maximum, safe_sqrt, select_less
from neurodyn.multibody.trace.expression import TINY
from neurodyn.multibody.vectors import EYE, Vector, array, cross, dot

_SOFTNESS = tuple(constraint_quantities("solref", "solimp", ConstraintParameters()))
"""Compliance of a contact, without "contact."."""

_NEAREST, _FLAT = 1.5, 2.5
"""Upper bounds of the kinds `NEAREST` and `FLAT` of `geometry.prisms.pair`."""


def prism_rows(
    contacts: Contacts, inertia: TreeInertia, weights: dict[int, Any], shapes: dict[int, str]
) -> list[tuple[int, list[Any]]]:
    """Return link, and position, normal, first tangent, depth, 1/R and k d r, of every possible contact.

    `weights` and `shapes` hold A of the contacts, and the name of a shape, of each link with shapes.
    """
    constraints = contacts.tree.mechanism.constraints
    common = [name for name in _SOFTNESS if not constraints.own(name)]
    own = [name for name in _SOFTNESS if name not in common]
    blocks, items, links = [], [], []
    for number, (link, count) in enumerate(contact_slots(contacts.tree.mechanism.shapes).items()):
        pose = contacts.poses[link]
        blocks.append([*pose.rotation.flat, *pose.origin, *contact_origin(contacts, inertia, link), weights[link]])
        blocks[-1] += [contacts.scope(constraints.quantity(name, shapes[link])) for name in own]
        links += [link] * count
        items += [number] * count

    def row(shared: list[Any], of_link: list[Any], item: list[Any]) -> Sequence[Any]:
        (block,) = of_link
        given = dict(zip((*common, *own), (*shared, *block[16:]), strict=True))
        compliance = compliance_of(given.__getitem__, "solref", "solimp", contacts.dt)
        position, normal, depth = _contact(block, item)
        return [
            *position,
            *normal,
            *tangent(normal),
            depth,
            compliance.weight(depth, block[15]),
            compliance.reference(depth),
        ]

    graph = next(x.graph for x in contacts.qd if isinstance(x, Expression))
    held = [
        ((number,), contacts.prism_contacts[CONTACT_NUMBERS * i : CONTACT_NUMBERS * (i + 1)])
        for i, number in enumerate(items)
    ]
    shared = [contacts.scope(f"contact.{name}") for name in common]
    rows = map_in_loop(graph, "prism contacts", row, shared, blocks, held)
    return list(zip(links, rows, strict=True))


def _contact(block: list[Any], item: list[Any]) -> tuple[Vector, Vector, Any]:
    """Return position (from the origin of the tree's first link), normal and depth of a contact; depth -1 for none."""
    rotation = array([block[3 * i : 3 * i + 3] for i in range(3)])
    origin, from_root = array(block[9:12]), array(block[12:15])
    kind, radius = item[:2]
    core, along, along_too = (rotation @ array(item[i : i + 3]) for i in (2, 5, 8))
    ground, across, across_too = (array(item[i : i + 3]) for i in (11, 14, 17))
    between = origin + core - ground
    nearest, slid = _nearest(between, along, across)
    flat, moved = _flat(between, along, along_too, across, across_too)
    normal, shift = (
        array([select_less(kind, _NEAREST, a, b) for a, b in zip(*pair, strict=True)])
        for pair in ((nearest, flat), (slid, moved))
    )
    gap = select_less(kind, _FLAT, dot(normal, between), dot(across, between))
    normal = array([select_less(kind, _FLAT, a, b) for a, b in zip(normal, across_too, strict=True)])
    depth = select_less(0.5, kind, radius - gap, -1.0)
    return from_root + core + shift - 0.5 * (gap + radius) * normal, normal, depth


def _nearest(between: Vector, along: Vector, across: Vector) -> tuple[Vector, Vector]:
    """Return the normal of nearest features, and the vector from the core to the nearest point on the robot's edge."""
    aside = along - dot(along, across) * across
    size = dot(aside, aside)
    share = dot(between, aside) / maximum(size, TINY)
    rest = between - dot(between, across) * across - share * aside
    return rest / safe_sqrt(dot(rest, rest)), -(share * along)


def _flat(
    between: Vector, along: Vector, along_too: Vector, across: Vector, across_too: Vector
) -> tuple[Vector, Vector]:
    """Return the normal of flat features, and the vector from the core to the contact on the robot's feature."""
    one, other = across - along, across_too - along_too
    area = cross(one, other)
    square = dot(area, area)
    normal = area / safe_sqrt(square)
    tangential = between - dot(normal, between) * normal
    a, b, mixed = dot(one, one), dot(other, other), dot(one, other)
    x, y = dot(tangential, one), dot(tangential, other)
    inverse = 1.0 / maximum(square, TINY)
    return normal, inverse * ((x * b - y * mixed) * along + (y * a - x * mixed) * along_too)


_LEAST_FRICTION = 1e-5
"""MuJoCo's lower bound of the friction coefficient."""


class SoftContactModel(ContactModel):
    """Contacts, joint limits and joint friction as soft constraints; networks may act on contact forces."""

    constrains_joints = True

    def nominal(self, mechanism: Mechanism) -> Mapping[str, float]:
        """Return the nominal values of the quantities of the constraints."""
        constraints = mechanism.constraints
        values = {}
        if mechanism.points:
            values |= {POINTS_SIZE: 1.0, **constraints.quantities()}
            values |= constraint_quantities("contact.solref", "contact.solimp", constraints.contact)
        for link in mechanism.links:
            name = link.joint.name
            if not link.joint.scalar and not link.friction and link.upper is None:
                continue
            if link.lower is not None or link.upper is not None:
                limit = constraints.limits.get(name, ConstraintParameters())
                values |= constraint_quantities(f"{name}.limit_solref", f"{name}.limit_solimp", limit)
            friction = constraints.joint_friction.get(name, ConstraintParameters())
            values |= constraint_quantities(f"{name}.friction_solref", f"{name}.friction_solimp", friction)
        return values

    def accelerations(self, contacts: Contacts, free: list[Any]) -> list[Any]:
        """Return the accelerations over the step."""
        added = [*added_inertia(contacts.tendons), *free_armature(contacts.tree, contacts.q)]
        inertia = TreeInertia(contacts.tree, contacts.poses, added)
        weights = InverseWeights(contacts.tree)
        touching, damping = _contacts(contacts, inertia, weights)
        rows = [*_joint_rows(contacts, weights), *coupling_rows(contacts, weights)]
        rows += ball_free_constraints(contacts, weights)
        cones = _surface_contacts(contacts, inertia, weights)
        centripetal = contacts.tree.centripetal(contacts.q, contacts.qd)
        free = [a - centripetal.get(dof, 0.0) for dof, a in enumerate(free)] if centripetal else free
        free = _adhering(contacts, inertia, free, touching, cones)
        acceleration = free
        if touching or rows or cones:
            solution = _solve(contacts, inertia, free, touching, damping, rows, cones)
            forces = solution[len(free) :]
            _note_pushes(contacts, inertia, cones, forces[3 * len(touching) :])
            named, own = _named_forces(cones, forces[3 * len(touching) :])
            pushing = [*touching, *named], [*forces[: 3 * len(touching)], *own]
            acceleration = _with_networks(contacts, inertia, solution[: len(free)], *pushing)
        acceleration = _damp(contacts, inertia, acceleration)
        if contacts.tree.mechanism.constraints.implicit is True:
            acceleration = with_lone_implicit(contacts, inertia, acceleration, centripetal)
        return [a + centripetal.get(dof, 0.0) for dof, a in enumerate(acceleration)] if centripetal else acceleration


SOFT = SoftContactModel()


@dataclass
class _Contact:
    """A possible contact."""

    link: int
    inputs: list[Any]  # see `layout.PER_POINT`; the position is from the origin of the tree's first link
    name: str = ""  # of its point; empty for contacts of shapes


class _PointSurfaces:
    """Friction, compliance and inverse weights of the contacts of the robot's shapes."""

    def __init__(self, contacts: Contacts, inverse: InverseWeights) -> None:
        self._scope, self._constraints, self._inverse = contacts.scope, contacts.tree.mechanism.constraints, inverse
        self._dt = contacts.dt
        self._compliances: dict[tuple[str, ...], Compliance] = {}
        self._frictions: dict[str, tuple[Any, Any]] = {}
        self._weights: dict[tuple[Any, ...], Any] = {}
        self._shapes = contacts.tree.mechanism.ground_shapes or {}

    def friction(self, shape: str) -> Any:
        return self._friction(self._constraints.quantity("friction", shape))[0]

    def compliance(self, shape: str = "") -> Compliance:
        """Return the compliance of a shape's contacts; without a shape, the default."""
        names = tuple(self._constraints.quantity(name, shape) for name in _SOFTNESS)
        if names not in self._compliances:
            named = dict(zip(_SOFTNESS, names, strict=True))
            self._compliances[names] = compliance_of(
                lambda name: self._scope(named[name]), "solref", "solimp", self._dt
            )
        return self._compliances[names]

    def weight(self, link: int, shape: str) -> Any:
        name = self._constraints.quantity("friction", shape)
        centre = (self._shapes[shape].centre or None) if shape in self._shapes else None
        if (link, name, centre) not in self._weights:
            factor = self._friction(name)[1]
            self._weights[link, name, centre] = self._inverse.body(link, centre) * factor
        return self._weights[link, name, centre]

    def _friction(self, name: str) -> tuple[Any, Any]:
        """Return a friction coefficient, and the inverse weight of its pyramid's edges relative to the normal's."""
        if name not in self._frictions:
            friction = maximum(self._scope(name), _LEAST_FRICTION)
            edge = 2.0 * friction * friction / self._constraints.impratio * (1.0 + friction * friction)
            self._frictions[name] = friction, edge if self._constraints.cone == "pyramidal" else 1.0
        return self._frictions[name]


def _contacts(contacts: Contacts, inertia: TreeInertia, inverse: InverseWeights) -> tuple[list[_Contact], Any]:
    """Return the possible contacts, grouped by link, and their damping b."""
    mechanism = contacts.tree.mechanism
    shapes = {one.joint: one.name for one in mechanism.shapes} if contacts.prism_contacts else {}
    if not shapes and (mechanism.grounded or not contacts.points):
        return [], 0.0
    surfaces = _PointSurfaces(contacts, inverse)
    damping = surfaces.compliance().damping
    if contacts.prism_contacts:
        weights = {link: surfaces.weight(link, shapes[link]) for link in sorted(shapes)}
        rows = prism_rows(contacts, inertia, weights, shapes)
        possible = [_Contact(link, [*row, surfaces.friction(shapes[link])]) for link, row in rows]
    else:
        possible = _of_points(contacts, inertia, surfaces)
    return possible, damping


def contact_origin(contacts: Contacts, inertia: TreeInertia, link: int) -> Vector:
    """Return the origin of a link relative to the reference point of contact positions.

    That is the origin of its tree's first link, or, with contacts by surface, of the mechanism's.
    """
    return inertia.from_first(link) if _by_surface(contacts) else inertia.from_root(link)


def _by_surface(contacts: Contacts) -> bool:
    mechanism = contacts.tree.mechanism
    return bool(mechanism.shape_contacts or mechanism.grounded)


def _surface_contacts(contacts: Contacts, inertia: TreeInertia, weights: InverseWeights) -> list[Cones]:
    """Return the contacts between shapes, and those of points with the ground if their shapes have surfaces."""
    if not _by_surface(contacts):
        return []
    surfaces = SurfaceContacts(contacts, inertia, weights)
    cones = surfaces.of_shapes()
    if contacts.tree.mechanism.grounded and contacts.points and not contacts.prism_contacts:
        touched = list(zip(contacts.points, contacts.touched, strict=True))
        cones += surfaces.of_points(touched, [_axis(contacts, *one) for one in touched])
    return cones


def _axis(contacts: Contacts, point: ContactPoint, touch: PointContact) -> Vector | None:
    """Return the axis of a point's capsule in the world, if it has one and lies on a plane."""
    if point.axis is None or not contacts.flat:
        return None
    return contacts.to_world(touch.link, array(point.axis))


def _of_points(contacts: Contacts, inertia: TreeInertia, surfaces: _PointSurfaces) -> list[_Contact]:
    for point in sorted(contacts.points, key=lambda point: point.joint):
        surfaces.weight(point.joint, point.shape)
    both = sorted(zip(contacts.points, contacts.touched, strict=True), key=lambda pair: pair[1].link)
    possible, always = [], bool(contacts.tree.mechanism.constraints.follows_capsules)
    for point, touch in both:
        axis = _axis(contacts, point, touch)
        position = contact_origin(contacts, inertia, touch.link) + touch.arm + 0.5 * touch.depth * array(touch.normal)
        compliance = surfaces.compliance(point.shape)
        weight = compliance.weight(touch.depth, surfaces.weight(touch.link, point.shape))
        reference, first = compliance.reference(touch.depth), tangent(touch.normal, axis, always=always)
        inputs = [*position, *touch.normal, *first, touch.depth, weight, reference, surfaces.friction(point.shape)]
        possible.append(_Contact(touch.link, inputs, touch.name))
    return possible


def _joint_rows(contacts: Contacts, inverse: InverseWeights) -> list[ConstraintRows]:
    """Return the row of the nearer limit of each joint with limits, then that of each joint with dry friction."""
    scope, tree = contacts.scope, contacts.tree
    margins, limits, frictions = tree.mechanism.constraints.limit_margins or {}, [], []
    for name, dof in tree.dofs.items():
        index = tree.index_of[name]
        link, velocity = tree.links[index], contacts.qd[dof]
        if link.lower is not None or link.upper is not None:
            room, side = nearer_limit(contacts, name, link, tree.q_of(index, contacts.q)[0])
            violation = margins.get(name, 0.0) - room
            limits.append(limit_row(contacts, name, {dof: side}, side * velocity, violation, inverse.joint(dof)))
        most = scope(f"{name}.friction") + contacts.dry.get(dof, 0.0)
        if not is_zero(most):
            frictions.append(friction_row(contacts, name, {dof: 1.0}, velocity, most, inverse.joint(dof)))
    return [*limits, *frictions]


def _adhering(
    contacts: Contacts, inertia: TreeInertia, free: list[Any], touching: Sequence[_Contact], cones: Sequence[Cones]
) -> list[Any]:
    """Return the accelerations with adhesion forces, shared equally by the contacts of a link."""
    if not contacts.adhesion:
        return free
    ends = [((-1, contact.link), contact.inputs) for contact in touching]
    ends += [(group.links, inputs) for group in cones for inputs in group.contacts]
    force: list[Any] = [0.0] * len(free)
    for name, value in contacts.adhesion.items():
        link, count, total = contacts.tree.index_of[name], 0.0, [0.0] * len(free)
        for links, inputs in (one for one in ends if link in one[0]):
            position, normal = array(inputs[:3]), array(inputs[3:6])
            touches = select_less(0.0, inputs[9], 1.0, 0.0)
            count = count + touches
            for index, sign in zip(links, (-1.0, 1.0), strict=True):
                if index >= 0:
                    arm = position - contact_origin(contacts, inertia, index)
                    row = inertia.row(index, arm, sign * touches * normal)
                    total = [a + b for a, b in zip(total, row, strict=True)]
        share = -(value / maximum(count, 1.0))
        force = [a + share * b for a, b in zip(force, total, strict=True)]
    added = inertia.velocities(inertia.halfway(force))
    return [a + b for a, b in zip(free, added, strict=True)]


def _solve(
    contacts: Contacts, inertia: TreeInertia, free: Sequence[Any], touching: list[_Contact], damping: Any,
    rows: Sequence[ConstraintRows], cones: Sequence[Cones],
) -> list[Any]:  # fmt: skip
    """Return the accelerations, then the contact forces (normal and tangents), first of `touching`, then of `cones`."""
    constraints = contacts.tree.mechanism.constraints
    chains = inertia.chains
    last = {column.link: dof for dof, column in enumerate(inertia.columns)}
    counts = Counter(contact.link for contact in touching)
    groups = tuple(ContactPointGroup(chains[last[link]], count) for link, count in counts.items())
    structure = ConstraintStructure(
        chains, groups, constraints.cone, constraints.impratio, tuple(one.group for one in rows),
        tuple(one.group for one in cones),
    )  # fmt: skip
    given = [inertia.matrix[i][j] for i, chain in enumerate(chains) for j in chain]
    given += [*free, *contacts.qd]
    for column in inertia.columns:
        given += [*column.spin, *(inertia.velocity_at_first(column) if _by_surface(contacts) else column.velocity)]
    given.append(damping)
    for one in (*touching, *rows, *cones):
        given += one.inputs
    graph = next(x.graph for x in contacts.qd if isinstance(x, Expression))
    return list(apply_loop(graph, constraint_loop(structure), given))


def _named_forces(cones: Sequence[Cones], forces: Sequence[Any]) -> tuple[list[_Contact], list[Any]]:
    """Return the contacts of points among contacts by surface, and their forces."""
    of_points, own, first = [], [], 0
    for group in cones:
        for number, name in enumerate(group.names):
            of_points.append(_Contact(group.links[1], group.contacts[number], name))
            own += forces[first + 3 * number : first + 3 * number + 3]
        first += 3 * len(group.contacts)
    return of_points, own


def _note_pushes(contacts: Contacts, inertia: TreeInertia, cones: Sequence[Cones], forces: Sequence[Any]) -> None:
    """Record the forces of contacts between shapes on both links, for sensors."""
    if contacts.pushes is None:
        return
    touching = [(group, inputs) for group in cones for inputs in group.contacts]
    for number, (group, inputs) in enumerate(touching):
        if group.names:
            continue
        position, normal, first = (array(inputs[i : i + 3]) for i in (0, 3, 6))
        push, along, across = forces[3 * number : 3 * number + 3]
        force = push * normal + along * first + across * cross(normal, first)
        for link, sign in zip(group.links, (-1.0, 1.0), strict=True):
            if link >= 0:
                contacts.pushes.append(ContactPush(link, position - inertia.from_first(link), sign * force))


def _with_networks(
    contacts: Contacts, inertia: TreeInertia, acceleration: list[Any], touching: list[_Contact], forces: Sequence[Any]
) -> list[Any]:
    """Define the contact forces as quantities; return the accelerations with the networks' changes to them."""
    change: list[Any] = [0.0] * len(acceleration)
    for index, contact in enumerate(touching):
        if not contact.name and contacts.pushes is None:
            continue
        position, normal, first = (array(contact.inputs[i : i + 3]) for i in (0, 3, 6))
        second = cross(normal, first)
        push, along, across = forces[3 * index : 3 * index + 3]
        friction = [along * a + across * b for a, b in zip(first, second, strict=True)]
        noted = None
        if contacts.pushes is not None:
            arm = position - contact_origin(contacts, inertia, contact.link)
            noted = ContactPush(contact.link, arm, push * normal + array(friction))
            contacts.pushes.append(noted)
        if not contact.name:
            continue
        names = ("normal", "friction.x", "friction.y", "friction.z")
        for name, value, direction in zip(names, (push, *friction), (normal, *EYE), strict=True):
            acted = contacts.scope.define(f"contact.{contact.name}.{name}", value)
            if acted is not value:
                if noted is not None:
                    noted.force = noted.force + (acted - value) * direction
                arm = position - contact_origin(contacts, inertia, contact.link)
                row = inertia.row(contact.link, arm, direction)
                change = [old + (acted - value) * x for old, x in zip(change, row, strict=True)]
    if all(map(is_zero, change)):
        return acceleration
    extra = inertia.velocities(inertia.halfway(change))
    return [a + more for a, more in zip(acceleration, extra, strict=True)]


def _damp(contacts: Contacts, inertia: TreeInertia, acceleration: list[Any]) -> list[Any]:
    """Return the accelerations with joint damping and `Contacts.implicit` made implicit in the velocity."""
    tree = contacts.tree
    if tree.mechanism.constraints.damping == "explicit":
        return acceleration
    damping = {
        dof: damping_slope(tree.links[tree.index_of[name]], contacts.scope, name, contacts.qd[dof])
        for name, dof in tree.dofs.items()
    }
    rows = contacts.implicit
    if tree.mechanism.constraints.implicit is True:
        rows = without_lone(tree, rows)
    return damp_implicitly(inertia, acceleration, damping, rows, contacts.dt)
