# SPDX-License-Identifier: Apache-2.0
"""Quantities of a robot that differ between worlds, as arrays of a Newton model."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.description.spec import JOINT_PROPERTIES
from neurodyn.geometry.rotation import rotate
from neurodyn.robots import Robot
from neurodyn.sim.articulations import Articulation
from neurodyn.sim.engine import import_newton
from neurodyn.sim.newton.articulation import geoms_of_shapes
from neurodyn.sim.newton.fingerprints import body_groups, world_joints
from neurodyn.sim.parameters import CONTACT_COLUMNS, INERTIAL, ParameterWriter, Write, nothing

_DOF = {
    **{name: (f"joint_{name}", "JOINT_DOF_FORCE_PROPERTIES") for name in JOINT_PROPERTIES},
    **{end: (f"joint_limit_{end}", "JOINT_DOF_FORCE_PROPERTIES") for end in ("lower", "upper")},
    "armature": ("joint_armature", "JOINT_DOF_INERTIAL_PROPERTIES"),
}
_CONTACT = {"friction": ("shape_material_mu", None)} | {
    name: ("mujoco.solref" if array == "solref" else f"mujoco.geom_{array}", column)
    for name, (array, column) in CONTACT_COLUMNS.items()
}
_RAW = 1  # Newton's mode of solref that passes MuJoCo's numbers on unchanged


class NewtonParameters(ParameterWriter):
    """Writes values of named quantities into the worlds of a model, on its device.

    Linear velocities of floating bases are those of
    the declared centre of mass, even where worlds differ in it.

    Attributes:
        flags: Newton's flags of what differs from the declared robot.
    """

    simulator = "Newton"

    def __init__(self, model: Any, robot: Robot, articulation: Articulation, solver: Any) -> None:
        """Locate the quantities of a robot, as built into each world of a model, in the arrays of the model.

        Args:
            model: The model.
            robot: The declared robot.
            articulation: The robot as built.
            solver: A `SolverMuJoCo` of the model.
        """
        super().__init__(articulation, geoms_of_shapes(robot, solver))
        self._model, self._robot = model, robot
        self._worlds = max(int(model.world_count), 1)
        self._built = world_joints(model)
        self._groups = body_groups(model)
        self._shapes = torch.from_numpy(solver.mjc_geom_to_newton_shape.numpy()).long()
        self._solref = torch.from_numpy(solver.mjw_model.geom_solref.numpy()[0].copy())
        self._declared: dict[str, Tensor] = {}
        self._shift: dict[int, Tensor] = {}
        self._changes: set[str] = set()
        self.flags = 0

    def write(self, values: Mapping[str, Tensor]) -> int:
        """Set quantities to values of shape [worlds], all others to the declared ones.

        Returns:
            Newton's flags of what has changed, for `notify_model_changed`.
        """
        self._changes, self._shift = set(), {}
        for name, declared in self._declared.items():
            self._array(name).copy_(declared)
        for name, value in values.items():
            writer = self._writer(name)
            assert writer is not None  # `require` refuses such names
            writer(value)
        for joint, quantities in self._inertial(values).items():
            self._write_inertial(joint, quantities)
        known: Any = import_newton().ModelFlags
        before, self.flags = self.flags, 0
        for flag in self._changes:
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

    def _writable(self, name: str) -> Tensor:
        """Return an array to be written, after storing its declared numbers."""
        array = self._array(name)
        self._declared.setdefault(name, array.clone())
        return array

    def _joint_writer(self, joint: int, what: str) -> Write | None:
        declared, built = self._robot.joints[joint], self._built[joint]
        limited = declared.scalar and declared.lower is not None
        if what in _DOF and (limited or what not in ("lower", "upper")):
            first, last = self._model.joint_qd_start.numpy()[built : built + 2].tolist()
            array, flag = _DOF[what]
            return partial(self._write_columns, array, slice(first, last), flag)
        if what == "rest" and declared.scalar:
            first = int(self._model.joint_q_start.numpy()[built])
            columns = slice(first, first + 1)
            return partial(self._write_columns, "joint_rest_q", columns, "JOINT_REFERENCE_POSE_PROPERTIES")
        return nothing if what in INERTIAL else None

    def _write_columns(self, array: str, columns: slice, flag: str, value: Tensor) -> None:
        self._changes.add(flag)
        self._writable(array).view(self._worlds, -1)[:, columns] = value[:, None].float()

    def _contact_writer(self, field: str, geoms: list[int]) -> Write | None:
        if field not in _CONTACT:
            return None
        array, column = _CONTACT[field]

        def write(value: Tensor) -> None:
            self._changes.add("SHAPE_PROPERTIES")
            target = self._writable(array)
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
        mode, solref = self._writable("mujoco.solref_mode"), self._writable("mujoco.solref")
        shapes = self._shapes[:, geoms].to(mode.device)
        declared = self._solref[geoms].to(solref.device).expand(*shapes.shape, 2)
        derived = mode[shapes] != _RAW
        solref[shapes[derived]] = declared[derived]
        mode[shapes] = _RAW

    def _write_inertial(self, joint: int, quantities: Mapping[str, Tensor | float]) -> None:
        """Set a link's mass, centre of mass and inertia; bodies welded to it are merged into its first body."""
        self._changes.add("BODY_INERTIAL_PROPERTIES")
        mass, com, inertia = (self._writable(f"body_{name}") for name in ("mass", "com", "inertia"))
        inverse_mass, inverse = self._writable("body_inv_mass"), self._writable("body_inv_inertia")
        leader = int(self._model.joint_child.numpy()[self._built[joint]])
        first = torch.arange(self._worlds, device=mass.device) * (self._model.body_count // self._worlds)
        for body, (owner, _) in self._groups.items():
            if owner == leader and body != leader:
                for array in (mass, inertia, inverse_mass, inverse):
                    array[first + body] = 0.0
        rows = first + leader
        numbers = {name: torch.as_tensor(x).to(mass).expand(self._worlds) for name, x in quantities.items()}
        mass[rows], com[rows] = numbers["mass"], torch.stack([numbers[f"com.{x}"] for x in "xyz"], 1)
        matrix = [[numbers[f"inertia.{min(a, b)}{max(a, b)}"] for b in "xyz"] for a in "xyz"]
        inertia[rows] = torch.stack([torch.stack(row, 1) for row in matrix], 1)
        inverse_mass[rows], inverse[rows] = 1.0 / mass[rows], torch.linalg.inv(inertia[rows])
        if self._robot.joints[joint].kind == "free":
            self._shift[joint] = com[rows] - torch.tensor(self._articulation.links[joint].com).to(com)
