# SPDX-License-Identifier: Apache-2.0
"""Forces of a medium on links (MuJoCo's inertia boxes and ellipsoids) and gravity compensation, in a traced step."""

import math
from collections.abc import Sequence
from typing import Any

from neurodyn.core.description.elements import MEDIUM, ImmersedBody, Medium
from neurodyn.geometry.rotation import quaternion_matrix
from neurodyn.multibody.articulated import Quantity, Wrenches
from neurodyn.multibody.drives.actuators import ImplicitRow
from neurodyn.multibody.mass_matrix import SparseRow, sparse
from neurodyn.multibody.points import Kinematics, add_wrench
from neurodyn.multibody.tendons.attachments import AttachedMotion
from neurodyn.multibody.trace import Expression, absolute, map_in_loop, maximum, safe_sqrt, select_less
from neurodyn.multibody.vectors import Matrix, Vector, array, cross, dot

_TINY = 1e-15  # MuJoCo's mjMINVAL


def medium_forces(
    medium: Medium, links: Kinematics, qd: Sequence[Any], quantity: Quantity, *, implicit: bool
) -> tuple[Wrenches, list[ImplicitRow]]:
    """Return moment and force on each link in its frame; with `implicit`, also rows with the damping of boxes."""
    wind = array([quantity(f"{MEDIUM}wind.{axis}") for axis in "xyz"])
    shared = [quantity(f"{MEDIUM}density"), quantity(f"{MEDIUM}viscosity")]
    graph = next(x.graph for x in qd if isinstance(x, Expression))
    wrenches: Wrenches = {}
    rows: list[ImplicitRow] = []
    for kind, law, numbers in (("box", _box, _box_numbers), ("ellipsoid", _ellipsoid, _ellipsoid_numbers)):
        bodies = [body for body in medium.bodies if body.kind == kind]
        if not bodies:
            continue
        places = [_place(links, body) for body in bodies]
        blocks = [_local_velocity(links, place, wind) for place in places]
        items = [((number,), numbers(body)) for number, body in enumerate(bodies)]
        for body, (index, rotation, arm), made in zip(
            bodies, places, map_in_loop(graph, f"medium of {kind}", law, shared, blocks, items), strict=True
        ):
            moment, force = (rotation @ array(made[i : i + 3]) for i in (0, 3))
            add_wrench(wrenches, index, moment + cross(arm, force), force)
            if implicit and kind == "box":
                rows += _damping(links, qd, body, rotation, made[6:])
    return wrenches, rows


def _place(links: Kinematics, body: ImmersedBody) -> tuple[int, Matrix, Vector]:
    """Return a body's link, and the rotation and origin of its frame in the link's frame."""
    tree = links.tree
    index = tree.index_of[body.link]
    axes = array(quaternion_matrix(body.pose[3:])).T
    rotation = array([tree.rotate_to_link(index, axis) for axis in axes]).T
    return index, rotation, tree.in_link_frame(index, array(body.pose[:3]))


def _local_velocity(links: Kinematics, place: tuple[int, Matrix, Vector], wind: Vector) -> list[Any]:
    """Return angular and linear velocity of a body relative to the medium, in its own axes."""
    index, rotation, arm = place
    motion = links.motions[index]
    velocity = motion.velocity + cross(motion.spin, arm)
    if any(isinstance(x, Expression) or x != 0.0 for x in wind):
        velocity = velocity - links.poses[index].rotation.T @ wind
    return [*(rotation.T @ motion.spin), *(rotation.T @ velocity)]


def _damping(
    links: Kinematics, qd: Sequence[Any], body: ImmersedBody, rotation: Matrix, damping: Sequence[Any]
) -> list[ImplicitRow]:
    """Return rows of angular and linear velocity along a body's axes, each with minus its force derivative."""
    attached, index = AttachedMotion(links, qd), links.tree.index_of[body.link]
    at = attached.point(body.link, array(body.pose[:3]))
    axes = (links.poses[index].rotation @ rotation).T
    rows = [attached.angular_row(at, axis) for axis in axes] + [attached.row(at, axis) for axis in axes]
    return [(sparse(row), value) for row, value in zip(rows, damping, strict=True)]


