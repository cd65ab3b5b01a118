# SPDX-License-Identifier: Apache-2.0
"""The short check of a GPU by `neurodyn doctor --gpu`; `benchmarks/gpu.py` of a source checkout has the long one."""

import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Literal

import torch

from neurodyn.core.config import Record
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.hybrid.declared import declared_hybrid

_TOLERANCE = 1e-3
"""Largest difference between a card and the CPU after ten frames, in single precision."""


class GpuFinding(Record, frozen=True):
    """A line of the check.

    Attributes:
        check: What was checked.
        found: Result; for a check that was not run, the reason.
        outcome: Whether the check passed, failed, or was not run.
    """

    check: str
    found: str
    outcome: Literal["ok", "failed", "not run"] = "ok"


def check_gpu() -> list[GpuFinding]:
    """Return what was found of this machine's GPUs; what needs one is "not run" if torch finds none.

    A check that raises is "failed", with its error, and the others go on.
    """
    findings = []
    for name, (check, needs) in GPU_CHECKS.items():
        if needs and not torch.cuda.is_available():
            findings.append(GpuFinding(name, "needs a CUDA GPU, and torch finds none here", "not run"))
            continue
        try:
            findings.append(GpuFinding(name, check()))
        except Exception as error:  # the report lists everything that works and that does not
            text = " ".join(f"{type(error).__name__}: {error}".split())
            findings.append(GpuFinding(name, text[:400], "failed"))
    return findings


def _versions() -> str:
    import warp

    from neurodyn.geometry.launching import start_warp

    start_warp()
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "warp-lang", "numpy"))
    versions = (warp.get_cuda_toolkit_version(), warp.get_cuda_driver_version())
    toolkit, driver = (".".join(map(str, one or ("none",))) for one in versions)
    return (
        f"{packages}; CUDA of torch {torch.version.cuda or 'none'}, of Warp {toolkit}, of the driver {driver}; "
        f"{platform.platform(terse=True)}"
    )


def _devices() -> str:
    properties = [torch.cuda.get_device_properties(k) for k in range(torch.cuda.device_count())]
    return "; ".join(
        f"cuda:{k} {one.name}, {one.total_memory / 1e9:.0f} GB, sm_{one.major}{one.minor}"
        for k, one in enumerate(properties)
    )


def _equal() -> str:
    gaps = {}
    for name, dynamics in {
        "neural ant": load("pretrained:ant"),
        "hybrid cartpole": declared_hybrid("cartpole"),
    }.items():
        spec = dynamics.spec
        q, qd, torques = torch.zeros(8, spec.nq), torch.zeros(8, spec.nv), torch.zeros(8, 10, spec.nu)
        if spec.floating:
            q[:, 2] = q[:, 6] = 1.0  # one metre above the ground
        with torch.no_grad():
            on_cpu = dynamics.rollout(State(q, qd), torques).q
            on_card = dynamics.to("cuda").rollout(State(q, qd).to("cuda"), torques.cuda()).q.cpu()
        gaps[name] = float((on_card - on_cpu).abs().max())
        if not gaps[name] < _TOLERANCE:
            raise RuntimeError(f"{name}: card and CPU are {gaps[name]:.2g} apart after ten frames")
    return "; ".join(f"{name} {gap:.1g} apart after ten frames" for name, gap in gaps.items())


GPU_CHECKS: dict[str, tuple[Callable[[], str], bool]] = {
    "versions": (_versions, False),
    "devices": (_devices, True),
    "roll-outs equal the CPU's": (_equal, True),
}
"""The checks, and whether they need a GPU."""
