# SPDX-License-Identifier: Apache-2.0
"""The passive-motion table of the NeRD paper for any runs: `python benchmarks/passive_motion.py RUN... --json FILE`.

Each RUN is compared with its simulator on all grounds declared by its robot: errors by horizon, with those of the
persistence baseline, of the simulator at half the step, and of the simulator from starts perturbed by 1e-6; then from
other starts, on unseen tilts, terrains and shapes, and with other gains; then over 10,000 frames. No ratio of times is
claimed: figures are errors.
"""

import argparse
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from _common import require, result_parser, single_thread, write_result
from neurodyn.core import Box, Plane, Scene, Terrain
from neurodyn.dynamics.neural.model import NEURAL
from neurodyn.dynamics.same_robot import require_robot
from neurodyn.evaluate.named_scenarios import Scenario, scenario, scenarios
from neurodyn.evaluate.requests import SEED
from neurodyn.evaluate.simulated import beside_simulator, default_rollouts
from neurodyn.evaluate.stability import stability
from neurodyn.robots import Robot
from neurodyn.robots import load as load_robot

UNITS = {"base_position_m": "m", "base_orientation_rad": "rad", "joint_rad": "rad", "joint_m": "m"}
NAMES = {
    "base_position_m": "base position [m]",
    "base_orientation_rad": "base orientation [rad]",
    "joint_rad": "joints [rad]",
    "joint_m": "sliding joints [m]",
}
PAPER: dict[str, dict[str, dict[str, float]]] = {
    "cartpole": {
        "100": {"base_position_m": 0.0002, "joint_rad": 0.0004},
        "500": {"base_position_m": 0.004, "joint_rad": 0.013},
        "1000": {"base_position_m": 0.033, "joint_rad": 0.075},
    },
    "ant": {"500": {"base_position_m": 0.057, "base_orientation_rad": 0.095, "joint_rad": 0.077}},
}
PAPER_PENDULUM = {
    "none": (0.004, 0.007),
    "plane-1": (0.012, 0.015),
    "plane-2": (0.008, 0.011),
    "plane-3": (0.005, 0.011),
    "plane-4": (0.011, 0.018),
    "plane-5": (0.029, 0.056),
    "plane-6": (0.008, 0.013),
}
HORIZONS = {"cube": 150}
"""Frames of a roll-out, if not the robot's declared ones: one second, until a cube is at rest."""
NEW_SEED = 1000
"""Offset of terrain seeds, to differ from all data."""


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("runs", nargs="*", default=["pretrained:cartpole"], help="run directories, or pretrained:NAME")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    parser.add_argument("--rollouts", type=int, help="by default 2048, of floating robots 512")
    parser.add_argument("--other-rollouts", type=int, default=128, help="roll-outs of a circumstance never seen")
    parser.add_argument("--floors", type=int, help="roll-outs for the reference errors")
    parser.add_argument("--frames", type=int, default=10_000, help="frames of the long roll-outs; 0 for none")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    pages = []
    for run in arguments.runs:
        model, robot = NEURAL.load(run), load_robot(NEURAL.read(run)[0].robot)
        require_robot(model, robot)
        grounds = measure(model, robot, arguments)
        unseen = generalise(model, robot, arguments)
        long = None
        if arguments.frames:
            long = stability(model, robot, frames=arguments.frames, seed=arguments.seed).plain()
        figures |= flatten(robot.name, grounds, unseen, long)
        pages.append(page(run, robot, grounds, unseen, long))
        print(pages[-1], flush=True)
        if arguments.markdown is not None:
            arguments.markdown.write_text("\n".join(pages), encoding="utf-8")
    write_result(arguments.json, "passive_motion", figures, {})


