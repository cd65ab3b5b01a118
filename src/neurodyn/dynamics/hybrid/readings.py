# SPDX-License-Identifier: Apache-2.0
"""Readings of a robot's sensors in given states of a hybrid model; compiled and differentiable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from neurodyn.core.description.sensors import QUATERNION, SENSOR_KINDS, Sensor, Stream
from neurodyn.core.errors import InputError, among
from neurodyn.dynamics.batch import Environment, State
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import Engine
from neurodyn.multibody.sensors import SensorFrame, read_motion
from neurodyn.multibody.trace import Scalar
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

MATRIX = 9
"""Length of a rotation in an observation: its matrix, row by row."""
_MOVING = 3 + MATRIX
"""Length of what gives a mean over a frame: the velocity of the sensor in the world, and its rotation."""


@dataclass(frozen=True)
class MountedSensor:
    """A sensor on its link.

    Attributes:
        name: Name of the sensor.
        sensor: The sensor.
        stream: Layout of its readings.
    """

    name: str
    sensor: Sensor
    stream: Stream

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of observed values for each quantity of a reading."""
        own = {QUATERNION: MATRIX} | dict.fromkeys(self.stream.averaged, _MOVING)
        return tuple(own.get(part.name, len(part.components)) for part in self.stream.parts)

    @property
    def feels(self) -> bool:
        """Whether readings depend on forces, not only on states."""
        return any(name not in self.stream.averaged for name in SENSOR_KINDS[self.sensor.kind].forces)


def sensor_quantities(mounted: Sequence[MountedSensor]) -> dict[str, float]:
    """Return the nominal values of the sensors' quantities by name."""
    values: dict[str, float] = {}
    for one in mounted:
        values |= {f"{one.name}.position.{x}": p for x, p in zip("xyz", one.sensor.position, strict=True)}
        values |= {f"{one.name}.turn.{x}": 0.0 for x in "xyz"}
        values |= {f"{one.name}.bias.{channel.partition('.')[2]}": 0.0 for channel in one.stream.channels}
        values[f"{one.name}.delay"] = one.sensor.delay
    return values


def mean_force(moving: Tensor, gravity: Tensor, dt: float, axes: str) -> Tensor:
    r"""Return means of specific force over frames [m/s^2], shape [N, T, 3], from T + 1 values of velocity and rotation.

    $\bar f = R^T ((v_{t+1} - v_t) / dt - g)$, with the mean rotation R; `moving` has shape [N, T + 1, 12] and `gravity`
    [..., 3]. In `axes` of the "world" nothing is rotated.
    """
    velocity, matrix = moving[..., :3], moving[..., 3:].unflatten(-1, (3, 3))
    force = velocity.diff(dim=1) / dt - gravity
    if axes == "world":
        return force
    mean = 0.5 * (matrix[:, 1:] + matrix[:, :-1])
    return (mean.mT @ force[..., None])[..., 0]


