# SPDX-License-Identifier: Apache-2.0
"""Checklist of a GPU, or, without one, of everything that needs none: `python benchmarks/gpu.py --check`."""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from benchmarks._launches import count_launches
from torch import Tensor

from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.batch import Control, State
from neurodyn.dynamics.hybrid.declared import declared_hybrid


class Measurement(NamedTuple):
    """What a check found, in words and figures."""

    text: str
    figures: dict[str, float] = {}  # noqa: RUF012


ARCHITECTURES = (80, 90)
"""Compute capabilities, times ten, that kernels are compiled for even without a card: A100, H100."""

_WORLDS, _FRAMES, _REPEATS = 4096, 50, 5
"""Worlds and frames of timed work, and repetitions, of which the median counts."""


def _compiled(arch: int) -> Measurement:
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
    return Measurement(text, {"kernels": float(len(kernels)), "cpu_seconds": seconds})


def _models() -> dict[str, LearnedDynamics]:
    return {"neural ant": load("pretrained:ant"), "hybrid cartpole": declared_hybrid("cartpole").requires_grad_(False)}


def _rest(dynamics: LearnedDynamics, worlds: int, device: torch.device | str) -> State:
    """Return states at rest, floating bases one metre above the ground."""
    spec = dynamics.spec
    q = torch.zeros(worlds, spec.nq, device=device)
    if spec.floating:
        q[:, 2], q[:, 6] = 1.0, 1.0
    return State(q, torch.zeros(worlds, spec.nv, device=device))


def _launches() -> Measurement:
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
    return Measurement(
        "; ".join(f"{name} {count:.0f} launches a step, no copies" for name, count in figures.items()), figures
    )


def _one_graph() -> Measurement:
    """Trace a step as one graph, as `torch.compile(fullgraph=True)` must; needs no compiler."""
    if not torch._dynamo.is_dynamo_supported():  # pyright: ignore[reportPrivateImportUsage]
        return Measurement("torch.compile is not supported here, and nothing needs it")
    dynamics = load("pretrained:cartpole")
    state, control = _rest(dynamics, 4, "cpu"), Control(torque=torch.ones(4, dynamics.spec.nu))
    carry = dynamics.begin(state)

    def step(q: Tensor, qd: Tensor, torque: Tensor) -> Tensor:
        _, after = dynamics.step(carry, State.make_unchecked(q=q, qd=qd), Control.make_unchecked(torque=torque))
        return after.state.q

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert control.torque is not None
        wanted = step(state.q, state.qd, control.torque)
        torch.testing.assert_close(compiled(state.q, state.qd, control.torque), wanted)
    return Measurement("a step of the neural cartpole is one graph, and equals the step")


def _captured(device: torch.device) -> Measurement:
    """Compare a step replayed from a CUDA graph with the step itself."""
    from neurodyn.dynamics.capture import CapturedStep

    dynamics = load("pretrained:ant", device=str(device))
    state, torque = _rest(dynamics, 64, device), torch.ones(64, dynamics.spec.nu, device=device)
    carry = dynamics.begin(state)

    def step(state: State, torque: Tensor) -> tuple[State, Tensor]:
        _, after = dynamics.step(carry, state, Control.make_unchecked(torque=torque))
        return State.make_unchecked(q=after.state.q, qd=after.state.qd), after.state.q

    with torch.no_grad():
        captured = CapturedStep(step, state, (torque,), device=device)
        wanted = step(step(state, torque)[0], torque)[1]
        captured(torque)
        torch.testing.assert_close(captured(torque), wanted)
    return Measurement("two replayed steps of the neural ant equal the steps")


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


def _throughput(device: torch.device) -> Measurement:
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
    return Measurement("; ".join(texts), figures)


def _gradients(device: torch.device) -> Measurement:
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
    return Measurement(
        f"equal to the CPU's; {_WORLDS} worlds of {_FRAMES} frames in {1e3 * seconds:.1f} ms", {"s": seconds}
    )


def _memory(device: torch.device) -> Measurement:
    torch.cuda.reset_peak_memory_stats(device)
    dynamics = load("pretrained:ant", device=str(device))
    dynamics.rollout(_rest(dynamics, _WORLDS, device), torch.zeros(_WORLDS, _FRAMES, dynamics.spec.nu, device=device))
    peak = torch.cuda.max_memory_allocated(device) / 1e6
    free, whole = (size / 1e9 for size in torch.cuda.mem_get_info(device))
    text = f"{peak:.0f} MB at most for {_WORLDS} neural ants over {_FRAMES} frames; {free:.1f} GB free of {whole:.1f}"
    return Measurement(text, {"peak_mb": peak, "free_gb": free})


CHECKS: dict[str, tuple[Callable[..., Measurement], bool]] = {
    **{f"kernels for sm_{arch}": (partial(_compiled, arch), False) for arch in ARCHITECTURES},
    "launches": (_launches, False),
    "one graph for torch.compile": (_one_graph, False),
    "CUDA graphs": (_captured, True),
    "throughput": (_throughput, True),
    "gradients": (_gradients, True),
    "memory": (_memory, True),
}
"""The checks, and whether they need a GPU."""


def run_checks() -> dict[str, str]:
    """Run the checks; return what each found, the error of those that raised, or why one was not run."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else None
    found = {}
    for name, (check, needs) in CHECKS.items():
        if needs and device is None:
            found[name] = "not run: needs a CUDA GPU, and torch finds none here"
            continue
        try:
            found[name] = (check(device) if needs else check()).text
        except Exception as error:  # the others go on
            found[name] = "failed: " + " ".join(f"{type(error).__name__}: {error}".split())[:400]
    return found
