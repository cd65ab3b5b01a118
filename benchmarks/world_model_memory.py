# SPDX-License-Identifier: Apache-2.0
"""Memories of world models: presets with short and long contexts, trained on one log in equal CPU time.

Each model is trained with a preset (`--sizes`) except for its budget, and evaluated open loop on the log's test
episodes: mean of all columns, in standard deviations of the training data, by horizon. No ratio of times is claimed:
the figures are errors, steps and the CPU time of a step.
"""

import argparse
import json
from pathlib import Path

import msgspec

from _common import require, single_thread, write_result
from cartpole_policies import neurodyn
from neurodyn.core.config import to_yaml
from neurodyn.learn import read_metrics
from neurodyn.learn.world_model.settings import load_world_settings
from neurodyn.robots import load as load_robot

SIZES = ("short", "small", "long")
HORIZONS = (1, 10, 50, 100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--robot", default="cartpole")
    parser.add_argument("--data", type=Path, help="log; by default 50,000 generated transitions")
    parser.add_argument("--sizes", nargs="+", default=["short", "long"], choices=SIZES)
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of each training")
    parser.add_argument("--rollouts", type=int, default=512)
    parser.add_argument("--keep", type=Path, default=Path("memories"), help="folder of data and models")
    arguments = parser.parse_args()
    single_thread()
    arguments.keep.mkdir(parents=True, exist_ok=True)
    data = arguments.data
    if data is None:
        data = arguments.keep / f"{arguments.robot}.h5"
        if not data.exists():
            neurodyn("generate", arguments.robot, "--transitions", 50_000, "--out", data)
    figures: dict[str, float] = {}
    for size in arguments.sizes:
        run = arguments.keep / f"{arguments.robot}-{size}"
        train(arguments.robot, size, data, run, arguments.minutes)
        last = read_metrics(run)[-1]
        found = measure(run, arguments.rollouts)
        found |= {"steps": last["step"], "step_ms": 1e3 * last["cpu_seconds"] / last["step"]}
        figures |= {f"{arguments.robot}_{size}_{what}": value for what, value in found.items()}
    write_result(arguments.json, "world_model_memory", figures, {})


def train(robot: str, size: str, data: Path, run: Path, minutes: float) -> None:
    """Train a model unless it exists."""
    if (run / "model").exists():
        return
    settings = msgspec.structs.replace(
        load_world_settings(load_robot(robot), size), minutes=minutes, clock="cpu", patience=None, validations=8
    )
    file = run.with_suffix(".yaml")
    file.write_text(to_yaml(settings))
    neurodyn("train", robot, "--kind", "world-model", "--data", data, "--out", run, "--size", file)


def measure(run: Path, rollouts: int) -> dict[str, float]:
    """Return errors on the test episodes by horizon."""
    file = run.with_suffix(".json")
    neurodyn("evaluate", run, "--horizon", max(HORIZONS), "--rollouts", rollouts, "--json", file)
    found = json.loads(file.read_text())
    require(found["finite_fraction"] == 1.0, f"{run}: some forecasts are not finite")
    return {f"error_{frames}": found["by_frame"]["model"][frames - 1] for frames in HORIZONS}


if __name__ == "__main__":
    main()
