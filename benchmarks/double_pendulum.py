# SPDX-License-Identifier: Apache-2.0
"""A neural model of a real torque-driven double pendulum, from its logs alone: open-loop errors on test runs.

Needs the logs (an npz in the layout declared for robot dfki-c1). The figures are errors of the model and of two
baselines, persistence and constant velocity, from the same starts.
"""

import tempfile
from pathlib import Path

from _common import require, result_parser, single_thread, write_result
from neurodyn.data import Split
from neurodyn.dynamics import load
from neurodyn.evaluate import beside_log
from neurodyn.learn.neural.settings import load_settings
from neurodyn.learn.neural.train import train
from neurodyn.learn.plan import with_budget
from neurodyn.robots import load as load_robot
from neurodyn.robots import open_robot_data

LOGS = Path(__file__).resolve().parents[2] / "shared/data/dfki_double_pendulum/dfki_double_pendulum.npz"


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--data", type=Path, default=LOGS)
    parser.add_argument("--robot", default="dfki-c1")
    parser.add_argument("--net", choices=("mlp", "gru", "transformer"))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not arguments.data.exists():
        print(f"skipped: there is no {arguments.data}")
        return
    single_thread()
    robot = load_robot(arguments.robot)
    store = open_robot_data(robot, arguments.data)
    settings = load_settings(robot, "small", arguments.net, log=True)
    settings = with_budget(settings, arguments.minutes, None, arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        end = train(robot, arguments.robot, str(arguments.data), store, Path(scratch) / "run", settings)
        result = beside_log(load(Path(scratch) / "run"), robot, store, split=Split.TEST).plain()
    require(result["finite_fraction"] == 1.0, "a roll-out is not finite")
    figures = {"train_cpu_s": end.cpu_seconds, "starts": result["rollouts"]}
    sections = {**result["at_horizon"], **result["groups"]}
    for name, section in sections.items():
        for mark in (key for key in section if key != "starts"):
            entry = section[mark]
            for what in ("q_mean", "qd_mean"):
                for who in ("model", "hold_last", "constant_velocity"):
                    figures[f"{name}_{what}_{entry['seconds']:.2f}s_{who}"] = entry[who][what]
    write_result(arguments.json, "double_pendulum", figures, {})


if __name__ == "__main__":
    main()
