# SPDX-License-Identifier: Apache-2.0
"""Motion of a mechanism that nothing touches.

Inertia, gravity, actuation and viscous friction act; contacts, joint limits and Coulomb friction do not.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from neurodyn.core.description.mechanism import Mechanism
from neurodyn.geometry.array_shapes import Positions, Torques, Velocities
from neurodyn.multibody.articulated import Tree
from neurodyn.multibody.integration import advanced
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.program import Inputs, Program, Sizes
from neurodyn.multibody.trace.program_frame import ProgramFrame

_GRAVITY = ("gravity.x", "gravity.y", "gravity.z")


class FreeMotion:
    """One frame of free motion of a batch of worlds, compiled; differentiable by state and torque."""

    def __init__(self, mechanism: Mechanism, dofs: tuple[int, ...], dt: float, substeps: int) -> None:
        """Trace the motion.

        Args:
            mechanism: The robot.
            dofs: Velocity coordinates that the torques drive.
            dt: Length of a frame [s].
            substeps: Steps of semi-implicit Euler in a frame, as many as the simulator's.
        """
        self.mechanism = mechanism
        self._dofs = dofs
        self._step_size = dt / substeps
        sizes = Sizes(state=mechanism.nq + mechanism.nv, control=len(dofs), held=len(_GRAVITY))
        self._frame = ProgramFrame(Program(sizes, self._step), mechanism.nq, substeps)

    def __call__(
        self,
        q: Positions,
        qd: Velocities,
        torque: Torques,
        gravity: Float[Tensor, "... 3"],
    ) -> tuple[Positions, Velocities]:
        """Return positions and velocities one frame later, shapes as of `q` and `qd`.

        Args:
            q: Positions in Newton's convention [rad or m], shape [..., nq].
            qd: Velocities [rad/s or m/s], shape [..., nv].
            torque: Torques during the frame [N m or N], shape [..., nu].
            gravity: Gravity in world axes [m/s^2], shape [..., 3].
        """
        return self._frame(q, qd, torque, held=gravity.expand(*q.shape[:-1], 3))

    def bound(self, state: Tensor, torque: Tensor, gravity: Tensor) -> tuple[Tensor, Any]:
        """Return the states one frame later, and the recorded launch that computes them anew from the same memory.

        Args:
            state: Positions and velocities, shape [worlds, nq + nv], contiguous as all.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            gravity: Gravity in world axes [m/s^2], shape [worlds, 3].
        """
        return self._frame.bound(state, torque, held=gravity)

    def onnx(self, gravity: tuple[float, ...]) -> Any:
        """Return the frame in one gravity as an ONNX graph, as of `ProgramFrame.onnx`."""
        return self._frame.onnx(held=gravity)

    def _step(self, inputs: Inputs) -> list[Scalar]:
        mechanism, nq = self.mechanism, self.mechanism.nq
        values = {**mechanism.quantities(), **dict(zip(_GRAVITY, inputs.held, strict=True))}
        tree = Tree(mechanism, values.__getitem__)
        q, qd = inputs.state[:nq], inputs.state[nq:]
        torque: list[Scalar] = [0.0] * mechanism.nv
        for dof, name in tree.single_dofs():
            torque[dof] = -(values[f"{name}.damping"] * qd[dof])
        for dof, given in zip(self._dofs, inputs.control, strict=True):
            torque[dof] = torque[dof] + given
        acceleration = tree.accelerations(tree.motions(q, qd), q, torque)
        q, qd = advanced(tree, q, qd, acceleration, self._step_size)
        return [*q, *qd]
