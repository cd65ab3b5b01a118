# SPDX-License-Identifier: Apache-2.0
"""A plain Newton loop in which a neural solver replaces the analytic one.

Two lines differ: the solver, and the number of substeps, because a neural model predicts whole frames. The script runs
the loop with both solvers and compares the poses of all bodies.

    python examples/solver_swap.py --solver neural
    python examples/solver_swap.py --solver neural --run path/to/run --worlds 64 --frames 200
"""

import argparse
import sys
import time

import newton
import numpy as np
import warp as wp

from neurodyn import robots, sim
from neurodyn.solvers import SolverNeural

FPS = 60


def simulate(name, run, worlds, frames):
    """Simulate cartpoles that are pushed back and forth; return the poses of all bodies in every frame."""
    model = sim.build(robots.load("cartpole"), worlds=worlds)

    if name == "analytic":
        substeps = 5
        solver = newton.solvers.SolverFeatherstone(model, angular_damping=0.0)
    else:
        substeps = 1
        solver = SolverNeural(model, run)

    state_0, state_1, control = model.state(), model.state(), model.control()
    place(model, state_0)
    poses, spent = [state_0.body_q.numpy().copy()], 0.0
    for frame in range(frames):
        push(model, control, frame)
        begin = time.process_time()
        for _ in range(substeps):
            state_0.clear_forces()
            solver.step(state_0, state_1, control, None, 1.0 / FPS / substeps)
            state_0, state_1 = state_1, state_0
        spent += time.process_time() - begin
        newton.eval_fk(model, state_0.joint_q, state_0.joint_qd, state_0)
        poses.append(state_0.body_q.numpy().copy())
    print(f"{name}: {worlds} worlds, {frames} frames, {worlds * frames / spent:,.0f} frames per CPU-second")
    return np.stack(poses)


def place(model, state):
    """Start with the poles at rest, at angles all around the circle."""
    q = np.zeros((model.world_count, 2), dtype=np.float32)
    q[:, 1] = np.linspace(0.5, 2 * np.pi - 0.5, model.world_count)
    state.joint_q.assign(q.ravel())
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)


def push(model, control, frame):
    """Push the carts back and forth, each at its own frequency."""
    frequency = np.linspace(0.5, 1.5, model.world_count)
    force = np.zeros((model.world_count, 2), dtype=np.float32)
    force[:, 0] = 300.0 * np.cos(2 * np.pi * frequency * frame / FPS)
    control.joint_f.assign(force.ravel())


def differences(poses, reference):
    """Return distances [m] and angles [rad] between poses [x y z, qx qy qz qw], shape [...]."""
    distance = np.linalg.norm(poses[..., :3] - reference[..., :3], axis=-1)
    p, r = poses[..., 3:].astype(float), reference[..., 3:].astype(float)
    # The vector part of conj(r) p: unlike the arc cosine of a dot product it is exact for small angles.
    turn = r[..., 3:] * p[..., :3] - p[..., 3:] * r[..., :3] - np.cross(r[..., :3], p[..., :3])
    return distance, 2 * np.arcsin(np.clip(np.linalg.norm(turn, axis=-1), 0, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--solver", choices=("analytic", "neural"), default="neural")
    parser.add_argument("--run", default="pretrained:cartpole", help="a run directory or pretrained:NAME")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--tolerance", type=float, default=0.02, help="greatest mean error [m] and [rad]")
    args = parser.parse_args()

    wp.config.log_level = wp.LOG_WARNING
    other = {"analytic": "neural", "neural": "analytic"}[args.solver]
    poses = simulate(args.solver, args.run, args.worlds, args.frames)
    distance, angle = differences(poses, simulate(other, args.run, args.worlds, args.frames))
    moved = np.ptp(poses[..., 0], axis=0).mean()
    print(f"bodies move {moved:.2f} m; {args.solver} against {other} in all bodies, worlds and frames:")
    print(f"  position    mean {distance.mean():.5f} m    worst {distance.max():.5f} m")
    print(f"  orientation mean {angle.mean():.5f} rad  worst {angle.max():.5f} rad")
    if not (distance.mean() < args.tolerance and angle.mean() < args.tolerance and moved > 0.1):
        sys.exit(f"the solvers disagree by more than {args.tolerance} on average")


if __name__ == "__main__":
    main()
