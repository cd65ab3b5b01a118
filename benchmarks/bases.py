# SPDX-License-Identifier: Apache-2.0
"""Bases of neural models: nothing, free motion, motion with soft contacts, in equal CPU time of training.

Every model is trained with the small settings of its robot but for the base, on the same data, for so many minutes of
CPU time, and measured beside the simulator from the same starts. `contact_0` is the base with contacts by itself, with
a network that is not trained. No ratio of times is claimed: the figures are errors.
"""

import argparse
import json
from pathlib import Path

import msgspec

from _common import require, single_thread, write_result
from cartpole_policies import neurodyn
from neurodyn.core.config import to_yaml
from neurodyn.dynamics import load
from neurodyn.learn.neural.settings import load_settings
from neurodyn.robots import load as load_robot

BASES = {"none": None, "free": "free", "contact": "contact"}
ROBOTS = ("ant", "anymal-c", "cube", "pendulum", "franka")
ERRORS = ("base_position_m", "base_orientation_rad", "joint_rad")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--robots", nargs="+", default=["pendulum"], choices=ROBOTS)
    parser.add_argument("--bases", nargs="+", default=[*BASES, "contact_0"], choices=[*BASES, "contact_0"])
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of each training")
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--horizon", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=128)
    parser.add_argument("--keep", type=Path, default=Path("bases"), help="folder of data and models")
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    for robot in arguments.robots:
        data = arguments.keep / f"{robot}.h5"
        arguments.keep.mkdir(parents=True, exist_ok=True)
        if not data.exists():
            neurodyn("generate", robot, "--transitions", arguments.transitions, "--out", data)
        for name in arguments.bases:
            run = arguments.keep / f"{robot}-{name}"
            train(robot, name, data, run, arguments.minutes)
            errors = measure(run, arguments.horizon, arguments.rollouts)
            figures |= {f"{robot}_{name}_{what}": value for what, value in errors.items()}
            print(f"{robot:10} {name:10} " + "  ".join(f"{what} {value:.4g}" for what, value in errors.items()))
    write_result(arguments.json, "bases", figures, {})


def train(robot: str, name: str, data: Path, run: Path, minutes: float) -> None:
    """Train a model unless it is there."""
    base = BASES[name.removesuffix("_0")]
    if not (run / "model").exists():
        small = load_settings(load_robot(robot), "small")
        settings = msgspec.structs.replace(small, base=base, minutes=minutes, clock="cpu")
        if name.endswith("_0"):  # a step of no size: what is fitted to the data in closed form is there all the same
            phase = msgspec.structs.replace(small.phases[0], share=1.0, rate=1e-12, batch=1)
            settings = msgspec.structs.replace(
                settings, minutes=None, steps=1, clock="wall", validations=1, phases=(phase,)
            )
        file = run.with_suffix(".yaml")
        file.write_text(to_yaml(settings))
        neurodyn("train", robot, "--data", data, "--out", run, "--size", file)
    found = load(str(run)).encoding.config.base
    require((None if found is None else found.kind) == base, f"{run} was trained with another base")


def measure(run: Path, horizon: int, rollouts: int) -> dict[str, float]:
    """Return the errors of passive motion beside the simulator."""
    file = run.with_suffix(".json")
    neurodyn("evaluate", run, "--horizon", horizon, "--rollouts", rollouts, "--json", file)
    found = json.loads(file.read_text())
    require(found["finite_fraction"] == 1.0, f"{run}: some roll-outs are not finite")
    return {what: found[what] for what in ERRORS if found.get(what) is not None}


if __name__ == "__main__":
    main()
