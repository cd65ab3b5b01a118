# SPDX-License-Identifier: Apache-2.0
"""A measured state as one vector [q, qd, channels], and as the inputs of a network.

Continuous angles enter by sine and cosine, everything else unchanged.
"""

import torch
from torch import Tensor, nn

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.control import frame_torque


class WorldObservation(nn.Module):
    """Converts states and controls of one robot to vectors, and to the inputs of a network.

    Attributes:
        spec: Names and order.
        names: Names of the columns of a state vector.
        units: Units of the columns.
        inputs: Size of an input vector.
    """

    continuous: Tensor
    others: Tensor

    def __init__(self, spec: StateSpec) -> None:
        """Prepare the conversion.

        Raises:
            InputError: A joint has more than one degree of freedom.
        """
        super().__init__()
        wide = [joint for joint in spec.joints if not joint.scalar]
        if wide:
            raise InputError(
                f"robot {spec.robot!r}: joint {wide[0].name!r} is {wide[0].kind}; a world model learns what a robot "
                "measures: valid are revolute and prismatic joints, and channels (base_linear_velocity, "
                "projected_gravity ...) in place of a pose"
            )
        self.spec = spec
        units = ["rad/s" if unit == "rad" else "m/s" for unit in spec.q_units]
        self.names: tuple[str, ...] = (
            *(f"{name} position" for name in spec.q_names),
            *(f"{name} velocity" for name in spec.qd_names),
            *(channel.name for channel in spec.channels),
        )
        self.units: tuple[str, ...] = (*spec.q_units, *units, *(channel.unit for channel in spec.channels))
        turning = torch.tensor(spec.continuous + (False,) * (spec.nv + spec.nx), dtype=torch.bool)
        self.register_buffer("continuous", turning.nonzero()[:, 0], persistent=False)
        self.register_buffer("others", (~turning).nonzero()[:, 0], persistent=False)
        self.inputs = len(turning) + int(turning.sum()) + spec.nu

    @property
    def size(self) -> int:
        """Size of a state vector."""
        return len(self.names)

    def join(self, q: Tensor, qd: Tensor, channels: Tensor | None) -> Tensor:
        """Return states as vectors, shape [..., nq + nv + nx]; an `InputError` if a part is missing or too wide."""
        spec = self.spec
        channels = q.new_empty(*q.shape[:-1], 0) if channels is None else channels
        sizes, wanted = (q.shape[-1], qd.shape[-1], channels.shape[-1]), (spec.nq, spec.nv, spec.nx)
        if sizes != wanted:
            raise InputError(
                f"states for the world model of {spec.robot!r} have {sizes[0]} positions, {sizes[1]} velocities and "
                f"{sizes[2]} channels; valid: {wanted[0]}, {wanted[1]} and {wanted[2]}"
            )
        return torch.cat([q, qd, channels], -1)

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return positions, velocities and channels of vectors; None without channels."""
        spec = self.spec
        q, qd, channels = x.split([spec.nq, spec.nv, spec.nx], -1)
        return q, qd, channels if spec.nx else None

    def state(self, x: Tensor) -> State:
        """Return vectors of shape [worlds, nq + nv + nx] as a state."""
        return State(*self.split(x))

    def of_state(self, states: State | Window) -> Tensor:
        """Return a state or the states of a window as vectors; errors: see `join`."""
        return self.join(states.q, states.qd, states.channels)

    def of_control(self, control: Control, state: State) -> Tensor:
        """Return the logged controls of a frame, shape [worlds, nu].

        If the log has torques, PD targets become frame-start torques. If it has targets, the gains are the measured
        robot's, and given gains are ignored.

        Raises:
            InputError: The log has targets and none are given, or torques as well; or the width is wrong.
        """
        spec = self.spec
        if spec.control_kind == "torque":
            return frame_torque(spec, state, control)
        if control.target is None or control.torque is not None:
            raise InputError(
                f"world model of {spec.robot!r}: is driven by {spec.control_kind}s, as its log is; valid: "
                "Control(target=...) alone"
            )
        return self.require_controls(control.target)

    def require_controls(self, control: Tensor) -> Tensor:
        """Return controls; an `InputError` if they have the wrong width."""
        if control.shape[-1] != self.spec.nu:
            raise InputError(
                f"controls for the world model of {self.spec.robot!r} have shape {list(control.shape)}; valid: "
                f"{self.spec.nu} in the last axis"
            )
        return control

    def features(self, x: Tensor, control: Tensor) -> Tensor:
        """Return the network inputs of state vectors and controls, shape [..., inputs]."""
        if not len(self.continuous):
            return torch.cat([x, control], -1)
        angles = x.index_select(-1, self.continuous)
        return torch.cat([x.index_select(-1, self.others), angles.sin(), angles.cos(), control], -1)
