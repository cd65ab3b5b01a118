# SPDX-License-Identifier: Apache-2.0
"""Residual of IBM's identified free pendulum: noise, or a missing law?

A frictional double pendulum in numpy is fitted to a quarter of a second of the calibrated film, from states filtered
from 52 ms around each start. Then, of its error at the end of 1,000 segments of the test runs:

- noise: the same pendulum's error on its own simulated film, with white noise as large as that of the real one;
- state: the error left by a network that predicts it from the initial state, trained on 20,000 segments of the training
  runs. A missing law of the state, or an angle-dependent bias of the film, would show here;
- pivot: the error left if the pivot's filmed motion acts on the pendulum.

    python benchmarks/ibm_floor.py
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import least_squares
from scipy.signal import butter, filtfilt, savgol_filter

from _common import require, result_parser, single_thread, write_result
from _film import calibrated

LOG = Path(__file__).resolve().parents[2] / "shared" / "data" / "ibm_double_pendulum" / "ibm_double_pendulum.npz"
DT, FRAMES, EDGE = 1 / 400, 100, 40
METRES = 0.247e-3
"""Metres per unit of the film."""
NOISE = (0.00073, 0.00117)
"""Angles minus their smoothed curve, root mean square [rad]."""
FIRST = np.array([9.63, 0.731, 666.0, 67.3, 0.2, 0.9, 0.05, 0.8])
"""Inertias A and C, gravity of both links, viscous and dry friction of both joints, over m2 l1 c2."""


@dataclass(frozen=True)
class Stretches:
    """Segments of the film: initial states [N, 2]; accelerations of the pivot, and angles [N, FRAMES + 1, 2]."""

    angles: np.ndarray
    rates: np.ndarray
    pivot: np.ndarray
    measured: np.ndarray


def main() -> None:
    """Measure, and write the figures."""
    parser = result_parser(__doc__)
    parser.add_argument("--data", type=Path, default=LOG, help="npz file of IBM's pendulum")
    options = parser.parse_args()
    require(options.data.is_file(), f"there is no {options.data.name}; give --data FILE")
    single_thread()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        calibrated(options.data, Path(scratch) / "film.npz")
        film = dict(np.load(Path(scratch) / "film.npz"))
    train, test = drawn(film, 0, 400, rng), drawn(film, 2, 1000, rng)
    rigid, shaken = fitted(train, pivot=False), fitted(train, pivot=True)
    error = missed(test, rigid)
    figures = {"identified_rad": size(error), "pivot": size(missed(test, shaken)) / size(error)}
    figures["noise"] = size(of_noise(test, rigid, rng)) / size(error)
    figures["state"] = of_state([drawn(film, split, n, rng) for split, n in ((0, 20_000), (1, 2000))], test, rigid)
    write_result(options.json, "ibm_floor", figures, {})


def drawn(film: dict[str, np.ndarray], split: int, count: int, rng: np.random.Generator) -> Stretches:
    """Return segments of a split's runs."""
    runs = {k: _series(film, k) for k in np.flatnonzero(film["split"] == split)}
    picked = [(k, rng.integers(EDGE, len(runs[k][0]) - FRAMES - EDGE)) for k in rng.choice(list(runs), count)]
    rows = [(runs[k], slice(s, s + FRAMES + 1)) for k, s in picked]
    return Stretches(
        np.array([run[0][row.start] for run, row in rows]), np.array([run[1][row.start] for run, row in rows]),
        np.array([run[2][row] for run, row in rows]), np.array([run[0][row] for run, row in rows]),
    )  # fmt: skip


