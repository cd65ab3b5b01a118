# SPDX-License-Identifier: Apache-2.0
"""The analytic solver as a function of states: torch tensors in, torch tensors out, replayed as a graph.

A frame is a function of state and torque alone: whatever a solver carries from step to step (a mass matrix
that is kept, a warm start) is renewed at the start of every frame. All worlds are independent of each other.
"""

from typing import Any

import torch
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.robots import Robot
from neurodyn.sim.build import Gravity, build
from neurodyn.sim.engine import import_newton
from neurodyn.sim.fingerprint import columns


class Teacher:
    """Steps a fixed number of worlds with the declared solver, one frame at a time.

    Attributes:
        robot: The declared robot.
        worlds: Number of worlds.
        model: The Newton model.
        substeps: Solver steps in one frame.
    """

    def __init__(
        self,
        robot: Robot,
        worlds: int,
        *,
        substeps: int | None = None,
        device: str = "cpu",
        gravity: Gravity | None = None,
        capture: bool = True,
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

        Raises:
            InputError: The robot cannot be built, or `substeps` is below 1.
        """
        if substeps is not None and substeps < 1:
            raise InputError(f"substeps is {substeps}; valid: at least 1")
        import warp as wp

        self._newton = import_newton()
        self._wp = wp
        self.robot = robot
        self.worlds = worlds
        self.model = build(robot, worlds, device=device, gravity=gravity)
        self.substeps = robot.teacher.substeps if substeps is None else substeps
        self._solver = self._make_solver(substeps is None)
        # A frame reads the first state and ends in one of the other two, so that any number of substeps works.
        self._states = [self.model.state() for _ in range(3)]
        self._control: Any = self.model.control()
        q_columns, qd_columns = columns(self.model)
        self._q_in, self._qd_in = self._views(self._states[0])
        self._q_out, self._qd_out = self._views(self._final)
        self._force = wp.to_torch(self._control.joint_f).view(worlds, -1)
        self._check_columns(q_columns, qd_columns)
        self._dofs = torch.tensor(robot.spec.control_dofs, dtype=torch.long, device=self._force.device)
        self._graph: Any = self._capture() if capture else None

    @property
    def device(self) -> torch.device:
        """Device of the tensors that `step` takes and returns."""
        return self._q_in.device

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
        self._q_in.copy_(q)
        self._qd_in.copy_(qd)
        self._force[:, self._dofs] = torque.detach().to(self._force)
        self.replay()
        return self._q_out, self._qd_out

    def replay(self) -> None:
        """Simulate the frame of the last call again, with nothing else around it."""
        if self._graph is None:
            self._frame()
        else:
            self._wp.capture_launch(self._graph)

    def rollout(self, q: Tensor, qd: Tensor, torques: Tensor) -> tuple[Tensor, Tensor]:
        """Advance all worlds by T frames.

        Args:
            q: First positions [rad or m], shape [worlds, nq].
            qd: First velocities [rad/s or m/s], shape [worlds, nv].
            torques: Torques or forces [N m or N], shape [worlds, T, nu].

        Returns:
            Positions, shape [worlds, T + 1, nq], and velocities, shape [worlds, T + 1, nv]; the first is given.
        """
        frames = torques.shape[1]
        q_all = self._q_in.new_empty(self.worlds, frames + 1, self._q_in.shape[1])
        qd_all = self._qd_in.new_empty(self.worlds, frames + 1, self._qd_in.shape[1])
        q_all[:, 0], qd_all[:, 0] = q, qd
        present = (q, qd)
        for frame in range(frames):
            present = self.step_(*present, torques[:, frame])
            q_all[:, frame + 1], qd_all[:, frame + 1] = present
        return q_all, qd_all

    @property
    def _final(self) -> Any:
        return self._states[2 - self.substeps % 2]

    def _views(self, state: Any) -> tuple[Tensor, Tensor]:
        to_torch = self._wp.to_torch
        return to_torch(state.joint_q).view(self.worlds, -1), to_torch(state.joint_qd).view(self.worlds, -1)

    def _check_columns(self, q_columns: list[int], qd_columns: list[int]) -> None:
        """Make sure that the robot's coordinates are all of the world's, so that views need no selection."""
        spec = self.robot.spec
        if q_columns != list(range(spec.nq)) or qd_columns != list(range(spec.nv)):
            raise InputError(
                f"robot {self.robot.name!r}: its world has coordinates {q_columns} and {qd_columns} instead of "
                f"{spec.nq} positions and {spec.nv} velocities"
            )

    def _make_solver(self, as_declared: bool) -> Any:
        declared = self.robot.teacher
        solvers = self._newton.solvers
        if declared.solver == "featherstone":
            interval = declared.mass_matrix_interval if as_declared else 1
            return solvers.SolverFeatherstone(self.model, angular_damping=0.0, update_mass_matrix_interval=interval)
        return solvers.SolverMuJoCo(
            self.model, iterations=declared.iterations, integrator=declared.integrator, disable_contacts=True
        )

    def _frame(self) -> None:
        dt = self.robot.dt / self.substeps
        first, *others = self._states
        if self.robot.teacher.solver == "mujoco":
            # Clears the warm start only: flags name no part of the state.
            self._solver.reset(first, flags=0)
        source = first
        for substep in range(self.substeps):
            target = others[substep % 2]
            self._solver.step(source, target, self._control, None, dt)
            source = target

    def _capture(self) -> Any:
        # Once uncaptured, so that modules are loaded and buffers allocated before the graph is recorded.
        self._frame()
        with self._wp.ScopedCapture(device=self.model.device) as capture:
            self._frame()
        return capture.graph
