# SPDX-License-Identifier: Apache-2.0
"""Gradient of a double-pendulum roll-out, compared with CasADi's compiled code.

500 steps of semi-implicit Euler in float64; the gradient of a scalar of the whole path with respect to two lengths, two
masses and the initial state, forward pass included. CasADi maps one symbolic step over the steps, differentiates it in
reverse mode, writes C and has gcc compile it. For 1024 pendulums the time per pendulum counts, against CasADi's for
one.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.core import ChainJoint, Link, Mechanism
from neurodyn.multibody import Tree
from neurodyn.multibody.integrators import displace
from neurodyn.multibody.trace.program import TracedProgram
from neurodyn.multibody.trace.recurrence import ProgramInputs, ProgramSizes

STEPS, DT, GRAVITY = 500, 0.002, 9.81
LENGTHS, MASSES, START = (0.8, 1.1), (1.3, 0.7), (1.0, -0.5, 0.3, 0.8)


def pendulum() -> Mechanism:
    """Return two point masses on massless rods; angle 0 hangs down."""
    still = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)
    links = []
    for index, (length, mass) in enumerate(zip(LENGTHS, MASSES, strict=True)):
        place = (0.0, 0.0, -LENGTHS[0] if index else 0.0, 0.0, 0.0, 0.0, 1.0)
        joint = ChainJoint(
            name=f"joint{index + 1}", kind="revolute", parent=index - 1, parent_frame=place, child_frame=still,
            axis=(0.0, 1.0, 0.0),
        )  # fmt: skip
        links.append(Link(joint=joint, mass=mass, com=(0.0, 0.0, -length), inertia=(0.0,) * 6))
    return Mechanism(links=tuple(links), gravity=(0.0, 0.0, -GRAVITY))


def program(threads: int = 1) -> TracedProgram:
    """Return the engine's own step, with lengths and masses as parameters."""
    mechanism = pendulum()

    def step(inputs: ProgramInputs) -> list:
        first, second, *masses = inputs.parameters
        quantities = {
            **mechanism.quantities(),
            "joint1.com.z": -first, "joint2.origin.z": -first, "joint2.com.z": -second,
            "joint1.mass": masses[0], "joint2.mass": masses[1],
        }  # fmt: skip
        tree = Tree(mechanism, quantities.__getitem__)
        q, qd = inputs.state[:2], inputs.state[2:]
        acceleration = tree.accelerations(tree.motions(q, qd), q, [0.0, 0.0])
        after = [v + DT * a for v, a in zip(qd, acceleration, strict=True)]
        return [*displace(tree, q, after, DT), *after]

    return TracedProgram(ProgramSizes(state=4, parameters=4), step, threads)


class Ours:
    """Value and gradient of sum(c . x[t]) over the path."""

    def __init__(self, worlds: int, threads: int = 1) -> None:
        self.program = program(threads)
        generator = torch.Generator().manual_seed(0)
        spread = 0.1 * torch.rand(worlds, 4, generator=generator, dtype=torch.float64)
        self.state = torch.tensor(START, dtype=torch.float64) + spread * (worlds > 1)
        self.parameters = torch.tensor([*LENGTHS, *MASSES], dtype=torch.float64).expand(worlds, 4).contiguous()
        self.seeds = torch.zeros(worlds, STEPS + 1, 4, dtype=torch.float64)
        self.seeds[:, 1:] = torch.tensor([1.0, 2.0, 0.3, 0.4], dtype=torch.float64) / STEPS
        self.run = self.program.run(self.state, frames=STEPS, parameters=self.parameters)

    def __call__(self) -> torch.Tensor:
        """Return the gradients with respect to lengths, masses and state, shape [worlds, 8]."""
        _, tape = self.program.record(self.run, self.state)
        found = self.program.adjoint(self.run, tape, self.seeds)
        return torch.cat([found.parameters, found.state], 1)

    def value(self, x: np.ndarray) -> float:
        """Return the scalar of one world at parameters and state x, shape [8]."""
        given = torch.from_numpy(x)[None]
        run = self.program.run(given[:, 4:], frames=STEPS, parameters=given[:, :4].contiguous())
        return float((self.seeds[:1] * self.program.forward(run, given[:, 4:].contiguous())).sum())


