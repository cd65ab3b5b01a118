# SPDX-License-Identifier: Apache-2.0
"""The motion to log next: safe to run, and the one whose log halves the widest interval that a motion can.

A motion has parts, each of which starts and ends at rest in the robot's pose (`motion.waves`): joints move between
random positions as fast as the limits allow, or as sums of sines. These are targets of drives; a robot that takes
torques follows them with a controller of its own, as torques alone would drift: the torques to expect are those of
inverse dynamics. Where joints without a motor move too, or the base, torques are sums of sines themselves, without mean
and trend; the robot then comes to rest, but not in the same place.

A candidate is played in the identified model. It is made smaller until targets and resulting motion keep the limits
(`motion.limits`), links keep clear of each other and of the floor (`sim.mujoco.clearance`), the robot does not fall and
ends where it began. What the candidates tell decides for which quantity the motion is designed: the widest interval
that parts of them, played for as long as allowed, halve (`motion.expected_widths`). Further candidates change the best
one for it. Parts that are safe in samples of the posterior, too, are added, the best first, until the interval is
expected to be narrow enough. What is expected counts the windows that a fit to both logs compares, and no more. Of
wider intervals it is said why no motion narrows them.
"""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.artifacts import write_text
from neurodyn.core.description.parameter import Parameter, student_t
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import generator
from neurodyn.data.header import Split
from neurodyn.data.windows import Windows
from neurodyn.dynamics.batch import State, Trajectory, Window
from neurodyn.identify.confidence.certainty import posterior_sample, value_of
from neurodyn.identify.fit.intervals import Identifiability
from neurodyn.identify.fit.least_squares import reduce
from neurodyn.identify.inverse_dynamics import TorqueModel, TorqueSamples
from neurodyn.identify.motion.expected_widths import HALF, WORTH, ExpectedWidths, PartChoice
from neurodyn.identify.motion.limits import MotionLimits
from neurodyn.identify.motion.roles import Pose, Role
from neurodyn.identify.motion.waves import moves, sines
from neurodyn.identify.result import CONFIDENCE, NextMotion
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.unknowns.quantities import LIMITS
from neurodyn.identify.unknowns.search_space import Coordinate, PartOfSpace
from neurodyn.multibody.engine import nominal
from neurodyn.robots.plausible import declared_bounds
from neurodyn.sim.mujoco.clearance import RobotClearance

FILE = "next-motion.csv"
"""Commands of the motion."""
EXPECTED = "next-motion-expected.csv"
"""Positions that the identified model expects, and torques of its drives."""
_SAMPLES = 10
"""Samples of the posterior in which the motion must be safe."""
_KEPT = {"position": 1.0, "speed": 0.97, "acceleration": 0.87, "torque": 0.7}
"""Share of each limit that a motion uses in the model: a robot follows targets in steps, which a frame's end hides."""
_PART, _SETTLE = 20.0, 1.5
"""Longest part of a motion, and time in which the robot settles before [s]."""
_MOVES = 0.7
"""Share of commands that move between positions rather than as sums of sines."""
_SMALLER, _TRIES, _LEAST_SHARE = 0.8, 12, 0.02
_LEAST_STEP = 0.9
"""Largest share of a motion beyond a limit that is tried next: torques of gravity hardly fall with a motion's size."""
_ROOM = 0.9
"""Share of the limits that targets use: what follows them overshoots."""
_WINDOWS, _WINDOWS_FINALLY = 8, 24
"""Most windows for the information of a candidate and of the chosen motion's parts; it grows with their length."""
_CONTACT_PIECE = 0.25
"""Length of the windows of a motion with contacts [s]: beyond it they make derivatives meaningless."""
_FLAT = 0.5
"""Cosine of the tilt beyond which a floating robot counts as fallen."""
_BACK, _STILL = 0.05, 0.05
"""Distance from the pose at the end, as a share of the range, and speed, as a share of the limit."""
_NAMED, _EXPLAINED = 6, 3
"""Most quantities that a motion is said to narrow, and that it is said why none does."""
_REDRAWS = 2
"""Times that the best candidate is changed, each in several ways."""
_REDRAWN = 0.7
"""Share of the joints that keep their motion when the best candidate is changed."""
_POSES = 30
"""Frames of least motion in the logs that may be the pose of rest."""
_TOGETHER = 4
"""Fewest worlds that are played: programs for vectors of worlds are compiled already."""
_MOST_NUMBERS = 1e8
"""Most numbers of states and memory that are computed at once: delay lines at 2 kHz hold more than a thousand each."""
_CHECKED, _CHECKED_FINALLY = 12.5, 50.0
"""Rates at which contacts are looked for, in candidates and samples, and in the chosen motion of the model [Hz]."""


