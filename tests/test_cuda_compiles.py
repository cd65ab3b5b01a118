# SPDX-License-Identifier: Apache-2.0
"""Every kernel of the package, and programs of every contact model, compile for GPUs: without one, ahead of time."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import warp as wp

import neurodyn
from neurodyn.core.description.blueprint import Augmentation, Blueprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.dynamics.neural.kernel_sources import decode_source, encode_source, mean_source, network_source
from neurodyn.geometry import Ground
from neurodyn.geometry.base_kernels import base_advance, base_view
from neurodyn.geometry.launching import table_kernel
from neurodyn.multibody import CONTACT_MODELS, Engine, EngineConfig
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.target import Target
from tests.machine_code import compile_for_cuda, kernel_resources
from tests.multibody import machines

A100, H100 = 80, 90
REGISTERS, BLOCKS = 65536, 32
"""Of a multiprocessor: registers, and blocks at most."""

F32, F64 = torch.float32, torch.float64
SOURCES = Path(neurodyn.__file__).parent
NETWORK = Blueprint(
    augmentations=(
        Augmentation(quantities=("passive.knee",), inputs=("q.knee", "qd.knee"), hidden=(4,)),
    )
)  # fmt: skip


def _declared_kernels() -> list[Any]:
    """Return the kernels of the package that are not generated."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        if "@wp.kernel" in path.read_text() and path.name != "native.py":
            module = importlib.import_module(".".join(path.relative_to(SOURCES.parent).with_suffix("").parts))
            found += [value for value in vars(module).values() if isinstance(value, wp.Kernel)]
    return found


def _launch_all(dtype: torch.dtype) -> None:
    """Launch every such kernel in a precision, so that Warp knows its types."""
    ant = neurodyn.load("pretrained:ant")
    q = torch.zeros(1, ant.spec.nq, dtype=dtype, requires_grad=True)
    qd = torch.zeros(1, ant.spec.nv, dtype=dtype)
    ant.encoding.contact(Ground(ant.scene), q, qd).sum().backward()
    q = q.detach()
    base_view(q, qd, qd[:, :3], True)
    base_advance(torch.zeros(1, 9, dtype=dtype), q, qd, qd, qd, torch.zeros(3, dtype=dtype))


@pytest.mark.slow
def test_every_kernel_compiles(tmp_path: Path) -> None:
    for dtype in (F32, F64):
        _launch_all(dtype)
    kernels = _declared_kernels()
    assert len(kernels) >= 5
    generic = [kernel for kernel in kernels if kernel.is_generic]
    for kernel in generic:
        assert len(kernel.overloads) >= 2, f"{kernel.key} was not launched in both precisions"
    overloads = [one for kernel in generic for one in kernel.overloads.values()]
    made = compile_for_cuda([*overloads, *(kernel for kernel in kernels if not kernel.is_generic)], A100, tmp_path)
    assert len(made) == len(kernels)
    assert all(f"sm{A100}" in path.name and path.stat().st_size > 5000 for path in made)


@pytest.mark.parametrize(("dtype", "arch"), [(F32, H100), (F64, A100)])
def test_the_kernels_of_a_neural_frame_compile(dtype: torch.dtype, arch: int, tmp_path: Path) -> None:
    texts = [encode_source(dtype, 9.81), decode_source(dtype), network_source(dtype), mean_source(dtype)]
    made = compile_for_cuda([table_kernel(text) for text in texts], arch, tmp_path)
    assert len(made) == 4
    assert all(f"sm{arch}" in path.name and path.stat().st_size > 3000 for path in made)


def test_the_kernels_of_a_solver_beside_others_compile(tmp_path: Path) -> None:
    from neurodyn.solvers.drive import copy_columns_kernel, gather_wrenches_kernel

    assert len(compile_for_cuda([copy_columns_kernel, gather_wrenches_kernel], H100, tmp_path)) == 2


def cuda_kernels(program: TracedProgram, dtype: torch.dtype) -> list[Any]:
    """Return the kernels of forward and adjoint."""
    return [program.kernel(which, Target("cuda", dtype == F32)) for which in range(2)]


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("tree", [machines.bare_pendulum, machines.pendulum])
def test_a_block_is_two_warps_where_registers_allow_more_than_32(
    tree: Callable[[], Mechanism], dtype: torch.dtype, tmp_path: Path
) -> None:
    mechanism = tree()
    program = Engine(mechanism, machines.spec(mechanism), EngineConfig(substeps=2, contact=None)).program
    for which, kernel in enumerate(cuda_kernels(program, dtype)):
        (path,) = compile_for_cuda([kernel], H100, tmp_path / str(which))
        (found,) = kernel_resources(path).values()
        warps = REGISTERS // (32 * found.registers)
        block = program.cuda_block(which, dtype == F32)
        assert block == 32 or warps > BLOCKS
        assert warps < 2 * BLOCKS or block == 64
        assert found.local < 4096


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contact", "dtype", "arch"), [*((contact, F32, H100) for contact in CONTACT_MODELS), ("force", F64, A100)]
)
def test_programs_with_contacts_and_a_network_compile(
    contact: str, dtype: torch.dtype, arch: int, tmp_path: Path
) -> None:
    mechanism = machines.hopper()
    config = EngineConfig(substeps=2, contact=contact, blueprint=NETWORK)
    engine = Engine(mechanism, machines.spec(mechanism, ("knee",)), config)
    made = compile_for_cuda(cuda_kernels(engine.program, dtype), arch, tmp_path)
    assert len(made) == 2  # forward and adjoint
    assert all(f"sm{arch}" in path.name and path.stat().st_size > 5000 for path in made)


def test_what_does_not_compile_is_an_error(tmp_path: Path) -> None:
    from neurodyn.multibody.trace.native import block_kernel

    with pytest.raises(Exception, match=r"(?i)compil|build"):
        compile_for_cuda([block_kernel("this is no program;", 4, True)], H100, tmp_path)
