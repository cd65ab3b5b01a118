# SPDX-License-Identifier: Apache-2.0
"""What a model leaves unexplained: which coordinate, in contact or in the air, correlated with what."""

from collections.abc import Sequence

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.data.store import Store
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.adaptation.fit import environments_of
from neurodyn.identify.adaptation.ladder import rolled
from neurodyn.identify.adaptation.result import UnexplainedCoordinate
from neurodyn.identify.readings import Noise
from neurodyn.learn.fit_windows import FitWindows

_LEAST = 0.3
"""Least correlation that is reported."""
_MOST = 3
_ENOUGH = 8
"""Windows below which an error is not told apart by contact."""


@torch.no_grad()
def unexplained(
    dynamics: HybridDynamics, store: Store, windows: FitWindows, noise: Noise
) -> list[UnexplainedCoordinate]:
    """Return the errors of roll-outs of the windows' length by coordinate, the least explained first."""
    spec = dynamics.spec
    path = rolled(dynamics, store, windows)
    errors = torch.nan_to_num(position_difference(spec, path.q[:, -1], windows.q[:, -1]), nan=0.0)
    floor = 2.0**0.5 * noise.q  # of where a window begins, and of where it ends
    touching, known = _touching(dynamics, store, windows), signals(spec, windows)
    found = []
    for k, name in enumerate(spec.tangent_names):
        own = errors[:, k]
        found.append(
            UnexplainedCoordinate(
                name=name, error=_size(own), noise=float(floor[k]), touching=_of(own, touching),
                air=_of(own, ~touching), with_signals=_correlated(own, _seen_by(spec, name, known)),
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: one.error / max(one.noise, 1e-12), reverse=True)


def beyond_noise(
    left: Sequence[UnexplainedCoordinate], spec: StateSpec, noise: Noise, seconds: float, times: float
) -> bool:
    """Return whether an error after so many seconds is more than so many times what noise of all states may explain.

    The noise of velocities is an upper bound: where motion is jerky, its own changes count as such.
    """
    most = dict(zip(spec.tangent_names, (2.0 * noise.q.square() + (seconds * noise.qd).square()).sqrt(), strict=True))
    return any(one.error > times * float(most[one.name]) for one in left)


def signals(spec: StateSpec, windows: FitWindows) -> dict[str, Tensor]:
    """Return what an error may depend on at the start of windows, by name, shape [W] each."""
    q, qd, control = windows.q[:, 0], windows.qd[:, 0], windows.control.mean(1)
    found = {f"q.{name}": q[:, k] for k, name in enumerate(spec.q_names)}
    for k, name in enumerate(spec.qd_names):
        found |= {f"qd.{name}": qd[:, k], f"sign(qd.{name})": qd[:, k].sign()}
    return found | {f"control.{name}": control[:, k] for k, name in enumerate(spec.controls)}


def _seen_by(spec: StateSpec, name: str, known: dict[str, Tensor]) -> dict[str, Tensor]:
    joint = next((joint.name for joint in spec.joints if name in joint.tangent_names), name)
    own = [f".{joint}", f".{joint}.", f".{joint})"]
    return {signal: value for signal, value in known.items() if any(signal.endswith(o) or o in signal for o in own)}


def _correlated(errors: Tensor, known: dict[str, Tensor]) -> dict[str, float]:
    found = {}
    for name, value in known.items():
        both = torch.stack([errors, value])
        if bool((both.std(1) > 1e-12).all()):
            found[name] = float(torch.corrcoef(both)[0, 1])
    strong = sorted((n for n, r in found.items() if abs(r) > _LEAST), key=lambda n: -abs(found[n]))
    return {name: found[name] for name in strong[:_MOST]}


def _touching(dynamics: HybridDynamics, store: Store, windows: FitWindows) -> Tensor:
    """Return whether a contact point is in the ground at the start of each window, bool, shape [W]."""
    layout = dynamics.contact_points
    ground = environments_of(store, dynamics).at(windows.ground).ground
    if layout is None or ground is None or not layout.contact_points:
        return torch.zeros(windows.count, dtype=torch.bool)
    from neurodyn.geometry.proximity import ProximityQuery

    readings = ProximityQuery(layout)(ground, windows.q[:, 0].float(), windows.qd[:, 0].float())
    radius = torch.tensor([point.radius for point in layout.contact_points])
    return ((readings.distance < radius) & readings.valid).any(-1)


def _of(errors: Tensor, rows: Tensor) -> float | None:
    return _size(errors[rows]) if int(rows.sum()) >= _ENOUGH else None


def _size(errors: Tensor) -> float:
    return float(errors.square().mean().sqrt())
