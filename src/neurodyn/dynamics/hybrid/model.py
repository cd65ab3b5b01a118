# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics: rigid bodies with free quantities, and networks placed by a blueprint.

Source: NeuralSim (Heiden et al., 2021, arXiv 2011.04217).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from neurodyn.core.description.contacts import ChainJoint, ContactPointLayout
from neurodyn.core.description.drive import ACTUATOR, Drive, require_drives
from neurodyn.core.description.mechanism import Fingerprint, Mechanism
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError, nearest
from neurodyn.core.workers import available_cores
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window, present_state
from neurodyn.dynamics.capture import FixedFrame
from neurodyn.dynamics.control import frame_command, one_after_another, require_torques
from neurodyn.dynamics.coordinates import wrap_angle
from neurodyn.dynamics.hybrid.contacts import compiled_contacts
from neurodyn.dynamics.hybrid.fixed import BufferedFrames, HybridFixedFrame, TrackedFrames
from neurodyn.dynamics.hybrid.parameters import Parameters, first_weights
from neurodyn.dynamics.interface import renewed_memory
from neurodyn.dynamics.quantities import Maker, contact_bodies
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.tensors import Commands, WorldMask, index
from neurodyn.multibody.contacts.held_ground import (
    GroundMode,
    HeldGround,
    contact_layout,
    ground_mode,
    plane_numbers,
)
from neurodyn.multibody.engine import CONTACT_MODELS, Engine, EngineConfig, nominal, shared_engine, takes_prisms
from neurodyn.multibody.trace.program import Rows, chain, of_columns


@dataclass(frozen=True)
class HybridCarry:
    """Environment of a batch of worlds, and the memory of drives and networks.

    Attributes:
        environment: Gravity and ground.
        memory: Delay lines, motors behind springs and hidden states (`StepMemory`), shape [worlds, memory]; None
            at a start, or if nothing has a memory.
    """

    environment: Environment
    memory: Tensor | None = None


