# SPDX-License-Identifier: Apache-2.0
"""A dynamics model of any kind as a Newton solver, for loops that step a `newton.solvers.SolverBase`."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Environment, State, Window
from neurodyn.dynamics.capture import FixedFrame
from neurodyn.dynamics.guard import KEPT_STATES, DivergedError, Fault, FaultHistory, report, state_fault, watching
from neurodyn.dynamics.hybrid.artifact import HYBRID
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.kinds import KindOperation
from neurodyn.dynamics.neural.model import NEURAL, NeuralDynamics
from neurodyn.geometry.launching import on_warp_stream
from neurodyn.sim.engine import import_newton
from neurodyn.solvers.drive import SolverDrive, write_kernel
from neurodyn.solvers.worlds import (
    arrays_of,
    count_worlds,
    is_global,
    require_contact_points,
    require_robot,
    require_same_surfaces,
    resolve_environment,
    shape_surfaces,
)

import_newton()  # raises a clear error without the extra, and prints no banner

import newton  # noqa: E402
import warp as wp  # noqa: E402

OnFault = Literal["stop", "hold", "off"]
"""Reaction of a solver to a world that leaves plausible bounds: raise; hold its last state; or do not check."""

_MOST_BYTES = 1 << 24


class SolverGuard:
    """Checks the states that a solver writes.

    Attributes:
        faults: The faults so far, including worlds that have been reset since.
        arrays: Arrays of `write_kernel` for the guard, in its order.
    """

    def __init__(self, dynamics: LearnedDynamics, worlds: int, where: str, on_fault: OnFault, out: Path | None) -> None:
        """Allocate the arrays of the kernel.

        Args:
            dynamics: The model.
            worlds: Number of worlds.
            where: Caller, for messages.
            on_fault: Reaction to a fault.
            out: Folder for the states before faults; None to write none.
        """
        self.faults: list[Fault] = []
        self._dynamics, self._where, self._on_fault, self._out = dynamics, where, on_fault, out
        spec, device = dynamics.spec, torch.device(dynamics.device)
        size = spec.nq + spec.nv
        self._bounds = dynamics.rollout_bounds
        like = torch.zeros(0, device=device)
        limits = self._bounds.limits(like) if on_fault != "off" else (like, like)
        self._enabled = on_fault != "off"
        width = size + spec.nu
        kept = max(1, min(KEPT_STATES + spec.context, _MOST_BYTES // (4 * worlds * width))) if self._enabled else 1
        rows = worlds if self._enabled else 0
        self._count, self._fault = (torch.zeros(rows, dtype=torch.int32, device=device) for _ in range(2))
        self._any_fault = torch.zeros(1, dtype=torch.int32, device=device)
        self._last = torch.zeros(rows, size, device=device)
        self._history = torch.zeros(kept, rows, width, device=device)
        self._reported = torch.zeros(rows, dtype=torch.bool)
        self._tensors = (*limits, self._count, self._fault, self._any_fault, self._last, self._history)
        self.arrays: list[Any] = [wp.from_torch(tensor, requires_grad=False) for tensor in self._tensors]
        self._host = self._any_fault if device.type == "cpu" else torch.zeros(1, dtype=torch.int32).pin_memory()
        self._host_flag = self._host.numpy()

    def copy_back(self) -> None:
        """On a GPU, start copying the fault flag to the host."""
        if self._host is not self._any_fault:
            self._host.copy_(self._any_fault, non_blocking=True)

    def require_sound(self, environment: Environment) -> None:
        """Report worlds that have diverged; on a GPU those known from the last completed copy.

        Raises:
            DivergedError: A world has diverged, and the solver stops on faults.
        """
        if not self._host_flag[0]:
            return
        self._any_fault.zero_()
        self._host_flag[0] = 0
        new = (self._fault.cpu() > 0) & ~self._reported
        self._reported |= new
        if not bool(new.any()):
            return
        at = torch.where(new, self._fault.cpu(), torch.iinfo(torch.int32).max)
        world = int(at.argmin())
        nq, row = self._dynamics.spec.nq, self._last[world : world + 1].cpu()
        state = State(row[:, :nq], row[:, nq:])
        fault = state_fault(self._bounds, state, self._where, frame=int(self._fault[world]))
        fault = msgspec.structs.replace(fault, world=world, worlds=int(new.sum()), of=len(new))
        with nullcontext() if self._out is None else watching(self._out):
            fault = report(fault, self._fault_history(world, environment))
        self.faults.append(fault)
        if self._on_fault == "stop":
            raise DivergedError(
                fault, "valid: other states or torques, another model, or on_fault='hold' to let that world rest"
            )

    def reset(self, mask: Tensor | None) -> None:
        """Clear the faults of the worlds where `mask` is true, shape [worlds]; of all for None."""
        if not self._enabled:
            return
        chosen = slice(None) if mask is None else mask
        self._count[chosen] = 0
        self._fault[chosen] = 0
        self._reported[slice(None) if mask is None else mask.cpu()] = False

    def _fault_history(self, world: int, environment: Environment) -> FaultHistory:
        """Return the ring of a world in order of time."""
        spec, size = self._dynamics.spec, len(self._history)
        end = int(self._fault[world])  # frames that began, the last of which failed
        order = [n % size for n in range(max(0, end - size), end)]
        rows = self._history[order, world].cpu()
        q, qd, torque = rows.split([spec.nq, spec.nv, spec.nu], -1)
        return FaultHistory(spec, Window(q[None], qd[None], torque[None, :-1]), environment, world)


_MOST_GRAPHS = 16


class Replays:
    """Runs groups of launches; on a CPU a group is recorded at its second call with the same arrays, then replayed.

    A replay takes about two microseconds, a launch by Newton or Warp about thirty. Loops swap two or three states, so
    the same arrays recur; a loop with new arrays in every step is never recorded. No other thread may launch anything
    during a recording, as with every CPU capture by Warp.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._graphs: dict[Any, tuple[Any, Any]] = {}

    def run(self, arrays: tuple[Any, ...], launch: Callable[[], None], keep: Callable[[], Any]) -> None:
        """Run a group of launches; inside a capture they join the captured graph.

        Args:
            arrays: Arrays that may differ from step to step; None for a missing one.
            launch: Launches the group; all its other arrays stay the same.
            keep: Returns the objects to keep alive with a graph, which holds arrays by address only.
        """
        if not self._device.is_cpu or self._device.is_capturing:
            launch()
            return
        key = tuple([0 if array is None else array.ptr for array in arrays])
        graph, _ = self._graphs.get(key, (None, None))
        if graph is not None:
            wp.capture_launch(graph)
            return
        if key not in self._graphs:
            launch()
            while len(self._graphs) >= _MOST_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[key] = (None, None)
            return
        with wp.ScopedCapture(self._device) as capture:
            launch()
        recorded: Any = capture.graph
        self._graphs[key] = (recorded, (arrays, keep()))
        wp.capture_launch(recorded)

    def clear(self) -> None:
        """Discard all graphs, because other arrays have changed."""
        self._graphs.clear()


