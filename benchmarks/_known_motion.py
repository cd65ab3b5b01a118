# SPDX-License-Identifier: Apache-2.0
"""Known motions of an arm, a cart and a floating body, and whether an imported log has them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import yaml

from neurodyn.data.readers.floating import rotate
from neurodyn.data.store import Store

DT = 0.02
CENTER = (0.06, -0.03, 0.05)
"""Centre of mass of the floating body in its frame [m]."""

_LINK = (
    '<link name="{name}"><inertial><origin xyz="{at}" rpy="{turn}"/><mass value="{mass}"/>'
    '<inertia ixx=".02" iyy=".03" izz=".01" ixy=".001" ixz="0" iyz="0"/></inertial></link>'
)
_JOINT = (
    '<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 .2"/>'
    '<axis xyz="{axis}"/>{limit}</joint>'
)
_PARTS: dict[str, list[tuple[str, str, str]]] = {
    "arm": [("shoulder", "revolute", "-3 3"), ("elbow", "continuous", ""), ("finger", "prismatic", "-.01 .06")],
    "cart": [("slider", "prismatic", "-2 2"), ("pole", "continuous", "")],
    "body": [("flap", "revolute", "-2 2")],
}
"""Joints of each robot: name, kind, limits."""


def write_robot(kind: str, folder: Path) -> Path:
    """Write a robot and its declaration; return the folder."""
    folder.mkdir(parents=True)
    parts, parent, text = _PARTS[kind], "root", ""
    free, center = kind == "body", " ".join(map(str, CENTER))
    at, turn = (center, ".3 -.2 .5") if free else ("0 0 0", "0 0 0")
    text += _LINK.format(name="root", at=at, turn=turn, mass=2.0)
    for name, joint, limit in parts:
        low, _, high = limit.partition(" ")
        bounds = f'<limit lower="{low}" upper="{high}" effort="50" velocity="20"/>' if limit else ""
        axis = "1 0 0" if joint == "prismatic" else "0 1 0"
        text += _LINK.format(name=f"{name}_link", at="0 0 .1", turn="0 0 0", mass=0.5)
        text += _JOINT.format(name=name, kind=joint, parent=parent, child=f"{name}_link", axis=axis, limit=bounds)
        parent = f"{name}_link"
    (folder / "robot.urdf").write_text(f'<robot name="{kind}">{text}</robot>')
    joints: list[dict] = [{"name": "base", "kind": "free"}] if free else []
    for name, joint, limit in parts:
        one = {"name": name, "kind": "prismatic" if joint == "prismatic" else "revolute"}
        joints.append(one | ({} if limit else {"continuous": True}))
    driven = [name for name, *_ in parts] if kind != "cart" else ["slider"]
    tree = {
        "name": f"drawn-{kind}", "asset": "robot.urdf", "joints": joints, "actuated": dict.fromkeys(driven, 50.0),
        "dt": DT, "fixed_base": not free, "simulator": {"solver": "mujoco-c"},
    }  # fmt: skip
    (folder / "robot.yaml").write_text(yaml.safe_dump(tree))  # which puts the driven joints in another order
    return folder


class Motion:
    """A motion in closed form: sums of sines; a body turns by yaw, pitch and roll."""

    def __init__(self, kind: str, draw: Random) -> None:
        self.kind, self.free = kind, kind == "body"
        self.joints = [name for name, *_ in _PARTS[kind]]
        self.driven = self.joints if kind != "cart" else ["slider"]
        self.prismatic = [joint == "prismatic" for _, joint, _ in _PARTS[kind]]
        sizes = {"finger": 0.02, "slider": 0.5}
        self._size = np.array([sizes.get(name, 0.8) for name in self.joints])
        self._middle = np.array([{"finger": 0.022}.get(name, draw.uniform(-0.3, 0.3)) for name in self.joints])
        self._rate = np.array([draw.uniform(2.0, 5.0) for _ in self.joints])
        self._phase = np.array([draw.uniform(0.0, 6.0) for _ in self.joints])
        self._drift = np.array([draw.choice((0.0, 2.5)) if name == "elbow" else 0.0 for name in self.joints])
        self._inertia = np.where(self.prismatic, 1.5, 0.3)
        self._body = np.array([[draw.uniform(0.2, 0.6), draw.uniform(1.0, 2.5), draw.uniform(0, 6)] for _ in range(6)])
        self._body[4, 0] = min(self._body[4, 0], 0.5)

    def q(self, t: np.ndarray) -> np.ndarray:
        """Return positions, free joint first, quaternion scalar last, shape [T, nq]."""
        angles = self._middle + self._size * np.sin(np.outer(t, self._rate) + self._phase) + np.outer(t, self._drift)
        return np.concatenate([*self.pose(t), angles], 1) if self.free else angles

    def qd(self, t: np.ndarray) -> np.ndarray:
        """Return velocities: of the centre of mass in world axes, and angular ones in world axes; shape [T, nv]."""
        rates = self._size * self._rate * np.cos(np.outer(t, self._rate) + self._phase) + self._drift
        if not self.free:
            return rates
        linear, angular = self.twist(t)
        arm = rotate(self.pose(t)[1], np.tile(CENTER, (len(t), 1)))
        return np.concatenate([linear + np.cross(angular, arm), angular, rates], 1)

    def torque(self, t: np.ndarray) -> np.ndarray:
        """Return the torques that drive the joints apart from one another, which hold for a frame; shape [T, nu]."""
        angle = np.outer(t + DT / 2, self._rate) + self._phase
        rates = self._size * self._rate * np.cos(angle) + self._drift
        all_ = self._inertia * (-self._size * self._rate**2 * np.sin(angle)) + 0.2 * rates
        return all_[:, [self.joints.index(name) for name in self.driven]]

    def pose(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return position of the origin [T, 3], and rotation [T, 4], scalar last."""
        return self._waves(t)[:, :3] + np.array([0.0, 0.0, 1.0]), _of_angles(*self.angles(t).T)

    def angles(self, t: np.ndarray) -> np.ndarray:
        """Return roll, pitch, yaw [rad], shape [T, 3]."""
        values = self._waves(t)
        return np.stack([values[:, 5], values[:, 4], 2.0 * values[:, 3]], 1)

    def _waves(self, t: np.ndarray) -> np.ndarray:
        size, rate, phase = self._body.T
        return size * np.sin(np.outer(t, rate) + phase)

    def twist(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the velocity of the origin and the angular velocity in world axes, shapes [T, 3]."""
        size, rate, phase = self._body.T
        slopes = size * rate * np.cos(np.outer(t, rate) + phase)
        _, pitch, yaw = self.angles(t).T
        droll, dpitch, dyaw = slopes[:, 5], slopes[:, 4], 2.0 * slopes[:, 3]
        cp, sp, cy, sy = np.cos(pitch), np.sin(pitch), np.cos(yaw), np.sin(yaw)
        spin = np.stack([cy * cp * droll - sy * dpitch, sy * cp * droll + cy * dpitch, dyaw - sp * droll], 1)
        return slopes[:, :3], spin


def _of_angles(roll: np.ndarray, pitch: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    """Return quaternions of Rz(yaw) Ry(pitch) Rx(roll), scalar last."""
    cr, sr, cp, sp = np.cos(roll / 2), np.sin(roll / 2), np.cos(pitch / 2), np.sin(pitch / 2)
    cy, sy = np.cos(yaw / 2), np.sin(yaw / 2)
    parts = (
        cy * cp * sr - sy * sp * cr, cy * sp * cr + sy * cp * sr, sy * cp * cr - cy * sp * sr,
        cy * cp * cr + sy * sp * sr,
    )  # fmt: skip
    return np.stack(parts, 1)


@dataclass
class KnownRun:
    """What was logged of a motion.

    Attributes:
        motion: The motion.
        clocks: Times of the rows of "q", "qd" and "control" since the motion's zero [s].
        blind: Intervals in which something was not logged [s].
        rounding: Rounding of the time stamps [s].
        differentiated: Time over which velocities are differentiated [s]; 0 where they are logged.
        per_joint: Joints whose velocities alone are differentiated.
        others: Clocks of further streams, which are brought onto one.
    """

    motion: Motion
    clocks: dict[str, np.ndarray]
    blind: list[tuple[float, float]] = field(default_factory=list)
    rounding: float = 0.0
    differentiated: float = 0.0
    per_joint: tuple[str, ...] = ()
    others: list[np.ndarray] = field(default_factory=list)


def difference(store: Store, runs: Sequence[KnownRun]) -> str:
    """Return what differs from the known runs in a store; empty if nothing does."""
    seen = np.zeros(len(runs))
    for number in range(len(store.lengths)):
        q, qd, control = (np.asarray(part, float) for part in store.episode(number))
        run, start = _found(q, runs)
        seen[run] += len(control) * DT
        order = [runs[run].motion.driven.index(name) for name in store.header.spec.controls]
        if what := _of_episode(runs[run], start, q, qd, control[:, np.argsort(order)]):
            return f"episode {number}: {what}"
    for k, run in enumerate(runs):
        clocks = [*run.clocks.values(), *run.others]
        begin, end = max(clock[0] for clock in clocks), min(clock[-1] for clock in clocks)
        whole = end - begin
        for hole in sorted(run.blind):
            whole -= max(0.0, min(hole[1], end) - max(hole[0], begin))
            begin = max(begin, hole[1])
        if seen[k] < whole - (3 + 2 * bool(run.others)) * DT * (1 + len(run.blind)):  # a row at each end, if joined
            return f"run {k}: {seen[k]:.2f} s of {whole:.2f} are there"
        if seen[k] > whole + 6 * DT * (1 + len(run.blind)):
            return f"run {k}: {seen[k]:.2f} s where {whole:.2f} were logged"
    return ""


def _found(q: np.ndarray, runs: Sequence[KnownRun]) -> tuple[int, float]:
    """Return the run of an episode, and when it begins."""
    best = (np.inf, 0, 0.0)
    for k, run in enumerate(runs):
        times = run.clocks["q"]
        fine = np.arange(times[0] - DT, times[-1] + DT, DT / 10)
        ends = np.stack([_aligned(run.motion.q(fine + at * DT), q[at]) for at in (0, len(q) // 2, len(q) - 1)])
        error = np.linalg.norm(ends, axis=2).sum(0)
        at = int(error.argmin())
        if error[at] < best[0]:
            best = (float(error[at]), k, float(fine[at]))
    _, k, start = best
    motion, grid = runs[k].motion, DT * np.arange(len(q))
    for _ in range(8):
        left = _aligned(motion.q(start + grid), q)
        slope = (motion.q(start + grid + 1e-6) - motion.q(start + grid - 1e-6)) / 2e-6
        start -= float((left * slope).sum() / max((slope**2).sum(), 1e-12))
    edges = np.concatenate(
        [*runs[k].clocks.values(), *runs[k].others, [time for hole in runs[k].blind for time in hole]]
    )
    edges = np.concatenate([edges, edges + DT / 2])
    near = float(edges[np.abs(edges - start).argmin()])
    return k, near if abs(near - start) < 2e-5 else start


def _aligned(expected: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return expected less found positions; of both signs of a quaternion, the nearer one."""
    found = np.broadcast_to(found, expected.shape).copy()
    if expected.shape[1] > 7:
        turn = slice(3, 7)
        found[:, turn] *= np.where((found[:, turn] * expected[:, turn]).sum(1, keepdims=True) < 0, -1.0, 1.0)
    return expected - found


def _of_episode(run: KnownRun, start: float, q: np.ndarray, qd: np.ndarray, control: np.ndarray) -> str:
    motion, at = run.motion, start + DT * np.arange(len(q))
    wrong = []
    loss_q, loss_qd = _losses(run, at)
    names = [
        *([f"base.{axis}" for axis in ("x", "y", "z", "qx", "qy", "qz", "qw")] if motion.free else []),
        *motion.joints,
    ]
    wrong += _worst("q", names, _aligned(motion.q(at), q), loss_q)
    rates = [
        *([f"base.{axis}" for axis in ("vx", "vy", "vz", "wx", "wy", "wz")] if motion.free else []),
        *motion.joints,
    ]
    if run.per_joint:
        some = [rates.index(name) for name in run.per_joint]
        loss_qd[some] = np.maximum(loss_qd[some], _loss_of_slopes(run, at, some))
    wrong += _worst("qd", rates, motion.qd(at) - qd, loss_qd)
    times = run.clocks["control"]
    steps = np.abs(np.diff(motion.torque(times), axis=0)).max(0)
    loss_u = steps * (2 * run.rounding + 2e-6) / DT
    wrong += _worst("control", motion.driven, _held(times, motion.torque(times), at) - control, loss_u)
    return "; ".join(wrong[:3])


def _losses(run: KnownRun, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what interpolation loses of each coordinate: where rows miss the frames, and by differentiation."""
    fine = np.linspace(at[0] - 2 * DT, at[-1] + 2 * DT, 4 * len(at) + 20)
    speed, rough = _largest(run.motion.qd(fine), fine, 0), _largest(run.motion.q(fine), fine, 1)
    third, jerk = _largest(run.motion.q(fine), fine, 3), _largest(run.motion.qd(fine), fine, 2)
    step_q, step_qd = (max(_step(one, at) for one in (run.clocks[name], *run.others)) for name in ("q", "qd"))
    loss_q = 1.5 * step_q**3 * third / 24 + rough * run.rounding
    loss_qd = 1.5 * step_qd**2 * jerk / 8 + jerk * run.rounding + speed * run.rounding
    if run.differentiated:
        loss_qd = np.maximum(loss_qd, _loss_of_slopes(run, at, slice(None)))
    if run.others:  # interpolated twice, and along the axes of the log
        loss_q, loss_qd = 5 * loss_q, 5 * loss_qd.max() + 0 * loss_qd
    return loss_q, loss_qd


def _largest(values: np.ndarray, time: np.ndarray, order: int) -> np.ndarray:
    """Return the largest derivative of an order, of each column."""
    for _ in range(order):
        values = np.gradient(values, time, axis=0)
    return np.abs(values).max(0)


def _loss_of_slopes(run: KnownRun, at: np.ndarray, chosen) -> np.ndarray:
    fine = np.linspace(at[0] - 2 * DT, at[-1] + 2 * DT, 4 * len(at) + 20)
    slopes = run.motion.qd(fine)
    jerk = _largest(slopes, fine, 2)[chosen]
    step = float(np.diff(run.clocks["q"]).clip(None, 0.1).max())
    span = max(run.differentiated, step)
    return (span + step) ** 2 * jerk + np.abs(slopes).max() * (run.rounding / DT + 2e-6)


def _step(clock: np.ndarray, at: np.ndarray) -> float:
    """Return the longest step of a clock that frames miss; 0 if each is on a row."""
    near = np.clip(np.searchsorted(clock, at - 1e-5 * DT), 0, len(clock) - 1)
    if (np.abs(clock[near] - at) < 1e-4 * DT).all():
        return 0.0
    steps = np.diff(clock)
    return float(steps[steps < 0.1 + 1e-6].max())


def _held(times: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the mean of a held signal over each frame."""
    means = []
    for begin, end in pairwise(at.tolist()):
        inside = times[(times > begin + 1e-6) & (times < end - 1e-6)]
        edges = np.concatenate([[begin], inside, [end]])
        row = np.clip(np.searchsorted(times, edges[:-1] + 2e-6, side="right") - 1, 0, len(times) - 1)
        means.append((values[row] * np.diff(edges)[:, None]).sum(0) / (end - begin))
    return np.array(means)


def _worst(what: str, names: Sequence[str], error: np.ndarray, loss: np.ndarray) -> list[str]:
    most = np.abs(error).max(0) if len(error) else np.zeros(len(names))
    return [
        f"{what} of {name} by {value:.2g}"
        for name, value, allowed in zip(names, most, loss, strict=True)
        if not value <= 4e-6 + allowed
    ]
