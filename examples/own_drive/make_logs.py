# SPDX-License-Identifier: Apache-2.0
"""Write logs of a joint with a PD drive: targets, readings of a 14-bit encoder, and motor torque.

Two minutes in total, chirps and steps. The drive is delayed, saturates, has friction and rotor inertia, and its encoder
has an offset. No simulator is needed.

    python examples/own_drive/make_logs.py --out drive-logs
"""

import argparse
import csv
from pathlib import Path

import numpy as np

PERIOD, FINE = 0.005, 40  # s between rows; integration steps in between
KP, KD = 40.0, 1.0  # N m/rad, N m s/rad: as set in the drive
ARMATURE, COULOMB, VISCOUS = 0.016, 0.22, 0.09  # kg m^2, N m, N m s/rad
DELAY, LIMIT, BIAS = 0.0087, 6.5, 0.03  # s, N m, rad
INERTIA, GRAVITY_TORQUE = 0.008 + 0.15**2, 1.0 * 9.81 * 0.15  # kg m^2, N m
COUNT = 2 * np.pi / 2**14  # rad


def targets(runs: int, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return targets [rad], shape [runs, rows]: chirps of .1 to 6 Hz, with steps in every second run."""
    time = PERIOD * np.arange(rows)
    rate = rng.uniform(0.1, 6.0, (runs, 2))
    share = time / time[-1]
    phase = 2 * np.pi * np.cumsum(rate[:, :1] + (rate[:, 1:] - rate[:, :1]) * share, axis=1) * PERIOD
    chirp = rng.uniform(0.15, 1.0, (runs, 1)) * np.sin(phase + rng.uniform(0, 6, (runs, 1)))
    steps = 0.5 * np.sign(np.sin(2 * np.pi * 0.7 * time + rng.uniform(0, 6, (runs, 1))))
    return 0.2 + chirp + steps * (np.arange(runs) % 2 == 1)[:, None]


def simulate(target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return angles [rad] and motor torques [N m] at the rows, shape [runs, rows]."""
    runs, rows = target.shape
    h, late = PERIOD / FINE, round(DELAY * FINE / PERIOD)
    held = np.repeat(target, FINE, axis=1)
    q, qd = target[:, 0].copy(), np.zeros(runs)
    angles, torques = np.empty_like(target), np.empty_like(target)
    for step in range(rows * FINE):
        command = held[:, max(step - late, 0)]
        torque = np.clip(KP * (command - q - BIAS) - KD * qd, -LIMIT, LIMIT)
        if step % FINE == 0:
            angles[:, step // FINE], torques[:, step // FINE] = q, torque
        friction = COULOMB * np.tanh(qd / 0.05) + VISCOUS * qd
        qd = qd + h * (torque - friction - GRAVITY_TORQUE * np.sin(q)) / (INERTIA + ARMATURE)
        q = q + h * qd
    return angles, torques


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("drive-logs"), help="folder for the CSV files")
    parser.add_argument("--runs", type=int, default=12, help="number of files")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    target = targets(args.runs, int(args.seconds / PERIOD), rng)
    angles, torques = simulate(target)
    readings = np.round((angles + BIAS) / COUNT) * COUNT
    torques = torques + 0.05 * rng.standard_normal(torques.shape)
    time = PERIOD * np.arange(target.shape[1])
    for run in range(args.runs):
        with (args.out / f"run{run:02d}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["time", "encoder", "target", "torque"])
            for row in np.column_stack((time, readings[run], target[run], torques[run])):
                writer.writerow([f"{value:.6f}" for value in row])
    print(f"{args.runs} runs of {args.seconds:g} s in {args.out}; the drive is {1e3 * DELAY:g} ms late")


if __name__ == "__main__":
    main()
