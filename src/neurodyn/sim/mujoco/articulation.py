# SPDX-License-Identifier: Apache-2.0
"""A robot as compiled by MuJoCo, as plain data.

A body with several joints is a chain of links with one joint each: MuJoCo applies them in sequence. All links of it but
the last have a negligible mass.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from neurodyn.core.description.contacts import ChainJoint, SoftConstraints
from neurodyn.core.description.mechanism import BodyPrint, Fingerprint, JointPrint, Link
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import COORDINATES, JOINT_PROPERTIES, JointKind
from neurodyn.robots import Robot, asset_path
from neurodyn.sim.articulations import Articulation, BuiltShape, ShapeKind, Springs
from neurodyn.sim.bodies import (
    Groups,
    compose,
    exact_pose,
    group_bodies,
    inertia_entries,
    inertia_tensor,
    merged_body,
    rotation,
    rounded_numbers,
    rounded_vector,
)
from neurodyn.sim.constraints import model_constraints
from neurodyn.sim.contact_points import shape_names
from neurodyn.sim.engine import import_mujoco
from neurodyn.sim.interface import AssetJoint, specified_limits
from neurodyn.sim.mujoco.asset import compile_asset, read_spec
from neurodyn.sim.mujoco.build import BuiltModel, build_model, declared_joints, joint_kind
from neurodyn.sim.mujoco.couplings import ModelLinks, model_links, modelled_equalities, modelled_tendons, read_medium
from neurodyn.sim.mujoco.shape_contacts import has_several_contacts, read_contacts

_NEGLIGIBLE = 1e-12  # mass and inertia of an intermediate link, as a share of its body's
_UNLIMITED = 1e10  # limit of a fingerprint's joint without one


def mujoco_articulation(robot: Robot, built: BuiltModel | None = None) -> Articulation:
    """Return a robot as MuJoCo compiles it; `built` is the compiled model, None to build one."""
    built = build_model(robot) if built is None else built
    model, geoms = built.model, built.geoms
    tree = BodyTree(model)
    names = [joint.name for joint in robot.joints]
    links = tree.links(names)
    x, y, z = map(float, model.opt.gravity)
    where = tree.where(names)
    grounded = [geom for geom in geoms if model.geom(geom).name not in built.clear]
    shapes = tuple(_shape(model, geom, tree) for geom in grounded if tree.link_of(int(model.geom_bodyid[geom])) >= 0)
    return Articulation(
        links=links,
        shapes=shapes,
        gravity=(x, y, z),
        fingerprint=_fingerprint(model, links),
        find_constraints=partial(_constraints, model, robot, shapes, geoms, links),
        base_com=links[0].com if robot.spec.floating else (0.0, 0.0, 0.0),
        couplings=_couplings(model, robot, where, geoms, shapes),
    )


def compiled_limits(robot: Robot) -> dict[str, AssetJoint]:
    """Return the joints with one degree of freedom of a robot's asset, by name."""
    path = asset_path(robot)
    model = compile_asset(path, read_spec(path, locked=robot.locked, floating=not robot.fixed_base))
    joints = zip(declared_joints(model, robot), robot.joints, strict=True)
    efforts = {
        number: float(abs(model.jnt_actfrcrange[number]).max()) or None
        for number in np.flatnonzero(model.jnt_actfrclimited).tolist()
    }
    return {
        joint.name: compiled_joint(model, number, joint.name, joint.kind, efforts.get(number))
        for number, joint in joints if joint.scalar
    }  # fmt: skip


def compiled_joint(
    model: Any, number: int, name: str, kind: JointKind, effort: float | None = None, velocity: float | None = None
) -> AssetJoint:
    """Return a joint with one degree of freedom of a compiled asset, with the effort and velocity of its drive."""
    lower, upper = map(float, model.jnt_range[number] if model.jnt_limited[number] else (-np.inf, np.inf))
    armature = float(model.dof_armature[model.jnt_dofadr[number]])
    return AssetJoint(name, kind, *specified_limits(lower, upper), effort, velocity, armature)


def names_of_geoms(model: Any, geoms: Iterable[int], shapes: Sequence[BuiltShape]) -> dict[int, str]:
    """Return the names that quantities use for geoms that are shapes of links."""
    labels = {shape.label: name for shape, name in zip(shapes, shape_names(shapes), strict=True)}
    return {geom: labels[name] for geom in geoms if (name := model.geom(geom).name) in labels}


