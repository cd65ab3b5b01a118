# SPDX-License-Identifier: Apache-2.0
"""Number formatting (three digits, SI prefix, unit), and names of baselines, networks and motions."""

import math

from msgspec import UNSET, UnsetType

from neurodyn.dynamics.measures import BASELINES
from neurodyn.evaluate.records import Logged, MemberCalibration, RolloutComparison, Simulated, Tossed

MISSING = "–"
_PREFIXES = ((1e-1, 1.0, ""), (1e-4, 1e3, "m"), (1e-7, 1e6, "µ"), (0.0, 1e9, "n"))
_PREFIXED = {"m", "rad", "m/s", "rad/s", "J", "s"}
_NETWORKS = {"mlp": "multilayer perceptron", "gru": "gated recurrent unit", "transformer": "causal transformer"}


def quantity(value: float | None, unit: str) -> str:
    """Return a quantity with its unit and an SI prefix: 0.0434 m as "43.4 mm"."""
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "not finite"
    if value == 0 or unit not in _PREFIXED:
        return f"{digits(value)} {unit}".strip()
    factor, prefix = next((f, p) for least, f, p in _PREFIXES if abs(value) >= least)
    return f"{digits(value * factor)} {prefix}{unit}"


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Return a range of quantities, with a shared unit once: "8.91 – 76.2 mm"."""
    if low is None or high is None:
        return MISSING
    first, last = quantity(low, unit), quantity(high, unit)
    number, _, prefixed = first.partition(" ")
    return f"{number} – {last}" if last.partition(" ")[2] == prefixed else f"{first} – {last}"


def plus_minus(mean: float | None, half: float | None, unit: str) -> str:
    """Return a mean with the half width of its interval in the same prefix: "43.4 ± 2.1 mm"."""
    text = quantity(mean, unit)
    if mean is None or half is None or not math.isfinite(mean):
        return text
    number, _, prefixed = text.partition(" ")
    factor = next((f for least, f, p in _PREFIXES if f"{p}{unit}" == prefixed), 1.0) if unit in _PREFIXED else 1.0
    return f"{number} ± {digits(half * factor)} {prefixed}".strip()


def digits(value: float) -> str:
    """Return a number with three significant digits, without an exponent where readable."""
    if value == 0:
        return "0"
    size = abs(value)
    if not 1e-4 <= size < 1e7:
        return f"{value:.2e}"
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(size))}f}"


def digits_or_dash(value: float | None) -> str:
    """Return a number with three significant digits; a dash for None."""
    return MISSING if value is None else digits(value)


def times(factor: float | None) -> str:
    """Return a ratio, for example "44×"."""
    if factor is None or not math.isfinite(factor):
        return MISSING
    return f"{factor:,.0f}×" if factor >= 10 else f"{factor:.1f}×" if factor >= 1 else f"{factor:.2f}×"


def relative_size(factor: float | None) -> str:
    """Return how much smaller or larger an error is, from the ratio of a reference to it: "1.7× larger"."""
    if factor is not None and 0 < factor < 1:
        return f"{times(1 / factor)} larger"
    return f"{times(factor)} smaller"


def share(value: float | None) -> str:
    """Return a fraction as a percentage."""
    if value is None:
        return MISSING
    percent = 100 * value
    return f"{percent:.0f} %" if percent in (0, 100) or 1 <= percent <= 99 else f"{percent:.2f} %"


def span(seconds: float) -> str:
    """Return a duration, for example "0.167 s" or "12 min 3 s"."""
    if seconds < 120:
        return quantity(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def simulated_parts(result: Simulated) -> dict[str, tuple[int, RolloutComparison]]:
    """Return the number of roll-outs and their errors, by description of the motion."""
    held, count = result.hold is not None, result.about.rollouts
    parts = {"held at the nominal pose" if held else "without torque": (count, result.comparison)}
    if result.driven is not None:
        words = "under random targets" if held else "under random torques"
        parts[words] = (result.driven.rollouts, result.driven.comparison)
    return parts


def tossed_parts(result: Tossed) -> dict[str, tuple[int, RolloutComparison]]:
    """Return the number of roll-outs and their errors, by description of the starts."""
    releases, count = result.releases, result.about.rollouts
    return {
        "from all starts": (count, result.comparison),
        "from first states": (releases.rollouts, releases.comparison),
    }


def member_parts(result: Simulated | Logged | Tossed) -> dict[str, MemberCalibration | UnsetType]:
    """Return the calibration of ensembles, by description of the motion or the starts."""
    if isinstance(result, Logged):
        return {"from all starts": result.calibration}
    first, *others = tossed_parts(result) if isinstance(result, Tossed) else simulated_parts(result)
    driven = result.driven.calibration if isinstance(result, Simulated) and result.driven is not None else UNSET
    return {first: result.calibration, **dict.fromkeys(others, driven)}


def baseline_titles() -> list[str]:
    """Return the heads of the columns of baselines."""
    return [capital(one.title) for one in BASELINES.values()]


TITLES = {
    "nominal": "declared",
    "hybrid": "identified + networks",
    "networks": "identified + networks",
    "hold-last": "persistence",
    "hold_last": "persistence",
    "constant-velocity": "constant velocity",
    "constant_velocity": "constant velocity",
    "gru": "plain network (GRU)",
    "world-model": "world model",
}
"""Names of models on pages, where they differ from those in results."""


def title_of(model: str) -> str:
    """Return the name of a model on pages."""
    return TITLES.get(model, model)


def network_name(kind: str | None) -> str:
    """Return the full name of a kind of network."""
    return _NETWORKS.get(kind or "", kind or "none")


def count(number: int, noun: str) -> str:
    """Return a number with its noun: "1 joint", "2 joints"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def capital(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
