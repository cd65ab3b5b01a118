# SPDX-License-Identifier: Apache-2.0
"""One robot of a Newton model by a dynamics model, while another solver steps everything else in its worlds."""

from typing import Any

import newton
import torch
import warp as wp
from torch import Tensor

from neurodyn.core.errors import InputError
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.sim.articulation import short_label
from neurodyn.solvers.learned import SolverLearned, torch_device
from neurodyn.solvers.worlds import arrays_of, count_worlds


class SolverBeside(newton.solvers.SolverBase):
    """Steps all bodies by a solver of Newton's, and then one robot by a model from where it was.

    The model's robot feels the ground of `learned.model`, such as a table that stands there, and nothing that moves;
    the other bodies feel the robot where it is at the start of a step, and are felt by each other.

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
            learned: Solver on a model that holds the robot and the ground alone, in as many worlds.
            others: Solver of `model`.
            articulation: Which articulation of each world the robot is, in the model's order.
            substeps: Steps of `others` in a frame of the robot.

        Raises:
            InputError: The articulation is not the robot, or the worlds are not as many.
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
        joints = range(int(starts[articulation]), int(starts[articulation + 1]))
        found = [short_label(whole.joint_label[joint]) for joint in joints]
        own = [short_label(label) for label in alone.joint_label[: len(alone.joint_label) // worlds]]
        if found != own:
            raise InputError(
                f"SolverBeside: articulation {articulation} has the joints {', '.join(found)}; valid: those of the "
                f"robot, {', '.join(own)}"
            )
        first, last = joints[0], joints[-1] + 1
        q, qd = whole.joint_q_start.numpy(), whole.joint_qd_start.numpy()
        self._q, self._qd = slice(int(q[first]), int(q[last])), slice(int(qd[first]), int(qd[last]))
        self.learned, self.others = learned, others
        self._substeps, self._worlds, self._device = substeps, worlds, torch_device(model)
        self._before, self._after = learned.model.state(), learned.model.state()
        self._control = learned.model.control()
        self._states = model.state(), model.state()
        chosen = torch.arange(len(starts) - 1, device=self._device) % each == articulation
        self._mask: Any = wp.from_torch(chosen, dtype=wp.bool)

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
        """Advance all bodies by a frame of the robot; arguments and errors: see `SolverLearned.step`."""
        given: Any = self.model.control(clone_variables=False) if control is None else control
        with on_warp_stream(self._device), torch.no_grad():
            for name, columns in (("joint_q", self._q), ("joint_qd", self._qd)):
                self._copy(getattr(state_in, name), getattr(self._before, name), columns)
            for name, columns in (
                ("joint_f", self._qd), ("joint_target_q", self._q), ("joint_target_qd", self._qd),
            ):  # fmt: skip
                if getattr(given, name) is not None and getattr(self._control, name) is not None:
                    self._copy(getattr(given, name), getattr(self._control, name), columns)
        self.learned.step(self._before, self._after, self._control, None, dt)
        first, second = self._states
        first.assign(state_in)
        for _ in range(self._substeps):
            first.clear_forces()
            self.others.step(first, second, control, contacts, dt / self._substeps)
            first, second = second, first
        state_out.assign(first)
        with on_warp_stream(self._device), torch.no_grad():
            for name, columns in (("joint_q", self._q), ("joint_qd", self._qd)):
                self._table(getattr(state_out, name))[:, columns] = self._table(getattr(self._after, name))
        written: Any = state_out
        newton.eval_fk(self.model, written.joint_q, written.joint_qd, written, mask=self._mask)

    def _table(self, array: Any) -> Tensor:
        return wp.to_torch(array, requires_grad=False).view(self._worlds, -1)

    def _copy(self, source: Any, target: Any, columns: slice) -> None:
        self._table(target).copy_(self._table(source)[:, columns])
