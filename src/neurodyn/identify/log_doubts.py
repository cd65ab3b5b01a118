# SPDX-License-Identifier: Apache-2.0
"""Doubts about a log, from its columns alone: clocks, velocities, noise, order of rows, encoders, ranges, motion."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import Finding, doubts, percent
from neurodyn.data.header import CONTROL, Delay
from neurodyn.data.store import Store
from neurodyn.identify.result import JointLog, LogCheck
from neurodyn.identify.structures import FitModel

_SLOPES = (0.8, 1.25)
"""Positions' rates relative to the logged velocities between which a joint is fine."""
_EQUAL, _CLOCK = 0.03, 0.05
"""Spread of these slopes over joints below which they are one, and its distance from 1 that a clock is off by."""
_NOISY = 0.01
"""Noise of positions above which a log is noisy [rad or m]."""
_JUMP, _SOME = 0.3, 0.01
"""Second difference of a reading, relative to its span, that no motion has, and the share of such rows that counts."""
_FROZEN, _MOVED = 0.5, 0.2
"""Time without any change of a reading [s], and motion of its command meanwhile, as a share of the command's span."""
_OUTSIDE, _BEYOND = 0.02, 0.1
"""Share of the rows beyond a joint's limits, and the least excess that counts, as a share of its range."""
_DEGREES = 5.0
"""Largest position relative to the limits from which on it is one in degrees."""
_STILL = 2.0
_FOLLOWS, _ALIKE, _CLEARLY, _LATEST = 0.3, 0.9, 0.2, 0.3
"""Least correlation of targets and positions, that of one joint's targets with another's positions, how much larger it
is than with its own, and the longest delay at which they are compared [s]."""
_LATE, _SURE = 0.06, 2.0
"""Longest delay of robots [s], and standard errors of a measured one that count as sure."""


@dataclass(frozen=True)
class LoggedColumns:
    """Columns of a log, and what is known of its robot.

    Attributes:
        spec: Names of the columns.
        rows: All rows, shape [rows, columns].
        offsets: First row of each episode, and the number of rows, shape [episodes + 1].
        check: Statistics of the joints.
        model: The robot as declared.
        delay: Measured delay of motion after commands; None if it was not measured.
    """

    spec: StateSpec
    rows: np.ndarray
    offsets: np.ndarray
    check: LogCheck
    model: FitModel
    delay: Delay | None = None

    @classmethod
    def of(cls, store: Store, check: LogCheck, model: FitModel) -> Self:
        """Return the columns of a store."""
        rows = np.asarray(store.frames[0 : len(store.frames)])
        delay = (store.header.delays or {}).get(CONTROL)
        return cls(store.header.spec, rows, np.asarray(store.offsets), check, model, delay)

    def position(self, joint: str) -> np.ndarray:
        """Return the positions of a scalar joint [rad or m], shape [rows]."""
        return self.rows[:, self.spec.q_names.index(joint)]

    def command(self, joint: str) -> np.ndarray:
        """Return the commands of a joint, shape [rows]."""
        return self.rows[:, self.spec.nq + self.spec.nv + self.spec.controls.index(joint)]


LogDoubt = Callable[[LoggedColumns], Iterable[Finding]]


def doubts_of(columns: LoggedColumns) -> list[Finding]:
    """Return the findings of all checks of a log that are not ok, worst first."""
    return doubts(finding for check in LOG_DOUBTS.values() for finding in check(columns))


@contextmanager
def explaining(store: Store, check: LogCheck | None, model: FitModel) -> Iterator[None]:
    """Add the worst doubt about a log to an InputError of the enclosed work."""
    try:
        yield
    except InputError as error:
        found = [] if check is None else doubts_of(LoggedColumns.of(store, check, model))
        if not found:
            raise
        raise InputError(f"{error}; what is doubtful: {found[0].what}; {found[0].advice}") from None