def measure(model: Any, robot: Robot, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return a report for each ground of a robot."""
    found = scenarios(robot) if robot.grounds else {"none": scenario(robot)}
    count = arguments.rollouts or default_rollouts(robot)
    reports = {
        name: measure_one(model, robot, where, count, arguments.floors, arguments.seed) for name, where in found.items()
    }
    for name, report in reports.items():
        require(report["teacher_finite_fraction"] == 1.0, f"{robot.name} on {name}: the simulator is not finite")
        first = next(iter(report["by_horizon"]))
        held = report["baselines"]["hold_last"][first]
        for key in UNITS if report["floors"] else ():
            if f"{key}_percentiles" in report:
                again = report["floors"]["perturbed_1e-6"][first][key]
                require(again <= held[key], f"{robot.name} on {name}: the simulator is not repeatable ({key})")
    return reports


def generalise(model: Any, robot: Robot, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return a report for each of the other scenarios."""
    count, seed = arguments.other_rollouts, arguments.seed + 7
    references = min(count, 64 if arguments.floors is None else arguments.floors)
    return {name: measure_one(model, robot, where, count, references, seed) for name, where in unseen(robot).items()}


def measure_one(
    model: Any, robot: Robot, where: Scenario, rollouts: int, references: int | None, seed: int
) -> dict[str, Any]:
    """Return a report on passive motion in one scenario."""
    horizon = HORIZONS.get(robot.name)
    found = beside_simulator(
        model, robot, horizon=horizon, rollouts=rollouts, seed=seed, where=where, driven=False, references=references
    )
    return found.plain()


def unseen(robot: Robot) -> dict[str, Scenario]:
    """Return scenarios not in a robot's data: other starts, tilts, terrains, kinds of shapes, gains."""
    usual = scenario(robot)
    found = {"wild starts": Scenario(usual.name, usual.scene, starts="sampling")}
    sampling = robot.ground_sampling
    if sampling is not None:
        scene = robot.grounds[sampling.ground]
        found["random tilts"] = Scenario(sampling.ground, scene, poses="sampling")
        if any(isinstance(shape, Terrain) for shape in scene.shapes):
            found["another terrain"] = Scenario(sampling.ground, reseeded(scene))
            found["boxes"] = Scenario("boxes", boxes())
    if robot.gains is not None:
        found["stiffer than in data"] = Scenario(usual.name, usual.scene, hold=outside(robot))
    return found


def reseeded(scene: Scene) -> Scene:
    """Return a scene whose terrains use other seeds."""
    shapes = tuple(
        msgspec.structs.replace(shape, seed=shape.seed + NEW_SEED) if isinstance(shape, Terrain) else shape
        for shape in scene.shapes
    )
    return msgspec.structs.replace(scene, shapes=shapes)


def boxes(seed: int = 0) -> Scene:
    """Return nine boxes of random height and heading on a plane: edges that no heightfield has."""
    rng = np.random.default_rng(seed)
    shapes: list[Any] = [Plane()]
    for x in (-0.9, 0.0, 0.9):
        for y in (-0.9, 0.0, 0.9):
            angle, height = rng.uniform(-0.4, 0.4), rng.uniform(0.02, 0.12)
            turn = (0.0, 0.0, float(np.sin(angle / 2)), float(np.cos(angle / 2)))
            shapes.append(Box(position=(x, y, 0.0), rotation=turn, half=(0.35, 0.35, float(height))))
    return Scene(shapes=tuple(shapes))


def outside(robot: Robot) -> tuple[float, float]:
    """Return gains beyond those of the robot's data."""
    assert robot.gains is not None
    return 1.25 * robot.gains.kp[1], 3.0 * robot.gains.kd[1]


# Tables


def flatten(
    robot: str, grounds: dict[str, dict[str, Any]], others: dict[str, dict[str, Any]], long: dict[str, Any] | None
) -> dict[str, float]:
    """Return the figures by name, units in the names."""
    figures: dict[str, float] = {}
    for name, report in {**grounds, **others}.items():
        key = f"{robot}/{name}"
        figures[f"{key}/finite_fraction"] = report["finite_fraction"]
        tables = {"": report["by_horizon"], "/hold_last": report["baselines"]["hold_last"]}
        if report["floors"]:
            tables |= {f"/{floor}": report["floors"][floor] for floor in ("twice_substeps", "perturbed_1e-6")}
        for suffix, table in tables.items():
            for horizon, entry in table.items():
                values = {what: entry[what] for what in UNITS if f"{what}_percentiles" in entry}
                values |= {f"{joint}_error": value for joint, value in entry["joints"].items() if not suffix}
                figures |= {
                    f"{key}{suffix}/{what}_{horizon}": value for what, value in values.items() if value is not None
                }
    for mode in ("passive", "driven"):
        if long is not None and mode in long:
            for what, value in long[mode].items():
                if value is not None:
                    figures[f"{robot}/long_{mode}/{what}"] = value
    return figures


def page(
    run: str,
    robot: Robot,
    grounds: dict[str, dict[str, Any]],
    others: dict[str, dict[str, Any]],
    long: dict[str, Any] | None,
) -> str:
    """Return the tables of one run as Markdown."""
    some = next(iter(grounds.values()))
    keys = [key for key in UNITS if f"{key}_percentiles" in some]
    held = "" if some["hold"] is None else f", held by kp {some['hold'][0]:g}, kd {some['hold'][1]:g}"
    lines = [
        f"### {robot.name} ({run})",
        "",
        f"{some['rollouts']:,} roll-outs on each ground, seed {some['seed']}{held}; {some['network']}, "
        f"{some['parameters']:,} weights. Errors: {', '.join(NAMES[key] for key in keys)}.",
        "",
        *table(robot, grounds, keys, paper=True),
    ]
    if robot.name == "pendulum":
        lines += ["", *pendulum(robot, grounds)]
    if others:
        count = next(iter(others.values()))["rollouts"]
        lines += ["", f"Elsewhere ({count} roll-outs each; wild starts are as wild as those of data):", ""]
        lines += table(robot, others, keys, paper=False)
    if long is not None:
        lines += ["", f"{long['worlds']} worlds, {long['frames']:,} frames: {told(long)}."]
    return "\n".join([*lines, ""])


def table(robot: Robot, reports: dict[str, dict[str, Any]], keys: list[str], *, paper: bool) -> list[str]:
    """Return a table of errors, one row per ground and horizon."""
    lines = ["| ground | frames | neural | paper | persistence | half the step | starts 1e-6 off | finite |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for name, report in reports.items():
        for horizon, entry in report["by_horizon"].items():
            theirs = PAPER.get(robot.name, {}).get(horizon, {}) if paper and name in (robot.ground, "none") else {}
            floors = report["floors"] or {}
            cells = [
                name,
                horizon,
                joined(entry, keys),
                joined(theirs, keys) if theirs else "–",
                joined(report["baselines"]["hold_last"][horizon], keys),
                *(joined(floors[f][horizon], keys) if floors else "–" for f in ("twice_substeps", "perturbed_1e-6")),
                f"{report['finite_fraction']:.0%}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def pendulum(robot: Robot, grounds: dict[str, dict[str, Any]]) -> list[str]:
    """Return joint errors and the paper's, by ground."""
    first, second = robot.actuated
    lines = [f"| 100 frames | {' | '.join(grounds)} |", "|---" * (len(grounds) + 1) + "|"]
    for number, joint in enumerate((first, second)):
        ours = [
            number_text(report["by_horizon"].get("100", report["by_horizon"][str(report["horizon"])])["joints"][joint])
            for report in grounds.values()
        ]
        theirs = [number_text(PAPER_PENDULUM[name][number]) for name in grounds]
        lines.append(f"| joint {number + 1} [rad] | {' | '.join(ours)} |")
        lines.append(f"| joint {number + 1}, paper | {' | '.join(theirs)} |")
    return lines


def told(long: dict[str, Any]) -> str:
    """Describe the outcome of long roll-outs in words."""
    parts = []
    for mode in ("passive", "driven"):
        if mode in long:
            above = long[mode]["above_ground_fraction"]
            words = "" if above is None else f", {above:.0%} stay above ground"
            parts.append(f"{mode}, {long[mode]['finite_fraction']:.0%} stay finite{words}")
    return "; ".join(parts)


def joined(entry: dict[str, Any], keys: list[str]) -> str:
    """Return errors in order, separated by slashes."""
    return " / ".join(number_text(entry.get(key)) for key in keys)


def number_text(value: float | None) -> str:
    """Return a number to three digits."""
    return "–" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
