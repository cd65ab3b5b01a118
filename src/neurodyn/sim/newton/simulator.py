# SPDX-License-Identifier: Apache-2.0
"""Newton solvers as reference simulators: functions of states, on torch tensors, replayed as a graph."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.compilation import announcing
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.geometry.solids import needs_triangles
from neurodyn.robots import Robot
from neurodyn.sim.articulations import shapes_of_contacts, short_label
from neurodyn.sim.engine import collides, import_newton, solver_class
from neurodyn.sim.interface import SCENE_LABEL, Gravity, Simulator, SimulatorOptions, checked_pose, gravity_vectors
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.sim.newton.build import build
from neurodyn.sim.newton.fingerprints import columns
from neurodyn.sim.newton.parameters import NewtonParameters
from neurodyn.sim.newton.scene import ScenePlacer

_COMPILATIONS = {"featherstone": ("Newton's solver", 12.0), "mujoco": ("MuJoCo Warp", 40.0)}
"""Name of each solver, and the CPU time that its kernels took to compile [s]."""
_ROWS = 4  # constraints per contact: the edges of a friction pyramid
_AT_ONCE = 2  # assumed number of scene shapes that a shape of the robot touches at once


@dataclass(frozen=True)
class Capacity:
    """Contact capacity of one world."""

    contacts: int  # all worlds share their total, so this is a mean
    rows: int  # constraints: of contacts, limits and dry friction

    GROWS: ClassVar[int] = 0b11111 | 1 << 16 | 1 << 17
    """Overflow bits of MuJoCo Warp and Newton that more capacity resolves."""
    TRUNCATED: ClassVar[int] = 1 << 5
    """Overflow bit of a shape on more heightfield triangles than are examined."""

    @classmethod
    def of(cls, model: Any, newton: Any) -> "Capacity":
        """Return the estimated capacity for the robot of world 0 of a Newton model."""
        types = newton.GeoType
        points = {int(types.SPHERE): 1, int(types.CAPSULE): 2, int(types.BOX): 8}
        kind, world = model.shape_type.numpy(), model.shape_world.numpy()
        scene = np.array([label.startswith(f"{SCENE_LABEL}/") for label in model.shape_label], dtype=bool)
        body = model.shape_body.numpy()
        smooth = {int(types.PLANE), int(types.SPHERE), int(types.CAPSULE), int(types.BOX)}
        rough = not {int(k) for k in kind[scene]} <= smooth
        touching = sum(
            max(points.get(int(k), 4), 4 * rough) for k in kind[(world == 0) & (body >= 0) & collides(model) & ~scene]
        )
        contacts = max(1, touching * min(_AT_ONCE, int((scene & (world == 0)).sum())))
        dofs = model.joint_dof_count // max(int(model.world_count), 1)
        return cls(contacts, _ROWS * contacts + 2 * dofs)

    def double(self) -> "Capacity":
        """Return twice the capacity; refuse if it is already beyond any robot's need."""
        if self.contacts > 1 << 20:
            raise InputError(
                "the contact solver exceeds its capacity, as if the simulation had exploded; raise "
                "simulator.substeps, or run `neurodyn check` on the robot"
            )
        return Capacity(2 * self.contacts, 2 * self.rows)


class ContactForces:
    """Sums the normal contact forces of each declared body, for all worlds at once.

    Attributes:
        names: Names of the declared contacts, in order.
    """

    def __init__(self, solver: Any, model: Any, contacts: dict[str, tuple[str, ...]]) -> None:
        """Find the shapes of each declared contact, given as glob patterns of collision shape labels, by name.

        A pattern that matches no shape of the `SolverMuJoCo` that can touch anything raises InputError.
        """
        import warp as wp

        self.names = tuple(contacts)
        self._worlds = int(model.world_count)
        data = solver.mjw_data
        # All worlds have the same geometries, so the first is read.
        shapes = solver.mjc_geom_to_newton_shape.numpy()[0]
        labels = {
            geom: {short_label(model.shape_label[shape])} for geom, shape in enumerate(shapes.tolist()) if shape >= 0
        }
        owner = shapes_of_contacts(contacts, labels)
        rows = [self.names.index(owner[geom]) if geom in owner else -1 for geom in range(len(shapes))]
        self._group = torch.tensor(rows, dtype=torch.long, device=wp.device_to_torch(model.device))
        self._elliptic = int(solver.mjw_model.opt.cone) == 1
        self._count = wp.to_torch(data.nacon)
        self._geometries = wp.to_torch(data.contact.geom).view(-1, 2)
        self._world = wp.to_torch(data.contact.worldid)
        self._address = wp.to_torch(data.contact.efc_address)
        self._force = wp.to_torch(data.efc.force)

    def read(self) -> Tensor:
        """Return the normal forces of the last solver step [N], shape [worlds, names]."""
        count = int(self._count[0])
        address, world = self._address[:count].long(), self._world[:count].long()
        rows = self._force[world[:, None], address.clamp_min(0)]
        rows = torch.where(address >= 0, rows, 0.0)
        # The edges of a pyramid share the normal force; an elliptic cone has it in its first row.
        normal = rows[:, 0] if self._elliptic else rows.sum(1)
        width = len(self.names) + 1  # the last column collects shapes of no declared contact
        total = torch.zeros(self._worlds * width, device=rows.device, dtype=rows.dtype)
        for side in (0, 1):
            group = self._group[self._geometries[:count, side].long()]
            total.index_add_(0, world * width + group % width, normal)
        return total.view(self._worlds, width)[:, :-1]