_DT_TOLERANCE = 1e-5
_FLAGS = newton.ModelFlags
_IDENTITY_FLAGS = (
    _FLAGS.JOINT_PROPERTIES
    | _FLAGS.JOINT_DOF_PROPERTIES
    | _FLAGS.JOINT_DOF_FORCE_PROPERTIES
    | _FLAGS.JOINT_DOF_INERTIAL_PROPERTIES
    | _FLAGS.BODY_PROPERTIES
    | _FLAGS.BODY_INERTIAL_PROPERTIES
    | _FLAGS.MODEL_PROPERTIES
)
_ENVIRONMENT_FLAGS = _FLAGS.SHAPE_PROPERTIES | _FLAGS.JOINT_PROPERTIES | _FLAGS.MODEL_PROPERTIES


class SolverLearned(newton.solvers.SolverBase):
    """Steps the robots of all worlds by one frame with a dynamics model; base class of such solvers.

    It replaces an analytic solver in a Newton loop with `substeps = 1`, because a model predicts whole frames. It reads
    and writes `joint_q` and `joint_qd`, and updates `body_q` and `body_qd` by forward kinematics. The state passed to
    `step` always takes precedence; the solver only keeps the history of each world, for networks with a memory, so one
    solver follows one sequence of states.

    Every world must hold the same robot, the one that the model was made for, and nothing else that moves. Static
    shapes are the ground: planes, boxes, spheres, capsules, cylinders, meshes and heightfields, of one world or of all.
    A model with ground contact measures the ground from the state of each frame and does not read Newton's contacts. A
    model without gives a warning.

    Observables are not supported. Nothing is recorded on a Warp tape; differentiate through `rollout` of the dynamics
    instead.

    A world whose state becomes implausible (`dynamics.guard`) rests in its last plausible state until it is reset; the
    other worlds are not affected.

    Attributes:
        dynamics: The dynamics model.
        guard: Checks the written states; `guard.faults` holds the faults so far.
    """

    dynamics: LearnedDynamics

    def __init__(
        self,
        model: newton.Model,
        run: str | Path | LearnedDynamics,
        *,
        on_fault: OnFault = "stop",
        nan: str | Path | None = None,
    ) -> None:
        """Prepare to step the robots of a Newton model.

        Args:
            model: Worlds that each hold the robot; for a hybrid model with its nominal parameters.
            run: A run directory, "pretrained:NAME", or the dynamics model; a neural model on the device of `model`.
            on_fault: Reaction to an implausible state: "stop" raises, "hold" continues with the other worlds, "off"
                does not check.
            nan: Folder for the states before faults, which `neurodyn view RUN --data FILE` plays; None to write none.

        Raises:
            InputError: There is no such run, something other than the robot moves in the worlds, or the ground has
                shapes to which distances are not supported.
            MismatchError: The robots are not the one that the model was made for (joints, order, masses, collision
                shapes, gravity, ...); the message names the differences.
        """
        dynamics = self._load(run, torch_device(model))
        super().__init__(model)
        self._name = type(self).__name__
        self._torch_device = torch_device(model)
        if model.requires_grad:
            raise InputError(
                f"{self._name}: the model asks for gradients, which a Warp tape does not record here; finalize it "
                "without requires_grad and differentiate through its dynamics' rollout"
            )
        self.dynamics = dynamics
        require_robot(model, dynamics, self._name)
        require_contact_points(model, dynamics, self._name)
        self._surfaces = shape_surfaces(model)
        self._environment = resolve_environment(model, dynamics, self._name)
        self._worlds = count_worlds(model)
        self._replays = Replays(model.device)
        self._captured: list[Any] = []
        self.guard = SolverGuard(dynamics, self._worlds, self._name, on_fault, None if nan is None else Path(nan))
        like = torch.zeros(0, device=self._torch_device)
        self._use_frame(dynamics.fixed_frame(self._worlds, self._environment, like))

    def step(
        self,
        state_in: "newton.State",
        state_out: "newton.State",
        control: "newton.Control | None",
        contacts: "newton.Contacts | None",
        dt: float,
        *,
        observables: "newton.solvers.SolverBase.Observables | None" = None,
    ) -> None:
        """Predict one frame.

        Args:
            state_in: State at the start of the frame.
            state_out: Receives the state at its end; may be `state_in`.
            control: Joint forces and drive targets, held during the frame; None for the model's.
            contacts: Not used.
            dt: Length of the frame [s]; has to be the model's.
            observables: Not supported.

        Forces that the model does not support are refused, on a CPU before anything is written. On a GPU and in a
        captured graph the host does not wait: the state of that world becomes NaN, and a later call raises the error.

        Raises:
            MismatchError: `dt` differs from the model's.
            InputError: Forces act that the model does not support, or a graph is being captured and the model has no
                compiled form.
            DivergedError: A world has diverged, and the solver stops on faults; on a GPU a later call raises it.
        """
        self.validate_observables(observables)
        own = self.dynamics.spec.dt
        if not abs(dt - own) <= _DT_TOLERANCE * own:
            raise MismatchError(
                f"{self._name}.step: dt is {dt:.6g} s instead of the {own:.6g} s that the model of "
                f"{self.dynamics.spec.robot!r} predicts; use substeps = 1 with this solver and a frame of {own:.6g} s"
            )
        model, state, given = arrays_of(self.model), state_in, control or self.model.control(clone_variables=False)
        capturing = self.model.device.is_capturing
        if capturing:
            if not self._frame.capturable:
                raise InputError(
                    f"{self._name}.step: a graph is being captured, and {self.dynamics.network!r} has no compiled form "
                    "without torch operations, which would be missing when it is replayed; call it outside of "
                    "wp.ScopedCapture"
                )
            self._captured.append((self._frame, self._drive))  # graphs hold arrays by address only
        self.require_sound()
        self._frame.refresh()
        arrays = (
            state.joint_q, state.joint_qd, state.body_f, given.joint_f, given.joint_target_q, given.joint_target_qd,
            model.joint_target_ke, model.joint_target_kd, model.joint_effort_limit,
        )  # fmt: skip
        with on_warp_stream(self._torch_device):  # torch's work is ordered after Warp's
            self._replays.run(arrays, lambda: self._drive.read(model, state, given), lambda: self._drive)
            if self.model.device.is_cpu and not capturing:
                self._drive.require_supported_forces()
            self._frame.run()
            self._write(state_out)
        if self.model.device.is_cpu and not capturing:
            self.guard.require_sound(self._environment)

    def reset(
        self,
        state: "newton.State",
        world_mask: "wp.array[wp.bool] | None" = None,
        flags: "newton.StateFlags | int | None" = None,
    ) -> None:
        """Clear the history of the selected worlds and set their state to the model's; others stay bitwise the same.

        To restart from another state, pass `flags=0`, or write the state after this call.

        Args:
            state: State that is modified in place.
            world_mask: Worlds to reset, shape [world_count + 1], bool; the last entry is for the global world (the
                robot, in a model without worlds). None for all.
            flags: Which of JOINT_Q and JOINT_QD are set to `model.joint_q` and `model.joint_qd`; None for both, 0 for
                none. If any, the body poses in those worlds are updated.

        Raises:
            InputError: A graph is being captured.
            TypeError: The mask is not a Warp array of bool.
            ValueError: The mask has another shape or device.
        """
        if self.model.device.is_capturing:
            raise InputError(
                f"{self._name}.reset: a graph is being captured, and torch operations would be missing when it is "
                "replayed; call it outside of wp.ScopedCapture"
            )
        super().reset(state, world_mask, flags)
        wanted = int(newton.StateFlags.ALL if flags is None else flags)
        with torch.no_grad(), on_warp_stream(self._torch_device):
            mask = None if world_mask is None else wp.to_torch(world_mask).to(torch.bool)
            if mask is not None:  # one entry per row of the tables
                mask = mask[-1:] if is_global(self.model) else mask[: self._worlds]
            if mask is not None and mask.device.type == "cpu" and not bool(mask.any()):
                return  # on a GPU the check would cost more than an empty reset
            self._frame.reset(mask)
            self.guard.reset(mask)
            names = (("joint_q", newton.StateFlags.JOINT_Q), ("joint_qd", newton.StateFlags.JOINT_QD))
            for name in (name for name, flag in names if wanted & int(flag)):
                table, default = (
                    wp.to_torch(getattr(one, name), requires_grad=False).view(self._worlds, -1)
                    for one in (state, self.model)
                )
                table.copy_(default if mask is None else torch.where(mask[:, None], default, table))
            if any(wanted & int(flag) for _, flag in names):
                world = wp.to_torch(arrays_of(self.model).articulation_world).long().clamp_min(0)
                chosen = None if mask is None else wp.from_torch(mask[world].contiguous(), dtype=wp.bool)
                newton.eval_fk(self.model, arrays_of(state).joint_q, arrays_of(state).joint_qd, state, mask=chosen)

    def require_sound(self) -> None:
        """Report worlds that have diverged and refused forces, as `step` does; for loops that replay captured graphs.

        Raises:
            InputError: A force acted that the model does not support.
            DivergedError: A world has diverged, and the solver stops on faults.
        """
        self._drive.require_supported_forces()
        self.guard.require_sound(self._environment)

    def notify_model_changed(self, flags: "newton.ModelFlags | int") -> None:
        """Check a changed model again: whether its robots are still the trained one, and the ground.

        Drive gains and effort limits are read at every step and may change without notice.

        Args:
            flags: What has changed; SHAPE_PROPERTIES if shapes of the ground have moved, MODEL_PROPERTIES if gravity
                has changed direction.

        Raises:
            InputError: Something other than the robot moves now, distances to the ground are not supported, or contact
                margins or materials have changed.
            MismatchError: The robots have changed; the message names the differences.
        """
        if int(flags) & int(_IDENTITY_FLAGS):
            require_robot(self.model, self.dynamics, self._name)
        if int(flags) & int(_FLAGS.SHAPE_PROPERTIES):
            require_same_surfaces(self.model, self._surfaces, self._name)
            require_contact_points(self.model, self.dynamics, self._name)
        if int(flags) & int(_ENVIRONMENT_FLAGS):
            self._environment = resolve_environment(self.model, self.dynamics, self._name)
            frame = self._frame.in_environment(self._environment)
            if frame is not self._frame:
                self._use_frame(frame)
        self._replays.clear()

    def _load(self, run: Any, device: torch.device) -> LearnedDynamics:
        """Return the dynamics of a run, or those that were given, on the device of the Newton model."""
        raise NotImplementedError

    def _use_frame(self, frame: FixedFrame) -> None:
        self._frame = frame
        self._drive = SolverDrive(self.dynamics.spec, frame.q, frame.qd, frame.torque, f"{self._name}.step")
        buffers = (frame.q, frame.qd, frame.torque, frame.q_next, frame.qd_next)
        self._buffers = [wp.from_torch(tensor, requires_grad=False) for tensor in buffers]
        self._replays.clear()

    def _write(self, state: Any) -> None:
        def launch() -> None:
            results = [*self._buffers, *self.guard.arrays, state.joint_q, state.joint_qd]
            wp.launch(write_kernel, self._worlds, inputs=results, device=self.model.device)
            self.guard.copy_back()
            newton.eval_fk(self.model, state.joint_q, state.joint_qd, state)

        arrays = (state.joint_q, state.joint_qd, state.body_q, state.body_qd)
        self._replays.run(arrays, launch, lambda: (self._frame, dict(vars(self.model))))