def casadi_gradient(folder: Path) -> tuple:
    """Return CasADi's compiled gradient as a function of 8 inputs, and the compilation time [s]."""
    import casadi as ca

    x, p = ca.SX.sym("x", 4), ca.SX.sym("p", 4)
    l1, l2, m1, m2 = (p[i] for i in range(4))
    a, b, u, v = (x[i] for i in range(4))
    # Lagrange's equations of two point masses, the second angle relative to the first.
    cosine, sine = ca.cos(b), ca.sin(b)
    h11 = m1 * l1**2 + m2 * (l1**2 + 2 * l1 * l2 * cosine + l2**2)
    h12 = m2 * (l1 * l2 * cosine + l2**2)
    h22 = m2 * l2**2
    c1 = -m2 * l1 * l2 * sine * (2 * u * v + v**2)
    c2 = m2 * l1 * l2 * sine * u**2
    g1 = (m1 + m2) * GRAVITY * l1 * ca.sin(a) + m2 * GRAVITY * l2 * ca.sin(a + b)
    g2 = m2 * GRAVITY * l2 * ca.sin(a + b)
    r1, r2 = -c1 - g1, -c2 - g2
    determinant = h11 * h22 - h12**2
    u2 = u + DT * (h22 * r1 - h12 * r2) / determinant
    v2 = v + DT * (h11 * r2 - h12 * r1) / determinant
    step = ca.Function("step", [x, p], [ca.vertcat(a + DT * u2, b + DT * v2, u2, v2)])
    whole = ca.MX.sym("whole", 8)
    path = step.mapaccum("path", STEPS)(whole[4:], ca.repmat(whole[:4], 1, STEPS))
    weights = ca.DM([1.0, 2.0, 0.3, 0.4]).T / STEPS
    value = ca.sum2(weights @ path)
    gradient = ca.Function("gradient", [whole], [ca.gradient(value, whole)])
    start = time.perf_counter()
    here = os.getcwd()
    try:
        os.chdir(folder)  # CasADi only writes to the working directory
        gradient.generate("gradient.c")
    finally:
        os.chdir(here)
    library = folder / "gradient.so"
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(folder / "gradient.c"), "-o", str(library), "-lm"], check=True)
    return ca.external("gradient", str(library)), time.perf_counter() - start


def check(ours: Ours, peer: object) -> dict[str, float]:
    """Compare both gradients with central differences and with each other."""
    point = np.array([*LENGTHS, *MASSES, *START])
    found = ours()[0].numpy()
    errors = []
    for size in (1e-5, 1e-6):
        columns = [(ours.value(point + size * e) - ours.value(point - size * e)) / (2 * size) for e in np.eye(8)]
        errors.append(np.abs(found - columns).max() / np.abs(found).max())
    theirs = np.array(peer(point)).ravel()  # type: ignore[operator]
    difference = np.abs(found - theirs).max() / np.abs(theirs).max()
    require(min(errors) < 1e-6 and difference < 1e-9, f"gradients: differences {errors}, from CasADi {difference:.1e}")
    return {"central_differences": float(min(errors)), "from_casadi": float(difference)}


def first_call(cached: bool) -> float:
    """Return the time of the first gradient in a new process, without imports [s]."""
    code = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); import torch, warp, double_pendulum_gradient as b;"
        "from neurodyn.geometry.launching import start_warp; start_warp();"
        "t = time.perf_counter(); b.Ours(1)(); print(time.perf_counter() - t)"
    )
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        environment["WARP_CACHE_PATH"] = folder
        runs = 2 if cached else 1
        for _ in range(runs):
            out = subprocess.run(
                [sys.executable, "-c", code, str(Path(__file__).parent)], env=environment, check=True,
                capture_output=True, text=True,
            )  # fmt: skip
    return float(out.stdout.split()[-1])


def main() -> None:
    """Check, time, and write the result."""
    parser = result_parser(__doc__)
    options = parser.parse_args()
    single_thread()
    with tempfile.TemporaryDirectory() as folder:
        one, many = Ours(1), Ours(1024)
        peer, compiling = casadi_gradient(Path(folder))
        figures = check(one, peer)
        buffer, run = peer.buffer()
        point, result = np.array([*LENGTHS, *MASSES, *START]), np.zeros(8)
        buffer.set_arg(0, memoryview(point))
        buffer.set_res(0, memoryview(result))
        times = compare({"ours": one, "casadi": run, "ours_1024": many}, seconds=0.5)
    figures |= {
        "gradient_b1_ms": 1e3 * times["ours"],
        "casadi_b1_ms": 1e3 * times["casadi"],
        "gradient_b1024_ms_per_trajectory": 1e3 * times["ours_1024"] / 1024,
        "first_call_s": first_call(cached=False),
        "cached_call_s": first_call(cached=True),
        "casadi_compile_s": compiling,
    }
    ratios = {
        "double_pendulum_gradient_vs_casadi_b1": times["ours"] / times["casadi"],
        "double_pendulum_gradient_vs_casadi_b1024": times["ours_1024"] / 1024 / times["casadi"],
    }
    write_result(options.json, "double_pendulum_gradient", figures, ratios)


if __name__ == "__main__":
    main()
