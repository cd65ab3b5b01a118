# SPDX-License-Identifier: Apache-2.0
"""What baselines, networks and kinds of motion are called."""

from msgspec import UNSET, UnsetType

from neurodyn.evaluate.records import Comparison, Logged, MemberCalibration, Simulated, Tossed

_NETWORKS = {"mlp": "multilayer perceptron", "gru": "gated recurrent unit", "transformer": "causal transformer"}
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


def member_parts(result: Simulated | Logged | Tossed) -> dict[str, MemberCalibration | UnsetType]:
    """Return the calibration of members by kind of motion or start, in words."""
    if isinstance(result, Logged):
        return {"from all starts": result.calibration}
    first, *others = tossed_parts(result) if isinstance(result, Tossed) else simulated_parts(result)
    driven = result.driven.calibration if isinstance(result, Simulated) and result.driven is not None else UNSET
    return {first: result.calibration, **dict.fromkeys(others, driven)}


def network_name(kind: str | None) -> str:
    """Return what a kind of network is called in full."""
    return _NETWORKS.get(kind or "", kind or "none")


def count(number: int, noun: str) -> str:
    """Return "1 joint", "2 joints"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]
