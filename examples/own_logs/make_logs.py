# SPDX-License-Identifier: Apache-2.0
"""Write CSV logs of a motor-driven pendulum, with typical defects.

The angle is in degrees, with the wrong sign and an encoder offset; the torque is a geared motor's current in mA, and
acts 8 ms after it is logged; the clock is in milliseconds and jitters; everything is noisy. No simulator is needed.

    python examples/own_logs/make_logs.py --out logs
"""

import argparse
import csv
from pathlib import Path

import numpy as np

PERIOD = 0.004  # s between rows
DELAY = 0.008  # s from the logged current to the torque
ZERO = 35.0  # encoder reading of the hanging pendulum [deg]
TORQUE_PER_MA = 9 * 0.06e-3  # N m per mA: gear ratio times motor constant
MASS, LENGTH, GRAVITY = 0.5, 0.4, 9.81  # kg at the end of a rod [m], m/s^2
VISCOUS, COULOMB = 0.01, 0.05  # N m s/rad, N m
FINE = 10  # integration steps between rows


def simulate(seconds: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return angles [rad], velocities [rad/s] and torques [N m] at the rows; torques as they act."""
    rows = int(seconds / PERIOD)
    torque = excite(rows, rng)
    q, qd, h = rng.uniform(-1, 1), 0.0, PERIOD / FINE
    angles, velocities = np.empty(rows), np.empty(rows)
    for row in range(rows):
        angles[row], velocities[row] = q, qd
        for _ in range(FINE):
            friction = VISCOUS * qd + COULOMB * np.tanh(qd / 0.05)
            qd += h * (torque[row] - MASS * GRAVITY * LENGTH * np.sin(q) - friction) / (MASS * LENGTH**2)
            q += h * qd
    return angles, velocities, torque


def excite(rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return torques [N m] that jump to a new random value every 40 to 200 ms."""
    holds = rng.integers(10, 50, size=rows)
    return np.repeat(rng.uniform(-1.6, 1.6, size=rows), holds)[:rows]


def write_log(path: Path, seconds: float, rng: np.random.Generator) -> None:
    """Simulate one run and write it as its logger would."""
    q, qd, torque = simulate(seconds, rng)
    late = round(DELAY / PERIOD)
    current = torque[late:] / TORQUE_PER_MA  # logged `late` rows before it acts
    rows = len(current)
    time = 1e3 * (PERIOD * np.arange(rows) + rng.uniform(-2e-4, 2e-4, rows))
    angle = ZERO - np.rad2deg(q[:rows]) + rng.normal(0, 0.02, rows)
    speed = -qd[:rows] * 60 / (2 * np.pi) + rng.normal(0, 0.3, rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["t_ms", "angle_deg", "speed_rpm", "current_mA"])
        for row in np.column_stack((time, angle, speed, current)):
            writer.writerow([f"{value:.4f}" for value in row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("logs"), help="folder for the CSV files")
    parser.add_argument("--runs", type=int, default=12, help="number of files")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each run")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    for index in range(args.runs):
        write_log(args.out / f"run{index:02d}.csv", args.seconds, rng)
    print(f"{args.runs} runs of {args.seconds:g} s in {args.out}; the torque acts {1e3 * DELAY:g} ms after its row")


if __name__ == "__main__":
    main()
