# SPDX-License-Identifier: Apache-2.0
"""What errors, networks and units are called in reports."""

from typing import Any

from neurodyn.robots import Robot

_ERRORS = {
    "base_position_m": ("m", "Base position"),
    "base_orientation_rad": ("rad", "Base orientation"),
    "joint_rad": ("rad", "Joint angle"),
    "joint_m": ("m", "Joint position"),
}
_NETWORKS = {"mlp": "multilayer perceptron", "gru": "gated recurrent unit", "transformer": "causal transformer"}
FLOORS = {"twice_substeps": "Simulator, half the step", "perturbed_1e-6": "Simulator, starts 1e-6 off"}
BASELINES = {"hold_last": "Hold last", "constant_velocity": "Constant velocity"}


def kinds_of_error(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return (key, unit, name) of the errors that a summary holds with percentiles."""
    return [(key, unit, name) for key, (unit, name) in _ERRORS.items() if f"{key}_percentiles" in summary]


def modes(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (key, words) of the kinds of motion in a report beside the simulator."""
    held = report.get("hold") is not None
    found = [("passive", "held at the nominal pose" if held else "without torque")]
    if report["driven"] is not None:
        found.append(("driven", "under random targets" if held else "under random torques"))
    return found


def best_baseline(result: dict[str, Any], horizon: str, key: str) -> float | None:
    """Return how many times the better baseline's mean error is that of the model."""
    mine = result["by_horizon"][horizon][key]
    others = [table[horizon][key] for table in result["baselines"].values()]
    others = [value for value in others if value is not None]
    return min(others) / max(mine, 1e-12) if mine is not None and others else None


def common_units(robot: Robot | None) -> tuple[str, str]:
    """Return the units of positions and velocities where all joints share them, else none."""
    units = set(robot.spec.q_units) if robot else set()
    if len(units) != 1 or "1" in units:
        return "", ""
    unit = units.pop()
    return unit, f"{unit}/s"


def network_name(kind: str) -> str:
    """Return what a kind of network is called in full."""
    return _NETWORKS.get(kind, kind)


def count(number: int, noun: str) -> str:
    """Return "1 joint", "2 joints"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
