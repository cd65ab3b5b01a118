# SPDX-License-Identifier: Apache-2.0
"""Data generation, including writing, against the simulator's own rate; and the file size.

The simulator's own rate is that of simulating the same motion again, on the same grounds and under the same torques,
without sampling, controller, recording and writing. For the cartpole, whose frames all cost the same, it is the replay
of a captured frame. Both run in turns, one thread, CPU time.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn import robots
from neurodyn.data import Store
from neurodyn.sim import ReferenceSimulator, generate

FRAMES, ROUNDS = 100, 5
WORK = {"cartpole": (512, 20), "pendulum": (512, 2), "cube": (256, 1), "ant": (128, 1), "anymal-c": (128, 1)}
"""Worlds, and batches of as many trajectories per round."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--robots", nargs="+", default=list(WORK), choices=list(WORK))
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name in arguments.robots:
        worlds, batches = WORK[name]
        share = compare(name, worlds, batches, figures)
        # The cartpole's key is older than the other robots.
        work = "generate" if name == "cartpole" else f"generate_{name.replace('-', '_')}"
        ratios[f"{work}_vs_teacher_b{worlds}"] = 1 / share
    write_result(arguments.json, "generation", figures=figures, ratios=ratios)


def compare(name: str, worlds: int, batches: int, figures: dict[str, float]) -> float:
    """Time both in turns; return the rate of generation divided by that of the simulator."""
    robot = robots.load(name)
    transitions = worlds * FRAMES * batches
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.h5"
        generate(robot, transitions=worlds * FRAMES, out=path, worlds=worlds, frames=FRAMES)
        store = Store.open(path)
        simulator = ReferenceSimulator(robot, worlds, scene=store.header.scene)
        motion = check(store, simulator, worlds)
        ours, bare = [], []
        for _ in range(ROUNDS):
            start = time.process_time()
            for _ in range(batches):
                if name == "cartpole":
                    for _ in range(FRAMES):
                        simulator.replay()
                else:
                    simulate(simulator, *motion)
            bare.append(transitions / (time.process_time() - start))
            summary = generate(robot, transitions=transitions, out=path, worlds=worlds, frames=FRAMES, overwrite=True)
            require(summary.transitions == transitions, "no trajectory ended early")
            ours.append(summary.rate)
    share = float(np.median([a / b for a, b in zip(ours, bare, strict=True)]))
    figures |= {
        f"{name}: generated transitions per CPU-second": float(np.median(ours)),
        f"{name}: bare simulator transitions per CPU-second": float(np.median(bare)),
        f"{name}: generation rate over bare simulator rate": share,
        f"{name}: MB per million transitions": summary.bytes / transitions,
    }
    return share


def check(store: Store, simulator: ReferenceSimulator, worlds: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Check that the simulator reproduces the data; return first states and torques."""
    q, qd = (x.reshape(worlds, FRAMES + 1, -1) for x in (store.q, store.qd))
    control = store.control.reshape(worlds, FRAMES + 1, simulator.robot.spec.nu)
    motion = (torch.tensor(q[:, 0]), torch.tensor(qd[:, 0]), torch.tensor(control[:, :-1]))
    if store.ground is not None:
        require(len(np.unique(store.ground, axis=0)) > worlds // 2, "worlds have grounds of their own")
        simulator.set_ground(torch.tensor(store.ground))
    replay = simulator.rollout(*motion)
    require(np.array_equal(replay[0].numpy(), q), "the simulator repeats the generated positions")
    require(np.array_equal(replay[1].numpy(), qd), "the simulator repeats the generated velocities")
    require(len(np.unique(qd[:, 0], axis=0)) > worlds // 2, "worlds start in states of their own")
    return motion


def simulate(simulator: ReferenceSimulator, q: torch.Tensor, qd: torch.Tensor, control: torch.Tensor) -> None:
    """Simulate a batch of trajectories and discard it."""
    for frame in range(control.shape[1]):
        q, qd = simulator.step_(q, qd, control[:, frame])


if __name__ == "__main__":
    main()