class HybridDynamics(LearnedDynamics):
    """Compiled rigid-body dynamics whose free quantities and networks are trainable.

    Gradients flow through `step` and `rollout` to the initial state, the torques, the free quantities and the weights.

    Attributes:
        spec: Names, order, units and dt of state and control.
        mechanism: The tree of links.
        config: Settings of the engine.
        physical: The free quantities.
        weights: Weights of the blueprint's networks, shape [weights], float64.
        fingerprint: The articulation that the mechanism was taken from; None if unknown.
        scene: The default ground; None for free space.
        memory: Size of the memory of hidden joints (`Mechanism.hidden`), drives and networks; 0 if the state is
            complete.
        compute_device: Device of the computation, for searches that otherwise run on the CPU: inputs are copied to it
            and results copied back. None for the device of the inputs.
    """

    kind = "hybrid"
    takes_parts = True
    _base_com: Tensor

    def __init__(
        self,
        spec: StateSpec,
        mechanism: Mechanism,
        config: EngineConfig,
        parameters: tuple[Parameter, ...] = (),
        fingerprint: Fingerprint | None = None,
        scene: Scene | None = None,
        *,
        declaration: str | None = None,
        threads: int = 1,
        seed: int = 0,
    ) -> None:
        """Trace the dynamics.

        Args:
            spec: Names, order, units and dt of state and control.
            mechanism: The tree of links.
            config: Settings of the engine; `free` and `ground` are overwritten.
            parameters: The free quantities.
            fingerprint: See the attributes.
            scene: See the attributes.
            declaration: Name or path of the robot's declaration; None for the name in `spec`.
            threads: CPU threads over which worlds are split.
            seed: Seed of the initial weights.

        Raises:
            InputError: A named quantity does not exist, or the blueprint has a cycle.
        """
        self._hidden = mechanism.hidden or 0
        more = tuple(JointSpec(name=name, kind="revolute") for name in mechanism.names[-self._hidden :] if self._hidden)
        self._full_spec = msgspec.structs.replace(spec, joints=(*spec.joints, *more)) if more else spec
        pasts = [drive.longest_held_delay for drive in mechanism.drives.values()]
        past = max([*pasts, *(one.past for one in mechanism.elements or ())], default=0.0)
        super().__init__(spec.with_context(max(config.context, math.ceil(past / spec.dt - 1e-9))), declaration)
        self.mechanism, self.scene, self.fingerprint = mechanism, scene, fingerprint
        gravity = tuple(f"gravity.{axis}" for axis in "xyz")
        self._gravity_is_free = any(parameter.name in gravity for parameter in parameters)
        free = (*(parameter.name for parameter in parameters), *(() if self._gravity_is_free else gravity))
        self.config = msgspec.structs.replace(config, free=free)
        self.physical = Parameters(parameters)
        self.weights = nn.Parameter(first_weights(config, seed))
        self._threads = threads
        self.compute_device: str | None = None
        self._engines: dict[GroundMode, Engine] = {}
        self._last_mode: tuple[Ground | None, GroundMode] = (None, "plane")
        home = torch.tensor(mechanism.gravity, dtype=torch.float64)
        ground = Ground(scene) if scene is not None and self._has_ground_contact else None
        self._home = Environment(gravity=home, ground=ground)
        self._buffered_frames, self._tracked_frames = BufferedFrames(), TrackedFrames()
        self.memory = 2 * self._hidden + self._engine("plane").memory  # tracing now reports wrong names early
        com = torch.tensor(mechanism.links[0].com if mechanism.links else (0.0, 0.0, 0.0), dtype=torch.float64)
        self.register_buffer("_base_com", com, persistent=False)
        self._ground = HeldGround(mechanism) if self._has_ground_contact else None
        self._prisms = self.contacts_of_simulator and takes_prisms(mechanism, self.config)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the compiled engines; the receiving process compiles them for its number of cores."""
        return _unpickle, (type(self), {**self.__dict__, "_engines": {}})

    @property
    def threads(self) -> int:
        """CPU threads over which worlds are split; results do not depend on it."""
        return self._threads

    @threads.setter
    def threads(self, threads: int) -> None:
        if threads != self._threads:
            self._threads = threads
            self._engines.clear()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all quantities of the engine; computed ones in order of computation."""
        return self._engine("plane").names

    @property
    def plane_engine(self) -> Engine:
        """The engine in free space and on planes."""
        return self._engine("plane")

    @property
    def network(self) -> str:
        """Kind of model: "hybrid" with networks, "identified" without."""
        return "hybrid" if self.config.blueprint.augmentations else "identified"

    @property
    def extrapolates(self) -> bool:
        """Whether it has networks; see `Dynamics`."""
        return bool(self.config.blueprint.augmentations)

    @property
    def contact_points(self) -> ContactPointLayout | None:
        """Contact points whose distance to the ground is measured; None if the model has no ground contact."""
        return contact_layout(self.mechanism, rigid=True) if self._has_ground_contact else None

    def _contact_makers(self, ground: Ground | None) -> dict[str, Maker]:
        measured, robot, layout = super()._contact_makers(ground), self.robot, self.contact_points
        plane = None if ground is None or ground.pose is not None else plane_numbers(ground)
        if not measured or robot is None or layout is None or plane is None or self._hidden:
            return measured
        return compiled_contacts(measured, self.mechanism, self.spec, contact_bodies(robot, layout), plane)

    def _chain(self) -> Sequence[ChainJoint]:
        return self.mechanism.joints[: len(self.mechanism.joints) - self._hidden]

    @property
    def contacts_of_simulator(self) -> bool:
        """Whether contacts are soft constraints, as in the simulator."""
        return self.config.contact is not None and CONTACT_MODELS[self.config.contact].constrains_joints

    @property
    def _has_ground_contact(self) -> bool:
        return self.config.contact is not None and bool(self.mechanism.points)

    @property
    def home(self) -> Environment:
        """The default environment: gravity and ground of the model."""
        return self._home

    @property
    def base_com(self) -> Tensor:
        """Centre of mass of the first link in the link frame [m], shape [3]."""
        return self._base_com

    def begin(self, context: State | Window, environment: Environment | None = None) -> HybridCarry:
        """Return the carry of a batch of worlds; a window sets the memory of drives and networks.

        Raises:
            InputError: There is a ground but no contact model, or a gravity that is a free quantity of the model.
        """
        environment = self.resolve_environment(environment)
        return HybridCarry(environment, self._memory_after(environment, context))

    def step(self, carry: HybridCarry, state: State, control: Control) -> tuple[HybridCarry, Step]:
        """Predict one frame; on the CPU, on planes and without gradients through fixed buffers."""
        torque = frame_command(self.spec, state, control)
        after = self._buffered_frames.after(self, carry.environment, state, torque)
        if after is None:
            after = self._tracked_frames.after(self, carry.environment, state, torque)
        if after is not None:
            return carry, Step.make_unchecked(state=after)
        path, memories = self._run(carry.environment, state, torque[:, None], memory=carry.memory)
        after = State.make_unchecked(q=path.q[:, 1], qd=path.qd[:, 1], channels=None)
        return HybridCarry(carry.environment, _last(memories)), Step.make_unchecked(state=after)

    step_ = torch.no_grad()(step)

    def parallel(self, environment: Environment) -> bool:
        """Return whether threads may run `simulate` in parallel in a resolved environment: CPU, plane or free space."""
        return (self.compute_device or "cpu") == "cpu" and self._mode(environment) == "plane"

    def change_environment(self, carry: HybridCarry, environment: Environment) -> HybridCarry:
        """Return the carry in another environment; see `Dynamics.change_environment`."""
        return replace(carry, environment=environment)

    def reset(self, carry: HybridCarry, context: State | Window, mask: WorldMask) -> HybridCarry:
        """Restart some worlds; see `Dynamics.reset`."""
        if not self.memory:
            return carry
        fresh = self._memory_after(carry.environment, context)
        return HybridCarry(carry.environment, renewed_memory(carry.memory, fresh, mask))

    def _rollout(self, context: State | Window, controls: Commands, environment: Environment | None) -> Trajectory:
        """Predict T frames under torques `controls` [N m or N], shape [worlds, T, nu] or [worlds, T, parts, nu].

        On planes the loop over time is compiled. On other grounds the contact points are measured once a frame, and the
        contacts of shapes with a heightfield (soft contacts) in every substep; controls are means over frames.
        """
        require_torques(self.spec, controls)
        carry = self.begin(context, environment)
        return self._run(carry.environment, present_state(context), controls, memory=carry.memory)[0]

    def simulate(
        self,
        context: State | Window,
        controls: Commands,
        parameters: Tensor,
        weights: Tensor,
        environment: Environment | None = None,
        *,
        interpolated: bool = False,
    ) -> Trajectory:
        """Predict as `rollout` does, but with given parameters and weights instead of the module's.

        Args:
            context: Initial states, or a window, which sets the memory of drives and networks.
            controls: Torques [N m or N], shape [worlds, T, nu], or of equal parts of frames, [worlds, T, parts, nu];
                means of those that share a step of the engine count.
            parameters: Physical values of the free quantities, shape [parameters] or [worlds, parameters].
            weights: Weights of the networks, shape [weights].
            environment: Gravity and ground.
            interpolated: Whether the memory sees a window's states interpolated within frames, not simulated: faster.
        """
        return self.simulate_remembering(
            context, controls, parameters, weights, environment, interpolated=interpolated
        )[0]

    def simulate_remembering(
        self,
        context: State | Window,
        controls: Commands,
        parameters: Tensor,
        weights: Tensor,
        environment: Environment | None = None,
        *,
        interpolated: bool = False,
        memory: Tensor | None = None,
    ) -> tuple[Trajectory, Tensor | None]:
        """Return what `simulate` does, and the memory at each state, [worlds, T + 1, memory]; None without one.

        A `memory` given, [worlds, memory], is the one at the start: a roll-out goes on from the end of another.
        """
        require_torques(self.spec, controls)
        environment, state = self.resolve_environment(environment), present_state(context)
        memory_after = self._memory_along if interpolated else self._memory_after
        memory = memory_after(environment, context, parameters, weights) if memory is None else memory
        return self._run(environment, state, controls, parameters, weights, memory)

    @torch.no_grad()
    def with_drives(self, drives: Mapping[str, Drive]) -> "HybridDynamics | None":
        """Return the model with these drives in its mechanism, where they act in every substep.

        Free quantities of other drives are dropped. None for a model with networks that see the controls, which have to
        remain torques.
        """
        if any(name.startswith("control.") for one in self.config.blueprint.augmentations for name in one.inputs):
            return None
        command = require_drives(drives, self.spec.controls, f"robot {self.spec.robot!r}: drives")
        spec = msgspec.structs.replace(self.spec, control_kind=command)
        mechanism = msgspec.structs.replace(self.mechanism, drives=dict(drives))
        theirs = {f"{ACTUATOR}{name}.{what}" for name, drive in drives.items() for what in drive.quantities()}
        free = [one for one in self.physical.specs if not one.name.startswith(ACTUATOR) or one.name in theirs]
        return self._copy_with(spec, mechanism, free)

    @torch.no_grad()
    def freeing(self, names: Sequence[str]) -> "HybridDynamics":
        """Return the model with further free quantities, in which worlds can differ (`Environment.parameters`).

        Each keeps its value. If all of them are free already, the model itself is returned.

        Raises:
            InputError: A quantity is unknown, or is computed in the step instead of being a number of the robot.
        """
        more = [name for name in dict.fromkeys(names) if name not in self._free_names]
        values = nominal(self.mechanism, self.config.contact) if more else {}
        for name in more:
            if name.startswith("gravity."):
                raise InputError(f"parameter {name!r}: valid: `Environment(gravity=...)`, with a row for each world")
            if name not in values:
                raise InputError(
                    f"parameter {name!r} is no quantity of {self.spec.robot!r}; valid: {nearest(name, values)}"
                )
        added = (Parameter(name=name, nominal=float(values[name])) for name in more)
        return self._copy_with(self.spec, self.mechanism, (*self.physical.specs, *added)) if more else self

    def _copy_with(self, spec: StateSpec, mechanism: Mechanism, parameters: Sequence[Parameter]) -> "HybridDynamics":
        """Return the model with other drives or free quantities, which keep their values."""
        model = HybridDynamics(
            spec, mechanism, self.config, tuple(parameters), self.fingerprint, self.scene,
            declaration=self.declaration, threads=self._threads,
        )  # fmt: skip
        names = self._free_names
        for row, parameter in enumerate(model.physical.specs):
            if parameter.name in names:
                model.physical.raw[row] = self.physical.raw[names.index(parameter.name)]
        model.weights.copy_(self.weights)
        model.training_range, model.compute_device = self.training_range, self.compute_device
        model.sensors = self.sensors
        return model.requires_grad_(False).eval().to(self.device)

    def frame_inputs(
        self, environment: Environment, state: State, parameters: Tensor
    ) -> tuple[Engine, Tensor | None, Tensor]:
        """Return the engine of a frame, the ground that is held constant over it, and all parameters with gravity.

        The environment is resolved; parameters: see `simulate`.
        """
        engine, held = self._engine_on(environment, state, 1, parameters)
        return engine, held, self._frame_parameters(environment, len(state.q), parameters)

    def fixed_frame(self, worlds: int, environment: Environment, like: Tensor) -> FixedFrame:
        """Return a frame with fixed buffers; on planes and in free space it is a single kernel launch."""
        mode = self._mode(environment)
        if mode != "plane" or self.memory:
            return super().fixed_frame(worlds, environment, like)
        return HybridFixedFrame(self, self._engine(mode).program, worlds, environment, like)

    def versions(self, environment: Environment) -> list[object]:
        """Return values that change whenever parameters, weights, gravity or ground poses change."""
        ground = environment.ground
        pose = None if ground is None else ground.pose
        given = None if environment.parameters is None else environment.parameters.numbers
        tensors = (self.physical.raw, self.weights, environment.gravity, pose, given)
        # Tensors of inference mode do not track writes and count as changed.
        return [
            object() if tensor.is_inference() else (tensor._version, tensor.data_ptr())
            for tensor in tensors
            if tensor is not None
        ]

    def values(self, environment: Environment, q: Tensor, qd: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """Return the inputs of a frame on a plane other than state and torque.

        These are the ground, shape [worlds, 6], or None without contacts; the parameters, shape [parameters] or
        [worlds, parameters]; the weights, shape [weights]. Of `q` and `qd` only the number of worlds matters.
        """
        held = None if self._ground is None else self._ground(environment.ground, q, qd, "plane")
        return held, self._frame_parameters(environment, len(q), self._values(environment)), self.weights

    def require_ground(self) -> None:
        """Raise an `InputError` if the model has no ground contact."""
        if not self._has_ground_contact:
            lack = "" if self.config.contact is None else " with contact points"
            raise InputError(
                f"hybrid model of {self.spec.robot!r}: has no contact model{lack} and feels no ground; valid: no "
                f"ground, or contact: {' or '.join(CONTACT_MODELS)}"
            )

    def require_gravity(self, gravity: Tensor) -> None:
        """Raise an `InputError` if gravity is a free quantity and differs from the given one."""
        own = self._home.gravity
        if self._gravity_is_free and own is not None and bool((gravity.cpu() - own.cpu()).abs().max() > 1e-3):
            raise InputError(
                f"hybrid model of {self.spec.robot!r}: its gravity is a free quantity and cannot be set from outside; "
                "valid: no gravity, or a model that takes it as known"
            )

    def require_parameters(self, names: Sequence[str]) -> None:
        """Raise an `InputError` if one of the quantities is not free, so that worlds cannot differ in it."""
        lacking = [name for name in names if name not in self._free_names]
        if lacking:
            raise InputError(
                f"hybrid model of {self.spec.robot!r}: {', '.join(lacking[:3])} cannot differ between worlds, because "
                f"the compiled step holds it as a constant; valid: `freeing({lacking!r})` of the model first"
            )

    def _memory_after(
        self, environment: Environment, context: State | Window, parameters: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor | None:  # fmt: skip
        """Return the memory of drives and networks after a window, with the measured state set in every frame."""
        memory: Tensor | None = None
        if self.memory and isinstance(context, Window) and context.torque.shape[1]:
            own = None if self._hidden or self.compute_device is not None else self.plane_engine.memory_program
            if own is not None:  # the state does not matter
                values = self._values(environment, parameters)
                commands, parts = one_after_another(context.commands, self.config.substeps)
                return own.rollout(
                    torch.zeros(len(context.q), own.sizes.state).to(context.q), frames=commands.shape[1],
                    substeps=self.config.substeps // parts, control=commands,
                    parameters=self._frame_parameters(environment, len(context.q), values),
                    weights=self.weights if weights is None else weights,
                )[:, -1, own.sizes.state - self.memory :]  # fmt: skip
            for frame, torque in enumerate(context.commands.unbind(1)):
                state = State(context.q[:, frame], context.qd[:, frame])
                memory = _last(self._run(environment, state, torque[:, None], parameters, weights, memory)[1])
        return memory

    def _memory_along(
        self, environment: Environment, context: State | Window, parameters: Tensor, weights: Tensor
    ) -> Tensor | None:
        """Return the memory after a window with states interpolated within frames."""
        if not (self.memory and isinstance(context, Window) and context.torque.shape[1]):
            return None
        usual = self._hidden or self.compute_device is not None or self.plane_engine.memory_program is not None
        if usual or (own := self.plane_engine.path_memory_program) is None:
            return self._memory_after(environment, context, parameters, weights)
        turns, rise = torch.tensor(self.spec.continuous), context.q.diff(dim=1)
        rise = torch.where(turns, wrap_angle(rise), rise)
        held = torch.cat([context.q[:, :-1], context.qd[:, :-1], rise, context.qd.diff(dim=1)], -1)
        commands, parts = one_after_another(context.commands, self.config.substeps)
        return own.rollout(
            context.q.new_zeros(len(context.q), own.sizes.state), frames=commands.shape[1],
            substeps=self.config.substeps // parts, control=commands, held=held.repeat_interleave(parts, 1),
            parameters=self._frame_parameters(environment, len(context.q), self._values(environment, parameters)),
            weights=weights,
        )[:, -1, own.sizes.state - self.memory :]  # fmt: skip

    def _run(
        self,
        environment: Environment,
        state: State,
        controls: Tensor,
        parameters: Tensor | None = None,
        weights: Tensor | None = None,
        memory: Tensor | None = None,
    ) -> tuple[Trajectory, Tensor | None]:
        """Return the roll-out and the memory at its states, [worlds, T + 1, memory]; None without one."""
        if self._mode(environment) == "plane":
            return self._launch(environment, state, controls, parameters, weights, memory)
        states, kept = [state], list[Tensor]()
        for torque in one_after_another(controls, 1)[0].unbind(1):
            for _ in range(self.config.substeps // self._substeps(environment)):
                path, memories = self._launch(environment, state, torque[:, None], parameters, weights, memory)
                state, memory = State(path.q[:, 1], path.qd[:, 1]), _last(memories)
                kept += [] if kept or memories is None else [memories[:, 0]]
            states.append(state)
            kept += [] if memory is None else [memory]
        return Trajectory.of_states(states), torch.stack(kept, 1) if kept else None

    def _mode(self, environment: Environment) -> GroundMode:
        """Return the description of the ground that the engine needs, cached for the last ground."""
        ground, mode = self._last_mode
        if ground is not environment.ground:
            mode = ground_mode(environment.ground, prisms=self._prisms)
            self._last_mode = environment.ground, mode
        return mode

    def _substeps(self, environment: Environment) -> int:
        """Return the number of substeps over which the ground is held: a whole frame, but 1 for contacts of shapes."""
        return 1 if self._mode(environment) == "prisms" else self.config.substeps

    def _launch(
        self, environment: Environment, state: State, controls: Tensor, parameters: Tensor | None,
        weights: Tensor | None, memory: Tensor | None,
    ) -> tuple[Trajectory, Tensor | None]:  # fmt: skip
        """Run the compiled loop with the ground found in the initial state."""
        here, there = controls.device, self.compute_device
        if there is not None and torch.device(there) != here:
            given = [None if x is None else x.to(there) for x in (parameters, weights, memory)]
            physical = self.physical().to(there) if parameters is None else given[0]
            path, memory = self._launch_here(
                environment.to(there), state.to(there), controls.to(there), physical,
                self.weights.to(there) if weights is None else given[1], given[2],
            )  # fmt: skip
            return path.to(here), None if memory is None else memory.to(here)
        return self._launch_here(environment, state, controls, parameters, weights, memory)

    def _launch_here(
        self, environment: Environment, state: State, controls: Tensor, parameters: Tensor | None,
        weights: Tensor | None, memory: Tensor | None,
    ) -> tuple[Trajectory, Tensor | None]:  # fmt: skip
        substeps = self._substeps(environment)
        controls, part = one_after_another(controls, substeps)
        worlds, frames = controls.shape[:2]
        values = self._values(environment, parameters)
        more, nq, nv = self._hidden, self.mechanism.nq - self._hidden, self.mechanism.nv - self._hidden
        kept = state.q.new_zeros(worlds, self.memory) if memory is None else memory.to(state.q)
        if more:
            q, qd, kept = kept.split([more, more, self.memory - 2 * more], dim=-1)
            state = State(torch.cat([state.q, q], -1), torch.cat([state.qd, qd], -1))
        engine, held = self._engine_on(environment, state, frames, values)
        parts = [state.q, state.qd, *([kept] if engine.memory else [])]
        path = engine.program.rollout(
            torch.cat(parts, dim=-1),
            frames=frames,
            substeps=substeps // part,
            control=controls,
            held=held,
            parameters=self._frame_parameters(environment, worlds, values),
            weights=self.weights if weights is None else weights,
        )
        q, qd, kept = path[:, ::part].split([self.mechanism.nq, self.mechanism.nv, engine.memory], dim=-1)
        memories = torch.cat([q[..., nq:], qd[..., nv:], kept], -1) if more else kept
        return Trajectory(q[..., :nq], qd[..., :nv]), memories if self.memory else None

    @torch.no_grad()
    def differentiated_frame(
        self, state: State, torque: Tensor, environment: Environment | None, memory: Tensor | None = None
    ) -> tuple[State, Rows]:
        """Return the states after a frame and their vector-Jacobian product; see `TracedProgram.frame`.

        Args:
            state: States of the worlds.
            torque: Torques during the frame [N m or N], shape [worlds, nu].
            environment: Gravity and ground.
            memory: Memory at its start (`HybridCarry`), hidden joints first, shape [worlds, memory].
        """
        if self.memory and memory is None:
            raise InputError(
                f"hybrid model of {self.spec.robot!r}: its drives or networks have a memory, and a frame depends on "
                "more than its state; valid: a model without, or gradients of roll-outs"
            )
        around = self.begin(state, environment).environment
        parameters = self._frame_parameters(around, state.worlds, self._values(around))
        substeps, more = self._substeps(around), self._hidden
        nq, nv, parts = self.mechanism.nq, self.mechanism.nv, []
        kept = state.q[:, :0] if memory is None else memory
        q, qd, kept = kept.split([more, more, kept.shape[1] - 2 * more], -1)
        now = State(torch.cat([state.q, q], -1), torch.cat([state.qd, qd], -1))
        for _ in range(self.config.substeps // substeps):
            engine, held = self._engine_on(around, now, 1, parameters)
            whole = torch.cat([now.q, now.qd, kept], dim=-1)
            after, rows = engine.program.frame(
                whole, substeps, torque[:, None], held, parameters, self.weights.detach()
            )
            q, qd, kept = after.split([nq, nv, after.shape[1] - nq - nv], -1)
            now = State(q, qd)
            parts.append(rows)
        rows = parts[0] if len(parts) == 1 else chain(parts)
        seen = [*range(nq - more), *range(nq, nq + nv - more)]
        state = State(now.q[:, : nq - more], now.qd[:, : nv - more])
        return state, of_columns(rows, seen, nq + nv + kept.shape[1]) if self.memory else rows

    def _engine_on(
        self, environment: Environment, state: State, frames: int, parameters: Tensor
    ) -> tuple[Engine, Tensor | None]:
        """Return the engine for a ground, and the ground under the states, repeated for the frames."""
        mode = self._mode(environment)
        if self._ground is None:
            return self._engine(mode), None
        ground = self._ground(environment.ground, self._without_bias(state.q, parameters), state.qd, mode)
        return self._engine(mode), ground[:, None].expand(-1, frames, -1)

    def _without_bias(self, q: Tensor, parameters: Tensor) -> Tensor:
        """Return the true joint positions for encoder readings `q`, with the encoder bias removed."""
        rows, free, held = self._biased
        if not rows:
            return q
        places = index(free, parameters)
        bias = torch.cat([parameters[..., places], parameters.new_tensor(held).expand(*parameters.shape[:-1], -1)], -1)
        return q.index_add(1, index(rows, q), -bias.to(q).expand(len(q), -1))

    @cached_property
    def _biased(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        """Columns of positions with a bias; places of those biases that are free quantities, and the other biases."""
        free, held = dict[int, int](), dict[int, float]()
        for joint, drive in self.mechanism.drives.items():
            name = f"actuator.{joint}.bias"
            if drive.acts_elsewhere:
                continue
            if name in self._free_names:
                free[self.spec.q_names.index(joint)] = self._free_names.index(name)
            elif drive.bias:
                held[self.spec.q_names.index(joint)] = drive.bias
        return (*free, *held), tuple(free.values()), tuple(held.values())

    def _values(self, environment: Environment, parameters: Tensor | None = None) -> Tensor:
        """Return the free quantities, by default the model's, overridden by the values of worlds that differ."""
        values, given = self.physical.values() if parameters is None else parameters, environment.parameters
        if given is None:
            return values
        names = self._free_names
        places = index(tuple(names.index(name) for name in given.names), values)
        return values.expand(given.worlds, -1).index_copy(1, places, given.numbers.to(values))

    @property
    def own_quantities(self) -> tuple[str, ...]:
        """Free quantities; see `Dynamics`."""
        return tuple(self._free_names)

    @cached_property
    def _free_names(self) -> list[str]:
        return [spec.name for spec in self.physical.specs]

    def _frame_parameters(self, environment: Environment, worlds: int, values: Tensor) -> Tensor:
        if self._gravity_is_free:
            return values
        gravity = environment.gravity
        assert gravity is not None  # the environment is resolved
        gravity = gravity.to(values)
        if gravity.ndim == values.ndim == 1:
            return torch.cat([values, gravity])
        return torch.cat([values.expand(worlds, -1), gravity.expand(worlds, 3)], dim=-1)

    def _engine(self, mode: GroundMode) -> Engine:
        if mode not in self._engines:
            config = msgspec.structs.replace(self.config, ground=mode)
            self._engines[mode] = shared_engine(self.mechanism, self._full_spec, config, self._threads)
        return self._engines[mode]


def _last(memories: Tensor | None) -> Tensor | None:
    return None if memories is None else memories[:, -1]


def _unpickle(kind: type[HybridDynamics], attributes: dict[str, Any]) -> HybridDynamics:
    model = kind.__new__(kind)
    vars(model).update({**attributes, "_threads": min(attributes["_threads"], available_cores())})
    return model