class SensorModel:
    """Readings of sensors in states of a hybrid model, without bias and delay.

    Attributes:
        mounted: The sensors, in order.
        free: Names of the sensors' free quantities.
        constants: Values of their other quantities.
        width: Number of observed values, over all sensors.
        dt: Length of a frame [s].
    """

    def __init__(
        self,
        dynamics: HybridDynamics,
        mounted: Sequence[MountedSensor],
        free: Sequence[str] = (),
        values: Mapping[str, float] | None = None,
    ) -> None:
        """Prepare the observation, which is compiled for each kind of ground at its first use.

        Args:
            dynamics: The model.
            mounted: The sensors.
            free: Names of their quantities that are passed in every call.
            values: Values of their other quantities that differ from nominal.

        Raises:
            InputError: A sensor names an unknown link or joint, or has the name of one.
        """
        self._dynamics, self.mounted, self.free = dynamics, tuple(mounted), tuple(free)
        self.width = sum(sum(one.widths) for one in self.mounted)
        self.constants = {**sensor_quantities(self.mounted), **(values or {})}
        self.dt = dynamics.spec.dt
        self._links = [_link_of(dynamics, one) for one in self.mounted]
        self._programs: dict[int, tuple[Engine, TracedProgram]] = {}
        self._others: dict[int, SensorModel] = {}
        self._program(dynamics.plane_engine)  # reports wrong names early

    @property
    def feels(self) -> bool:
        """Whether readings depend on forces, and so on the memory of drives and networks."""
        return any(one.feels for one in self.mounted)

    def on(self, dynamics: HybridDynamics) -> "SensorModel":
        """Return the readings in states of another model of the robot: where they depend on forces, those of its own.

        Models with other steps of the engine remember in another way.
        """
        if dynamics is self._dynamics or not self.feels:
            return self
        if id(dynamics) not in self._others:
            self._others[id(dynamics)] = SensorModel(dynamics, self.mounted, self.free, self.constants)
        return self._others[id(dynamics)]

    def __call__(
        self,
        state: State,
        torque: Tensor,
        parameters: Tensor,
        values: Tensor,
        weights: Tensor,
        environment: Environment | None = None,
        memory: Tensor | None = None,
    ) -> Tensor:
        """Return the observation at the start of a frame, shape [worlds, width].

        Args:
            state: States.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            parameters: Physical values of the model's free quantities, shape [worlds, parameters].
            values: Values of the sensors' free quantities, shape [worlds, free].
            weights: Weights of the model's networks.
            environment: Environment of the worlds.
            memory: Memory of drives and networks (`HybridDynamics.simulate_remembering`), shape [worlds, memory].

        Raises:
            InputError: Readings depend on a memory that is not given.
        """
        here, there = state.q.device, self._dynamics.compute_device
        away = there is not None and torch.device(there) != here
        around = self._dynamics.begin(state, environment).environment
        if away:
            state, around = state.to(str(there)), around.to(str(there))
            torque, parameters, values, weights = (x.to(there) for x in (torque, parameters, values, weights))
        engine, held, given = self._dynamics.frame_inputs(around, state, parameters)
        if engine.remembers and self.feels and memory is None:
            felt = next(one.name for one in self.mounted if one.feels)
            raise InputError(
                f"sensor {felt!r} of {self._dynamics.spec.robot!r}: is not read beside drives or networks with a "
                "memory, on which its readings depend; valid: `averaged: [specific_force]` in its stream, sensors of "
                "motion, or drives without delay, lag and spring"
            )
        program = self._program(engine)
        given = given.expand(len(state.q), -1) if given.ndim == 1 else given
        more = engine.mechanism.nv - self._dynamics.spec.nv
        kept = state.q.new_zeros(len(state.q), 2 * more + engine.memory)
        kept = memory.to(kept) if self.feels and memory is not None else kept
        hidden, moving, kept = kept.split([more, more, engine.memory], -1)
        observed = state.q.new_zeros(len(state.q), self.width)
        joined = torch.cat([state.q, hidden, state.qd, moving, kept, observed], -1)
        after = program.rollout(
            joined, frames=1, control=torque[:, None], held=held, parameters=torch.cat([given, values], -1),
            weights=weights,
        )  # fmt: skip
        observation = after[:, 1, -self.width :]
        return observation.to(here) if away else observation

    def gravity(self, environment: Environment | None = None) -> Tensor:
        """Return the gravity of an environment, or the model's own [m/s^2], shape [3]."""
        given = None if environment is None else environment.gravity
        own = self._dynamics.home.gravity if given is None else given
        assert own is not None
        return own.to(torch.float64)

    def _program(self, engine: Engine) -> TracedProgram:
        if id(engine) not in self._programs:
            mechanism, spec, config = engine.mechanism, self._dynamics.spec, engine.config
            sizes = ProgramSizes(
                state=mechanism.nq + mechanism.nv + engine.memory + self.width,
                control=spec.nu,
                held=engine.ground_size,
                parameters=len(config.free) + len(self.free),
                weights=config.blueprint.weights,
            )
            program = TracedProgram(sizes, lambda inputs: self._step(engine, inputs), self._dynamics.threads)
            self._programs[id(engine)] = engine, program
        return self._programs[id(engine)][1]

    def _step(self, engine: Engine, inputs: ProgramInputs) -> list[Scalar]:
        names = (*engine.config.free, *self.free)
        parameters: dict[str, Scalar] = dict(zip(names, inputs.parameters, strict=True))
        constants: dict[str, Scalar] = {**engine.constants, **self.constants, **parameters}
        _, _, instant = engine.instant(inputs, constants, engine.config.blueprint, observed=True)
        readings: list[Scalar] = []
        for one, link in zip(self.mounted, self._links, strict=True):
            at = SensorFrame(one.name, one.sensor, one.stream.joints, link, instant)
            function = SENSOR_KINDS[one.sensor.kind].function
            assert function is not None  # of `multibody.sensors`, or of a plug-in
            readings += read_motion(instant, at) if one.stream.averaged else function(instant, at)
        return [*inputs.state[: -self.width], *readings]


def _link_of(dynamics: HybridDynamics, one: MountedSensor) -> int:
    names = dynamics.mechanism.names
    if one.name in {name.partition(".")[0] for name in dynamics.plane_engine.constants}:
        raise InputError(f"sensor {one.name!r}: has the name of a link or of another quantity; valid: one of its own")
    if one.sensor.link and one.sensor.link not in names:
        raise InputError(f"sensor {one.name!r}: there is no link {one.sensor.link!r}{among(one.sensor.link, names)}")
    return names.index(one.sensor.link) if one.sensor.link else 0