@dataclass(frozen=True, eq=False)
class MotionCandidate:
    """A motion.

    Attributes:
        waves: Motion of each command relative to rest, largest amplitude, shape [T, nu].
        share: Share of it, by command, shape [nu].
        commands: Commands, shape [T, nu]; of a robot that follows positions, its torques.
        path: Its motion in the identified model, one world.
        gained: Information of its log, shape [n, n].
    """

    waves: Tensor
    share: Tensor
    commands: Tensor
    path: Trajectory
    gained: Tensor


def can_be_moved(spec: StateSpec) -> bool:
    """Return whether a robot can begin and end a motion at rest: it has motors, and joints that they may hold."""
    return bool(spec.controls) and any(joint.scalar for joint in spec.joints)


@torch.no_grad()
def next_motion(fitting: Fitting, x: Tensor, analysis: Identifiability, out: Path) -> NextMotion:
    """Choose the next motion, and write its commands and what to expect of them to a folder.

    Args:
        fitting: The fit, with its dynamics at the fitted values.
        x: Fitted coordinates, shape [n].
        analysis: Identifiability there.
        out: The folder.

    Returns:
        The motion; without a file, and with the reason, if no candidate is safe.
    """
    for name in (FILE, EXPECTED):
        (out / name).unlink(missing_ok=True)
    return _MotionSearch(fitting, x, analysis).run(out)


