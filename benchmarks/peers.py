# SPDX-License-Identifier: Apache-2.0
# pyright: reportAttributeAccessIssue=false
"""Compiled dynamics and their peers, in one process and in turns: a table of CPU times and their ratios.

A double pendulum's gradient against CasADi's C code, the derivatives of an A1 against Pinocchio's, and frames of an
ant, from its resets and under random torques, against MuJoCo in C and, with `--warp`, MuJoCo Warp on the CPU, whose
kernels take minutes to compile. Results are compared first: gradients with CasADi's and with finite differences,
derivatives with the adjoint, and the ant's positions. The last column lists what a peer leaves out. Needs the extra
`bench`.
"""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import mujoco
import numpy as np
import torch

import double_pendulum_gradient as pendulum
import quadruped_step as quadruped
from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.control.starts import home_ground
from neurodyn.dynamics import AnalyticDynamics, State, declared_hybrid
from neurodyn.robots import load
from neurodyn.tasks import load as load_task

ANTS, FRAMES, TORQUE = 64, 20, 10.0
"""Worlds, frames of a roll-out, and standard deviation of the torques [N m]."""


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        work: Description of the work.
        name: Its key in the result.
        batch: Number of parallel worlds.
        works: Functions to time, ours first.
        shares: Divisor of a call's time.
        note: What the peer leaves out.
    """

    work: str
    name: str
    batch: int
    works: dict[str, Callable[[], object]]
    shares: dict[str, int]
    note: str = ""


def pendulums(folder: Path) -> list[Row]:
    """Return the gradient of one trajectory, alone and among 1024."""
    one, many = pendulum.Ours(1), pendulum.Ours(1024)
    peer, _ = pendulum.casadi_gradient(folder)
    pendulum.check(one, peer)
    buffer, run = peer.buffer()
    point, result = np.array([*pendulum.LENGTHS, *pendulum.MASSES, *pendulum.START]), np.zeros(8)
    buffer.set_arg(0, memoryview(point))  # pyright: ignore[reportArgumentType]
    buffer.set_res(0, memoryview(result))  # pyright: ignore[reportArgumentType]
    kept = peer, buffer, point, result  # keeps the memory that a run reads and writes

    def casadi() -> object:
        return kept and run()

    work = "double pendulum, gradient of 500 steps"
    return [
        Row(work, "double_pendulum_gradient", 1, {"ours": one, "CasADi": casadi}, {"ours": 1, "CasADi": 1}),
        Row(work, "double_pendulum_gradient", 1024, {"ours": many, "CasADi": casadi}, {"ours": 1024, "CasADi": 1}),
    ]


def quadrupeds() -> Row:
    """Return the Jacobian of an A1's step."""
    work = quadruped.Quadrupeds(quadruped.JACOBIANS)
    jacobians = quadruped.Jacobians(work)
    jacobians.check()
    works = {"ours": jacobians, "Pinocchio": quadruped.pinocchio_derivatives(work.tree)}
    count = quadruped.JACOBIANS
    return Row(
        "A1, derivatives of a step", "quadruped_jacobian", count, works, dict.fromkeys(works, count), "no contacts"
    )


def ants(*, warp: bool) -> Row:
    """Return frames of an ant."""
    declared = load("ant")
    robot = msgspec.structs.replace(declared, simulator=msgspec.structs.replace(declared.simulator, solver="mujoco-c"))
    generator = torch.Generator().manual_seed(0)
    task = load_task("ant-run")
    start = task.start(ANTS, generator)
    state = State(start.q.double(), start.qd.double())
    torque = TORQUE * torch.randn(ANTS, FRAMES, robot.spec.nu, generator=generator, dtype=torch.float64)
    simulated, compiled, ground = AnalyticDynamics(robot), declared_hybrid(robot), home_ground(task)
    theirs = simulated.rollout(State(start.q, start.qd), torque.float(), ground).q.double()
    off = (compiled.rollout(state, torque).q - theirs).abs().max()
    require(float(off) < 1e-6, f"ants are {float(off):.1e} apart")
    (simulator,) = simulated._simulators.values()
    works: dict[str, Callable[[], object]] = {
        "ours": lambda: compiled.rollout(state, torque),
        "MuJoCo": lambda: simulator.rollout(start.q, start.qd, torque.float()),  # its loop is that of `mujoco.rollout`
    }
    if warp:
        simulator.rollout(start.q, start.qd, torque.float())
        works["MuJoCo Warp"] = warped(simulator.model, simulator._state.copy(), simulator.substeps)
    return Row("ant, a frame", "ant_frame", ANTS, works, dict.fromkeys(works, ANTS * FRAMES), "no gradients")


def warped(model: mujoco.MjModel, first: np.ndarray, substeps: int) -> Callable[[], object]:
    """Return MuJoCo Warp's roll-out of as many frames, without torques."""
    import mujoco_warp
    import warp

    model = copy.copy(model)
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)  # not supported by it
    with warp.ScopedDevice("cpu"):
        there = mujoco_warp.put_model(model)
        data = mujoco_warp.put_data(model, mujoco.MjData(model), nworld=ANTS, nconmax=32, njmax=128)
    nq, nv = model.nq, model.nv

    def work() -> None:
        with warp.ScopedDevice("cpu"):
            data.qpos.assign(first[:, 1 : 1 + nq].astype(np.float32))
            data.qvel.assign(first[:, 1 + nq : 1 + nq + nv].astype(np.float32))
            for _ in range(FRAMES * substeps):
                mujoco_warp.step(there, data)

    return work


def main() -> None:
    """Check, time, and print the table."""
    parser = result_parser(__doc__)
    parser.add_argument("--warp", action="store_true", help="with MuJoCo Warp on the CPU")
    options = parser.parse_args()
    single_thread()
    figures, ratios = {}, {}
    print("| work | worlds | ours [µs] | peer | its time [µs] | ours / its | |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for row in (*pendulums(Path(folder)), quadrupeds(), ants(warp=options.warp)):
            times = compare(row.works, seconds=0.3)
            each = {name: 1e6 * times[name] / row.shares[name] for name in times}
            for peer in [name for name in each if name != "ours"]:
                key, share = peer.lower().replace(" ", "_"), each["ours"] / each[peer]
                cells = (
                    row.work,
                    row.batch,
                    f"{each['ours']:.3g}",
                    peer,
                    f"{each[peer]:.3g}",
                    f"{share:.2g}",
                    row.note,
                )
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                figures |= {
                    f"{row.name}_b{row.batch}_us": each["ours"],
                    f"{row.name}_b{row.batch}_{key}_us": each[peer],
                }
                ratios[f"{row.name}_vs_{key}_b{row.batch}"] = share
    write_result(options.json, "peers", figures, ratios)


if __name__ == "__main__":
    main()