def _couplings(
    model: Any, robot: Robot, where: ModelLinks, geoms: list[int], shapes: tuple[BuiltShape, ...]
) -> dict[str, Any]:
    """Return tendons, equalities and contacts of a model as fields of a mechanism."""
    ground = names_of_geoms(model, geoms, shapes)
    contacts = read_contacts(model, where, geoms, pairs=robot.self_contacts, ground=ground)
    fields: dict[str, Any] = {
        "surfaces": contacts.surfaces, "shape_contacts": contacts.contacts, "ground_shapes": contacts.ground,
        "hulls": contacts.hulls,
        "tendons": modelled_tendons(model, where)[0], "equalities": modelled_equalities(model, where)[0],
        "medium": read_medium(model, where),
    }  # fmt: skip
    reference = _reference(model)
    if any(x not in (0.0, 1.0) for x in reference):
        fields["reference"] = reference
    return {name: value for name, value in fields.items() if value}


def _reference(model: Any) -> tuple[float, ...]:
    """Return the reference positions at which MuJoCo computes inverse weights."""
    positions: list[float] = []
    for joint in range(model.njnt):
        start, kind = int(model.jnt_qposadr[joint]), joint_kind(model, joint)
        own = model.qpos0[start : start + {"free": 7, "ball": 4}.get(kind, 1)].tolist()
        own[:-4] = [0.0] * (len(own) - 4)  # the position of a free body does not matter
        positions += [*own[:-4], *own[-3:], own[-4]] if kind in ("free", "ball") else own
    return tuple(positions)


