# SPDX-License-Identifier: Apache-2.0
"""Hybrid models under a joint controller, for logs that record targets instead of torques; control laws."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from neurodyn.core.description.drive import GAINS, Controller
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.dynamics.batch import Environment, State, Trajectory, Window, present_state
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.hybrid.parameters import Parameters
from neurodyn.multibody.engine import EngineConfig


@dataclass(frozen=True)
class DrivenJoints:
    """Inputs of a control law, each of shape [worlds, nu].

    Attributes:
        q: Joint positions [rad or m].
        qd: Joint velocities [rad/s or m/s].
        error: Target minus position [rad or m], wrapped to [-pi, pi) for continuous joints.
        target: Position targets [rad or m] or velocity targets [rad/s or m/s].
    """

    q: Tensor
    qd: Tensor
    error: Tensor
    target: Tensor


Law = Callable[[DrivenJoints, Mapping[str, Tensor]], Tensor]
"""A control law: from joints and gains by name to torques [N m or N]; all arrays have the shape [worlds, nu]."""

LAWS: Registry[Law] = Registry(
    "controller",
    pd="neurodyn.dynamics.hybrid.closed_loop:pd_law",
    velocity="neurodyn.dynamics.hybrid.closed_loop:velocity_law",
)
"""Control laws by `Controller.kind`; `core.description.drive.GAINS` lists the gains of each."""


class ClosedLoop(nn.Module):
    """A hybrid model, the `plant`, driven through a joint controller.

    Attributes:
        plant: The model.
        controller: The controller.
        physical: Free quantities of the model, followed by the free gains.
    """

    kind = "hybrid"
    memory = 0  # closed loops carry no memory of drives or networks
    _limit: Tensor

    def __init__(self, plant: HybridDynamics, controller: Controller, free: Sequence[Parameter] = ()) -> None:
        """Close the loop; `free` are the free gains, named "controller.JOINT.GAIN".

        Raises:
            InputError: A gain is missing for a driven joint, or the substeps of a frame are not a multiple of the
                controller updates.
        """
        super().__init__()
        self.plant, self.controller = plant, controller
        self._gains = controller.gains(plant.spec.controls)
        limits = controller.by_joint("limit", plant.spec.controls)
        self.register_buffer("_limit", torch.tensor(list(limits.values()), dtype=torch.float64), persistent=False)
        if plant.config.substeps % controller.updates:
            raise InputError(
                f"controller: updates is {controller.updates}; valid: a divisor of the {plant.config.substeps} "
                "substeps of a frame (`substeps` of the settings)"
            )
        self.physical = Parameters((*plant.physical.specs, *free))
        self._free = tuple(spec.name for spec in free)

    @property
    def spec(self) -> StateSpec:
        """Names, order, units and dt of state and control."""
        return self.plant.spec

    @property
    def config(self) -> EngineConfig:
        """Settings of the engine."""
        return self.plant.config

    @property
    def weights(self) -> nn.Parameter:
        """Weights of the model's networks."""
        return self.plant.weights

    def settle(self) -> HybridDynamics:
        """Copy the current values of the free quantities to the model, and return it."""
        own = self.plant.physical
        own.set_values(self.physical()[: len(own.specs)])
        return self.plant

    def rollout(self, context: State | Window, controls: Tensor, environment: Environment | None = None) -> Trajectory:
        """Predict T frames under targets [rad, m, rad/s or m/s], shape [worlds, T, nu]."""
        return self.simulate(context, controls, self.physical(), self.weights, environment)

    def simulate(
        self,
        context: State | Window,
        controls: Tensor,
        parameters: Tensor,
        weights: Tensor,
        environment: Environment | None = None,
    ) -> Trajectory:
        """Predict as `rollout` does, but with given parameters and weights; see `HybridDynamics.simulate`."""
        return self.driven(context, controls, parameters, weights, environment)[0]

    def driven(
        self,
        context: State | Window,
        controls: Tensor,
        parameters: Tensor,
        weights: Tensor,
        environment: Environment | None = None,
    ) -> tuple[Trajectory, Tensor]:
        """Predict as `simulate` does; also return the torques at the start of each frame, shape [worlds, T, nu]."""
        state = present_state(context)
        around, parts = self.plant.begin(state, environment).environment, self.controller.updates
        parameters = parameters.expand(len(state.q), -1) if parameters.ndim == 1 else parameters
        own, gains = parameters[:, : len(self.plant.physical.specs)], self._gains_of(parameters)
        law = LAWS[self.controller.kind]
        q, qd, torques = [state.q], [state.qd], []
        for target in controls.unbind(1):
            for part in range(parts):
                torque = law(self._joints(state, target), gains)
                torque = torch.minimum(torch.maximum(torque, -self._limit), self._limit)
                if part == 0:
                    torques.append(torque)
                state = self.plant.advance(state, torque, own, weights, around, parts)
            q.append(state.q)
            qd.append(state.qd)
        return Trajectory(torch.stack(q, 1), torch.stack(qd, 1)), torch.stack(torques, 1)

    def _gains_of(self, parameters: Tensor) -> dict[str, Tensor]:
        first = len(self.plant.physical.specs)

        def value(joint: str, gain: str) -> Tensor:
            name = f"controller.{joint}.{gain}"
            if name in self._free:
                return parameters[:, first + self._free.index(name)]
            return parameters.new_full((len(parameters),), self._gains[name])

        return {
            gain: torch.stack([value(joint, gain) for joint in self.spec.controls], -1)
            for gain in GAINS[self.controller.kind]
        }

    def _joints(self, state: State, target: Tensor) -> DrivenJoints:
        rows = [self.spec.q_names.index(name) for name in self.spec.controls]
        q, qd = state.q[:, rows], state.qd[:, list(self.spec.control_dofs)]
        turns = torch.tensor([self.spec.continuous[row] for row in rows], device=q.device)
        error = torch.where(turns, wrap_angle(target - q), target - q)
        return DrivenJoints(q, qd, error, target)


DrivenModel = HybridDynamics | ClosedLoop
"""A model driven by the controls of a log: by torques, or by targets through a controller."""


def pd_law(joints: DrivenJoints, gains: Mapping[str, Tensor]) -> Tensor:
    """Return kp (target - q) - kd qd [N m or N], shape [worlds, nu]."""
    return gains["kp"] * joints.error - gains["kd"] * joints.qd


def velocity_law(joints: DrivenJoints, gains: Mapping[str, Tensor]) -> Tensor:
    """Return kd (target - qd) [N m or N], shape [worlds, nu]."""
    return gains["kd"] * (joints.target - joints.qd)
