# SPDX-License-Identifier: Apache-2.0
"""Make the README's animation: both policies of a demo on its robot.

neurodyn demo && python scripts/gap_picture.py demo docs/images/worn-ant.gif
"""

import sys
from pathlib import Path

import numpy as np
import torch

from neurodyn.control.starts import home_ground
from neurodyn.core.artifacts import read_json
from neurodyn.data import Store
from neurodyn.dynamics.batch import Trajectory
from neurodyn.report.recording import Recording
from neurodyn.report.recording_files import readme_gif
from neurodyn.robots import load
from neurodyn.tasks import load as load_task

SECONDS = 6.0


def main(folder: Path, file: Path) -> None:
    """Animate the first episode of each policy, not chosen by outcome."""
    gap = read_json(folder / "evaluation.json")
    robot = load(Store.open(folder / "before.h5").header.spec.robot)
    most = round(SECONDS / robot.dt) + 1
    paths, labels = [], []
    for policy, words in enumerate(("before", "after")):
        q, qd, _ = Store.open(folder / f"{words}.h5").episode(0)
        rows = np.minimum(np.arange(most), len(q) - 1)  # a robot that failed stays where its episode ended
        paths.append(Trajectory(torch.from_numpy(q[None, rows]), torch.from_numpy(qd[None, rows])))
        returns, promise = gap["reached"][policy]["return"], gap["promised"][policy]["return"]
        labels.append(f"{words}: promised {promise:.0f}, got {returns:.0f}")
    recording = Recording(
        robot=robot, title="before and after", predicted=paths[0], truth=paths[1], predicted_label=labels[0],
        truth_label=labels[1], worlds=("first episode",), ground=home_ground(load_task(gap["task"])).ground, apart=True,
    )  # fmt: skip
    print(f"{file}: {readme_gif(recording, file):,} bytes; {labels}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
