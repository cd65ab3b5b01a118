# SPDX-License-Identifier: Apache-2.0
"""Generation of cartpole data, writing included, against the bare teacher; and the size of the file.

The teacher's own rate is that of its captured frame replayed and nothing else: no sampling, no recording, no
writing. Both run in turns, 512 worlds, one thread, CPU time.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from _common import require, single_thread, write_result
from neurodyn import robots
from neurodyn.data.store import Store
from neurodyn.sim.generate import generate
from neurodyn.sim.teacher import Teacher

WORLDS, FRAMES, BATCHES, ROUNDS = 512, 100, 20, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file to write the result to")
    json = parser.parse_args().json
    single_thread()
    robot = robots.load("cartpole")
    teacher = Teacher(robot, WORLDS)
    transitions = WORLDS * FRAMES * BATCHES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.h5"
        generate(robot, transitions=WORLDS * FRAMES, out=path, worlds=WORLDS)
        store = Store.open(path)
        q, qd, control = (x.reshape(WORLDS, FRAMES + 1, -1) for x in (store.q, store.qd, store.control))
        first, rates, torques = (torch.tensor(x) for x in (q[:, 0], qd[:, 0], control[:, :-1]))
        replay = teacher.rollout(first, rates, torques)
        require(np.array_equal(replay[0].numpy(), q), "the teacher repeats the generated positions")
        require(np.array_equal(replay[1].numpy(), qd), "the teacher repeats the generated velocities")
        require(len(np.unique(q[:, 0, 0])) > WORLDS // 2, "worlds start in states of their own")

        ours, bare, plain = [], [], []
        for _ in range(ROUNDS):
            start = time.process_time()
            for _ in range(BATCHES * FRAMES):
                teacher.replay()
            bare.append(transitions / (time.process_time() - start))
            summary = generate(robot, transitions=transitions, out=path, worlds=WORLDS)
            require(summary.transitions == transitions, "no trajectory ended early")
            ours.append(summary.rate)
            start = time.process_time()
            for _ in range(BATCHES):
                teacher.rollout(first, rates, torques)
            plain.append(transitions / (time.process_time() - start))
        megabytes = summary.bytes / 1e6 / (transitions / 1e6)
    share = float(np.median([a / b for a, b in zip(ours, bare, strict=True)]))
    write_result(
        json,
        "generation",
        figures={
            "generated transitions per CPU-second": float(np.median(ours)),
            "bare teacher transitions per CPU-second": float(np.median(bare)),
            "teacher roll-out transitions per CPU-second": float(np.median(plain)),
            "generation rate over bare teacher rate": share,
            "MB per million transitions": megabytes,
        },
        ratios={f"generate_vs_teacher_b{WORLDS}": 1 / share},
    )


if __name__ == "__main__":
    main()
