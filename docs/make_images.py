# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of the README: `python docs/make_images.py RUN...`, `... --policies POLICY...`, `... --played`.

Each RUN is a run (or pretrained:NAME) of a robot with a simulator. Writes docs/images/ROBOT.gif for each: the neural
model beside the analytic solver from the first start of seed 500, passive, on the robot's default ground.

Each POLICY is one that was trained in imagination and watched in the simulator. Writes docs/images/imagined.png: both
returns as training went on.

--played POLICY DYNAMICS writes docs/images/TASK.gif: a policy in those dynamics beside the simulator, from the first
start of seed 500.
"""

import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
SECONDS = {"cartpole": 6.0, "pendulum": 4.0, "ant": 4.0, "anymal-c": 4.0, "cube": 1.2}
MOST_BYTES = {"cartpole": 1_500_000}
"""Greatest size of a picture; 500 kB where nothing is said."""
PLAYED = 5.0
"""Length of the film of a policy [s]."""


def main(runs: list[str]) -> None:
    """Write the pictures."""
    import neurodyn
    from neurodyn.report import readme_gif, record_run

    for run in runs:
        robot = neurodyn.load(run).spec.robot
        recording = record_run(run, seconds=SECONDS.get(robot, 4.0))
        path = IMAGES / f"{robot}.gif"
        size = readme_gif(recording, path, most_bytes=MOST_BYTES.get(robot, 500_000))
        print(f"{path}: {size / 1e6:.2f} MB")


def imagined(policies: list[str]) -> None:
    """Draw the returns of policies in imagination and in the simulator."""
    from matplotlib.figure import Figure

    from neurodyn.learn import read_metrics

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, policy in enumerate(policies):
        lines = [line for line in read_metrics(Path(policy)) if "return_reference" in line]
        frames = [line["frames"] / 1e6 for line in lines]
        for key, colour, label in (
            ("return_training", "#ff922b", "in imagination"),
            ("return_reference", "#4dabf7", "in the simulator"),
        ):
            returns = [line[key] for line in lines]
            axes.plot(frames, returns, "o-", color=colour, markersize=4, label=None if number else label)
    axes.set_xlabel("imagined frames [million]")
    axes.set_ylabel("return of an episode")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "imagined.png", dpi=110)


def played(policy: str, dynamics: str) -> None:
    """Film a policy in some dynamics beside the simulator."""
    from neurodyn.policy import load_policy, record_policy
    from neurodyn.report import readme_gif

    task = load_policy(policy)[0].task
    path = IMAGES / f"{task}.gif"
    size = readme_gif(record_policy(policy, dynamics, seconds=PLAYED), path, most_bytes=1_500_000)
    print(f"{path}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--policies":
        imagined(sys.argv[2:])
    elif sys.argv[1] == "--played" and len(sys.argv) == 4:
        played(*sys.argv[2:])
    else:
        main(sys.argv[1:])
