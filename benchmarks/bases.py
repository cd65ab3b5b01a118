# SPDX-License-Identifier: Apache-2.0
"""Neural models by base, outputs and training data, with equal CPU time or equal steps of training.

Every model is trained with the small settings of its robot except for the changes in its name, on the same data, and
compared with the simulator from the same starts. `contact_0` is the base with contacts alone, with an untrained
network. No ratio of times is claimed: the figures are errors.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import msgspec

from _common import require, single_thread, write_result
from cartpole_policies import neurodyn
from neurodyn.core.config import to_yaml
from neurodyn.dynamics import load
from neurodyn.learn.neural.settings import load_settings
from neurodyn.robots import load as load_robot

BASES = {"none": None, "free": "free", "contact": "contact"}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: {"base": base} for name, base in BASES.items()},
    "contact_0": {"base": "contact"},
    "impulses": {"base": "impulses"},
    "none-one-frame": {"base": None, "forecast": 0},
    "free-one-frame": {"base": "free", "forecast": 0},
    "free-equal-weights": {"base": "free", "balance": None},
    "impulses-one-frame": {"base": "impulses", "forecast": 0},
}
"""Models by their differences from the small settings; `forecast` and `balance` apply to all phases."""
ROBOTS = ("ant", "anymal-c", "cube", "pendulum", "franka")
ERRORS = ("base_position_m", "base_orientation_rad", "joint_rad")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--robots", nargs="+", default=["pendulum"], choices=ROBOTS)
    parser.add_argument("--variants", nargs="+", default=["none", "free", "contact", "contact_0"], choices=[*VARIANTS])
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of each training")
    parser.add_argument("--steps", type=int, help="optimiser steps of each training, in place of a time")
    parser.add_argument("--data", nargs="+", help="data of the robot, by default generated")
    parser.add_argument("--shares", nargs="+", type=float, help="share of each of them in a batch")
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--horizon", type=int, default=100)
    parser.add_argument("--rollouts", type=int, default=128)
    parser.add_argument("--keep", type=Path, default=Path("bases"), help="folder of data and models")
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    for robot in arguments.robots:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        data = arguments.data or [arguments.keep / f"{robot}.h5"]
        if not arguments.data and not data[0].exists():
            neurodyn("generate", robot, "--transitions", arguments.transitions, "--out", data[0])
        mixed = [*data, "--shares", *arguments.shares] if arguments.shares else data
        for name in arguments.variants:
            run = arguments.keep / f"{robot}-{name}"
            train(robot, name, mixed, run, arguments.minutes, arguments.steps)
            errors = measure(run, arguments.horizon, arguments.rollouts)
            figures |= {f"{robot}_{name}_{what}": value for what, value in errors.items()}
            print(f"{robot:10} {name:10} " + "  ".join(f"{what} {value:.4g}" for what, value in errors.items()))
    write_result(arguments.json, "bases", figures, {})


def train(robot: str, name: str, data: list[Any], run: Path, minutes: float, steps: int | None) -> None:
    """Train a model unless it exists."""
    changes = dict(VARIANTS[name])
    if not (run / "model").exists():
        small = load_settings(load_robot(robot), "small")
        of_phases = {key: changes.pop(key) for key in ("forecast", "balance") if key in changes}
        phases = tuple(msgspec.structs.replace(phase, **of_phases) for phase in small.phases)
        budget = {"minutes": minutes, "clock": "cpu"} if steps is None else {"minutes": None, "steps": steps}
        settings = msgspec.structs.replace(small, phases=phases, **changes, **budget)
        if name.endswith("_0"):  # a step of size zero: closed-form fits to the data happen all the same
            phase = msgspec.structs.replace(small.phases[0], share=1.0, rate=1e-12, batch=1)
            settings = msgspec.structs.replace(
                settings, minutes=None, steps=1, clock="wall", validations=1, phases=(phase,)
            )
        file = run.with_suffix(".yaml")
        file.write_text(to_yaml(settings))
        neurodyn("train", robot, "--data", *data, "--out", run, "--size", file)
    found = load(str(run)).encoding.config.base
    require((None if found is None else found.kind) == changes["base"], f"{run} was trained with another base")


def measure(run: Path, horizon: int, rollouts: int) -> dict[str, float]:
    """Return the errors of passive motion against the simulator."""
    file = run.with_suffix(".json")
    neurodyn("evaluate", run, "--horizon", horizon, "--rollouts", rollouts, "--json", file)
    found = json.loads(file.read_text())
    require(found["finite_fraction"] == 1.0, f"{run}: some roll-outs are not finite")
    return {what: found[what] for what in ERRORS if found.get(what) is not None}


if __name__ == "__main__":
    main()