def odd_velocities(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt velocities that are not the rates of positions: another clock, unit or joint."""
    moving = [one for one in log.check.joints if one.slope is not None and one.motion > _STILL * one.noise]
    slopes = [one.slope for one in moving if one.slope is not None]
    if not slopes:
        return
    middle = float(np.median(slopes))
    if len(slopes) > 1 and np.ptp(slopes) < _EQUAL * middle and abs(middle - 1.0) > _CLOCK:
        yield Finding(
            "clock", "fails",
            f"all joints' positions change {middle:.3g} times as fast as the logged velocities say: the log's clock is "
            f"off by {percent(abs(1.0 - 1.0 / middle))}, or a unit",
            "mend the time column or the units of the velocities",
        )  # fmt: skip
        return
    odd = [one for one in moving if one.slope is not None and not _SLOPES[0] < one.slope < _SLOPES[1]]
    if odd:
        yield Finding(
            "velocity", "warning", f"velocities of {_names(odd)} are not the rates of the positions (their ratio is "
            f"{', '.join(f'{one.slope:.2g}' for one in odd[:3])} instead of 1)",
            "mend their columns, signs or units in the map, or leave them out (qd: differentiate)",
        )  # fmt: skip


def rows_out_of_order(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt rows that do not follow one another: readings jump to and fro by a large part of their span."""
    inner = np.ones(len(log.rows), bool)
    inner[np.concatenate([log.offsets[:-1], log.offsets[1:] - 1])] = False
    jumping: dict[str, float] = {}
    for one in log.check.joints:
        q = log.position(one.name)
        turn = np.zeros(len(q))
        turn[1:-1] = np.abs(q[2:] - 2.0 * q[1:-1] + q[:-2])
        share = float((turn[inner] > _JUMP * max(one.span, 1e-12)).mean()) if inner.any() else 0.0
        if share > _SOME:
            jumping[one.name] = share
    if jumping:
        name = max(jumping, key=jumping.__getitem__)
        yield Finding(
            "order", "fails",
            f"rows do not follow one another: the readings of {name} jump to and fro in {percent(jumping[name])}",
            "sort the rows of the log by its clock, and check how runs were joined",
        )  # fmt: skip


def much_noise(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt readings whose noise is large."""
    noisy = [one for one in log.check.joints if one.noise > _NOISY]
    if noisy:
        yield Finding(
            "noise", "warning",
            f"readings of {_names(noisy)} are noisy: {max(one.noise for one in noisy):.2g} rad or m",
            "log encoders themselves, or expect wide intervals",
        )  # fmt: skip


def frozen_encoders(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt readings that stay the same to the last bit while the joint's command moves."""
    spec, frozen = log.spec, {}
    frames = max(3, round(_FROZEN / spec.dt))
    for joint in spec.joints:
        if not joint.scalar or joint.name not in spec.controls:
            continue
        q, u = log.position(joint.name), log.command(joint.name)
        span = float(np.ptp(u))
        for begin, end in _constant_runs(q, log.offsets):
            if end - begin >= frames and np.ptp(u[begin:end]) > _MOVED * span > 0.0:
                frozen[joint.name] = max(frozen.get(joint.name, 0.0), (end - begin) * spec.dt)
    if frozen:
        worst = max(frozen, key=frozen.__getitem__)
        yield Finding(
            "frozen", "fails",
            f"the reading of {', '.join(frozen)} does not change for {frozen[worst]:.2g} s while its command does: the "
            "encoder froze",
            "leave that part of the log out",
        )  # fmt: skip


def _constant_runs(values: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first row and end of each stretch of equal values within an episode."""
    new = np.ones(len(values) + 1, bool)
    new[1:-1] = values[1:] != values[:-1]
    new[np.asarray(offsets)] = True
    edges = np.flatnonzero(new)
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def beyond_limits(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt positions that lie beyond the declared limits of joints."""
    outside: dict[str, tuple[float, float]] = {}
    turned = 0.0
    for link in log.model.mechanism.links:
        name, low, high = link.joint.name, link.lower, link.upper
        if name not in log.spec.q_names or low is None or high is None or not 0.0 < high - low < np.inf:
            continue
        q = log.position(name)
        share = float(((q < low - _BEYOND * (high - low)) | (q > high + _BEYOND * (high - low))).mean())
        if share > _OUTSIDE:
            outside[name] = (share, float(np.abs(q).max()))
            turned = max(turned, outside[name][1] / max(abs(low), abs(high)))
    if outside:
        name = max(outside, key=lambda one: outside[one][0])
        share, most = outside[name]
        degrees = turned > _DEGREES
        yield Finding(
            "degrees" if degrees else "range", "fails" if degrees else "warning",
            f"{name} is beyond its declared limits in {percent(share)} of the rows (up to {most:.3g})"
            + (": degrees?" if degrees else ""),
            "check units (degrees?), sign and offset of the column, or declare the limits that the joint has",
        )  # fmt: skip


def commands_of_something_else(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt position targets that their joints do not follow at any delay."""
    names = [name for name in log.spec.controls if _follows_targets(log, name)]
    table = {name: {joint: _best_correlation(log, name, joint) for joint in names} for name in names}
    for name in names:
        own, other = table[name][name], max(names, key=table[name].__getitem__)
        if own < -_ALIKE:
            yield Finding(
                "sign", "fails", f"{name} moves opposite to its targets (correlation {own:.2f}): a sign",
                "mend the sign of the reading or of the command in the map (`scale: -1`), or the joint's axis",
            )  # fmt: skip
            return
        if table[name][other] > max(_ALIKE, own + _CLEARLY):
            yield Finding(
                "swapped", "fails",
                f"{other} follows the targets of {name} (correlation {table[name][other]:.2f}), {name} does not "
                f"({own:.2f}): the columns of their readings or of their commands are swapped",
                "mend the order of the columns in the map, and import the log again",
            )  # fmt: skip
            return
    astray = [name for name in names if table[name][name] < _FOLLOWS]
    if astray:
        yield Finding(
            "commands", "fails",
            f"{', '.join(astray[:3])} {'does' if len(astray) == 1 else 'do'} not follow the logged targets at any "
            "delay: another column, torques, or another run",
            "mend the columns of the commands in the map; targets are positions",
        )  # fmt: skip


def _follows_targets(log: LoggedColumns, name: str) -> bool:
    """Return whether a joint's commands are declared as positions that it follows, and both move."""
    drive = log.model.robot.drives.get(name)
    gains = None if drive is None else drive.pd_gains()
    if log.spec.control_kind == "torque" or name not in log.spec.q_names or gains is None or gains[0] <= 0.0:
        return False
    return bool(np.ptp(log.position(name)) > 0.0 and np.ptp(log.command(name)) > 0.0)


def _best_correlation(log: LoggedColumns, command: str, joint: str) -> float:
    """Return the correlation of a command with a joint's position at the delay at which it is largest in size."""
    u, q, most = log.command(command), log.position(joint), round(_LATEST / log.spec.dt)
    shifts = range(0, most + 1, max(1, most // 10))
    return max((float(np.corrcoef(u[: len(u) - k], q[k:])[0, 1]) for k in shifts), key=abs)


def strange_delay(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt clocks if motion precedes its commands, or follows them later than robots do."""
    delay = log.delay
    if delay is None or delay.error is None:
        return
    advice = "check the clocks of commands and readings, and declare the shift in the map (`alignment`)"
    if delay.seconds < -_SURE * delay.error:
        yield Finding(
            "clock", "fails",
            f"motion begins {-1e3 * delay.seconds:.3g} ms before its commands: these are late, or of another clock",
            advice,
        )  # fmt: skip
    elif delay.seconds - _SURE * delay.error > _LATE:
        yield Finding(
            "late", "warning",
            f"motion follows its commands {1e3 * delay.seconds:.3g} ms late, more than robots take: these are early, "
            "or of another clock",
            advice,
        )  # fmt: skip


def little_motion(log: LoggedColumns) -> Iterator[Finding]:
    """Doubt what is said of joints that hardly move."""
    still = [one for one in log.check.joints if one.motion < _STILL * one.noise]
    if still:
        yield Finding(
            "motion", "warning",
            f"{_names(still)} hardly {'moves' if len(still) == 1 else 'move'}: the log says nothing of it",
            "log motion of every joint (the page proposes one)",
        )  # fmt: skip


def _names(joints: list[JointLog]) -> str:
    more = f" and {len(joints) - 3} more" if len(joints) > 3 else ""
    return ", ".join(one.name for one in joints[:3]) + more


LOG_DOUBTS: Registry[LogDoubt] = Registry(
    "doubt about a log",
    order=rows_out_of_order,
    noise=much_noise,
    clock=odd_velocities,
    frozen=frozen_encoders,
    delay=strange_delay,
    commands=commands_of_something_else,
    range=beyond_limits,
    motion=little_motion,
)
"""Checks of a log's columns."""
