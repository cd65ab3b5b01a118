# SPDX-License-Identifier: Apache-2.0
"""Tendons and equality constraints of a compiled MuJoCo model as records of a mechanism."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from neurodyn.core.description.couplings import Equality, EqualityKind, Obstacle, SidePoint, Strand, Tendon, Waypoint
from neurodyn.core.description.elements import ImmersedBody, Medium
from neurodyn.core.description.scene import IDENTITY, Pose
from neurodyn.core.errors import InputError
from neurodyn.sim.bodies import compose, exact_pose
from neurodyn.sim.constraints import constraint_parameters

T = TypeVar("T")

ADDED = "neurodyn "
"""Prefix, unused in assets, of the names of tendons added for drives (`sim.mujoco.actuators`)."""

JOINT_WRAP, _PULLEY, _SITE = 1, 2, 3
"""MuJoCo's mjtWrap: kinds of parts of a tendon; the others are geoms."""

_SPHERE = 2
"""MuJoCo's mjtGeom of a sphere."""

_SINGLE = (2, 3)
"""MuJoCo's mjtJoint of slides and hinges."""

_ROUND = {2: "sphere", 3: "capsule", 5: "cylinder"}
"""MuJoCo's mjtGeom of shapes whose sizes are not their semi-axes."""

_LEAST_MASS = 1e-15

_SITE_OBJECT = 6
"""MuJoCo's mjtObj of a site."""


@dataclass(frozen=True)
class ModelLinks:
    """Maps joints and bodies of a compiled model to links of a mechanism.

    Attributes:
        joints: Name of the link of each hinge and slide, by the number of the joint.
        bodies: For each body by its number, the name of the link that carries it, empty for the world, and the pose of
            the body in the frame of that link's body, or in the world [x y z, qx qy qz qw].
    """

    joints: Mapping[int, str]
    bodies: Mapping[int, tuple[str, Pose]]


def model_links(model: Any, names: Mapping[int, str]) -> ModelLinks:
    """Return the links of joints and bodies of a compiled model, given the names of the joints.

    The last joint of a body names its link; bodies without a joint belong to the link that carries them.
    """
    kinds = model.jnt_type
    bodies: dict[int, tuple[str, Pose]] = {0: ("", IDENTITY)}
    for body in range(1, model.nbody):
        if model.body_jntnum[body]:
            bodies[body] = (names[int(model.body_jntadr[body] + model.body_jntnum[body]) - 1], IDENTITY)
        else:
            link, frame = bodies[int(model.body_parentid[body])]
            bodies[body] = (link, _compose(frame, _pose(model.body_pos[body], model.body_quat[body])))
    return ModelLinks({joint: name for joint, name in names.items() if kinds[joint] in _SINGLE}, bodies)


def modelled_tendons(model: Any, links: ModelLinks) -> tuple[tuple[Tendon, ...], list[str]]:
    """Return the tendons that are modelled, and the reasons why others are not."""
    own = [index for index in range(model.ntendon) if not model.tendon(index).name.startswith(ADDED)]
    return _read_all(read_tendon, own, model, links)


def modelled_equalities(model: Any, links: ModelLinks) -> tuple[tuple[Equality, ...], list[str]]:
    """Return the active equality constraints that are modelled, and the reasons why others are not.

    A mocap body is a body of the world at its pose in the model.
    """
    return _read_all(_equality, np.flatnonzero(model.eq_active0).tolist(), model, links)


def _read_all(
    read: Callable[..., T], numbers: Iterable[int], model: Any, links: ModelLinks
) -> tuple[tuple[T, ...], list[str]]:
    records, refused = [], []
    for index in numbers:
        try:
            records.append(read(model, index, links))
        except (InputError, KeyError) as error:
            refused.append(str(error))
    return tuple(records), refused


def read_tendon(model: Any, index: int, links: ModelLinks) -> Tendon:
    """Return one tendon of a compiled model; an InputError for one that wraps inside of a geom."""
    name = quantity_name(model.tendon(index).name, f"tendon{index}")
    limited = bool(model.tendon_limited[index])
    lower, upper = map(float, model.tendon_range[index])
    joints, strands = _path(model, index, links, name)
    slack, efforts = model.tendon_lengthspring[index], model.tendon_actfrcrange[index]
    return Tendon(
        name=name, joints=joints, strands=strands, slack=(float(slack[0]), float(slack[1])),
        lower=lower if limited else None, upper=upper if limited else None,
        limit=constraint_parameters(model.tendon_solref_lim[index], model.tendon_solimp_lim[index], exact=True),
        friction_softness=constraint_parameters(
            model.tendon_solref_fri[index], model.tendon_solimp_fri[index], exact=True
        ),
        stiffness=float(model.tendon_stiffness[index]), damping=float(model.tendon_damping[index]),
        armature=float(model.tendon_armature[index]), friction=float(model.tendon_frictionloss[index]),
        margin=float(model.tendon_margin[index]),
        stiffness_square=float(model.tendon_stiffnesspoly[index][0]),
        stiffness_cube=float(model.tendon_stiffnesspoly[index][1]),
        damping_square=float(model.tendon_dampingpoly[index][0]),
        damping_cube=float(model.tendon_dampingpoly[index][1]),
        effort_range=(float(efforts[0]), float(efforts[1])) if model.tendon_actfrclimited[index] else UNSET,
    )  # fmt: skip


