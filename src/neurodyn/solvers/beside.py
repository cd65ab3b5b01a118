# SPDX-License-Identifier: Apache-2.0
"""A Newton solver that steps one robot by a dynamics model, and everything else in its worlds by another solver."""

from typing import Any

import newton
import numpy as np
import torch
import warp as wp

from neurodyn.core.errors import InputError
from neurodyn.sim.articulations import short_label
from neurodyn.solvers.drive import copy_columns_kernel, gather_wrenches_kernel
from neurodyn.solvers.learned import Replays, SolverLearned
from neurodyn.solvers.worlds import arrays_of, count_worlds


class SolverBeside(newton.solvers.SolverBase):
    """Steps all bodies by a Newton solver, then one robot by a model from its state at the start of the step.

    The robot has contact with the ground of `learned.model`, such as a table, but not with moving bodies; the other
    bodies have contact with each other, and with the robot at its pose at the start of the step. Drive gains and effort
    limits of the robot are those of `model`. A step consists of Warp launches only, so it can be captured if those of
    both solvers can.

    Attributes:
        learned: Solver of the robot alone, in a model of the same worlds; its `guard` reports the robot's faults.
        others: Solver of the whole model.
    """

    def __init__(
        self,
        model: newton.Model,
        learned: SolverLearned,
        others: newton.solvers.SolverBase,
        *,
        articulation: int = 0,
        substeps: int = 1,
    ) -> None:
        """Find the robot in the model.

        Args:
            model: Worlds that hold the robot among other bodies.
            learned: Solver of a model with the same number of worlds, which hold only the robot and the ground.
            others: Solver of `model`.
            articulation: Index of the robot among the articulations of each world, in the model's order.
            substeps: Steps of `others` in a frame of the robot.

        Raises:
            InputError: The articulation is not the robot, or the worlds differ from each other or in number.
        """
        super().__init__(model)
        whole, alone = arrays_of(model), arrays_of(learned.model)
        worlds = count_worlds(model)
        if worlds != count_worlds(learned.model):
            raise InputError(
                f"SolverBeside: the robot alone is in {count_worlds(learned.model)} worlds; valid: {worlds}, as here"
            )
        starts = whole.articulation_start.numpy()
        each = (len(starts) - 1) // worlds
        if not 0 <= articulation < each or substeps < 1:
            raise InputError(
                f"SolverBeside: articulation {articulation}, substeps {substeps}; valid: an articulation of 0 to "
                f"{each - 1}, at least 1 substep"
            )
        if any(count % worlds for count in (model.joint_coord_count, model.joint_dof_count, model.body_count)):
            raise InputError(f"SolverBeside: the model's {worlds} worlds differ; valid: the same bodies in each")
        joints = range(int(starts[articulation]), int(starts[articulation + 1]))
        names = [short_label(whole.joint_label[joint]) for joint in joints]
        own = [short_label(label) for label in alone.joint_label[: len(alone.joint_label) // worlds]]
        if names != own:
            raise InputError(
                f"SolverBeside: articulation {articulation} has the joints {', '.join(names)}; valid: those of the "
                f"robot, {', '.join(own)}"
            )
        first, last = joints[0], joints[-1] + 1
        q, qd = whole.joint_q_start.numpy(), whole.joint_qd_start.numpy()
        self._q, self._qd = slice(int(q[first]), int(q[last])), slice(int(qd[first]), int(qd[last]))
        self.learned, self.others = learned, others
        self._substeps, self._worlds = substeps, worlds
        self._before, self._after = learned.model.state(), learned.model.state()
        self._control = learned.model.control()
        self._states = model.state(), model.state()
        chosen = np.arange(len(starts) - 1) % each == articulation
        self._mask: Any = wp.array(chosen, dtype=wp.bool, device=model.device)
        bodies = whole.joint_child.numpy()[list(joints)].astype(np.int32)
        self._bodies: Any = wp.array(bodies, dtype=wp.int32, device=model.device)
        self._replays = Replays(model.device)

    def step(
        self,
        state_in: newton.State,
        state_out: newton.State,
        control: newton.Control | None,
        contacts: newton.Contacts | None,
        dt: float,
        *,
        observables: Any = None,
    ) -> None:
        """Advance all bodies by a frame of the robot; arguments and errors: see `SolverLearned.step`.

        Forces on the other bodies are held during the frame.
        """
        self.validate_observables(observables)
        given = self.model.control(clone_variables=False) if control is None else control
        self._gather(state_in, given)
        self.learned.step(self._before, self._after, self._control, None, dt)
        first, second = self._states
        first.assign(state_in)
        second.assign(state_in)
        for _ in range(self._substeps):
            self.others.step(first, second, given, contacts, dt / self._substeps)
            first, second = second, first
        state_out.assign(first)

        def scatter() -> None:  # writes the predicted states of the robots, and updates their bodies
            for name, to in (("joint_q", self._q), ("joint_qd", self._qd)):
                columns = slice(0, to.stop - to.start)
                self._copy(getattr(self._after, name), getattr(state_out, name), columns, to.start)
            self._forward_kinematics(state_out)

        arrays = (state_out.joint_q, state_out.joint_qd, state_out.body_q, state_out.body_qd)
        self._replays.run(arrays, scatter, lambda: self)

    def reset(
        self,
        state: newton.State,
        world_mask: "wp.array[wp.bool] | None" = None,
        flags: newton.StateFlags | int | None = None,
    ) -> None:
        """Reset both solvers, and set the robot of the selected worlds to the model's; see `SolverLearned.reset`."""
        super().reset(state, world_mask, flags)
        self.learned.reset(self._before, world_mask, 0)
        self.others.reset(state, world_mask, flags)
        wanted = int(newton.StateFlags.ALL if flags is None else flags)
        rows = slice(None) if world_mask is None else wp.to_torch(world_mask)[: self._worlds].to(torch.bool)
        for name, columns, flag in (
            ("joint_q", self._q, newton.StateFlags.JOINT_Q), ("joint_qd", self._qd, newton.StateFlags.JOINT_QD),
        ):  # fmt: skip
            if wanted & int(flag):
                table, default = (
                    wp.to_torch(getattr(one, name), requires_grad=False).view(self._worlds, -1)
                    for one in (state, self.model)
                )
                table[rows, columns] = default[rows, columns]
        if wanted:
            self._forward_kinematics(state)

    def notify_model_changed(self, flags: newton.ModelFlags | int) -> None:
        """Notify the other solver; `learned` has to be notified directly of changes in the robot's own model."""
        self.others.notify_model_changed(flags)

    def require_sound(self) -> None:
        """Report faults and refused forces of the robot; see `SolverLearned.require_sound`."""
        self.learned.require_sound()

    def _gather(self, state: Any, control: Any) -> None:
        """Copy state, control, gains and wrenches of the robots."""
        model, alone, own = arrays_of(self.model), arrays_of(self.learned.model), arrays_of(self._control)
        pairs = [
            (source, target, columns)
            for source, target, columns in (
                (state.joint_q, self._before.joint_q, self._q),
                (state.joint_qd, self._before.joint_qd, self._qd),
                (control.joint_f, own.joint_f, self._qd),
                (control.joint_target_q, own.joint_target_q, self._q),
                (control.joint_target_qd, own.joint_target_qd, self._qd),
                *(
                    (getattr(model, name), getattr(alone, name), self._qd)
                    for name in ("joint_target_ke", "joint_target_kd", "joint_effort_limit")
                ),
            )
            if source is not None and target is not None
        ]

        def launch() -> None:
            for source, target, columns in pairs:
                self._copy(source, target, columns, 0)
            if state.body_f is not None:
                sizes = [self.model.body_count // self._worlds, self.learned.model.body_count // self._worlds]
                inputs = [self._bodies, sizes[0], state.body_f, self._before.body_f, sizes[1]]
                wp.launch(gather_wrenches_kernel, self._worlds, inputs=inputs, device=self.model.device)

        arrays = (*(source for source, _, _ in pairs), state.body_f)
        self._replays.run(arrays, launch, lambda: self)

    def _copy(self, source: Any, target: Any, columns: slice, to: int) -> None:
        count = columns.stop - columns.start
        inputs = [source, columns.start, len(source) // self._worlds, target, to, len(target) // self._worlds]
        wp.launch(copy_columns_kernel, (self._worlds, count), inputs=inputs, device=self.model.device)

    def _forward_kinematics(self, state: Any) -> None:
        newton.eval_fk(self.model, state.joint_q, state.joint_qd, state, mask=self._mask)