def _box_numbers(body: ImmersedBody) -> list[float]:
    """Return the viscosity and density factors of the moments and forces on a box."""
    x, y, z = body.size
    mean = (x + y + z) / 3.0
    turning = [a * (b**4 + c**4) / 64.0 for a, b, c in ((x, y, z), (y, x, z), (z, x, y))]
    pushing = [0.5 * y * z, 0.5 * x * z, 0.5 * x * y]
    return [math.pi * mean**3, 3.0 * math.pi * mean, *turning, *pushing]


def _box(shared: list[Any], blocks: list[list[Any]], item: list[Any]) -> list[Any]:
    """Return moment and force on a box, and minus their derivatives with respect to the velocity along each axis."""
    (density, viscosity), (block,) = shared, blocks
    forces, slopes = [], []
    for axis, velocity in enumerate(block):
        linear, square = viscosity * item[axis // 3], density * item[2 + axis] * absolute(velocity)
        forces.append(-((linear + square) * velocity))
        slopes.append(linear + 2.0 * square)
    return [*forces, *slopes]


def _ellipsoid_numbers(body: ImmersedBody) -> list[float]:
    """Return the coefficients, added masses and constants derived from the semi-axes of an ellipsoid."""
    size = body.size
    _, middle, most = sorted(size)
    volume, sphere = 4.0 / 3.0 * math.pi * math.prod(size), 2.0 / 3.0 * sum(size)
    inertia = [8.0 / 15.0 * math.pi * size[i] * max(size[(i + 1) % 3], size[(i + 2) % 3]) ** 4 for i in range(3)]
    greatest = 8.0 / 15.0 * math.pi * middle * most**4
    blunt, slender, angular = body.drag
    turning = [angular * x + slender * (greatest - x) for x in inertia]
    share = [x / most for x in size]
    squares = [(share[(i + 1) % 3] * share[(i + 2) % 3]) ** 2 for i in range(3)]
    return [
        body.interaction, blunt, slender, body.lift[0], body.lift[1] * volume, *body.added_mass, *body.added_inertia,
        *turning, *squares, math.pi * most * most, math.pi * most * middle, 3.0 * math.pi * sphere, math.pi * sphere**3,
    ]  # fmt: skip


def _ellipsoid(shared: list[Any], blocks: list[list[Any]], item: list[Any]) -> list[Any]:
    """Return moment and force on an ellipsoid: added mass, Magnus and Kutta lift, and drag."""
    (density, viscosity), (block,) = shared, blocks
    spin, velocity = array(block[:3]), array(block[3:])
    interaction, blunt, slender, kutta, magnus = item[:5]
    mass, inertia, turning, squares = (array(item[i : i + 3]) for i in (5, 8, 11, 14))
    area, greatest, linear, twisting = item[17:21]
    momentum, turned = density * mass * velocity, density * inertia * spin
    force = cross(momentum, spin) + magnus * density * cross(spin, velocity)
    moment = cross(momentum, velocity) + cross(turned, spin)
    square = dot(velocity, velocity)
    speed = safe_sqrt(square)
    moves = select_less(1e-20, square, 1.0, 0.0)
    way = (moves / speed) * velocity
    seen = dot(squares, way * way)
    inverse = 1.0 / maximum(seen, _TINY)
    shares = inverse * squares
    norm = shares * way
    across = dot(norm, norm)
    projected = area * safe_sqrt(seen * across)
    circulation = (kutta * density * projected / maximum(across, _TINY)) * cross(norm, velocity)
    force = force + moves * cross(circulation, velocity)
    drag = viscosity * linear + density * speed * (projected * blunt + slender * (greatest - projected))
    size = maximum(maximum(turning[0], maximum(turning[1], turning[2])), _TINY)
    twist = (turning / size) * spin  # of the size of the spin, where a root is exact
    force = force - drag * velocity
    moment = moment - (viscosity * twisting + density * size * safe_sqrt(dot(twist, twist))) * spin
    return [*(interaction * moment), *(interaction * force)]


def gravity_compensation_forces(links: Kinematics, qd: list[Any], quantity: Quantity) -> SparseRow:
    """Return the generalised forces that compensate gravity on the links' `carried` mass."""
    attached, forces = AttachedMotion(links, qd), dict[int, Any]()
    for link in links.tree.links:
        if not link.carried:
            continue
        name = link.joint.name
        force = -1.0 * quantity(f"{name}.carried") * links.tree.vector("gravity")
        for dof, x in sparse(attached.row(attached.point(name, array(link.carried_at)), force)).items():
            forces[dof] = forces[dof] + x if dof in forces else x
    return forces
