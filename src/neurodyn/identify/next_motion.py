# SPDX-License-Identifier: Apache-2.0
r"""The next motion to log: the one whose log would most reduce the remaining uncertainty.

Candidates are sums of sines within the limits of commands, played in the fitted model. With the information H of the
logs (priors included) and that of a candidate C, the best has the largest gain (D-optimality)

$$\log\det(H + C) - \log\det H$$
"""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.artifacts import write_text
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State
from neurodyn.identify.parameter_search import Searched
from neurodyn.identify.quantities import effort
from neurodyn.identify.result import NextMotion
from neurodyn.identify.stages import Fitting
from neurodyn.robots import Robot
from neurodyn.robots.plausible import declared_bounds

_AMPLITUDES = (0.15, 0.3, 0.6)
_SINES, _SLOW, _FAST = 4, 0.3, 3.0
_PIECE = 0.25
"""Length of the windows of a motion [s]: beyond it, contacts make derivatives meaningless."""
_FLAT = 0.5
"""Cosine of the tilt beyond which a floating robot counts as fallen."""
_NAMED = 6
FILE = "next-motion.csv"


@torch.no_grad()
def next_motion(fitting: Fitting, searched: Searched, out: Path) -> NextMotion | None:
    """Choose the next motion, write its commands to `out` and return it; None if no candidate stays within limits."""
    settings, robot, dynamics = fitting.settings, fitting.model.robot, fitting.dynamics
    frames = max(4, round(settings.proposal_seconds / robot.spec.dt))
    rng, x = generator(settings.seed, "next motion"), searched.point.x[0]
    information = _information(fitting, searched.residuals.windows, x) + torch.eye(len(x), dtype=torch.float64)
    start = _start(fitting)
    best: tuple[float, Tensor, float, Tensor] | None = None
    for number in range(settings.proposals):
        amplitude = _AMPLITUDES[number % len(_AMPLITUDES)]
        commands = sines(robot, fitting.model.mechanism, frames, amplitude, rng)
        path = dynamics.simulate(
            start, commands[None], dynamics.physical().detach(), dynamics.weights.detach(),
            fitting.environments.at(None),
        )  # fmt: skip
        if not _within(robot, path.q[0], path.qd[0]):
            continue
        gained = _information(fitting, _pieces(fitting, path.q[0], path.qd[0], commands), x)
        gain = float(torch.logdet(information + gained) - torch.logdet(information))
        if best is None or gain > best[0]:
            best = gain, commands, amplitude, gained
    if best is None:
        return None
    _, commands, amplitude, gained = best
    write_text(out / FILE, _table(robot, commands))
    before, after = (torch.linalg.inv(h).diagonal().clamp_min(0.0).sqrt() for h in (information, information + gained))
    names = fitting.space.names
    order = (before - after).argsort(descending=True)[:_NAMED].tolist()
    return NextMotion(
        FILE, frames * robot.spec.dt, amplitude, {names[k]: (float(before[k]), float(after[k])) for k in order}
    )


def sines(robot: Robot, mechanism: Mechanism, frames: int, amplitude: float, rng: np.random.Generator) -> Tensor:
    """Return commands of sums of sines, shape [T, nu]: torques, or targets around the nominal pose."""
    spec = robot.spec
    t = torch.arange(frames, dtype=torch.float64) * spec.dt
    columns = []
    for name, nominal in zip(spec.controls, robot.nominal_q(), strict=True):
        if spec.control_kind == "command":
            low, high = robot.sampling_interval("control", name)
            middle, size = nominal, max(0.0, min(high - nominal, nominal - low)) or 0.5 * (high - low)
            middle = min(max(middle, low + size), high - size)
        else:
            middle, size = _joint_wave(robot, mechanism, name, targets=spec.control_kind == "target")
        rates = np.exp(rng.uniform(math.log(_SLOW), math.log(_FAST), _SINES))
        phases, shares = rng.uniform(0, 2 * math.pi, _SINES), rng.dirichlet(np.ones(_SINES))
        wave = sum(s * torch.sin(2 * math.pi * f * t + p) for s, f, p in zip(shares, rates, phases, strict=True))
        columns.append(middle + amplitude * size * torch.as_tensor(wave))
    return torch.stack(columns, -1) if columns else torch.zeros(frames, 0, dtype=torch.float64)


def _joint_wave(robot: Robot, mechanism: Mechanism, name: str, *, targets: bool) -> tuple[float, float]:
    """Return centre and greatest amplitude of a joint's torques or targets."""
    index = mechanism.names.index(name)
    if not targets:
        return 0.0, effort(robot, mechanism, index)
    link = mechanism.links[index]
    low, high = (-math.pi if link.lower is None else link.lower), math.pi if link.upper is None else link.upper
    middle = float(robot.nominal.get(name, 0.5 * (low + high)))
    return middle, max(0.0, min(high - middle, middle - low))


def _start(fitting: Fitting) -> State:
    """Return the logged state with the least motion, which the robot can reach."""
    windows = fitting.windows(Split.TRAIN, fitting.settings.stages[0])
    row = int(windows.qd[:, 0].abs().sum(-1).argmin())
    return State(windows.q[row : row + 1, 0], windows.qd[row : row + 1, 0])


def _within(robot: Robot, q: Tensor, qd: Tensor) -> bool:
    """Return whether a path is plausible and the robot does not fall."""
    if bool(declared_bounds(robot).outside(q, qd).any()):
        return False
    if not robot.spec.floating:
        return True
    x, y = q[:, 3], q[:, 4]
    return bool((1.0 - 2.0 * (x * x + y * y) > _FLAT).all())


def _pieces(fitting: Fitting, q: Tensor, qd: Tensor, commands: Tensor) -> Windows:
    past, size = fitting.past, max(3, round(_PIECE / fitting.spec.dt))
    length = past + size
    starts = range(0, max(1, len(commands) - length + 1), size)
    rows = [slice(first, first + length + 1) for first in starts]
    controls = torch.stack([commands[first : first + length] for first in starts])
    windows = Windows(torch.stack([q[r] for r in rows]), torch.stack([qd[r] for r in rows]), controls)
    return windows.after(past)


def _information(fitting: Fitting, windows: Windows, x: Tensor) -> Tensor:
    """Return the information of windows on the coordinates, shape [n, n], without priors."""
    residuals = fitting.residuals(replace(windows, readings=None))
    return residuals.normal(residuals.start(x[None])).matrix[0].sum(0)


def _table(robot: Robot, commands: Tensor) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *robot.spec.controls])
    for k, row in enumerate(commands.tolist()):
        writer.writerow([f"{k * robot.spec.dt:.6g}", *(f"{value:.6g}" for value in row)])
    return text.getvalue()