class BodyTree:
    """The bodies of a model; those without joints are merged into the bodies that carry them."""

    def __init__(self, model: Any) -> None:
        self.model = model
        count = model.nbody - 1
        frames = np.concatenate([model.body_pos, _scalar_last(model.body_quat)], 1)[1:]
        identity = np.tile(IDENTITY, (count, 1))
        self.groups: Groups = group_bodies(
            range(count), model.body_jntnum[1:] == 0, model.body_parentid[1:] - 1, np.arange(count), frames, identity
        )
        self._link_of = {}
        for joint in range(model.njnt):
            self._link_of[int(model.jnt_bodyid[joint]) - 1] = joint  # the last joint of a body carries it

    def link_of(self, body: int) -> int:
        """Return the link that a body of the model belongs to; -1 for the world."""
        return self._link_of.get(self.groups[body - 1][0], -1)

    def where(self, names: list[str]) -> ModelLinks:
        """Return the links of joints and bodies, given the names of the links."""
        return model_links(self.model, dict(enumerate(names)))

    def offset(self, body: int) -> np.ndarray:
        """Return the pose of a body of the model in the frame of its link, or in the world."""
        return self.groups[body - 1][1]

    def links(self, names: list[str]) -> tuple[Link, ...]:
        """Return the links, named after their joints."""
        model = self.model
        mass, com = model.body_mass[1:], model.body_ipos[1:]
        rotations = [rotation((0.0, 0.0, 0.0, x, y, z, w)) for w, x, y, z in model.body_iquat[1:].tolist()]
        inertia = np.array(
            [axes @ np.diag(own) @ axes.T for axes, own in zip(rotations, model.body_inertia[1:], strict=True)]
        )
        links: list[Link] = []
        for joint in range(model.njnt):
            body = int(model.jnt_bodyid[joint])
            total, centre, merged = merged_body(self.groups, body - 1, mass, com, inertia)
            if self._link_of[body - 1] != joint:
                total, merged = _NEGLIGIBLE * total, _NEGLIGIBLE * np.trace(merged) / 3 * np.eye(3)
            x, y, z = map(float, centre)
            carried = {}
            if self._link_of[body - 1] == joint:
                carried = {**self._gravity_compensation(body), "slides_alone": int(model.body_simple[body]) == 2}
            links.append(
                Link(
                    joint=self._chain_joint(joint, names[joint]), mass=float(total), com=(x, y, z),
                    inertia=inertia_entries(merged), drives_carry=bool(model.jnt_actgravcomp[joint]),
                    **self._passive(joint), **carried,
                )
            )  # fmt: skip
        return tuple(links)

    def _chain_joint(self, joint: int, name: str) -> ChainJoint:
        model, kind = self.model, joint_kind(self.model, joint)
        body = int(model.jnt_bodyid[joint])
        anchor = np.concatenate([model.jnt_pos[joint], [0, 0, 0, 1.0]])
        if kind == "free":
            return ChainJoint(
                name=name, kind="free", parent=-1, parent_frame=IDENTITY, child_frame=IDENTITY, axis=(0.0, 0.0, 0.0)
            )
        first = joint == int(model.body_jntadr[body])
        parent, frame = (joint - 1, np.array(IDENTITY)) if not first else self._place(body)
        start = float(model.qpos0[model.jnt_qposadr[joint]]) if kind in ("revolute", "prismatic") else 0.0
        zero = _joint_motion(kind, np.array(model.jnt_axis[joint]), -start)  # frame of the joint at position 0
        return ChainJoint(
            name=name,
            kind=kind,
            parent=parent,
            parent_frame=exact_pose(compose(compose(frame, anchor), zero)),
            child_frame=exact_pose(anchor),
            axis=rounded_vector(model.jnt_axis[joint]) if kind in ("revolute", "prismatic") else (0.0, 0.0, 0.0),
        )

    def _place(self, body: int) -> tuple[int, np.ndarray]:
        """Return the link that carries a body, and the body's pose in that link at its reference position."""
        model, parent = self.model, int(self.model.body_parentid[body])
        own = np.concatenate([model.body_pos[body], _scalar_last(model.body_quat)[body]])
        if parent == 0:
            return -1, own
        return self.link_of(parent), compose(self.offset(parent), own)

    def _gravity_compensation(self, body: int) -> dict[str, Any]:
        """Return the gravity-compensated mass of a body and its parts, and its centre."""
        model = self.model
        parts = [(one + 1, pose) for one, (head, pose) in self.groups.items() if head == body - 1]
        masses = {one: float(model.body_mass[one] * model.body_gravcomp[one]) for one, _ in parts}
        total = sum(masses.values())
        if not total:
            return {}
        places = {one: compose(pose, np.array([*model.body_ipos[one], 0, 0, 0, 1.0]))[:3] for one, pose in parts}
        x, y, z = map(float, np.sum([masses[one] * place for one, place in places.items()], axis=0) / total)
        return {"carried": total, "carried_at": (x, y, z)}

    def _passive(self, joint: int) -> dict[str, Any]:
        """Return the passive quantities of a joint that are not zero, and the range of its actuators' torque."""
        model, kind = self.model, joint_kind(self.model, joint)
        dof = int(model.jnt_dofadr[joint])
        values = {
            "armature": model.dof_armature[dof], "damping": model.dof_damping[dof],
            "friction": model.dof_frictionloss[dof],
        }  # fmt: skip
        for what, numbers in (("stiffness", model.jnt_stiffnesspoly[joint]), ("damping", model.dof_dampingpoly[dof])):
            values |= {f"{what}_square": numbers[0], f"{what}_cube": numbers[1]}
        given: dict[str, Any] = {}
        if kind in ("free", "ball"):
            if model.jnt_stiffness[joint] or model.jnt_stiffnesspoly[joint].any():
                start = int(model.jnt_qposadr[joint])
                rest = model.qpos_spring[start : start + (7 if kind == "free" else 4)].tolist()
                values["stiffness"] = model.jnt_stiffness[joint]
                given["rest_pose"] = (*rest[:-4], *rest[-3:], rest[-4])
            if kind == "ball" and model.jnt_limited[joint]:
                values["upper"] = model.jnt_range[joint].max()
            return given | {name: float(value) for name, value in values.items()}
        if model.nu and model.jnt_actfrclimited[joint]:
            given["effort_range"] = tuple(map(float, model.jnt_actfrcrange[joint]))
        values |= {
            "stiffness": model.jnt_stiffness[joint], "rest": model.qpos_spring[model.jnt_qposadr[joint]],
        }  # fmt: skip
        if model.jnt_limited[joint]:
            values["lower"], values["upper"] = model.jnt_range[joint]
            values["limit_stiffness"], values["limit_damping"] = _imported_limit(_solref(model, joint))
        return given | {name: float(value) for name, value in values.items()}


def _joint_motion(kind: str, axis: np.ndarray, amount: float) -> np.ndarray:
    if kind == "prismatic":
        return np.concatenate([amount * axis, [0, 0, 0, 1.0]])
    return np.concatenate([np.zeros(3), np.sin(amount / 2) * axis, [np.cos(amount / 2)]])


def _shape(model: Any, geom: int, tree: BodyTree) -> BuiltShape:
    body = int(model.geom_bodyid[geom])
    own = np.concatenate([model.geom_pos[geom], _scalar_last(model.geom_quat[geom : geom + 1])[0]])
    x, y, z = (float(value) for value in model.geom_size[geom])
    mesh = int(model.geom_dataid[geom])
    kind = _shape_kinds()[int(model.geom_type[geom])]
    vertices = None
    if kind == "mesh":
        start = int(model.mesh_vertadr[mesh])
        vertices = np.array(model.mesh_vert[start : start + int(model.mesh_vertnum[mesh])], dtype=float)
    return BuiltShape(
        label=model.geom(geom).name,
        body=model.body(body).name,
        joint=tree.link_of(body),
        place=compose(tree.offset(body), own),
        kind=kind,
        size=(x, y, z),
        vertices=vertices,
    )


