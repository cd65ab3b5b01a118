# SPDX-License-Identifier: Apache-2.0
"""Planning in an identified model: DFKI's double pendulum C.1 swung up by its shoulder.

Plants: "hidden" is the declared pendulum with other masses, inertias and frictions; its log is made here, with random
torques and noisy encoders. "real" is the best model of the real pendulum from its logs: the hybrid model with networks
on both torques. Models: "identified" has the parameters identified from the plant's log, "nominal" the declared ones,
"plant" is the plant itself. Starts are random angles and speeds; a start succeeds if both links are upright when the
episode ends.
"""

from pathlib import Path

import torch

from _common import require, result_parser, single_thread, write_result
from neurodyn.control.planning.closed_loop import run
from neurodyn.control.planning.planner import Planner
from neurodyn.control.planning.sampling import smooth_noise
from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.core import Blueprint, read_config
from neurodyn.data import Split, Status, Store, StoreHeader, StoreWriter
from neurodyn.dynamics import HybridDynamics, declared_hybrid, load
from neurodyn.identify import IdentificationSettings, changed, identify, load_identification
from neurodyn.policy.episodes.evaluation import SEED
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot
from neurodyn.tasks import load as load_task
from real_logs import SHARED, declared, opened

TASK, LOG = "pendubot-swingup", "dfki-c1"
MODELS = ("identified", "nominal", "plant")
HIDDEN = {
    "shoulder.com.z": 0.9, "shoulder.inertia.yy": 1.15, "elbow.com.z": 1.1, "elbow.inertia.yy": 0.9,
    "shoulder.friction": 0.8, "elbow.friction": 0.75, "shoulder.damping": 3.0, "elbow.damping": 2.0,
}  # fmt: skip
"""Parameters of the hidden plant, as multiples of the declared ones."""
RUNS, FRAMES, KNOT = 24, 500, 25
"""The hidden plant's log: runs of 5 s under random torques with knots every quarter of a second."""
NOISE_Q, NOISE_QD, TORQUE = 1e-3, 0.05, 0.6
"""Noise of its sensors [rad, rad/s], and standard deviation of its torques [N m]."""


def main() -> None:
    """Swing up in every requested model on every requested plant."""
    parser = result_parser(__doc__)
    parser.add_argument("--plants", nargs="+", default=["hidden"], choices=["hidden", "real"])
    parser.add_argument("--models", nargs="+", default=["identified", "nominal"], choices=MODELS)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=1.0, help="CPU time of a fit")
    parser.add_argument("--data", type=Path, default=SHARED, help="folder of the real logs")
    parser.add_argument("--keep", type=Path, default=Path("swing-up"), help="folder of stores and models")
    asked = parser.parse_args()
    single_thread()
    task, figures = load_task(TASK), {}
    for name in asked.plants:
        kept = asked.keep / name
        known = of_hidden(kept, asked.minutes) if name == "hidden" else of_real(asked.data, kept, asked.minutes)
        plant = ResolvedDynamics("plant", known["plant"])
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


def of_hidden(keep: Path, minutes: float) -> dict[str, HybridDynamics]:
    """Return the hidden plant, and the models identified from its log or nominal."""
    robot = load_robot(LOG)
    settings = changed(load_identification(robot), minutes=minutes, clock="cpu", threads=1)
    nominal = declared(robot, settings)
    values = nominal.mechanism.quantities()
    plant = declared_hybrid(LOG, parameters=[f"{name}={values[name] * factor!r}" for name, factor in HIDDEN.items()])
    log = keep / "log.h5"
    if not log.is_file():
        keep.mkdir(parents=True, exist_ok=True)
        write_log(plant, log)
    return {"plant": plant, "nominal": nominal, "identified": fitted(robot, Store.open(log), keep, None, settings)}


def write_log(plant: HybridDynamics, path: Path) -> None:
    """Write a log of random torques, with noisy encoders."""
    generator = torch.Generator().manual_seed(0)
    start = load_task(TASK).start(RUNS, generator)
    control = TORQUE * smooth_noise((RUNS, FRAMES, 2), KNOT, generator, start.q)
    path_ = plant.rollout(start, control)
    q, qd = (
        x + size * torch.randn(x.shape, generator=generator, dtype=x.dtype)
        for x, size in ((path_.q, NOISE_Q), (path_.qd, NOISE_QD))
    )
    split = [Split.TRAIN] * (RUNS - 8) + [Split.VALIDATION] * 4 + [Split.TEST] * 4
    with StoreWriter(path, StoreHeader(source="log", spec=plant.spec)) as writer:
        writer.append(q.numpy(), qd.numpy(), control.numpy(), status=Status.LOG, split=split)


def of_real(data: Path, keep: Path, minutes: float) -> dict[str, HybridDynamics]:
    """Return the models from real logs: parameters alone, and the plant, with networks."""
    robot, store = opened(LOG, data, keep)
    settings = changed(load_identification(robot), minutes=minutes, clock="cpu", threads=1)
    blueprint = read_config(Path(robot.folder) / "blueprint.yaml", Blueprint)
    return {
        "nominal": declared(robot, settings),
        "identified": fitted(robot, store, keep, None, settings),
        "plant": fitted(robot, store, keep, blueprint, settings),
    }


def fitted(
    robot: Robot, store: Store, keep: Path, networks: Blueprint | None, settings: IdentificationSettings
) -> HybridDynamics:
    """Return the model fitted to a log; a kept one is not fitted again."""
    out = keep / ("identified" if networks is None else "hybrid")
    if not out.is_dir():
        identify(robot, store, out, blueprint=networks, settings=settings)
    model = load(out)
    assert isinstance(model, HybridDynamics)
    return model


if __name__ == "__main__":
    main()