def _path(model: Any, index: int, links: ModelLinks, name: str) -> tuple[dict[str, float], tuple[Strand, ...]]:
    """Return the moment arms of a fixed tendon, or the strands of a spatial one."""
    first, count = int(model.tendon_adr[index]), int(model.tendon_num[index])
    joints: dict[str, float] = {}
    strands: list[Strand] = []
    points: list[Waypoint] = []
    divisor = 1.0
    for at in range(first, first + count):
        kind, number, value = int(model.wrap_type[at]), int(model.wrap_objid[at]), float(model.wrap_prm[at])
        if kind == JOINT_WRAP:
            joint = links.joints[number]
            joints[joint] = joints.get(joint, 0.0) + value
        elif kind == _SITE:
            link, pose = read_site(model, number, links)
            points.append(Waypoint(link=link, point=pose[:3]))
        elif kind == _PULLEY:
            strands += _strands(points, divisor)
            points, divisor = [], value
        else:
            points[-1] = msgspec.structs.replace(points[-1], around=_obstacle(model, number, int(value), links, name))
    return joints, (*strands, *_strands(points, divisor))


def _obstacle(model: Any, geom: int, site: int, links: ModelLinks, name: str) -> Obstacle:
    """Return the geom that a tendon wraps around; `site` is the number of its side site, -1 for none."""
    link, frame = links.bodies[int(model.geom_bodyid[geom])]
    pose = _compose(frame, _pose(model.geom_pos[geom], model.geom_quat[geom]))
    side, radius = UNSET, float(model.geom_size[geom][0])
    if site >= 0:
        carrier, at = read_site(model, site, links)
        side = SidePoint(link=carrier, point=at[:3])
        if carrier == link and np.linalg.norm(np.subtract(at[:3], pose[:3])) < radius:
            raise InputError(f"tendon {name!r}: wraps inside of a geom; valid: side sites outside of it")
    kind = "sphere" if int(model.geom_type[geom]) == _SPHERE else "cylinder"
    return Obstacle(kind=kind, link=link, pose=pose, radius=radius, side=side)


def _strands(points: list[Waypoint], divisor: float) -> list[Strand]:
    return [Strand(points=tuple(points), divisor=divisor)] if len(points) > 1 else []


def _equality(model: Any, index: int, links: ModelLinks) -> Equality:
    name = quantity_name(model.equality(index).name, f"equality{index}")
    kind = int(model.eq_type[index])
    if kind not in _KINDS:
        raise InputError(f"equality {name!r} is of a flexible body; valid: {', '.join(x for x, _ in _KINDS.values())}")
    what, read = _KINDS[kind]
    softness = constraint_parameters(model.eq_solref[index], model.eq_solimp[index], exact=True)
    return Equality(name=name, kind=what, softness=softness, **read(model, index, links))


def _joints(model: Any, index: int, links: ModelLinks) -> dict[str, Any]:
    def end(joint: int) -> tuple[str, float]:
        return links.joints[joint], float(model.qpos0[model.jnt_qposadr[joint]])

    return _polynomial(model, index, end)


def _tendons(model: Any, index: int, links: ModelLinks) -> dict[str, Any]:
    def end(tendon: int) -> tuple[str, float]:
        return quantity_name(model.tendon(tendon).name, f"tendon{tendon}"), float(model.tendon_length0[tendon])

    return _polynomial(model, index, end)


def _polynomial(model: Any, index: int, end: Callable[[int], tuple[str, float]]) -> dict[str, Any]:
    second = int(model.eq_obj2id[index])
    ends = [end(int(model.eq_obj1id[index])), ("", 0.0) if second < 0 else end(second)]
    return {
        "first": ends[0][0], "second": ends[1][0], "reference": (ends[0][1], ends[1][1]),
        "polynomial": tuple(map(float, model.eq_data[index][:5])),
    }  # fmt: skip


def _connect(model: Any, index: int, links: ModelLinks) -> dict[str, Any]:
    data = model.eq_data[index]
    return _ends(model, index, links, (_pose(data[:3]), _pose(data[3:6])))


def _weld(model: Any, index: int, links: ModelLinks) -> dict[str, Any]:
    data = model.eq_data[index]
    rotation = data[6:10] if np.any(data[6:10]) else None  # sites have their own
    frames = _pose(data[3:6], rotation), _pose(data[:3])
    return {**_ends(model, index, links, frames), "torque_scale": float(data[10])}


