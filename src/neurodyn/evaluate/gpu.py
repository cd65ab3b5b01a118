# SPDX-License-Identifier: Apache-2.0
"""GPU behaviour: launches and synchronisations, countable without a GPU, and the checklist of an actual card.

On a GPU a launch costs 5 to 10 microseconds of host time whatever its size, and a copy to or from the host waits for
all launches before it. Both can be counted without a GPU, on tensors of device `meta`, which take the GPU branches,
hold no data, and raise when read. Warp kernels are torch operators (`geometry.launching`) and count as such.
"""

import platform
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neurodyn.core.config import Record
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.progress import tracked
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Control, State, Window
from neurodyn.dynamics.hybrid.declared import declared_hybrid

_READS = frozenset({"_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal", "_unique2"})
"""Operators whose result the host waits for."""

_FREE = frozenset({
    "detach", "alias", "lift_fresh", "_unsafe_view", "_reshape_alias", "empty", "new_empty", "empty_like",
    "empty_strided", "new_empty_strided",
})  # fmt: skip
"""Operators, besides views, that launch nothing."""

_MAKERS = frozenset({"tensor", "as_tensor", "new_tensor", "asarray"})
"""Functions that copy host data to a device."""


@dataclass(frozen=True)
class LaunchCount:
    """Kernel launches and synchronisations of some work.

    Attributes:
        operators: Number of launches by operator.
        copies: Transfers between host and device, and waits for a result, in order.
    """

    operators: Counter[str] = field(default_factory=Counter)
    copies: list[str] = field(default_factory=list)

    @property
    def launches(self) -> int:
        """Number of launches."""
        return self.operators.total()


class EmptyWindows:
    """Histories without data on device `meta`, for counting the launches of model roll-outs.

    A source of initial states for `neurodyn.policy.PolicyEnvironment`.
    """

    def __init__(self, spec: StateSpec) -> None:
        """Store the state specification, which sets shapes and history length."""
        self._spec = spec

    def state(self) -> dict[str, Any]:
        """Return the state of the random draws: empty."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore a state; there is none."""

    def draw(self, count: int) -> Window:
        """Return `count` histories."""
        spec, frames = self._spec, self._spec.context

        def rows(states: int, width: int) -> Tensor:
            return torch.zeros(count, states, width, device="meta")

        return Window(
            rows(frames + 1, spec.nq), rows(frames + 1, spec.nv), rows(frames, spec.nu), rows(frames + 1, spec.nx)
        )


def count_launches(work: Callable[[], object], device: str = "meta") -> LaunchCount:
    """Call a function once and count its launches on a device.

    Args:
        work: The function; call it once beforehand if it initialises anything on first use.
        device: Device type: "meta", "cpu" or "cuda".

    Raises:
        RuntimeError, NotImplementedError: The function reads a value of a tensor on device `meta`.
    """
    launched = LaunchCount()
    with _Functions(launched, device), _Operators(launched, device):
        work()
    return launched


class _Operators(TorchDispatchMode):
    """Observes every operator, Warp kernels included."""

    def __init__(self, count: LaunchCount, device: str) -> None:
        super().__init__()
        self._launches, self._device = count, device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Count an operator and run it."""
        name = func.overloadpacket.__name__
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in _READS and any(x.device.type == self._device for x in tensors):
            self._launches.copies.append(name)
        result = func(*args, **(kwargs or {}))
        tensors += [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        # Empty tensors launch nothing; host scalars are passed as launch arguments.
        filled = [x for x in tensors if x.numel() and (x.ndim or x.device.type == self._device)]
        places = {x.device.type for x in filled}
        if len(places) > 1:
            self._launches.copies.append(name)
        if self._device in places and not (func.is_view or name in _FREE):
            self._launches.operators[name] += 1
        return result


class _Functions(TorchFunctionMode):
    """Observes functions that turn host data into tensors, before any operator does."""

    def __init__(self, count: LaunchCount, device: str) -> None:
        super().__init__()
        self._launches, self._device = count, device

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a copy from the host and call the function."""
        name = getattr(func, "__name__", "")
        result = func(*args, **(kwargs or {}))
        if self._device == "cpu":
            return result
        if name in _MAKERS and result.device.type == self._device and not isinstance(_data(args, kwargs), Tensor):
            self._launches.copies.append(name)
        if name in ("__getitem__", "__setitem__") and args[0].device.type == self._device and _has_list(args[1]):
            self._launches.copies.append(f"{name} with a list")
        return result


