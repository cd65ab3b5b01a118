# SPDX-License-Identifier: Apache-2.0
"""Legged robots among boxes in a Newton scene, stepped by a neural solver instead of MuJoCo Warp.

The scene is built as in any Newton script: robots, a ground plane, boxes. The neural solver computes the distances of
the robots' contact points to all static shapes, so no ground is declared. The script runs the loop with both solvers
and prints the distance between the robots' bases.

    python examples/boxes.py --robot ant
    python examples/boxes.py --robot anymal-c --run path/to/run --worlds 64 --frames 200
"""

import argparse
import sys
import time

import newton
import numpy as np
import warp as wp

from neurodyn import robots, sim
from neurodyn.solvers import SolverNeural

ROOM = 4.0
"""Half edge of the square with the boxes [m]."""


def build(robot, worlds, seed=0):
    """Build the scene: robots that do not collide with each other, and a plane with boxes shared by all."""
    scene = newton.ModelBuilder()
    scene.replicate(sim.build_world(robot), copy_count=worlds)
    scene.add_ground_plane()
    rng = np.random.default_rng(seed)
    for _ in range(40):
        x, y = rng.uniform(-ROOM, ROOM, 2)
        hx, hy, hz = rng.uniform((0.2, 0.2, 0.02), (0.6, 0.6, 0.1))
        turn = wp.quat_from_axis_angle(wp.vec3(0.0, 0.0, 1.0), rng.uniform(0, np.pi))
        scene.add_shape_box(-1, xform=wp.transform((x, y, 0.0), turn), hx=hx, hy=hy, hz=hz)
    return scene.finalize()


def simulate(name, run, robot, model, frames):
    """Run the loop with one of the solvers; return the positions in all frames, shape [frames + 1, worlds, nq]."""
    if name == "mujoco":
        substeps = robot.simulator.substeps
        solver = newton.solvers.SolverMuJoCo(model, nconmax=200, njmax=800, enable_multiccd=True)
    else:
        substeps = 1
        solver = SolverNeural(model, run)

    state_0, state_1, control = model.state(), model.state(), model.control()
    place(robot, model, state_0)
    path, spent = [table(state_0.joint_q, model)], 0.0
    for frame in range(frames):
        steer(robot, model, state_0, control, frame)
        begin = time.process_time()
        for _ in range(substeps):
            state_0.clear_forces()
            solver.step(state_0, state_1, control, None, robot.dt / substeps)
            state_0, state_1 = state_1, state_0
        spent += time.process_time() - begin
        path.append(table(state_0.joint_q, model))
    print(
        f"{name}: {model.world_count} worlds, {frames} frames, {model.world_count * frames / spent:,.0f} per CPU-second"
    )
    return np.stack(path)


def table(array, model):
    """Return coordinates with one row per world."""
    return array.numpy().reshape(model.world_count, -1).copy()


def place(robot, model, state, seed=1):
    """Drop the robots over the boxes in their nominal pose, each at its own position and heading."""
    rng = np.random.default_rng(seed)
    q = table(state.joint_q, model)
    yaw = rng.uniform(-np.pi, np.pi, model.world_count)
    q[:, :2] = rng.uniform(-ROOM / 2, ROOM / 2, (model.world_count, 2))
    q[:, 2] = robot.reset.height[1] + 0.2
    q[:, 3:7] = np.stack([0 * yaw, 0 * yaw, np.sin(yaw / 2), np.cos(yaw / 2)], axis=1)
    q[:, 7:] = [robot.nominal.get(joint.name, 0.0) for joint in robot.joints[1:]]
    state.joint_q.assign(q.ravel())
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)


def steer(robot, model, state, control, frame):
    """Hold the nominal pose while lifting and lowering one leg after another."""
    q, qd = table(state.joint_q, model)[:, 7:], table(state.joint_qd, model)[:, 6:]
    target = np.array([robot.nominal.get(name, 0.0) for name in robot.actuated])
    legs = 4
    phase = 2 * np.pi * (1.5 * frame * robot.dt - np.arange(legs) / legs)
    target = target + 0.15 * np.repeat(np.sin(phase), len(target) // legs)
    kp, kd = map(np.array, robot.hold_gains() or (400.0, 20.0))
    effort = np.array(list(robot.actuated.values()))
    torque = np.zeros((model.world_count, model.joint_dof_count // model.world_count), dtype=np.float32)
    torque[:, 6:] = np.clip(kp * (target - q) - kd * qd, -effort, effort)
    control.joint_f.assign(torque.ravel())


def angle(a, b):
    """Return angles between rotations [rad], quaternions of shape [..., 4]."""
    return 2 * np.arccos(np.clip(np.abs((a * b).sum(-1)), 0, 1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", choices=("ant", "anymal-c"), default="ant")
    parser.add_argument("--solver", choices=("neural", "mujoco", "both"), default="both")
    parser.add_argument("--run", help="a run directory or pretrained:NAME; by default pretrained:ROBOT")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--frames", type=int, default=100)
    args = parser.parse_args()

    wp.config.log_level = wp.LOG_WARNING
    robot = robots.load(args.robot)
    model = build(robot, args.worlds)
    run = args.run or f"pretrained:{args.robot}"
    names = ("neural", "mujoco") if args.solver == "both" else (args.solver,)
    paths = {name: simulate(name, run, robot, model, args.frames) for name in names}
    for name, path in paths.items():
        if not np.isfinite(path).all():
            sys.exit(f"{name}: a robot is not finite")
        print(f"{name}: bases end {path[-1, :, 2].min():.2f} to {path[-1, :, 2].max():.2f} m above the plane")
    if len(paths) == 2:
        neural, mujoco = paths["neural"], paths["mujoco"]
        print("frame   base apart [m]   turned apart [rad]   joints apart [rad]   base has moved [m]")
        for frame in sorted({min(n, args.frames) for n in (10, 30, 100, 300, args.frames)}):
            a, b, first = neural[frame], mujoco[frame], mujoco[0]
            apart, moved = (np.linalg.norm(x[:, :3] - b[:, :3], axis=1).mean() for x in (a, first))
            turned, joints = angle(a[:, 3:7], b[:, 3:7]).mean(), np.abs(a[:, 7:] - b[:, 7:]).mean()
            print(f"{frame:5d}   {apart:14.4f}   {turned:18.4f}   {joints:18.4f}   {moved:18.4f}")


if __name__ == "__main__":
    main()
