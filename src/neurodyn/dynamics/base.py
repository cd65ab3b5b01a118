# SPDX-License-Identifier: Apache-2.0
"""Base classes of dynamics with weights, and of those with several networks."""

import copy
from abc import abstractmethod
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from torch import Tensor, nn

from neurodyn.core.description.sensors import Sensor
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import State, Window
from neurodyn.dynamics.ensemble import LEAST_HELD_OUT, Turns
from neurodyn.dynamics.input_samples import learn_inputs
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.known_inputs import KnownInputs
from neurodyn.robots import ROBOTS, Robot, load, locate

if TYPE_CHECKING:
    from neurodyn.data.mixture import Mixture

BaseDynamics = Dynamics
"""An older name of `Dynamics`."""


class LearnedDynamics(nn.Module, Dynamics):
    """Dynamics with weights; they compute on the device of the weights.

    Attributes:
        declaration: Name of the robot, or absolute path of its declaration.
        training_range: Range of motion in the training data; None if unknown.
        sensors: Sensors that sit otherwise than declared, as a log told.
    """

    differentiable = True

    def __init__(self, spec: StateSpec, declaration: str | None = None) -> None:
        """Set the robot.

        Args:
            spec: Names, order, units and dt of state and control.
            declaration: Name or path of the robot's declaration; None for the name in `spec`.
        """
        super().__init__()
        self.spec = spec
        self.declaration = spec.robot if declaration is None else locate(declaration)
        self.sensors: dict[str, Sensor] = {}

    @property
    def robot(self) -> Robot | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The declaration of the robot with the model's frames and its sensors where they sit; None for none found."""
        known = self._robot
        if known is None or not self.sensors:
            return known
        return msgspec.structs.replace(known, sensors=known.sensors | self.sensors)

    @cached_property
    def _robot(self) -> Robot | None:
        if self.declaration not in ROBOTS and not Path(self.declaration).is_absolute():
            return None  # a bare name is not taken as a path in the working directory
        try:
            return load(self.declaration).with_frames(self.spec.dt)
        except InputError:
            return None

    @property
    def device(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Device of the weights."""
        return str(next(self.parameters()).device)

    def _leaves(self, context: State | Window, controls: Tensor) -> list[Tensor]:
        return [*super()._leaves(context, controls), *self.parameters()]


class EnsembleDynamics(LearnedDynamics):
    """Dynamics with several networks; worlds in which a policy acts follow some of them in turn."""

    _turns: Turns

    def __init__(self, spec: StateSpec, declaration: str | None = None) -> None:
        """Set the robot; see `LearnedDynamics`."""
        super().__init__(spec, declaration)
        self._known = KnownInputs()

    @property
    def known_inputs(self) -> KnownInputs:
        """What the networks have seen."""
        return self._known

    @property
    @abstractmethod
    def members(self) -> int:
        """Number of networks."""

    def remember_inputs(self, log: "Mixture", base: "EnsembleDynamics", seed: int = 0) -> None:
        """Keep what the networks have seen of a log, beside what they had seen as `base`."""
        self._known.load_state_dict(base._known.state_dict())
        learn_inputs(self._known, self, log, seed)

    def following(self, count: int, first: int = 0) -> "EnsembleDynamics":
        """Return the same model, whose imagined worlds follow only some members in turn."""
        other = copy.copy(self)
        other._turns = Turns(count, first)
        return other

    def hold_out(self) -> tuple[Dynamics, Dynamics, str] | None:
        """Hold out the last of three or more members."""
        if self.members < LEAST_HELD_OUT:
            return None
        last = self.members - 1
        return self.following(last), self.following(1, last), "a member held out"
