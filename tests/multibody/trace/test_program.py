# SPDX-License-Identifier: Apache-2.0
"""Compiled programs against the same step computed by Python, and their gradients against differences."""

import subprocess
import sys

import pytest
import torch

from neurodyn.multibody import trace
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes, recurrence_source
from neurodyn.multibody.trace.target import Target

F64 = torch.float64
SIZES = ProgramSizes(state=3, control=2, held=1, parameters=3)


def step(inputs):
    """Every operation once; works on numbers as well."""
    (a, b, c), (u, v), (h,), (k, m, n) = inputs.state, inputs.control, inputs.held, inputs.parameters
    spring = k * trace.sin(a - u) + trace.absolute(b) * 0.1 - trace.cos(c) / (1.5 + m * m)
    bounded = trace.maximum(trace.minimum(spring, 0.8), -0.7) + trace.tanh(v * n)
    soft = trace.softplus(b - h) * trace.exp(-0.3 * trace.safe_sqrt(a * a + b * b))
    angle = trace.arctan2(b + 0.2, a - 2.0) - trace.log(1.0 + c * c)
    return [0.9 * a + 0.1 * bounded, b + 0.05 * (soft - h), trace.select_less(a, 0.1, -c + 0.1 * angle, 0.5 * c)]


@pytest.fixture(scope="module")
def program():
    return TracedProgram(SIZES, step)


def given(worlds=4, frames=5, sizes=SIZES, seed=0, dtype=F64, shared=False):
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=F64).to(dtype)

    own = (sizes.parameters,) if shared else (worlds, sizes.parameters)
    return {
        "state": random(worlds, sizes.state),
        "control": random(worlds, frames, sizes.control),
        "held": random(worlds, frames, sizes.held),
        "parameters": random(*own),
    }


def by_hand(tensors, frames, substeps):
    worlds = []
    for world, state in enumerate(tensors["state"].tolist()):
        path = [state]
        own = tensors["parameters"] if tensors["parameters"].ndim == 1 else tensors["parameters"][world]
        for frame in range(frames):
            control, held = (tensors[name][world, frame].tolist() for name in ("control", "held"))
            for _ in range(substeps):
                state = [float(x) for x in step(ProgramInputs(None, state, control, held, own.tolist()))]  # type: ignore[arg-type]
            path.append(state)
        worlds.append(path)
    return torch.tensor(worlds, dtype=F64)


def test_a_bound_launch_writes_rows_also_where_worlds_are_the_fastest_axis(program, monkeypatch):
    """As on a GPU: what is bound there is read by row, by kernels that come after it."""

    def fastest(self, run, like):
        return like.new_empty(run.frames + 1, self.sizes.state, run.worlds).permute(2, 0, 1)

    monkeypatch.setattr(TracedProgram, "_path", fastest)
    tensors = given(frames=1)
    run = program.run(**tensors, frames=1)
    path, launch = program.bind(run, tensors["state"])
    launch.launch()
    assert path[:, -1].stride() == (2 * SIZES.state, 1)
    torch.testing.assert_close(path, by_hand(tensors, 1, 1))


