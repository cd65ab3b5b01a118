# SPDX-License-Identifier: Apache-2.0
r"""What makes up for another delay (a servo's damping and rotor inertia, or a motor's lag), and for a servo's damping.

A servo that follows slow commands $c$ with stiffness $k_p$, damping $k_d$, inertia $J$ and delay $d$ has

$$\frac{q}{c} = \frac{k_p e^{-sd}}{J s^2 + k_d s + k_p} \approx 1 - s T + s^2 (T^2 - d T + \tfrac12 d^2 - J / k_p),
\qquad T = d + k_d / k_p$$

so that a delay that is longer by $\delta$ is hardly seen if $k_d$ falls by $k_p \delta$ and $J$ by
$k_p (T \delta - \tfrac12 ((d + \delta)^2 - d^2))$. A search hardly moves along this valley, whose ends long roll-outs
tell apart all the same.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from neurodyn.identify.unknowns.quantities import DELAY
from neurodyn.identify.unknowns.search_space import CoordinateSpace

SHIFTS = tuple(1e-3 * shift for shift in range(-10, 11) if shift)
"""Changes of the delay that are tried [s]: with stairs of commands, costs have minima some milliseconds apart."""


def delays_traded(space: CoordinateSpace, x: Tensor, shifts: Sequence[float] = SHIFTS) -> Tensor:
    """Return coordinates with another delay and what makes up for it, shape [ways, tried, n], from x of shape [n].

    Each change is made up for by damping and rotor inertia, and in another way by lags if there are any.
    """
    if DELAY not in space.names:
        return x.new_zeros(1, 0, len(x))
    least, most = space.coordinates[space.names.index(DELAY)].least_value or 0.0, _longest(space)
    now = float(space.value(DELAY, x))
    within = sorted({moved for shift in shifts if (moved := min(max(now + shift, least), most) - now)})
    tried = [[_move(space, x, now, shift, by_lag=by_lag) for shift in within] for by_lag in _ways(space)]
    return torch.stack([torch.stack(way) for way in tried]) if within else x.new_zeros(1, 0, len(x))


def other_delays(space: CoordinateSpace, x: Tensor, cost: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Return coordinates with another delay that cost least among their likes, shape [n] each, the cheapest first.

    `cost` takes coordinates of shape [m, n] and returns their costs, shape [m].
    """
    found: list[tuple[float, Tensor]] = []
    for way in delays_traded(space, x):
        if len(way):
            costs = cost(way)
            around = torch.nn.functional.pad(costs[None], (1, 1), value=torch.inf)[0]
            least = (costs <= around[:-2]) & (costs <= around[2:])
            found += zip(costs[least].tolist(), way[least], strict=True)
    return [moved for _, moved in sorted(found, key=lambda one: one[0])]


def dampings_traded(space: CoordinateSpace, x: Tensor) -> Tensor:
    """Return coordinates with the declared damping of a joint each, shape [joints, n], from x of shape [n].

    The damping of its servo makes up for it: within the servo's limits of torque, both are one.
    """
    tried = []
    for name in space.names:
        joint, _, what = name.rpartition(".")
        servo = f"actuator.{joint}.kd"
        if what != "damping" or servo not in space.names:
            continue
        k, row = space.names.index(name), space.names.index(servo)
        moved = x.clone()
        moved[k] = space.declared[k]
        more = float(space.value(name, x)) - float(space.value(name, moved))
        moved[row] = space.coordinates[row].of(max(float(space.value(servo, x)) + more, 1e-12))
        tried.append(space.clip(moved))
    return torch.stack(tried) if tried else x.new_zeros(0, len(x))


def _longest(space: CoordinateSpace) -> float:
    most = space.coordinates[space.names.index(DELAY)].most
    return float("inf") if most is None else most


def _ways(space: CoordinateSpace) -> tuple[bool, ...]:
    return (False, True) if any(name.endswith(".lag") for name in space.names) else (False,)


def _move(space: CoordinateSpace, x: Tensor, delay: float, shift: float, *, by_lag: bool) -> Tensor:
    values = {DELAY: delay + shift}
    for name in space.names:
        joint = name.removeprefix("actuator.").rpartition(".")[0]
        if by_lag and name.endswith(".lag"):
            values[name] = float(space.value(name, x)) - shift
        stiffness = f"actuator.{joint}.kp"
        if by_lag or not name.endswith(".kd") or not space.has(stiffness):
            continue
        kp, kd, inertia = float(space.value(stiffness, x)), float(space.value(name, x)), f"{joint}.armature"
        values[name] = kd - kp * shift
        if inertia in space.names:
            total = delay + kd / max(kp, 1e-12)
            less = total * shift - 0.5 * ((delay + shift) ** 2 - delay**2)
            values[inertia] = float(space.value(inertia, x)) - kp * less
    moved = x.clone()
    for name, value in values.items():
        k = space.names.index(name)
        one = space.coordinates[k]
        moved[k] = one.of(max(value, one.least_value if one.least_value is not None else value))
    return space.clip(moved)