def _shape_kinds() -> dict[int, ShapeKind]:
    types = import_mujoco().mjtGeom
    return {
        int(types.mjGEOM_SPHERE): "sphere", int(types.mjGEOM_CAPSULE): "capsule", int(types.mjGEOM_BOX): "box",
        int(types.mjGEOM_CYLINDER): "cylinder", int(types.mjGEOM_ELLIPSOID): "ellipsoid",
        int(types.mjGEOM_MESH): "mesh", int(types.mjGEOM_HFIELD): "heightfield", int(types.mjGEOM_PLANE): "plane",
        int(types.mjGEOM_SDF): "mesh",
    }  # fmt: skip


def _constraints(
    model: Any, robot: Robot, shapes: tuple[BuiltShape, ...], geoms: list[int], links: tuple[Link, ...]
) -> tuple[SoftConstraints, Springs]:
    """Return the constraints of a robot, and the springs equivalent to its limits."""
    names = [link.joint.name for link in links]
    joints = {name: (joint, int(model.jnt_dofadr[joint])) for joint, name in enumerate(names)}
    touching = {name: geom for geom, name in names_of_geoms(model, geoms, shapes).items()}
    constraints, springs = model_constraints(
        robot, partial(getattr, model), joints, touching, elliptic=bool(model.opt.cone), impratio=model.opt.impratio,
        per_shape_compliance=True,
    )  # fmt: skip
    margins = {name: float(model.jnt_margin[joint]) for joint, name in enumerate(names) if model.jnt_limited[joint]}
    margins = {name: margin for name, margin in margins.items() if margin}
    implicit = int(model.opt.integrator) == int(import_mujoco().mjtIntegrator.mjINT_IMPLICITFAST)
    explicit = not implicit and int(model.opt.disableflags) & int(import_mujoco().mjtDisableBit.mjDSBL_EULERDAMP)
    several = robot.self_contacts and has_several_contacts(model)
    return msgspec.structs.replace(
        constraints, follows_capsules=True, free_point="origin", limit_margins=margins or UNSET,
        implicit=implicit, flat_sides=several or UNSET, damping="explicit" if explicit else UNSET,
    ), springs  # fmt: skip


def _fingerprint(model: Any, links: tuple[Link, ...]) -> Fingerprint:
    joints = tuple(_joint_print(model, index, link) for index, link in enumerate(links))
    bodies = [int(model.jnt_bodyid[index]) for index in range(len(links))]
    return Fingerprint(
        joints=joints,
        bodies=tuple(
            BodyPrint(
                name=model.body(body).name, mass=link.mass, com=rounded_numbers(link.com),
                inertia=rounded_numbers(inertia_tensor(link.inertia)),
            )
            for body, link in zip(bodies, links, strict=True)
        ),
        gravity=rounded_numbers(model.opt.gravity),
    )  # fmt: skip


def _joint_print(model: Any, index: int, link: Link) -> JointPrint:
    joint, dofs = link.joint, len(COORDINATES[link.joint.kind].qd)
    axes = np.array(joint.axis) if joint.scalar else np.tile(np.eye(3), (dofs // 3, 1))
    lower = -_UNLIMITED if link.lower is None else link.lower
    upper = _UNLIMITED if link.upper is None else link.upper
    stiffness, damping = _imported_limit(_solref(model, index)) if link.lower is not None else (0.0, 0.0)
    numbers = {
        "lower": lower, "upper": upper, "limit_stiffness": stiffness, "limit_damping": damping,
        **{name: getattr(link, name) for name in JOINT_PROPERTIES},
    }  # fmt: skip
    return JointPrint(
        name=joint.name, kind=joint.kind, axis=rounded_numbers(axes),
        parent_pose=rounded_numbers(joint.parent_frame) if joint.parent >= 0 else (),
        child_pose=rounded_numbers(joint.child_frame),
        **{name: rounded_numbers([number] * dofs) for name, number in numbers.items()},
    )  # fmt: skip


def _solref(model: Any, joint: int) -> tuple[float, float]:
    time, ratio = map(float, model.jnt_solref[joint])
    return time, ratio


def _imported_limit(solref: tuple[float, float]) -> tuple[float, float]:
    """Return stiffness and damping of a limit as in Newton's importer, so that both worlds hold the same robot."""
    time, ratio = solref
    if solref == (0.02, 1.0):
        return 1e4, 10.0
    return ((time * ratio) ** -2.0, 2.0 / time) if time > 0 else (-time, -ratio)


def _scalar_last(quaternions: np.ndarray) -> np.ndarray:
    return np.asarray(quaternions, dtype=float)[:, [1, 2, 3, 0]]
