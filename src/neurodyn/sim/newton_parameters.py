# SPDX-License-Identifier: Apache-2.0
"""Quantities of a robot that differ between worlds, as arrays of a Newton model."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot
from neurodyn.sim.articulations import INERTIAL, Articulation, require_differing, shapes_with
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprints import body_groups, world_joints
from neurodyn.sim.newton_articulation import geoms_of_shapes

_DOF = {
    "damping": ("joint_damping", "JOINT_DOF_FORCE_PROPERTIES"),
    "friction": ("joint_friction", "JOINT_DOF_FORCE_PROPERTIES"),
    "stiffness": ("joint_stiffness", "JOINT_DOF_FORCE_PROPERTIES"),
    "lower": ("joint_limit_lower", "JOINT_DOF_FORCE_PROPERTIES"),
    "upper": ("joint_limit_upper", "JOINT_DOF_FORCE_PROPERTIES"),
    "armature": ("joint_armature", "JOINT_DOF_INERTIAL_PROPERTIES"),
}
_CONTACT = {
    "friction": ("shape_material_mu", None),
    **{f"solref.{name}": ("mujoco.solref", column) for column, name in enumerate(("timeconst", "dampratio"))},
    **{
        f"solimp.{name}": ("mujoco.geom_solimp", column)
        for column, name in enumerate(("d0", "dwidth", "width", "midpoint", "power"))
    },
}
_RAW = 1  # Newton's mode of solref that passes MuJoCo's numbers on unchanged

Write = Callable[[Tensor], None]


class NewtonParameters:
    """Writes values of named quantities into the worlds of a model, on its device.

    Quantities have the names of the hybrid engine, as in plain MuJoCo. Linear velocities of floating bases are those of
    the declared centre of mass, even where worlds differ in it.

    Attributes:
        flags: Newton's flags of what differs from the declared robot.
    """

    def __init__(self, model: Any, robot: Robot, articulation: Articulation, solver: Any) -> None:
        """Locate the quantities of a robot, as built into each world of a model, in the arrays of the model.

        Args:
            model: The model.
            robot: The declared robot.
            articulation: The robot as built.
            solver: A `SolverMuJoCo` of the model.
        """
        self._model, self._robot, self._articulation = model, robot, articulation
        self._worlds = max(int(model.world_count), 1)
        self._joint = {link.joint.name: index for index, link in enumerate(articulation.links)}
        self._built = world_joints(model)
        self._groups = body_groups(model)
        self._geoms = geoms_of_shapes(robot, solver)
        self._shapes = torch.from_numpy(solver.mjc_geom_to_newton_shape.numpy()).long()
        self._solref = torch.from_numpy(solver.mjw_model.geom_solref.numpy()[0].copy())
        self._declared: dict[str, Tensor] = {}
        self._shift: dict[int, Tensor] = {}
        self.flags = 0

    def require(self, names: Sequence[str]) -> None:
        """Raise an `InputError` for a quantity that has no number in the model."""
        for name in names:
            require_differing(self._writer(name, set()) is not None, name, "Newton", self._joint)

    def write(self, values: Mapping[str, Tensor]) -> int:
        """Set quantities to values of shape [worlds], all others to the declared ones.

        Returns:
            Newton's flags of what has changed, for `notify_model_changed`.
        """
        flags: set[str] = set()
        for name, declared in self._declared.items():
            self._array(name).copy_(declared)
        self._shift = {}
        inertial: dict[int, dict[str, Tensor]] = {}
        for name, value in values.items():
            writer = self._writer(name, flags)
            assert writer is not None  # `require` refuses such names
            writer(value)
            owner, _, what = name.partition(".")
            if what in INERTIAL:
                inertial.setdefault(self._joint[owner], {})[what] = value
        for joint, given in inertial.items():
            self._write_inertial(joint, given)
            flags.add("BODY_INERTIAL_PROPERTIES")
        known: Any = import_newton().ModelFlags
        before, self.flags = self.flags, 0
        for flag in flags:
            self.flags |= int(getattr(known, flag))
        return before | self.flags

    def shift_velocities(self, q: Tensor, qd: Tensor, sign: float) -> Tensor:
        """Return velocities of free joints at the declared (sign -1) or at the worlds' own centres of mass (sign 1).

        Args:
            q: Positions, shape [worlds, nq].
            qd: Velocities, shape [worlds, nv].
            sign: The direction.
        """
        if not self._shift:
            return qd
        qd = qd.clone()
        for index, shift in self._shift.items():
            place = self._robot.spec.places[index]
            arm = rotate(q[:, place.quaternion], shift)
            qd[:, place.linear] += sign * torch.linalg.cross(qd[:, place.angular], arm)
        return qd

    def _array(self, name: str) -> Tensor:
        """Return an array of the model as a tensor that shares its memory."""
        import warp as wp

        return wp.to_torch(attrgetter(name)(self._model))

    def _kept(self, name: str) -> Tensor:
        """Return an array to be written, after storing its declared numbers."""
        array = self._array(name)
        self._declared.setdefault(name, array.clone())
        return array

    def _writer(self, name: str, flags: set[str]) -> Write | None:
        """Return the writer of a quantity and add its change flags; None if the model has no number for it."""
        owner, _, what = name.partition(".")
        if owner == "contact":
            return self._contact_writer(what, flags)
        if owner not in self._joint:
            return None
        declared, joint = self._robot.joints[self._joint[owner]], self._built[self._joint[owner]]
        limited = declared.scalar and declared.lower is not None
        if what in _DOF and (limited or what not in ("lower", "upper")):
            first, last = self._model.joint_qd_start.numpy()[joint : joint + 2].tolist()
            array, flag = _DOF[what]
            return self._columns(array, slice(first, last), flag, flags)
        if what == "rest" and declared.scalar:
            first = int(self._model.joint_q_start.numpy()[joint])
            return self._columns("joint_rest_q", slice(first, first + 1), "JOINT_REFERENCE_POSE_PROPERTIES", flags)
        return _nothing if what in INERTIAL else None

    def _columns(self, array: str, columns: slice, flag: str, flags: set[str]) -> Write:
        def write(value: Tensor) -> None:
            flags.add(flag)
            self._kept(array).view(self._worlds, -1)[:, columns] = value[:, None].float()

        return write

    def _contact_writer(self, what: str, flags: set[str]) -> Write | None:
        """Return the writer of a quantity of contacts with the scene, for one shape or all without their own value."""
        field, shapes = shapes_with(self._articulation.constraints, what, self._geoms)
        geoms = [self._geoms[name] for name in shapes]
        if not geoms or field not in _CONTACT:
            return None
        array, column = _CONTACT[field]

        def write(value: Tensor) -> None:
            flags.add("SHAPE_PROPERTIES")
            target = self._kept(array)
            shapes = self._shapes[:, geoms].to(target.device)
            if field.startswith("solref"):
                self._keep_solref(geoms)
            numbers = value[:, None].float().expand(shapes.shape)
            if column is None:
                target[shapes] = numbers
            else:
                target[shapes, column] = numbers

        return write

    def _keep_solref(self, geoms: Sequence[int]) -> None:
        """Make geoms use raw solref numbers, initially the declared ones."""
        mode, solref = self._kept("mujoco.solref_mode"), self._kept("mujoco.solref")
        shapes = self._shapes[:, geoms].to(mode.device)
        declared = self._solref[geoms].to(solref.device).expand(*shapes.shape, 2)
        derived = mode[shapes] != _RAW
        solref[shapes[derived]] = declared[derived]
        mode[shapes] = _RAW

    def _write_inertial(self, joint: int, given: Mapping[str, Tensor]) -> None:
        """Set a link's mass, centre of mass or inertia; bodies welded to it are merged into its first body."""
        link = self._articulation.links[joint]
        mass, com, inertia = (self._kept(f"body_{name}") for name in ("mass", "com", "inertia"))
        inverse_mass, inverse = self._kept("body_inv_mass"), self._kept("body_inv_inertia")
        leader = int(self._model.joint_child.numpy()[self._built[joint]])
        stride = self._model.body_count // self._worlds
        first = torch.arange(self._worlds, device=mass.device) * stride
        for body, (owner, _) in self._groups.items():
            if owner == leader and body != leader:
                for array in (mass, inertia, inverse_mass, inverse):
                    array[first + body] = 0.0
        rows = first + leader
        like = next(iter(given.values())).to(mass.device, torch.float32)
        mass[rows] = given.get("mass", torch.full_like(like, link.mass)).to(mass)
        centre = [given.get(f"com.{x}", torch.full_like(like, old)) for x, old in zip("xyz", link.com, strict=True)]
        com[rows] = torch.stack([x.to(mass) for x in centre], 1)
        old = dict(zip(INERTIA_ENTRIES, link.inertia, strict=True))
        entries = {x: given.get(f"inertia.{x}", torch.full_like(like, old[x])).to(mass) for x in INERTIA_ENTRIES}
        matrix = [[entries[a + b] if a + b in entries else entries[b + a] for b in "xyz"] for a in "xyz"]
        inertia[rows] = torch.stack([torch.stack(row, 1) for row in matrix], 1)
        inverse_mass[rows], inverse[rows] = 1.0 / mass[rows], torch.linalg.inv(inertia[rows])
        if self._robot.joints[joint].kind == "free" and any(name.startswith("com") for name in given):
            self._shift[joint] = com[rows] - torch.tensor(link.com, device=com.device, dtype=com.dtype)


def _nothing(value: Tensor) -> None:
    """Write nothing: the numbers of a link's inertia are written together."""