def _ends(model: Any, index: int, links: ModelLinks, frames: tuple[Pose, Pose]) -> dict[str, Any]:
    """Return the links, frames and centres of two bodies, with `frames` in these bodies, or of two sites."""
    fields = {}
    sites = int(model.eq_objtype[index]) == _SITE_OBJECT
    for end, numbers, frame in zip(("first", "second"), (model.eq_obj1id, model.eq_obj2id), frames, strict=True):
        number = int(numbers[index])
        if sites:
            body = int(model.site_bodyid[number])
            link, frame = read_site(model, number, links)
        else:
            body = number
            link, pose = links.bodies[body]
            frame = _compose(pose, frame)
        fields |= {end: link, f"{end}_frame": frame}
        if link:
            fields[f"{end}_centre"] = _compose(links.bodies[body][1], _pose(model.body_ipos[body]))[:3]
    if fields["first"] == fields["second"]:
        raise InputError(
            f"equality {quantity_name(model.equality(index).name, f'equality{index}')!r} holds two points "
            "of one link: it has no effect"
        )
    return fields


def read_site(model: Any, number: int, links: ModelLinks) -> tuple[str, Pose]:
    """Return the link that carries a site, and the site's pose in its body."""
    link, pose = links.bodies[int(model.site_bodyid[number])]
    return link, _compose(pose, _pose(model.site_pos[number], model.site_quat[number]))


_KINDS: dict[int, tuple[EqualityKind, Callable[..., dict[str, Any]]]] = {
    0: ("connect", _connect),
    1: ("weld", _weld),
    2: ("joint", _joints),
    3: ("tendon", _tendons),
}
"""MuJoCo's mjtEq, by number."""


def quantity_name(name: str, otherwise: str) -> str:
    """Return a name with characters that names of quantities cannot have replaced, or `otherwise` if it is empty."""
    return "".join("_" if sign in "@() " else sign for sign in name) or otherwise


def _compose(a: Pose, b: Pose) -> Pose:
    return exact_pose(compose(np.asarray(a), np.asarray(b)))


def _pose(position: Any, quaternion: Any = None) -> Pose:
    """Return a pose from a position and a quaternion of MuJoCo, scalar first."""
    x, y, z = map(float, position)
    if quaternion is None:
        return (x, y, z, *IDENTITY[3:])
    w, *vector = (np.asarray(quaternion, dtype=float) / np.linalg.norm(quaternion)).tolist()
    return (x, y, z, *vector, w)


def read_medium(model: Any, links: ModelLinks) -> Medium | UnsetType:
    """Return the medium of a compiled model with the bodies immersed in it; unset for none."""
    density, viscosity = float(model.opt.density), float(model.opt.viscosity)
    if density <= 0 and viscosity <= 0:
        return UNSET
    bodies: list[ImmersedBody] = []
    for body in range(1, model.nbody):
        link, frame = links.bodies[body]
        if not link or model.body_mass[body] < _LEAST_MASS:
            continue
        geoms = range(int(model.body_geomadr[body]), int(model.body_geomadr[body] + model.body_geomnum[body]))
        own = [_ellipsoid(model, geom, link, frame) for geom in geoms if model.geom_fluid[geom][0] > 0]
        bodies += own or [_inertia_box(model, body, link, frame)]
    x, y, z = map(float, model.opt.wind)
    return Medium(bodies=tuple(bodies), density=max(density, 0.0), viscosity=max(viscosity, 0.0), wind=(x, y, z))


def _inertia_box(model: Any, body: int, link: str, frame: Pose) -> ImmersedBody:
    moments, mass = model.body_inertia[body], float(model.body_mass[body])
    squares = [max(float(moments.sum() - 2.0 * moments[axis]), 1e-15) * 6.0 / mass for axis in range(3)]
    x, y, z = (square**0.5 for square in squares)
    pose = _compose(frame, _pose(model.body_ipos[body], model.body_iquat[body]))
    return ImmersedBody(link=link, kind="box", pose=pose, size=(x, y, z))


def _ellipsoid(model: Any, geom: int, link: str, frame: Pose) -> ImmersedBody:
    first, second, third = map(float, model.geom_size[geom])
    kind = _ROUND.get(int(model.geom_type[geom]))
    if kind == "sphere":
        second = third = first
    elif kind is not None:
        first, second, third = first, first, second + (first if kind == "capsule" else 0.0)
    numbers = model.geom_fluid[geom].tolist()
    return ImmersedBody(
        link=link, kind="ellipsoid", pose=_compose(frame, _pose(model.geom_pos[geom], model.geom_quat[geom])),
        size=(first, second, third), interaction=numbers[0], drag=(numbers[1], numbers[2], numbers[3]),
        lift=(numbers[4], numbers[5]), added_mass=(numbers[6], numbers[7], numbers[8]),
        added_inertia=(numbers[9], numbers[10], numbers[11]),
    )  # fmt: skip