class ReferenceSimulator(Simulator):
    """Steps a fixed number of worlds with a solver of Newton, one frame at a time.

    Attributes:
        robot: The declared robot.
        worlds: Number of worlds.
        model: The Newton model.
        scene: The shapes around the robot; None for free space.
        substeps: Solver steps in one frame.
    """

    def __init__(self, robot: Robot, worlds: int, *, capture: bool = True, **options: Unpack[SimulatorOptions]) -> None:
        """Build the worlds and the solver; with other substeps than declared, the mass matrix is updated in each.

        Args:
            robot: The declared robot.
            worlds: Number of worlds.
            capture: Whether to capture a frame as a graph and replay it, instead of launching kernel by kernel.
            **options: See `sim.simulators.simulator`, also for errors.
        """
        super().__init__(robot, worlds, **options)
        scene, gravity, device = self.scene, options.get("gravity"), options.get("device", "cpu")
        if scene is not None and robot.simulator.solver != "mujoco":
            raise InputError(
                f"robot {robot.name!r}: its simulator has no contacts; declare simulator: {{solver: mujoco}}"
            )
        self._replayed = self.substeps  # number in the recorded graph
        import warp as wp

        self._newton, self._wp = import_newton(), wp
        self._as_declared, self._capture = options.get("substeps") is None, capture
        with announcing(*_COMPILATIONS[robot.simulator.solver]):
            self._begin(device, gravity)

    def _begin(self, device: str, gravity: Gravity | None) -> None:
        """Build the model, make the solver and record a frame, which compiles kernels."""
        robot, worlds, scene, wp = self.robot, self.worlds, self.scene, self._wp
        self.model = build(robot, worlds, scene=scene, device=device, gravity=gravity)
        self.built = newton_articulation(self.model, robot)
        self._step_length = robot.dt / self.substeps
        self._placer = ScenePlacer(self.model)
        self._capacity = Capacity.of(self.model, self._newton) if scene is not None else None
        self._from_newton = scene is not None and needs_triangles(scene)
        self._pipeline: Any = None
        self._contacts: Any = None
        self._parameters: NewtonParameters | None = None
        # A frame reads the first state and alternates between the other two, for any number of substeps.
        self._states = [self.model.state() for _ in range(3)]
        self._control: Any = self.model.control()
        self._q_in, self._qd_in = self._views(self._states[0])
        self._q_out, self._qd_out = self._views(self._states[2 - self._replayed % 2])
        self._force = wp.to_torch(self._control.joint_f).view(worlds, -1)
        self._check_columns()
        self._dofs = torch.tensor(robot.spec.control_dofs, dtype=torch.long, device=self._force.device)
        self._prepare()

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._q_in.device

    @property
    def truncated(self) -> Tensor:
        """Worlds whose last frame lacked contacts with a heightfield, shape [worlds].

        MuJoCo Warp examines at most 50 triangles below a shape; a shape on more of them needs larger cells.
        """
        if not self._flags:
            return torch.zeros(self.worlds, dtype=torch.bool, device=self.device)
        return (torch.stack(self._flags) & Capacity.TRUNCATED).any(0)

    def set_ground(self, pose: Tensor | None) -> None:
        """Move the scene of every world, before the next frame; see `checked_pose`."""
        if self.scene is None:
            return
        self._placer.set_pose(checked_pose(pose, self.worlds))
        self._solver.notify_model_changed(self._newton.ModelFlags.SHAPE_PROPERTIES)

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """See `Simulator.set_gravity`."""
        self.model.set_gravity(gravity_vectors(self.robot, self.worlds, gravity))
        self._solver.notify_model_changed(self._newton.ModelFlags.MODEL_PROPERTIES)

    def set_parameters(self, names: Sequence[str], numbers: Tensor | None) -> None:
        """See `Simulator.set_parameters`; solver MuJoCo only."""
        if self.robot.simulator.solver != "mujoco":
            super().set_parameters(names, numbers)
            return
        if self._parameters is None:
            self._parameters = NewtonParameters(self.model, self.robot, self.built, self._solver)
        self._parameters.require(names)
        values = torch.zeros(self.worlds, 0) if numbers is None else numbers.detach().expand(self.worlds, len(names))
        changed = self._parameters.write(dict(zip(names, values.to(self.device, torch.float32).unbind(1), strict=True)))
        if changed:
            self._solver.notify_model_changed(changed)

    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """See `Simulator.step_`."""
        own = self._parameters
        with on_warp_stream(self.device):
            self._q_in.copy_(q)
            self._qd_in.copy_(qd if own is None else own.shift_velocities(self._q_in, qd.to(self._q_in), 1.0))
            self._force[:, self._dofs] = torque.detach().to(self._force)
            self.replay()
            if own is not None:
                return self._q_out, own.shift_velocities(self._q_out, self._qd_out, -1.0)
        return self._q_out, self._qd_out

    def replay(self) -> None:
        """Simulate the frame of the last call again, without any other work (for timing)."""
        self._launch()
        while self._capacity is not None and bool((torch.stack(self._flags) & Capacity.GROWS).any()):
            self._capacity = self._capacity.double()
            self._prepare()
            self._launch()

    def contact_forces(self) -> Tensor | None:
        """See `Simulator.contact_forces`."""
        return None if self._forces is None else self._forces.read()

    def _views(self, state: Any) -> tuple[Tensor, Tensor]:
        to_torch = self._wp.to_torch
        return to_torch(state.joint_q).view(self.worlds, -1), to_torch(state.joint_qd).view(self.worlds, -1)

    def _check_columns(self) -> None:
        """Raise InputError if a world has coordinates other than the robot's, which the views rely on."""
        spec, (q_columns, qd_columns) = self.robot.spec, columns(self.model)
        if q_columns != list(range(spec.nq)) or qd_columns != list(range(spec.nv)):
            raise InputError(
                f"robot {self.robot.name!r}: its world has coordinates {q_columns} and {qd_columns} instead of "
                f"{spec.nq} positions and {spec.nv} velocities"
            )

    def _prepare(self) -> None:
        """Create the solver and record the frame."""
        if self._from_newton and self._capacity is not None:
            most = self._capacity.contacts * self.worlds
            self._pipeline = self._newton.CollisionPipeline(self.model, broad_phase="explicit", rigid_contact_max=most)
            self._contacts = self._pipeline.contacts()
        self._solver = self._make_solver()
        own = 0 if self._parameters is None else self._parameters.flags
        self._solver.notify_model_changed(self._newton.ModelFlags.SHAPE_PROPERTIES | own)
        self._reports: list[Any] = [None] * self._replayed
        self._flags: list[Tensor] = []
        if self._capacity is not None:
            kind = self._solver.ObservableKind.OVERFLOW
            self._reports = [self._solver.observables({kind}) for _ in range(self._replayed)]
            self._flags = [self._wp.to_torch(report.overflow) for report in self._reports]
        declared = self.robot.contacts if self._capacity is not None else {}
        self._forces = ContactForces(self._solver, self.model, declared) if declared else None
        self._graph: Any = self._record() if self._capture else None

    def _make_solver(self) -> Any:
        declared = self.robot.simulator
        if declared.solver == "featherstone":
            interval = declared.mass_matrix_interval if self._as_declared else 1
            featherstone = solver_class("SolverFeatherstone")
            return featherstone(self.model, angular_damping=0.0, update_mass_matrix_interval=interval)
        mujoco = solver_class("SolverMuJoCo")
        options: dict[str, Any] = {"iterations": declared.iterations, "integrator": declared.integrator}
        if declared.fluid is not None:
            options |= {"density": declared.fluid.density, "viscosity": declared.fluid.viscosity}
        if self._capacity is None:
            return mujoco(self.model, disable_contacts=True, **options)
        # The general algorithm misses shallow contacts of large boxes; this selects the one for boxes.
        attributes: Any = self.model
        attributes.mujoco.flag_nativeccd.fill_(0)
        with warnings.catch_warnings():
            # The solver reserves more by itself if the robot's zero pose is deep in the ground.
            warnings.filterwarnings("ignore", message=".*is changed from")
            solver = mujoco(
                self.model,
                disable_contacts=False,
                use_mujoco_contacts=self._pipeline is None,
                kinematic_switchable_roots=False,  # avoids an unused constraint for each free joint
                enable_multiccd=True,  # up to four contacts between faces, instead of one that jumps
                nconmax=self._capacity.contacts,
                njmax=self._capacity.rows,
                **options,
            )
        solver.mjw_model.opt.warn_overflow = 0  # overflows are handled by `replay`
        return solver

    def _launch(self) -> None:
        if self._graph is None:
            self._frame()
        else:
            self._wp.capture_launch(self._graph)

    def _frame(self) -> None:
        first, *others = self._states
        if self.robot.simulator.solver == "mujoco":
            # Clears only the warm start: flags=0 selects no part of the state.
            self._solver.reset(first, flags=0)
        if self._pipeline is not None:
            self._newton.eval_fk(self.model, first.joint_q, first.joint_qd, first)
        source = first
        for substep in range(self._replayed):
            target = others[substep % 2]
            if self._pipeline is not None:
                self._pipeline.collide(source, self._contacts)
            report = self._reports[substep]
            options = {} if report is None else {"observables": report}
            self._solver.step(source, target, self._control, self._contacts, self._step_length, **options)
            source = target

    def _record(self) -> Any:
        # A first run without capture loads modules and allocates buffers.
        self._frame()
        with self._wp.ScopedCapture(device=self.model.device) as capture:
            self._frame()
        return capture.graph
