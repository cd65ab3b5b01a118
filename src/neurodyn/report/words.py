# SPDX-License-Identifier: Apache-2.0
"""What baselines, networks, units and kinds of motion are called on pages."""

from neurodyn.evaluate.records import Comparison, Simulated, Tossed
from neurodyn.robots import Robot

_NETWORKS = {"mlp": "multilayer perceptron", "gru": "gated recurrent unit", "transformer": "causal transformer"}
REFERENCES = {"half_step": "Simulator, half the step", "perturbed": "Simulator, starts 1e-6 off"}
BASELINES = {"persistence": "Persistence", "constant_velocity": "Constant velocity"}


def simulated_parts(result: Simulated) -> dict[str, tuple[int, Comparison]]:
    """Return number of roll-outs and errors by kind of motion, in words."""
    held, count = result.hold is not None, result.about.rollouts
    found = {"held at the nominal pose" if held else "without torque": (count, result.comparison)}
    if result.driven is not None:
        words = "under random targets" if held else "under random torques"
        found[words] = (result.driven.rollouts, result.driven.comparison)
    return found


def tossed_parts(result: Tossed) -> dict[str, tuple[int, Comparison]]:
    """Return number of roll-outs and errors by where these start, in words."""
    releases, count = result.releases, result.about.rollouts
    return {
        "from all starts": (count, result.comparison),
        "from first states": (releases.rollouts, releases.comparison),
    }


def common_units(robot: Robot | None) -> tuple[str, str]:
    """Return the units of positions and velocities where all joints share them, else none."""
    units = set(robot.spec.q_units) if robot else set()
    if len(units) != 1 or "1" in units:
        return "", ""
    unit = units.pop()
    return unit, f"{unit}/s"


def network_name(kind: str | None) -> str:
    """Return what a kind of network is called in full."""
    return _NETWORKS.get(kind or "", kind or "none")


def count(number: int, noun: str) -> str:
    """Return "1 joint", "2 joints"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]