def torch_device(model: newton.Model) -> torch.device:
    """Return the torch device on which a Newton model lies."""
    return torch.device(wp.device_to_torch(model.device))


def make_solver(model: newton.Model, run: str | Path) -> SolverLearned:
    """Return the Newton solver for the model of a run (or "pretrained:NAME"), whatever its kind.

    Raises:
        InputError: See `SolverLearned`; or models of this kind cannot serve as a solver.
    """
    return NEWTON_SOLVERS.of(kind_of(run), run)(model, run)


class SolverHybrid(SolverLearned):
    """Steps the robots of all worlds by one frame with a hybrid model, its `dynamics`; see `SolverLearned`."""

    def _load(self, run: str | Path | HybridDynamics, device: torch.device) -> HybridDynamics:
        return (HYBRID.load(run) if isinstance(run, str | Path) else run).to(device)


class SolverNeural(SolverLearned):
    """Steps the robots of all worlds by one frame with a neural model, its `dynamics`; see `SolverLearned`.

    A model that was trained with contact points measures the ground from the state of each frame, as in training.
    """

    def _load(self, run: str | Path | NeuralDynamics, device: torch.device) -> NeuralDynamics:
        dynamics = NEURAL.load(run, device=str(device)) if isinstance(run, str | Path) else run
        weight = next(dynamics.parameters())
        if weight.device != device or weight.dtype != torch.float32:
            raise InputError(
                f"SolverNeural: the neural model holds {weight.dtype} on {weight.device}; valid: torch.float32 on "
                f"{device}, where the Newton model is"
            )
        return dynamics


NEWTON_SOLVERS: KindOperation[Callable[[newton.Model, str | Path], SolverLearned]] = KindOperation(
    "solver of Newton", neural=SolverNeural, hybrid=SolverHybrid
)
"""Solvers of Newton that step all worlds of a Newton model with the model of a run, by kind."""
