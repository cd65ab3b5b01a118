# SPDX-License-Identifier: Apache-2.0
"""Planned in what was identified: DFKI's double pendulum C.1 swung up in a model of its own log.

The model has the parameters that the log gives (identify, without a network). The plant is the nearest thing to the
real pendulum that the log gives: the hybrid model with networks on both torques, which follows the log better. Both are
fitted here, with equal CPU time. Starts are random angles and speeds; a start succeeds where both links stand when the
episode ends. Beside it, planning in the plant itself, and in the declared model, whose numbers were not identified.
"""

import argparse
from pathlib import Path

from _common import require, single_thread, write_result
from neurodyn.control.planning.closed_loop import run
from neurodyn.control.planning.planner import Planner
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core import Blueprint, read_config
from neurodyn.dynamics import HybridDynamics, load
from neurodyn.identify import changed, identify, load_identification
from neurodyn.policy.evaluate import SEED
from neurodyn.tasks import load as load_task
from real_logs import SHARED, declared, opened

LOG = "dfki-c1"
MODELS = ("identified", "plant", "nominal")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tasks", nargs="+", default=["pendubot-swingup"])
    parser.add_argument("--models", nargs="+", default=["identified"], choices=MODELS)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of either fit")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the logs")
    parser.add_argument("--keep", type=Path, default=Path("swing-up"), help="folder of the store and the models")
    asked = parser.parse_args()
    single_thread()
    known = models(asked.data, asked.keep, asked.minutes)
    figures: dict[str, float] = {}
    for name in asked.tasks:
        task, plant = load_task(name), ResolvedDynamics("plant", known["plant"])
        for model in asked.models:
            planner = Planner(known[model], task, "ilqr")
            found, _ = run(
                planner, "ilqr", ResolvedDynamics(model, known[model]), plant, episodes=asked.episodes, seed=SEED
            )
            require(found.fallbacks == 0, f"{name}: not every plan was finite")
            figures |= {
                f"{name}_{model}_succeeded": float(found.result.success or 0.0),
                f"{name}_{model}_failed": found.result.failed,
                f"{name}_{model}_return": found.result.mean,
                f"{name}_{model}_decision_ms": found.decision_ms,
            }
            print({key: round(value, 3) for key, value in figures.items()}, flush=True)
    write_result(asked.json, "swing_up", figures, {})


def models(data: Path, keep: Path, minutes: float) -> dict[str, HybridDynamics]:
    """Return the declared model, the identified one, and the plant; what is kept is not fitted again."""
    robot, store = opened(LOG, data, keep)
    settings = changed(load_identification(robot), minutes=minutes, clock="cpu", threads=1)
    blueprint = read_config(Path(robot.folder) / "blueprint.yaml", Blueprint)
    found = {"nominal": declared(robot, settings)}
    for name, networks in (("identified", None), ("plant", blueprint)):
        if not (keep / name).is_dir():
            identify(robot, store, keep / name, blueprint=networks, settings=settings)
        model = load(keep / name)
        assert isinstance(model, HybridDynamics)
        found[name] = model
    return found


if __name__ == "__main__":
    main()