class _MotionSearch:
    def __init__(self, fitting: Fitting, x: Tensor, analysis: Identifiability) -> None:
        self.fitting, self.x, self.analysis, self.settings = fitting, x, analysis, fitting.settings
        self.robot, self.dynamics = fitting.model.robot, fitting.doubled or fitting.dynamics
        self.spec, self.dt = self.robot.spec, self.robot.spec.dt
        self.frames = max(8, round(min(self.settings.proposal_seconds, _PART) / self.dt))
        self.limits = MotionLimits.of(self.robot, fitting.store, self.settings.limits)
        self.rng = generator(self.settings.seed, "next motion")
        self.failed: Counter[str] = Counter()
        scalar = [joint for joint in self.spec.joints if joint.scalar]
        self._q = [self.spec.q_names.index(joint.name) for joint in scalar]
        self._qd = [self.spec.qd_names.index(joint.name) for joint in scalar]
        self.roles = [Role.of(self.robot, name, self.limits.names) for name in self.spec.controls]
        self._nominal = nominal(fitting.model.mechanism, fitting.model.engine.contact)
        values = fitting.space.values(x[None]).double()
        sample = posterior_sample(fitting.space, x, analysis, _SAMPLES, self.settings.seed)
        drawn = torch.stack([sample[name].double() for name in fitting.space.quantities], -1)
        self.fitted, self.samples = values, drawn
        self.pose = self._pose()
        self.clearance, self.unchecked = self._clearance()
        self.widths = ExpectedWidths(analysis, fitting.drawn.shares_with, fitting.space.unseen(x))
        stops = torch.tensor([name.endswith(LIMITS) for name in fitting.space.names])  # no safe motion reaches them
        self._learned = torch.nonzero(~stops & ~analysis.bound)[:, 0]

    def run(self, out: Path) -> NextMotion:
        """Search parts for the widest interval that they halve, and write those that are safe in the posterior."""
        pool = self._safe([self._waves() for _ in range(self.settings.proposals)])
        if not pool:
            return self._nothing()
        choice = self._choose(pool)
        for _ in range(_REDRAWS):
            best, redrawn = pool[choice.order[0]], list[Tensor]()
            for _ in range(max(1, self.settings.proposals // 2 // _REDRAWS)):  # some joints of the best
                waves = self._waves()
                kept = torch.from_numpy(self.rng.random(waves.shape[1]) < _REDRAWN)
                redrawn.append(torch.where(kept, best.waves, waves))
            if found := self._safe(redrawn):
                pool += found
                choice = self.widths.parts(choice.target, [one.gained for one in pool], self._seconds, self._most)
        safe = [False] * len(pool)
        while pool:
            choice = self._choose(pool)
            new = next((k for k in choice.order if not safe[k]), None)
            if new is None:
                return self._write(pool, choice, out)
            sampled = self._safe_in_posterior(pool[new])
            if sampled is None:
                del pool[new], safe[new]
            else:
                pool[new], safe[new] = sampled, True
        return self._nothing()

    def _choose(self, pool: Sequence[MotionCandidate]) -> PartChoice:
        told = self.settings.undetermined_above
        return self.widths.choose([one.gained for one in pool], self._seconds, self._most, told)

    @property
    def _seconds(self) -> float:
        """Length of a part [s]."""
        return self.frames * self.dt

    @property
    def _most(self) -> int:
        return max(1, int(self.settings.proposal_seconds / _PART))

    # What moves.

    def _pose(self) -> Pose:
        """Return the declared pose, or of those in which the robot rests in its logs, the one with the most room."""
        windows = self.fitting.windows(Split.TRAIN, self.settings.stages[0])
        speeds = (windows.qd[:, 0, self._qd].abs() / self.limits.speed.clamp_min(1e-9)).amax(-1)
        order = speeds.argsort()[:_POSES]
        still = order[speeds[order] <= max(_STILL, 1.5 * float(speeds[order[0]]))]
        q, command = windows.q[order[0], 0].clone(), windows.control[order[0], 0].clone()
        source = "the pose of least motion in the logs"
        if self.robot.nominal and not self.spec.floating:
            source = "the declared pose"
            for name, value in self.robot.nominal.items():
                q[self.spec.q_names.index(name)] = value
        elif not self.spec.floating and len(still) > 1:
            source = "a pose of rest in the logs"
            joints = windows.q[still, 0][:, self._q]
            span = (self.limits.upper - self.limits.lower).clamp_min(1e-9)
            room = (torch.minimum(self.limits.upper - joints, joints - self.limits.lower) / span).clamp_max(0.3)
            row = still[int(room.mean(-1).argmax())]
            q, command = windows.q[row, 0].clone(), windows.control[row, 0].clone()
        return self._resting_pose(q, command, source)

    def _resting_pose(self, q: Tensor, command: Tensor, source: str) -> Pose:
        """Return a pose within limits, with the commands that hold it."""
        for k, joint in enumerate(self.limits.names):
            column = self.spec.q_names.index(joint)
            q[column] = q[column].clamp(self.limits.lower[k], self.limits.upper[k])
        if not self._torque_driven and not self.spec.floating:
            for k, role in enumerate(self.roles):
                if role.joint is not None and role.kind == "target":
                    command[k] = role.scale * q[self._q[role.joint]]
        return Pose(q, command, source)

    def _waves(self) -> Tensor:
        """Return a random motion of the commands about rest, as large as the limits of targets allow, shape [T, nu]."""
        columns = []
        for command, role in enumerate(self.roles):
            if self._prescribed and role.joint is not None and self.rng.random() < _MOVES:
                rest = float(self.pose.q[self._q[role.joint]])
                low, high, speed, acceleration = (
                    float(limit[role.joint])
                    for limit in (self.limits.lower, self.limits.upper, self.limits.speed, self.limits.acceleration)
                )
                span = (_ROOM * (low - rest), _ROOM * (high - rest))
                moved = moves(self.rng, self.frames, self.dt, span, _ROOM * speed, _ROOM * acceleration)
                columns.append(moved * (role.scale if role.kind == "target" else 1.0))
            else:
                moved = sines(self.rng, self.frames, self.dt, drifts=self._prescribed)
                columns.append(moved * self._largest(command, moved))
        return torch.stack(columns, -1) if columns else torch.zeros(self.frames, 0, dtype=torch.float64)

    def _largest(self, command: int, wave: Tensor) -> float:
        """Return the largest factor of a command's motion within its limits."""
        most, role = float(wave.abs().max().clamp_min(1e-12)), self.roles[command]
        joint, name = role.joint, self.spec.controls[command]
        if joint is None or role.kind == "command":
            low, high = self.robot.sampling_interval("control", name)
            rest = float(self.pose.command[command])
            return _ROOM * max(0.0, min(high - rest, rest - low)) / most
        if role.kind == "torque" and not self._torque_driven:
            return role.scale * float(self.limits.torque[joint]) / most
        rest = float(self.pose.q[self._q[joint]])
        above, below = float(self.limits.upper[joint]) - rest, rest - float(self.limits.lower[joint])
        up, down = float(wave.max().clamp_min(1e-12)), float((-wave).max().clamp_min(1e-12))
        rate = torch.diff(wave) / self.dt
        bend = torch.diff(rate) / self.dt
        factors = (
            max(0.0, above) / up, max(0.0, below) / down, float(self.limits.speed[joint]) / float(rate.abs().max()),
            float(self.limits.acceleration[joint]) / float(bend.abs().max().clamp_min(1e-12)),
        )  # fmt: skip
        return _ROOM * min(factors) * (role.scale if role.kind == "target" else 1.0)

    @property
    def _torque_driven(self) -> bool:
        """Whether torques of inverse dynamics make all joints follow prescribed positions."""
        driven = {role.joint for role in self.roles if role.kind == "torque"}
        return not self.spec.floating and driven == set(range(len(self.limits.names))) == {r.joint for r in self.roles}

    @property
    def _prescribed(self) -> bool:
        """Whether the joints with motors follow prescribed positions."""
        return self._torque_driven or all(role.kind == "target" for role in self.roles)

    def _follow(self, moved: Tensor, values: Tensor) -> tuple[Trajectory, Tensor] | None:
        """Return a motion that a controller of the robot's own follows, and its torques for each row of values."""
        q = self.pose.q.repeat(len(moved), 1)
        q[:, [self._q[role.joint or 0] for role in self.roles]] += moved
        qd = torch.gradient(q, spacing=self.dt, dim=0)[0]
        torques = self._torques(q[:, self._q], qd[:, self._qd], torch.gradient(qd, spacing=self.dt, dim=0)[0], values)
        if torques is None:
            return None
        return Trajectory(*(torch.cat([x, x[-1:]])[None] for x in (q, qd))), torques

    def _torques(self, q: Tensor, qd: Tensor, qdd: Tensor, values: Tensor) -> Tensor | None:
        """Return the commanded torques of a motion by inverse dynamics, shape [N, T, nu]; None where these fail."""
        specs = [Parameter(name=name, nominal=0.0) for name in self.fitting.space.quantities]
        known = self._quantities(self.fitted[0])
        bias = torch.tensor([known.get(f"actuator.{n}.bias", 0.0) for n in self.limits.names], dtype=torch.float64)
        samples = TorqueSamples((q - bias).numpy(), qd.numpy(), qdd.numpy(), np.zeros(q.shape), dt=self.dt)
        try:
            model = TorqueModel(self.fitting.model.mechanism)
            columns = torch.from_numpy(model.columns(samples))
        except InputError:
            return None
        torques = torch.stack([columns @ model.coefficients(row, specs) for row in values])
        torques = torques[..., [role.joint or 0 for role in self.roles]]
        gains, lags = (
            torch.tensor([
                [self._quantities(row).get(f"actuator.{n}.{what}", default) for n in self.spec.controls]
                for row in values
            ], dtype=torch.float64)
            for what, default in (("gain", 1.0), ("delay", 0.0))
        )  # fmt: skip
        early = (lags / self.dt).round().long()[:, None]  # commands act later
        rows = (torch.arange(torques.shape[1])[None, :, None] + early).clamp_max(torques.shape[1] - 1)
        scales = torch.tensor([role.scale for role in self.roles], dtype=torch.float64)
        return torques.gather(1, rows) * scales / gains[:, None].clamp_min(1e-3)

    def _quantities(self, values: Tensor) -> dict[str, float]:
        return self._nominal | dict(zip(self.fitting.space.quantities, values.tolist(), strict=True))

    # Whether it is safe.

    def _play(self, commands: Tensor, values: Tensor) -> tuple[Trajectory, Tensor]:
        """Return the motion under commands for each row of values, after settling at rest, and the commands then.

        Commands have shape [T, nu], or [worlds, T, nu] with other ones for each row.
        """
        rows, settle = len(values), round(_SETTLE / self.dt)
        worlds = max(rows, _TOGETHER)
        values, commands = (_filled(one, worlds) for one in (values, commands.expand(rows, *commands.shape[-2:])))
        rest = self.pose.command.expand(worlds, settle, -1)
        held = torch.cat([rest, commands], 1)
        past = max(1, self.fitting.past)
        q = self.pose.q.expand(worlds, past + 1, -1)
        qd = torch.zeros(worlds, past + 1, self.spec.nv, dtype=torch.float64)
        context: State | Window = Window(q, qd, self.pose.command.expand(worlds, past, -1))
        weights, where, memory = self.dynamics.weights.detach(), self.fitting.environments.at(None), None
        width, parts = self.spec.nq + self.spec.nv + self.dynamics.memory, list[Trajectory]()
        for some in held.split(max(1, int(_MOST_NUMBERS / (worlds * width))), 1):
            path, kept = self.dynamics.simulate_remembering(context, some, values, weights, where, memory=memory)
            first = 1 if parts else 0
            parts.append(Trajectory(path.q[:, first:].clone(), path.qd[:, first:].clone()))  # without the memory
            context, memory = State(path.q[:, -1], path.qd[:, -1]), None if kept is None else kept[:, -1].clone()
        q, qd = (torch.cat([getattr(part, name) for part in parts], 1) for name in ("q", "qd"))
        return Trajectory(q[:rows, settle:], qd[:rows, settle:]), held[:rows, settle:]

    def _fault(self, path: Trajectory, commands: Tensor, values: Tensor) -> tuple[str, Tensor | None]:
        """Return why motions are not safe and how much to shrink each command, shape [nu]; empty if they are safe."""
        q, qd = path.q, path.qd
        if not bool(torch.isfinite(q).all()):
            return "it does not stay finite in the model", None
        if self.spec.floating:
            x, y = q[..., 3], q[..., 4]
            if not bool((1.0 - 2.0 * (x * x + y * y) > _FLAT).all()):
                return "the robot falls", None
        if bool(declared_bounds(self.robot).outside(q, qd).any()):
            return f"{declared_bounds(self.robot).furthest(q, qd)[0]} leaves the declared range", None
        joints, rates = q[..., self._q], qd[..., self._qd]
        moving = rates[:, 0].abs() / self.limits.speed.clamp_min(1e-9)
        if float(moving.max()) > _STILL:
            return f"{self.limits.names[int(moving.amax(0).argmax())]} does not rest in {self.pose.source}", None
        excess = self.limits.excess(joints, rates, self.dt) | {"torque": self._torque_excess(path, commands, values)}
        worst, text = torch.zeros(len(self.limits.names), dtype=torch.float64), ""
        for kind, share_of in excess.items():
            values_of = share_of / _KEPT[kind]
            if float(values_of.max()) > max(1.0, float(worst.max())):
                text = f"the {kind} limit of {self.limits.names[int(values_of.argmax())]}"
            worst = torch.maximum(worst, values_of)
        if text:
            share = torch.ones(self.spec.nu, dtype=torch.float64)
            for command, role in enumerate(self.roles):
                if role.joint is None:
                    share[command] = _SMALLER
                elif (beyond := float(worst[role.joint])) > 1.0:
                    share[command] = min(_LEAST_STEP, 0.97 / beyond)
            return text, share.clamp_min(0.3)
        return self._end_fault(joints, rates), None

    def _end_fault(self, q: Tensor, qd: Tensor) -> str:
        """Return why motions do not end at rest in the pose; empty if they do."""
        driven = [role.joint for role in self.roles if role.joint is not None]  # nothing stops the others
        span = (self.limits.upper - self.limits.lower).clamp_min(1e-9)
        away, speed = (q[:, -1] - q[:, 0]).abs() / span, qd[:, -1].abs() / self.limits.speed.clamp_min(1e-9)
        checks = [("ends away from its pose", away, _BACK)] if self._prescribed else []
        for what, values, most in (*checks, ("still moves at the end", speed, _STILL)):
            if driven and float(values[:, driven].max()) > most:
                return f"{self.limits.names[driven[int(values[:, driven].amax(0).argmax())]]} {what}"
        return ""

    def _torque_excess(self, path: Trajectory, commands: Tensor, values: Tensor) -> Tensor:
        """Return the largest torque of each joint's drive over its limit, shape [joints]."""
        excess = torch.zeros(len(self.limits.names), dtype=torch.float64)
        for command, role in enumerate(self.roles):
            if role.joint is None or role.kind == "command":
                continue
            torques = torch.stack([
                self._drive_torque(command, role, path, commands, world, self._quantities(row))
                for world, row in enumerate(values)
            ])  # fmt: skip
            excess[role.joint] = torques.abs().max() / self.limits.torque[role.joint]
        return excess

    def _drive_torque(
        self, command: int, role: Role, path: Trajectory, commands: Tensor, world: int, known: Mapping[str, float]
    ) -> Tensor:  # fmt: skip
        """Return the torque of a drive before its limits along a motion, shape [T]."""
        begin, given = f"actuator.{self.spec.controls[command]}.", commands[world, :, command] / role.scale
        gain, kp, kd = (known.get(begin + what, default) for what, default in (("gain", 1.0), ("kp", 0.0), ("kd", 0.0)))
        if role.kind == "torque":
            return gain * given
        assert role.joint is not None
        q, qd = path.q[world, :-1, self._q[role.joint]], path.qd[world, :-1, self._qd[role.joint]]
        late = round((known.get(f"{begin}delay", 0.0) + known.get(f"{begin}lag", 0.0)) / self.dt)
        given = torch.cat([given[:1].expand(late), given])[: len(given)]
        return gain * (kp * (given - q) - kd * qd + known.get(f"{begin}offset", 0.0))

    def _clearance(self) -> tuple[RobotClearance | None, str]:
        """Return the shapes of the robot, or why there are none."""
        floor = self.settings.limits.floor
        try:
            height = floor if isinstance(floor, float) else None
            least = self.settings.limits.clearance
            rest = self.pose.q
            if not self._torque_driven:  # sags a little
                rest = self._play(self.pose.command[None].expand(2, -1), self.fitted)[0].q[0, 0]
            return RobotClearance(self.robot, rest.numpy(), floor=height, least=least), ""
        except InputError as error:
            return None, str(error)

    def _contact(self, path: Trajectory, rate: float) -> str:
        """Return what touches along motions, of which the first one is looked at more often; empty for nothing."""
        if self.clearance is None:
            return ""
        touching = None
        for paths, looked in ((path.q[:1], rate), (path.q[1:], _CHECKED)):
            every = max(1, round(1.0 / (looked * self.dt)))
            touching = touching or self.clearance.first_contact(paths[:, ::every])
        return "" if touching is None else f"{touching[0]} touches {touching[1]}"

    def _safe(self, waves: Sequence[Tensor]) -> list[MotionCandidate]:
        """Return those of some motions that are safe in the fitted model, each made as small as that takes."""
        every, values = torch.stack(list(waves)), self.fitted
        share = torch.ones(len(every), every.shape[-1], dtype=torch.float64)
        waiting, safe, faults = list(range(len(every))), dict[int, MotionCandidate](), dict[int, str]()
        for _ in range(_TRIES):  # all that wait move side by side, which costs little more than one
            waiting = [k for k in waiting if k not in safe and float(share[k].max()) >= _LEAST_SHARE]
            if not waiting:
                break
            motions = self._motions(share[waiting][:, None] * every[waiting], values)
            for k, known in zip(waiting, motions, strict=True):
                checked = self._check(every[k], share[k], known, values, _CHECKED, _WINDOWS)
                if isinstance(checked, MotionCandidate):
                    safe[k] = checked
                else:
                    faults[k], share[k] = checked[0], share[k] * checked[1]
        self.failed.update(fault for k, fault in faults.items() if k not in safe)
        return [safe[k] for k in sorted(safe)]

    def _safe_in_posterior(self, motion: MotionCandidate) -> MotionCandidate | None:
        """Return a motion made so small that it is safe in samples of the posterior, too; None if it never is."""
        values, share, fault = torch.cat([self.fitted, self.samples]), motion.share, ""
        for _ in range(_TRIES):
            if float(share.max()) < _LEAST_SHARE:
                break
            (known,) = self._motions((share * motion.waves)[None], values)
            checked = self._check(motion.waves, share, known, values, _CHECKED_FINALLY, _WINDOWS_FINALLY)
            if isinstance(checked, MotionCandidate):
                return checked
            fault, share = checked[0], share * checked[1]
        self.failed[fault] += 1
        return None

    def _motions(self, moved: Tensor, values: Tensor) -> list[tuple[Trajectory, Tensor] | None]:
        """Return the motions, shape [M, T, nu], and commands for all rows of values, or None where torques fail."""
        if self._torque_driven:
            return [self._follow(one, values) for one in moved]
        rows, count = len(values), len(moved)
        commands = (self.pose.command + moved).repeat_interleave(rows, 0)
        path, played = self._play(commands, values.repeat(count, 1))
        parts = [slice(k * rows, (k + 1) * rows) for k in range(count)]
        return [(Trajectory(path.q[part], path.qd[part]), played[part]) for part in parts]

    def _check(
        self, waves: Tensor, share: Tensor, known: tuple[Trajectory, Tensor] | None, values: Tensor, rate: float,
        windows: int,
    ) -> MotionCandidate | tuple[str, Tensor]:  # fmt: skip
        """Return a motion that is safe, or why it is not and by how much to shrink each command, shape [nu]."""
        if known is None:
            return "its torques are unknown", torch.zeros_like(share)
        path, played = known
        fault, smaller = self._fault(path, played, values)
        if not fault:
            fault = self._contact(path, rate)
        if fault:
            return fault, torch.full_like(share, _SMALLER) if smaller is None else smaller
        own, commands = Trajectory(path.q[:1].clone(), path.qd[:1].clone()), played[0].clone()  # not all was played
        return MotionCandidate(waves, share, commands, own, self._gain(own, commands, windows))

    # What it tells.

    def _gain(self, path: Trajectory, commands: Tensor, most: int) -> Tensor:
        """Return the information of a motion on the coordinates, shape [n, n]."""
        past = self.fitting.past
        touching = bool(self.fitting.model.mechanism.points) and self.fitting.model.scene is not None
        seconds = _CONTACT_PIECE if touching else self.fitting.stages[-1].seconds
        length = past + max(3, round(seconds / self.dt))
        starts = list(range(0, max(1, len(commands) - length + 1), length - past))
        total = len(starts)
        if total > most:
            starts = [starts[k] for k in np.linspace(0, total - 1, most).round().astype(int)]
        rows = [slice(first, first + length + 1) for first in starts]
        controls = torch.stack([commands[first : first + length] for first in starts])
        windows = Windows(
            torch.stack([path.q[0, r] for r in rows]), torch.stack([path.qd[0, r] for r in rows]), controls
        )
        residuals = self.fitting.residuals(replace(windows.after(past), readings=None))
        residuals = residuals.with_dynamics(residuals.coarser_dynamics)
        part = residuals.with_space(PartOfSpace(self.fitting.space, self._learned, self.x))
        information = reduce(part, part.normal(part.start(self.x[self._learned][None])))[0][0].sum(0)
        n, k = len(self._learned), self._learned
        gained = information.new_zeros(len(self.x), len(self.x))
        gained[k[:, None], k] = information[:n, :n] * (total / len(starts))
        return gained

    def _write(self, pool: Sequence[MotionCandidate], choice: PartChoice, out: Path) -> NextMotion:
        parts = [pool[k] for k in choice.order]
        seconds = len(parts) * self._seconds
        now, then = self.widths.now, self.widths.then(choice.gained, seconds)
        commands = torch.cat([part.commands for part in parts])
        if self._torque_driven:
            places = [self._q[role.joint or 0] for role in self.roles]
            commands = torch.cat([part.path.q[0, :-1, places] for part in parts])
        write_text(out / FILE, _table(self.dt, dict(zip(self.spec.controls, commands.T, strict=True))))
        known, expected = self._quantities(self.fitted[0]), dict[str, Tensor]()
        for name, column in zip(self.limits.names, self._q, strict=True):
            expected[f"q.{name}"] = torch.cat([part.path.q[0, :-1, column] for part in parts])
        for command, role in enumerate(self.roles):
            if role.joint is not None and role.kind != "command":
                expected[f"torque.{self.spec.controls[command]}"] = torch.cat(
                    [self._drive_torque(command, role, part.path, part.commands[None], 0, known) for part in parts]
                )
        write_text(out / EXPECTED, _table(self.dt, expected))
        free = torch.where(self.analysis.bound, 0.0, now - then)  # an interval at a bound says nothing
        free[choice.target] = torch.inf
        order = [k for k in free.argsort(descending=True)[:_NAMED].tolist() if float(free[k]) > 0.0]
        coordinates, reach = self.fitting.space.coordinates, student_t(self.analysis.degrees, CONFIDENCE)
        return NextMotion(
            file=FILE, kind="target" if self._torque_driven else self.spec.control_kind,
            seconds=len(commands) * self.dt, amplitude=float(max(part.share.max() for part in parts)),
            deviations={coordinates[k].name: (float(now[k]), float(then[k])) for k in order},
            tells=[
                f"narrows {coordinates[k].name} from {_width(coordinates[k], self.x[k], reach * now[k])} to "
                f"{_width(coordinates[k], self.x[k], reach * then[k])}"
                for k in order
                if (now[k] < 1.0 or then[k] < self.settings.undetermined_above) and then[k] < WORTH * now[k]
            ],
            expected=EXPECTED, pose=self.pose.source, limits=self.limits.by_joint(), sources=self._sources(),
            target=coordinates[choice.target].name, beyond=self._beyond(pool, choice),
        )  # fmt: skip

    def _beyond(self, pool: Sequence[MotionCandidate], choice: PartChoice) -> list[str]:
        """Return why no motion halves the widest intervals that the logs tell, as far as they are not halved."""
        now, least = self.widths.now, float(self.widths.now[choice.target])
        told = (now < self.settings.undetermined_above) & ~self.analysis.bound
        wider = told & ((now > least) if choice.ratio <= HALF else (now > 0.0))
        order = torch.where(wider, now, -1.0).argsort(descending=True)[: min(_EXPLAINED, int(wider.sum()))]
        return [self._why_not(k, pool) for k in order.tolist()]

    def _why_not(self, k: int, pool: Sequence[MotionCandidate]) -> str:
        coordinates, reach = self.fitting.space.coordinates, student_t(self.analysis.degrees, CONFIDENCE)
        found = self.widths.parts(k, [one.gained for one in pool], self._seconds, self._most)
        now, floor = float(self.widths.now[k]), float(self.widths.floor[k])
        rival = self.widths.rival(k, found.gained, len(found.order) * self._seconds)
        why = "it has too little effect in them"
        if floor > HALF * now:
            why = "windows of other lengths place it as far apart, which further motion need not change"
        elif rival is not None:
            why = f"{coordinates[rival].name} has nearly the same effect in them"
        present, least = (_width(coordinates[k], self.x[k], reach * torch.tensor(d)) for d in (now, now * found.ratio))
        name = coordinates[k].name if present == least else f"{coordinates[k].name}, {present},"
        return f"no motion within these limits is sure to narrow {name} below {least}: {why}"

    def _sources(self) -> dict[str, str]:
        sources = dict(self.limits.sources)
        if self.clearance is None:
            return sources | {"contacts": f"not checked: {self.unchecked}"}
        floor = self.clearance.floor
        beside = "without a floor" if floor is None else f"and from a floor at {floor:.3g} m"
        return sources | {"contacts": f"links keep {self.clearance.least * 1e3:.3g} mm from each other {beside}"}

    def _nothing(self) -> NextMotion:
        why = "; ".join(f"{text} ({count} candidates)" for text, count in self.failed.most_common(3))
        return NextMotion(
            file="", seconds=0.0, amplitude=0.0, deviations={}, why_not=f"no motion is safe: {why or 'none was tried'}",
            pose=self.pose.source, limits=self.limits.by_joint(), sources=self._sources(),
        )  # fmt: skip


def _filled(rows: Tensor, count: int) -> Tensor:
    """Return at least `count` rows: the last one again in place of those that lack."""
    return torch.cat([rows, rows[-1:].expand(count - len(rows), *rows.shape[1:])])


def _width(coordinate: Coordinate, x: Tensor, deviation: Tensor) -> str:
    """Return half the width of an interval in words, as a share of the value where it has a scale."""
    value, half = (float(one) for one in value_of(coordinate, x, deviation))
    if not coordinate.signed and value > 0.0 and half < 10.0 * value:
        return f"+-{100.0 * half / value:.2g} %"
    unit = f" {coordinate.unit}" if coordinate.unit not in ("", "1") else ""
    return f"+-{half:.2g}{unit}"


def _table(dt: float, columns: Mapping[str, Tensor]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["time", *columns])
    rows = torch.stack(list(columns.values()), -1).tolist() if columns else []
    for k, row in enumerate(rows):
        writer.writerow([f"{k * dt:.6g}", *(f"{value:.6g}" for value in row)])
    return text.getvalue()