def _data(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
    """Return the data from which a function or method in `_MAKERS` makes a tensor."""
    return next(iter((*args[len(args) - 1 :], *(kwargs or {}).values())), None)


def _has_list(index: Any) -> bool:
    """Return whether an index contains a list, which becomes a tensor."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, list) for part in parts)


class GpuFinding(Record, frozen=True):
    """A line of the GPU checklist.

    Attributes:
        check: What was checked.
        found: Result; for a check that was not run, the reason.
        outcome: Whether the check passed, failed, or was not run.
        figures: Figures by name.
    """

    check: str
    found: str
    outcome: Literal["ok", "failed", "not run"] = "ok"
    figures: dict[str, float] = {}  # noqa: RUF012 - msgspec copies it


class _GpuMeasurement(NamedTuple):
    text: str
    figures: dict[str, float] = {}  # noqa: RUF012


ARCHITECTURES = (80, 90)
"""Compute capabilities, times ten, that kernels are compiled for even without a card: A100, H100."""

_WORLDS, _FRAMES, _REPEATS = 4096, 50, 5
"""Worlds and frames of timed work, and repetitions, of which the median counts."""

_TOLERANCE = 1e-3
"""Largest difference between a card and the CPU after ten frames, in single precision."""


def check_gpu() -> list[GpuFinding]:
    """Return the checklist of this machine's first GPU; checks that need one are "not run" if torch finds none.

    Kernels compile for the `ARCHITECTURES` in any case, and hot paths are counted on device `meta`. A check that raises
    is "failed", with its error, and the others go on.
    """
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    return [_checked(name, check, needs, device) for name, (check, needs) in tracked(list(_GPU_CHECKS.items()))]


def _checked(name: str, check: Callable[..., _GpuMeasurement], needs: bool, device: torch.device | None) -> GpuFinding:
    if needs and device is None:
        return GpuFinding(check=name, found="needs a CUDA GPU, and torch finds none here", outcome="not run")
    try:
        found = check(device) if needs else check()
    except Exception as error:  # the report lists everything that works and that does not
        text = " ".join(f"{type(error).__name__}: {error}".split())
        return GpuFinding(check=name, found=text[:400], outcome="failed")
    return GpuFinding(check=name, found=found.text, figures=found.figures)


def _versions() -> _GpuMeasurement:
    import warp

    from neurodyn.geometry.launching import start_warp

    start_warp()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "warp-lang", "numpy"))
    found = (warp.get_cuda_toolkit_version(), warp.get_cuda_driver_version())
    toolkit, driver = (".".join(map(str, one or ("none",))) for one in found)
    return _GpuMeasurement(
        f"{packages}; CUDA of torch {torch.version.cuda or 'none'}, of Warp {toolkit}, of the driver {driver}; "
        f"{platform.platform(terse=True)}"
    )


def _devices(_: torch.device) -> _GpuMeasurement:
    found = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    texts = [
        f"cuda:{k} {one.name}, {one.total_memory / 1e9:.0f} GB, sm_{one.major}{one.minor}, "
        f"{one.multi_processor_count} multiprocessors"
        for k, one in enumerate(found)
    ]
    return _GpuMeasurement("; ".join(texts), {"memory_gb": found[0].total_memory / 1e9})


def _compiled(arch: int) -> _GpuMeasurement:
    """Compile the kernels of a neural frame and a cartpole's program, with its adjoint, for a card."""
    import warp

    from neurodyn.dynamics.neural.kernel_sources import decode_source, encode_source, mean_source, network_source
    from neurodyn.geometry.launching import start_warp, table_kernel
    from neurodyn.multibody.trace.target import Target

    start_warp()
    begin = time.process_time()
    single = torch.float32
    texts = (encode_source(single, 9.81), decode_source(single), network_source(single), mean_source(single))
    program = declared_hybrid("cartpole").plane_engine.program
    kernels = [table_kernel(text) for text in texts]
    kernels += [program.kernel(which, Target("cuda", single=exact)) for which in range(2) for exact in (True, False)]
    with tempfile.TemporaryDirectory() as folder:
        made = [
            path
            for module in dict.fromkeys(kernel.module for kernel in kernels)
            for path in warp.compile_aot_module(module, arch=arch, module_dir=folder)
        ]
        size = sum(path.stat().st_size for path in made)
    seconds = time.process_time() - begin
    text = f"{len(kernels)} kernels, {size / 1e3:.0f} KB of machine code, in {seconds:.1f} CPU-s"
    return _GpuMeasurement(text, {"kernels": float(len(kernels)), "cpu_seconds": seconds})


def _models() -> dict[str, LearnedDynamics]:
    return {"neural ant": load("pretrained:ant"), "hybrid cartpole": declared_hybrid("cartpole").requires_grad_(False)}


def _rest(dynamics: LearnedDynamics, worlds: int, device: torch.device | str) -> State:
    """Return states at rest, floating bases one metre above the ground."""
    spec = dynamics.spec
    q = torch.zeros(worlds, spec.nq, device=device)
    if spec.floating:
        q[:, 2], q[:, 6] = 1.0, 1.0
    return State(q, torch.zeros(worlds, spec.nv, device=device))


def _launches() -> _GpuMeasurement:
    """Count the launches of steps on device `meta`; a copy between host and device is an error."""
    figures: dict[str, float] = {}
    for name, dynamics in _models().items():
        moved = dynamics.to("meta")
        state = State(*(torch.zeros(64, width, device="meta") for width in (moved.spec.nq, moved.spec.nv)))
        control = Control(torque=torch.zeros(64, moved.spec.nu, device="meta"))
        with torch.no_grad():
            carry = moved.begin(state)
            moved.step_(carry, state, control)
            launched = count_launches(partial(moved.step_, carry, state, control))
        if launched.copies:
            raise RuntimeError(f"a step of the {name} copies between host and device: {', '.join(launched.copies)}")
        figures[name] = float(launched.launches)
    return _GpuMeasurement(
        "; ".join(f"{name} {count:.0f} launches a step, no copies" for name, count in figures.items()), figures
    )


def _one_graph() -> _GpuMeasurement:
    """Trace a step as one graph, as `torch.compile(fullgraph=True)` must; needs no compiler."""
    if not torch._dynamo.is_dynamo_supported():  # pyright: ignore[reportPrivateImportUsage]
        return _GpuMeasurement("torch.compile is not supported here, and nothing needs it")
    dynamics = load("pretrained:cartpole")
    state, control = _rest(dynamics, 4, "cpu"), Control(torque=torch.ones(4, dynamics.spec.nu))
    carry = dynamics.begin(state)

    def step(q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        _, after = dynamics.step(carry, State.unchecked(q=q, qd=qd), Control.unchecked(torque=torque))
        return after.state.q

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert control.torque is not None
        wanted = step(state.q, state.qd, control.torque)
        torch.testing.assert_close(compiled(state.q, state.qd, control.torque), wanted)
    return _GpuMeasurement("a step of the neural cartpole is one graph, and equals the step")


def _equal(device: torch.device) -> _GpuMeasurement:
    figures: dict[str, float] = {}
    for name, dynamics in _models().items():
        torques = torch.zeros(8, 10, dynamics.spec.nu)
        on_cpu = dynamics.rollout(_rest(dynamics, 8, "cpu"), torques).q
        on_device = dynamics.to(device).rollout(_rest(dynamics, 8, device), torques.to(device)).q.cpu()
        figures[name] = float((on_device - on_cpu).abs().max())
        if not figures[name] < _TOLERANCE:
            raise RuntimeError(f"{name}: card and CPU are {figures[name]:.2g} apart after ten frames")
    return _GpuMeasurement(
        "; ".join(f"{name} {gap:.1g} apart after ten frames" for name, gap in figures.items()), figures
    )


def _captured(device: torch.device) -> _GpuMeasurement:
    """Compare a step replayed from a CUDA graph with the step itself."""
    from neurodyn.dynamics.capture import CapturedStep

    dynamics = load("pretrained:ant", device=str(device))
    state, torque = _rest(dynamics, 64, device), torch.ones(64, dynamics.spec.nu, device=device)
    carry = dynamics.begin(state)

    def step(state: State, torque: Tensor) -> tuple[State, Tensor]:
        _, after = dynamics.step(carry, state, Control.unchecked(torque=torque))
        return State.unchecked(q=after.state.q, qd=after.state.qd), after.state.q

    with torch.no_grad():
        captured = CapturedStep(step, state, (torque,), device=device)
        wanted = step(step(state, torque)[0], torque)[1]
        captured(torque)
        torch.testing.assert_close(captured(torque), wanted)
    return _GpuMeasurement("two replayed steps of the neural ant equal the steps")


def _timed(work: Callable[[], object], device: torch.device | str) -> float:
    """Return the median wall time of some work, device synchronised [s]."""
    waits = torch.cuda.synchronize if str(device) != "cpu" else bool
    times: list[float] = []
    for _ in range(_REPEATS + 1):
        waits()
        begin = time.perf_counter()
        work()
        waits()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def _throughput(device: torch.device) -> _GpuMeasurement:
    figures: dict[str, float] = {}
    texts: list[str] = []
    for name, dynamics in _models().items():
        for place in ("cpu", device):
            moved, worlds = dynamics.to(place), 256 if place == "cpu" else _WORLDS
            start, torques = _rest(moved, worlds, place), torch.zeros(worlds, _FRAMES, moved.spec.nu, device=place)
            seconds = _timed(partial(moved.rollout, start, torques), place)
            figures[f"{name}, {torch.device(place).type}"] = worlds * _FRAMES / seconds
        on_gpu, on_cpu = figures[f"{name}, cuda"], figures[f"{name}, cpu"]
        texts.append(f"{name} {on_gpu / 1e6:.2f} M frames/s, {on_gpu / on_cpu:.1f} x the CPU's")
    return _GpuMeasurement("; ".join(texts), figures)


def _gradients(device: torch.device) -> _GpuMeasurement:
    """Compare and time the gradient of a hybrid roll-out with respect to its torques."""

    def gradient(dynamics: LearnedDynamics, worlds: int, on: torch.device | str) -> Tensor:
        torques = torch.ones(worlds, _FRAMES, dynamics.spec.nu, device=on, requires_grad=True)
        dynamics.rollout(_rest(dynamics, worlds, on), torques).q.square().sum().backward()
        assert torques.grad is not None
        return torques.grad

    dynamics = declared_hybrid("cartpole").requires_grad_(False)
    wanted = gradient(dynamics, 2, "cpu")
    moved = dynamics.to(device)
    torch.testing.assert_close(gradient(moved, 2, device).cpu(), wanted, rtol=1e-2, atol=1e-4)
    seconds = _timed(partial(gradient, moved, _WORLDS, device), device)
    return _GpuMeasurement(
        f"equal to the CPU's; {_WORLDS} worlds of {_FRAMES} frames in {1e3 * seconds:.1f} ms", {"s": seconds}
    )


def _memory(device: torch.device) -> _GpuMeasurement:
    torch.cuda.reset_peak_memory_stats(device)
    dynamics = load("pretrained:ant", device=str(device))
    dynamics.rollout(_rest(dynamics, _WORLDS, device), torch.zeros(_WORLDS, _FRAMES, dynamics.spec.nu, device=device))
    peak = torch.cuda.max_memory_allocated(device) / 1e6
    free, whole = (size / 1e9 for size in torch.cuda.mem_get_info(device))
    text = f"{peak:.0f} MB at most for {_WORLDS} neural ants over {_FRAMES} frames; {free:.1f} GB free of {whole:.1f}"
    return _GpuMeasurement(text, {"peak_mb": peak, "free_gb": free})


_GPU_CHECKS: dict[str, tuple[Callable[..., _GpuMeasurement], bool]] = {
    "versions": (_versions, False),
    "devices": (_devices, True),
    **{f"kernels for sm_{arch}": (partial(_compiled, arch), False) for arch in ARCHITECTURES},
    "launches": (_launches, False),
    "one graph for torch.compile": (_one_graph, False),
    "roll-outs equal the CPU's": (_equal, True),
    "CUDA graphs": (_captured, True),
    "throughput": (_throughput, True),
    "gradients": (_gradients, True),
    "memory": (_memory, True),
}
"""The checks, and whether they need a GPU."""
