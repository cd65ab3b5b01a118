# SPDX-License-Identifier: Apache-2.0
"""The reference simulator: a solver as a function of states, torch tensors in and out, replayed as a graph.

A frame is a function of state and torque alone: whatever a solver carries from step to step (a cached mass matrix, a
warm start) is renewed at the start of every frame. All worlds are independent of each other.

Every world has the same scene at a pose of its own, which may change between frames. Contacts are MuJoCo's own; only
where a scene holds a mesh that is not convex do they come from Newton, because MuJoCo takes the hull of a mesh. Memory
for contacts is reserved for what a robot can touch at once; where that is too little the solver is rebuilt with twice
as much and the frame is simulated again, so that no contact is ever dropped.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from neurodyn.core.description.scene import IDENTITY, Scene
from neurodyn.core.errors import InputError
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.robots import Robot
from neurodyn.sim.build import Gravity, build, gravity_vectors
from neurodyn.sim.capacity import Capacity
from neurodyn.sim.contact_forces import ContactForces
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import columns
from neurodyn.sim.scene import ScenePlacer, needs_triangles


class ReferenceSimulator:
    """Steps a fixed number of worlds with the declared solver, one frame at a time.

    Attributes:
        robot: The declared robot.
        worlds: Number of worlds.
        model: The Newton model.
        scene: The shapes around the robot; None for free space.
        substeps: Solver steps in one frame.
        memory: What drives keep; None without drives.
    """

    memory: Tensor | None = None

    def __init__(
        self,
        robot: Robot,
        worlds: int,
        *,
        substeps: int | None = None,
        device: str = "cpu",
        gravity: Gravity | None = None,
        capture: bool = True,
        scene: Scene | None = None,
    ) -> None:
        """Build the worlds and the solver.

        Args:
            robot: The declared robot.
            worlds: Number of worlds.
            substeps: Solver steps in one frame; None for the declared number. Another number updates the mass
                matrix at every step.
            device: Warp device.
            gravity: Gravity in world axes [m/s^2], shape [3] or [worlds, 3]; None for the robot's own.
            capture: Whether a frame is captured as a graph and replayed, or launched kernel by kernel.
            scene: Shapes around the robot; None, or a scene without shapes, for free space.

        Raises:
            InputError: The robot or the scene cannot be built, the robot's solver knows no contacts, or
                `substeps` is below 1.
        """
        scene = scene if scene is not None and scene.shapes else None
        if scene is not None and robot.simulator.solver != "mujoco":
            raise InputError(
                f"robot {robot.name!r}: its simulator knows no contacts; declare simulator: {{solver: mujoco}}"
            )
        if substeps is not None and substeps < 1:
            raise InputError(f"substeps is {substeps}; valid: at least 1")
        import warp as wp

        self._newton = import_newton()
        self._wp = wp
        self.robot = robot
        self.worlds = worlds
        self.scene = scene
        self.model = build(robot, worlds, scene=scene, device=device, gravity=gravity)
        self.substeps = robot.simulator.substeps if substeps is None else substeps
        self._replayed = self.substeps  # solver steps in what is recorded
        self._step_length = robot.dt / self.substeps
        self._as_declared = substeps is None
        self._capture = capture
        self._placer = ScenePlacer(self.model)
        self._capacity = Capacity.of(self.model, self._newton) if scene is not None else None
        self._from_newton = scene is not None and needs_triangles(scene)
        self._pipeline: Any = None
        self._contacts: Any = None
        # A frame reads the first state and ends in one of the other two, so that any number of substeps works.
        self._states = [self.model.state() for _ in range(3)]
        self._control: Any = self.model.control()
        q_columns, qd_columns = columns(self.model)
        self._q_in, self._qd_in = self._views(self._states[0])
        self._q_out, self._qd_out = self._views(self._states[2 - self._replayed % 2])
        self._force = wp.to_torch(self._control.joint_f).view(worlds, -1)
        self._check_columns(q_columns, qd_columns)
        self._dofs = torch.tensor(robot.spec.control_dofs, dtype=torch.long, device=self._force.device)
        self._prepare()

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._q_in.device

    @property
    def truncated(self) -> Tensor:
        """Worlds whose last frame lacked contacts with a heightfield, shape [worlds].

        MuJoCo Warp looks at 50 triangles below a shape and no more: a shape that lies on more of them needs
        larger cells.
        """
        if not self._flags:
            return torch.zeros(self.worlds, dtype=torch.bool, device=self.device)
        return (torch.stack(self._flags) & Capacity.TRUNCATED).any(0)

    def set_ground(self, pose: Tensor | None) -> None:
        """Move the scene of every world, before the next frame.

        Args:
            pose: Pose of the scene in each world [x y z, qx qy qz qw] (m; unit quaternion), shape [worlds, 7],
                or [1, 7] or [7] for the same in all; None for the identity.

        Raises:
            InputError: The shape is wrong, or a number is not finite.
        """
        if self.scene is None:
            return
        pose = torch.tensor(IDENTITY) if pose is None else torch.as_tensor(pose)
        if pose.shape not in ((7,), (1, 7), (self.worlds, 7)) or not pose.isfinite().all():
            raise InputError(f"the ground's pose has shape {list(pose.shape)}; valid: [{self.worlds}, 7], all finite")
        self._placer.place(pose.detach().expand(self.worlds, 7))
        self._solver.notify_model_changed(self._newton.ModelFlags.SHAPE_PROPERTIES)

    def set_gravity(self, gravity: Gravity | Tensor | None) -> None:
        """Change gravity before the next frame.

        Args:
            gravity: Gravity in world axes [m/s^2], shape [3] or [worlds, 3]; None for the robot's own.

        Raises:
            InputError: The shape is wrong, or a number is not finite.
        """
        self.model.set_gravity(gravity_vectors(self.robot, self.worlds, gravity))
        self._solver.notify_model_changed(self._newton.ModelFlags.MODEL_PROPERTIES)

    def begin(self, memory: Tensor | None = None) -> None:
        """Forget what came before, but for what drives keep (`sim.driven`); without drives there is nothing."""

    def step(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance all worlds by one frame.

        Args:
            q: Positions [rad or m], shape [worlds, nq].
            qd: Velocities [rad/s or m/s], shape [worlds, nv].
            torque: Torques or forces of the driven joints, held during the frame [N m or N], shape [worlds, nu].

        Returns:
            Positions and velocities at the end of the frame, in memory of their own.
        """
        q_next, qd_next = self.step_(q, qd, torque)
        return q_next.clone(), qd_next.clone()

    def step_(self, q: Tensor, qd: Tensor, torque: Tensor) -> tuple[Tensor, Tensor]:
        """Advance as `step` does, but return views of the solver's own memory, valid until the next call."""
        with on_warp_stream(self.device):
            self._q_in.copy_(q)
            self._qd_in.copy_(qd)
            self._force[:, self._dofs] = torque.detach().to(self._force)
            self.replay()
        return self._q_out, self._qd_out

    def replay(self) -> None:
        """Simulate the frame of the last call again, with nothing else around it."""
        self._launch()
        while self._capacity is not None and bool((torch.stack(self._flags) & Capacity.GROWS).any()):
            self._capacity = self._capacity.doubled()
            self._prepare()
            self._launch()

    def contact_forces(self) -> Tensor | None:
        """Return the normal forces of the robot's declared contacts in the last solver step of the last frame [N].

        Shape [worlds, contacts], in the order of the declaration; None where the robot declares none or there is
        nothing to touch.
        """
        return None if self._forces is None else self._forces.read()

    def rollout(self, q: Tensor, qd: Tensor, torques: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Advance all worlds by T frames.

        Args:
            q: First positions [rad or m], shape [worlds, nq].
            qd: First velocities [rad/s or m/s], shape [worlds, nv].
            torques: Torques or forces [N m or N], shape [worlds, T, nu].
            memory: What drives kept before, as `begin` takes it.

        Returns:
            Positions, shape [worlds, T + 1, nq], and velocities, shape [worlds, T + 1, nv]; the first is given.
        """
        self.begin(memory)
        frames = torques.shape[1]
        q_all = self._q_in.new_empty(self.worlds, frames + 1, self._q_in.shape[1])
        qd_all = self._qd_in.new_empty(self.worlds, frames + 1, self._qd_in.shape[1])
        q_all[:, 0], qd_all[:, 0] = q, qd
        present = (q, qd)
        for frame in range(frames):
            present = self.step_(*present, torques[:, frame])
            q_all[:, frame + 1], qd_all[:, frame + 1] = present
        return q_all, qd_all

    def _views(self, state: Any) -> tuple[Tensor, Tensor]:
        to_torch = self._wp.to_torch
        return to_torch(state.joint_q).view(self.worlds, -1), to_torch(state.joint_qd).view(self.worlds, -1)

    def _check_columns(self, q_columns: list[int], qd_columns: list[int]) -> None:
        """Refuse a world with other coordinates than the robot's, so that views need no selection."""
        spec = self.robot.spec
        if q_columns != list(range(spec.nq)) or qd_columns != list(range(spec.nv)):
            raise InputError(
                f"robot {self.robot.name!r}: its world has coordinates {q_columns} and {qd_columns} instead of "
                f"{spec.nq} positions and {spec.nv} velocities"
            )

    def _prepare(self) -> None:
        """Make the solver and record the frame."""
        if self._from_newton and self._capacity is not None:
            most = self._capacity.contacts * self.worlds
            self._pipeline = self._newton.CollisionPipeline(self.model, broad_phase="explicit", rigid_contact_max=most)
            self._contacts = self._pipeline.contacts()
        self._solver = self._make_solver()
        self._solver.notify_model_changed(self._newton.ModelFlags.SHAPE_PROPERTIES)
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
        solvers = self._newton.solvers
        if declared.solver == "featherstone":
            interval = declared.mass_matrix_interval if self._as_declared else 1
            return solvers.SolverFeatherstone(self.model, angular_damping=0.0, update_mass_matrix_interval=interval)
        options: dict[str, Any] = {"iterations": declared.iterations, "integrator": declared.integrator}
        if declared.fluid is not None:
            options |= {"density": declared.fluid.density, "viscosity": declared.fluid.viscosity}
        if self._capacity is None:
            return solvers.SolverMuJoCo(self.model, disable_contacts=True, **options)
        # The general algorithm misses shallow contacts of large boxes; there is one for boxes alone.
        attributes: Any = self.model
        attributes.mujoco.flag_nativeccd.fill_(0)
        with warnings.catch_warnings():
            # The solver reserves more by itself where the robot's zero pose is deep in the ground.
            warnings.filterwarnings("ignore", message=".*is changed from")
            solver = solvers.SolverMuJoCo(
                self.model,
                disable_contacts=False,
                use_mujoco_contacts=self._pipeline is None,
                kinematic_switchable_roots=False,  # saves an unused constraint for each free joint
                enable_multiccd=True,  # faces on faces touch at up to four points, not at one that jumps about
                nconmax=self._capacity.contacts,
                njmax=self._capacity.rows,
                **options,
            )
        solver.mjw_model.opt.warn_overflow = 0  # overflows are dealt with, so that none need be printed
        return solver

    def _launch(self) -> None:
        if self._graph is None:
            self._frame()
        else:
            self._wp.capture_launch(self._graph)

    def _frame(self) -> None:
        first, *others = self._states
        if self.robot.simulator.solver == "mujoco":
            # Clears the warm start only: flags name no part of the state.
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
        # Once uncaptured, so that modules are loaded and buffers allocated before the graph is recorded.
        self._frame()
        with self._wp.ScopedCapture(device=self.model.device) as capture:
            self._frame()
        return capture.graph
