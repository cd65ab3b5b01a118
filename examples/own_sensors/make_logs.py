# SPDX-License-Identifier: Apache-2.0
"""Write CSV logs of the pendulum of `own_logs` with an IMU and a marker tracked by a camera.

The mass hangs 3 cm lower than in the URDF, the bearing has more friction, the camera tracks the marker at 25 Hz and
logs it 23 ms late, and the IMU has a bias. With --closed the pendulum follows targets with a PD controller, and the log
holds targets instead of torques. No simulator is needed.

    python examples/own_sensors/make_logs.py --out sensors
"""

import argparse
import csv
from pathlib import Path

import numpy as np

FRAME, FINE = 0.01, 20  # s between rows, integration steps in between
MASS, CENTRE, INERTIA, GRAVITY = 0.5, 0.43, 1e-4, 9.81  # kg, m below the joint, kg m^2 about that point, m/s^2
VISCOUS, COULOMB = 0.02, 0.05  # N m s/rad, N m
UNIT, MARKER = 0.3, 0.45  # m below the joint
CAMERA, DELAY = 4, 0.023  # rows between camera images; s
BIAS = 0.05  # gyroscope bias about y [rad/s]
KP, KD = 6.0, 1.0  # N m/rad, N m s/rad
COLUMNS = ["t", "angle", "speed", "command", "gx", "gy", "gz", "ax", "ay", "az", "mx", "my", "mz"]


def acceleration(q: float, qd: float, torque: float) -> float:
    friction = VISCOUS * qd + COULOMB * np.tanh(qd / 0.05)
    return (torque - MASS * GRAVITY * CENTRE * np.sin(q) - friction) / (INERTIA + MASS * CENTRE**2)


def write_log(path: Path, seconds: float, closed: bool, rng: np.random.Generator) -> None:
    """Simulate one run and write it as its logger would."""
    rows, h = round(seconds / FRAME), FRAME / FINE
    commands = np.repeat(rng.uniform(-1.6, 1.6, rows), rng.integers(5, 30, rows))[:rows]
    q, qd, angles, lines = rng.uniform(-1, 1), 0.0, [], []
    for row in range(rows):
        torque = KP * (commands[row] - q) - KD * qd if closed else commands[row]
        qdd = acceleration(q, qd, torque)
        unit = [0.0, qd + BIAS, 0.0, -UNIT * qdd - GRAVITY * np.sin(q), 0.0, UNIT * qd**2 + GRAVITY * np.cos(q)]
        lines.append([row * FRAME, q, qd, commands[row], *unit])
        for _ in range(FINE):
            angles.append(q)
            qd += h * acceleration(q, qd, torque)
            q += h * qd
    noise = np.array([0, 2e-4, 5e-3, 0, *[2e-3] * 3, *[0.05] * 3])
    late = round(DELAY / h)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row, line in enumerate(np.array(lines) + noise * rng.normal(size=(rows, len(noise)))):
            seen = angles[max(0, row * FINE - late)]
            place = np.array([-MARKER * np.sin(seen), 0.0, -MARKER * np.cos(seen)]) + 5e-4 * rng.normal(size=3)
            cells = [f"{x:.6g}" for x in line] + ([f"{x:.5f}" for x in place] if row % CAMERA == 0 else [""] * 3)
            writer.writerow(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("sensors"), help="folder for the CSV files")
    parser.add_argument("--runs", type=int, default=6, help="number of files")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run")
    parser.add_argument("--closed", action="store_true", help="whether targets are logged, which a controller follows")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    for index in range(args.runs):
        write_log(args.out / f"run{index}.csv", args.seconds, args.closed, rng)
    print(f"{args.runs} runs of {args.seconds:g} s in {args.out}")


if __name__ == "__main__":
    main()