@pytest.mark.parametrize(("worlds", "frames", "substeps"), [(4, 5, 1), (1, 3, 4), (3, 0, 2)])
@pytest.mark.parametrize("shared", [False, True])
def test_a_rollout_is_that_of_the_step(program, worlds, frames, substeps, shared):
    tensors = given(worlds, frames, shared=shared)
    path = program.rollout(**tensors, frames=frames, substeps=substeps)
    assert path.shape == (worlds, frames + 1, 3)
    torch.testing.assert_close(path, by_hand(tensors, frames, substeps), atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("shared", [False, True])
def test_gradients_by_every_tensor(program, substeps, shared):
    tensors = given(2, 3, shared=shared)
    names, values = list(tensors), [x.requires_grad_() for x in tensors.values()]

    def rollout(*values):
        return program.rollout(**dict(zip(names, values, strict=True)), frames=3, substeps=substeps)

    assert torch.autograd.gradcheck(rollout, values, eps=1e-6, atol=1e-7, rtol=1e-6)


def test_single_precision(program):
    tensors = given(6, 4)
    exact = program.rollout(**tensors, frames=4)
    single = {name: x.float().requires_grad_() for name, x in tensors.items()}
    path = program.rollout(**single, frames=4)
    assert path.dtype == torch.float32
    torch.testing.assert_close(path.double(), exact, atol=1e-5, rtol=1e-5)
    path.sum().backward()
    double = {name: x.clone().requires_grad_() for name, x in tensors.items()}
    program.rollout(**double, frames=4).sum().backward()
    for name, x in single.items():
        assert x.grad is not None
        torch.testing.assert_close(x.grad.double(), double[name].grad, atol=1e-4, rtol=1e-4)
    mixed = {**tensors, "state": tensors["state"].float()}  # the state decides
    assert program.rollout(**mixed, frames=4).dtype == torch.float32


@pytest.mark.parametrize("threads", [2, 9])
def test_threads_change_no_bit(program, threads):
    parallel = TracedProgram(SIZES, step, threads=threads)
    found = []
    for one in (program, parallel):
        tensors = {name: x.requires_grad_() for name, x in given(7, 6).items()}
        path = one.rollout(**tensors, frames=6, substeps=2)
        path.square().sum().backward()
        found.append([path.detach(), *(x.grad for x in tensors.values())])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_zero_frames_and_zero_worlds(program):
    tensors = {name: x.requires_grad_() for name, x in given(3, 0).items()}
    path = program.rollout(**tensors, frames=0)
    assert torch.equal(path[:, 0], tensors["state"])
    (2 * path).sum().backward()
    assert torch.equal(tensors["state"].grad, torch.full((3, 3), 2.0, dtype=F64))
    assert torch.equal(tensors["parameters"].grad, torch.zeros(3, 3, dtype=F64))
    assert program.rollout(**given(0, 4), frames=4).shape == (0, 5, 3)


def test_tensors_that_are_not_contiguous(program):
    tensors = given(4, 5)
    strided = {
        name: torch.stack([x, x], dim=-1)[..., 0] if x.ndim < 3 else x.transpose(0, 1).contiguous().transpose(0, 1)
        for name, x in tensors.items()
    }
    assert not any(x.is_contiguous() for x in strided.values())
    assert torch.equal(program.rollout(**strided, frames=5), program.rollout(**tensors, frames=5))


def test_gradients_arrive_at_every_frame(program):
    tensors = given(2, 4)
    tensors["state"].requires_grad_()
    path = program.rollout(**tensors, frames=4, substeps=2)
    alone = [torch.autograd.grad(path[:, frame].sum(), tensors["state"], retain_graph=True)[0] for frame in range(5)]
    together = torch.autograd.grad(path.sum(), tensors["state"])[0]
    assert torch.equal(alone[0], torch.ones(2, 3, dtype=F64))
    torch.testing.assert_close(together, sum(alone), atol=1e-12, rtol=1e-12)


def test_a_second_derivative_raises(program):
    tensors = given(2, 2)
    tensors["state"].requires_grad_()
    path = program.rollout(**tensors, frames=2)
    (gradient,) = torch.autograd.grad(path.square().sum(), tensors["state"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("state", (4, 2)), ("state", (3,)), ("state", (1, 4, 3)), ("control", (4, 4, 2)), ("control", (3, 5, 2)),
        ("control", (5, 2)), ("control", None), ("held", (4, 5, 2)), ("held", None), ("parameters", (2,)),
        ("parameters", (3, 3)), ("parameters", (4, 4)), ("parameters", (1, 4, 3)), ("parameters", None),
        ("weights", (1,)),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_raises(program, name, shape):
    tensors = {**given(4, 5), name: None if shape is None else torch.zeros(shape, dtype=F64)}
    with pytest.raises(ValueError, match=name if name != "state" else "valid"):
        program.rollout(**tensors, frames=5)


def test_other_misuse_raises(program):
    with pytest.raises(ValueError, match="substeps"):
        program.rollout(**given(2, 2), frames=2, substeps=0)
    with pytest.raises(ValueError, match="frames"):
        program.rollout(**given(2, 2), frames=-1)
    with pytest.raises(ValueError, match="float16"):
        program.rollout(**given(2, 2, dtype=torch.float16), frames=2)
    with pytest.raises(ValueError, match="2 values"):
        TracedProgram(ProgramSizes(state=3), lambda inputs: inputs.state[:2])
    with pytest.raises(TypeError, match="no truth"):
        TracedProgram(ProgramSizes(state=1), lambda inputs: [1.0 if inputs.state[0] else 0.0])


def test_programs_do_not_mix_up_their_kernels():
    """All have kernels of the same names."""
    programs = [TracedProgram(ProgramSizes(state=1), lambda inputs, k=k: [k * inputs.state[0]]) for k in (2.0, 3.0)]
    one = torch.ones(1, 1, dtype=F64, requires_grad=True)
    for _ in range(2):
        for k, program in zip((2.0, 3.0), programs, strict=True):
            path = program.rollout(one, frames=2)
            assert path.flatten().tolist() == [1.0, k, k * k]
            assert torch.autograd.grad(path[0, 2, 0], one)[0].item() == k * k


def test_a_state_is_replaced_at_once_and_may_be_constant():
    program = TracedProgram(ProgramSizes(state=3), lambda inputs: [inputs.state[1], inputs.state[0], 7.0])
    state = torch.tensor([[1.0, 2.0, 3.0]], dtype=F64, requires_grad=True)
    path = program.rollout(state, frames=3)
    assert path[0].tolist() == [[1.0, 2.0, 3.0], [2.0, 1.0, 7.0], [1.0, 2.0, 7.0], [2.0, 1.0, 7.0]]
    (path[0, 3] * torch.tensor([10.0, 1.0, 5.0], dtype=F64)).sum().backward()
    assert state.grad.tolist() == [[1.0, 10.0, 0.0]]


def test_the_number_of_operations_counts_what_is_left():
    program = TracedProgram(
        ProgramSizes(state=2), lambda inputs: [inputs.state[0] + 0.0 * trace.sin(inputs.state[1]), 1.0]
    )
    assert program.operations == (1, 1)


def test_what_takes_long_is_computed_once_and_read_by_the_adjoint():
    def step(inputs):
        x, p = inputs.state[0], inputs.parameters[0]
        return [trace.sin(x) * trace.cos(x) / (1.0 + x * x) + trace.exp(p)]

    texts = recurrence_source(ProgramSizes(state=1, parameters=1), step)
    assert texts.taped == 1 + 3  # not the exponential, which parameters alone decide
    assert "::wp::sin" not in texts.adjoint
    assert "::wp::cos" not in texts.adjoint


def test_recorded_and_plain_roll_outs_agree(program):
    tensors = given(3, 4)
    state = tensors.pop("state")
    run = program.run(state, frames=4, **tensors)
    path, _ = program.record(run, state)
    assert torch.equal(path, program.forward(run, state))


SCRIPT = """
import torch
from neurodyn.multibody import trace
from neurodyn.multibody.trace.program import ProgramSizes, TracedProgram
program = TracedProgram(ProgramSizes(state=1, parameters=1), lambda i: [trace.sin(i.state[0]) * i.parameters[0]])
x = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
path = program.rollout(x, frames=2, parameters=torch.tensor([0.7], dtype=torch.float64))
path.sum().backward()
print(path.flatten().tolist(), x.grad.item())
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WARP_CACHE_PATH", str(tmp_path))
    said, kept = [], []
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
        said.append(run.stdout)
        files = [path for path in tmp_path.rglob("*") if path.suffix in {".o", ".cpp", ".meta"}]
        kept.append({path: path.stat().st_mtime_ns for path in files})
    assert sum(path.suffix == ".o" for path in kept[0]) == 2
    assert kept[0] == kept[1]
    assert said[0] == said[1]
    assert said[0].startswith("[1.0, ")


def test_the_texts_compile_for_a_gpu(program, tmp_path):
    """Through NVRTC, which needs no GPU."""
    import warp as wp

    if not any(wp.get_cuda_toolkit_version()):
        pytest.skip("Warp was built without CUDA")
    for single in (False, True):
        for kernel in (program.kernel(which, Target("cuda", single)) for which in (0, 1)):
            wp.compile_aot_module(kernel.module, arch=90, module_dir=str(tmp_path), use_ptx=True)
    assert len(list(tmp_path.glob("*.ptx"))) == 4