def _series(film: dict[str, np.ndarray], run: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return smoothed angles, their rates, and the acceleration of the pivot below 14 Hz, shape [T, 2] each."""
    rows = slice(*film["offsets"][run : run + 2])
    angles, pivot = film["theta"][rows].astype(float), film["markers_px5"][rows, :2] * METRES
    slow = filtfilt(*butter(3, 14 * 2 * DT), pivot, axis=0)
    shaken = np.gradient(np.gradient(slow, DT, axis=0), DT, axis=0)
    return (*smoothed(angles, 0), shaken)


def smoothed(angles: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return angles and rates by the filter of the film's own smoothed columns."""
    return savgol_filter(angles, 21, 4, axis=axis), savgol_filter(angles, 21, 4, deriv=1, delta=DT, axis=axis)


def accelerations(angles: np.ndarray, rates: np.ndarray, pivot: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the accelerations of both links, whose angles are absolute and 0 hanging down, shape [N, 2]."""
    one, two, apart = angles[:, 0], angles[:, 1], angles[:, 0] - angles[:, 1]
    between, (x, y) = rates[:, 1] - rates[:, 0], (pivot * c[8:]).T
    elbow = c[6] * between + c[7] * np.tanh(between / 0.05)
    shoulder = c[4] * rates[:, 0] + c[5] * np.tanh(rates[:, 0] / 0.05)
    pulled = [g * (np.sin(a) + (y * np.cos(a) - x * np.sin(a)) / 9.81) for g, a in ((c[2], one), (c[3], two))]
    first = -(rates[:, 1] ** 2) * np.sin(apart) - pulled[0] - shoulder + elbow
    second = rates[:, 0] ** 2 * np.sin(apart) - pulled[1] - elbow
    coupled = np.cos(apart)
    both = [c[1] * first - coupled * second, c[0] * second - coupled * first]
    return np.stack(both, 1) / (c[0] * c[1] - coupled**2)[:, None]


def rolled(start: Stretches, c: np.ndarray, frames: int = FRAMES) -> np.ndarray:
    """Return roll-outs (Runge-Kutta of order 4), shape [N, frames + 1, 2]."""
    angles, rates, path = start.angles, start.rates, [start.angles]
    for k in range(frames):
        here, after = start.pivot[:, min(k, FRAMES)], start.pivot[:, min(k + 1, FRAMES)]
        slopes, at = [], (angles, rates)
        for share, pivot in ((0.5, here), (0.5, 0.5 * (here + after)), (1.0, 0.5 * (here + after)), (0.0, after)):
            slopes.append((at[1], accelerations(*at, pivot, c)))
            at = (angles + share * DT * slopes[-1][0], rates + share * DT * slopes[-1][1])
        mean = [(a + 2 * b + 2 * d + e) / 6 for a, b, d, e in zip(*slopes, strict=True)]
        angles, rates = angles + DT * mean[0], rates + DT * mean[1]
        path.append(angles)
    return np.stack(path, 1)


def fitted(train: Stretches, *, pivot: bool) -> np.ndarray:
    """Return the best-fit parameters; the last two are the fractions of the pivot's motion that act."""

    def whole(z: np.ndarray) -> np.ndarray:
        return np.concatenate([np.exp(z[:8]) * FIRST, z[8:] if pivot else np.zeros(2)])

    def left(z: np.ndarray) -> np.ndarray:
        return (rolled(train, whole(z)) - train.measured)[:, 25::25].ravel()

    start = np.concatenate([np.zeros(8), np.full(2 if pivot else 0, 0.9)])
    return whole(least_squares(left, start, loss="soft_l1", f_scale=0.005, max_nfev=12).x)


def missed(start: Stretches, c: np.ndarray) -> np.ndarray:
    """Return the errors of both links at the end of segments, shape [N, 2]."""
    return rolled(start, c)[:, -1] - start.measured[:, -1]


def size(errors: np.ndarray) -> float:
    """Return the mean error of the joint angles; the elbow's is relative [rad]."""
    return float(np.abs(np.stack([errors[:, 0], errors[:, 1] - errors[:, 0]], 1)).mean())


def of_noise(start: Stretches, c: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the errors of the pendulum on its own noisy films."""
    truth = rolled(start, c, EDGE + FRAMES)
    angles, rates = smoothed(truth + rng.normal(size=truth.shape) * NOISE, 1)
    seen = replace(start, angles=angles[:, EDGE], rates=rates[:, EDGE])
    return rolled(seen, c)[:, -1] - truth[:, -1]


def inputs(start: Stretches) -> torch.Tensor:
    """Return the inputs a law may depend on: angles, rates and energy."""
    (one, two), (w, v) = start.angles.T, start.rates.T
    energy = 0.5 * FIRST[0] * w**2 + 0.5 * FIRST[1] * v**2 + w * v * np.cos(one - two)
    energy -= FIRST[2] * np.cos(one) + FIRST[3] * np.cos(two)
    turns = [f(a) for a in (one, two, two - one) for f in (np.cos, np.sin)]
    return torch.from_numpy(np.stack([w, v, np.abs(w), v - w, energy, *turns], 1))


def of_state(known: Sequence[Stretches], test: Stretches, c: np.ndarray, steps: int = 4000) -> float:
    """Return the error left by a network, the checkpoint best on the second of the known sets."""
    torch.manual_seed(0)
    (x, y), (xv, yv), (xt, yt) = ((inputs(one), torch.from_numpy(missed(one, c))) for one in (*known, test))
    mean, spread, scale = x.mean(0), x.std(0), y.abs().median(0).values
    x, xv, xt = ((one - mean) / spread for one in (x, xv, xt))
    layers = [torch.nn.Linear(x.shape[1], 96), torch.nn.SiLU(), torch.nn.Linear(96, 96), torch.nn.SiLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(96, 2)).double()
    optimiser, best = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=1e-3), (np.inf, 1.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
    for step in range(steps):
        rows = torch.randint(len(x), (256,))
        loss = (net(x[rows]) - y[rows] / scale).abs().clamp(max=20).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 200 == 199:
            with torch.no_grad():
                shares = [size((f - net(z) * scale).numpy()) / size(f.numpy()) for z, f in ((xv, yv), (xt, yt))]
            best = min(best, (shares[0], shares[1]))
    return best[1]


if __name__ == "__main__":
    main()
