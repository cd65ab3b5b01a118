# SPDX-License-Identifier: Apache-2.0
"""Checks of a log without a model: each yields findings with what was measured, its likely cause, and a next step."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from neurodyn.core.description.spec import JointSpec
from neurodyn.core.registry import Registry
from neurodyn.core.verdict import Finding, doubts, percent
from neurodyn.data.commands import DeclaredCommands, targets_among
from neurodyn.data.header import CONTROL
from neurodyn.data.log_columns import LogColumns
from neurodyn.data.store import Store

LogCheck = Callable[[LogColumns], Iterable[Finding]]

_ALIKE, _UNLIKE = 0.9, 0.6
"""Correlations above which two columns are the same motion, and below which they are not."""
_CLOSER = 0.1
"""Share of what two joints' own velocities leave unexplained that each other's may, if they are swapped."""
_SLOPES = (0.67, 1.5)
"""Rates of positions relative to logged velocities between which a joint is fine: a stiff servo that follows steps of
its commands is slowest where velocities are sampled."""
_EQUAL, _CLOCK = 0.03, 0.1
"""Spread of these ratios over joints below which they are one, and its distance from 1 that a clock is off by."""
_NEAR = 0.1
_RATIOS = {
    180 / math.pi: "positions in degrees",
    math.pi / 180: "velocities in degrees per second",
    math.pi / 30: "velocities in revolutions per minute",
    6.0: "positions in degrees and velocities in revolutions per minute",
    1e3: "positions in mm",
    1e-3: "velocities in mm/s",
}
"""Likely cause of each ratio."""
_NOISY = 0.015
"""Noise of positions above which a log is noisy [rad or m]."""
_SHUFFLED, _DISORDER = 0.5, 0.01
"""Change from row to row, relative to the deviation of the positions, and share of jumps, from which on rows are in no
order."""
_JUMP, _USUAL, _LEAST_JUMP = 8.0, 0.9, 0.1
"""Change from row to row that is a jump: in units of this quantile of all, and at least so much [rad or m]. It is also
more than at the fastest logged velocity."""
_FROZEN, _MOVED, _REACTS = 0.4, 0.2, 0.1
"""Time without any change of a reading [s]; motion of its target meanwhile, as a share of the target's span, or of the
velocity's integral [rad or m]; and the last part of that time, in which a resting joint has not reacted yet [s]."""
_STIRRED = 0.05
"""Motion of the target, as a share of its span, with which a sensor froze whose velocity does not change either."""
_USUALLY = 0.99
"""Quantile of the distance from its target at which a joint still moves."""
_OUTSIDE, _FAR, _MOST_OUTSIDE, _BEYOND = 0.02, 0.3, 0.6, 0.1
"""Shares of the rows beyond a joint's limits that are a warning, degrees if these would be within, and a failure; and
the least excess that counts, as a share of the joint's range."""
_TURNS, FASTEST_TURN = 4.0 * math.pi, 60.0
"""Range of a joint that has no limits [rad], and speed [rad/s], above which angles are in degrees."""
_EXCEEDED, _ABOVE = 0.01, 1.05
"""Share of commands beyond the declared limits that counts, and by how much."""
_LATE, _SURE, _CERTAIN = 0.06, 2.0, 3.0
"""Longest delay of robots [s]; and standard errors of a measured one that are a warning, and a failure."""
_SMALL = 0.5
"""Size of targets, relative to that of the motion, below which loads on legs may hide that a joint follows them."""
_FOLLOWS, _CLEARLY, _LATEST = 0.3, 0.2, 0.3
"""Least correlation of targets and positions, how much larger that with another joint is if they are swapped, and the
longest delay at which they are compared [s]."""
_SAME = 1e-3
"""Mean difference of commands and positions, relative to the positions' deviation, below which they are the same."""
_PUSHES = 4.0
"""Standard errors from which on the sign of a command's effect is sure."""
_STILL = 0.005
"""Deviation of a driven joint's positions, as a share of its range (or rad, m), below which it hardly moves."""


def check_log(store: Store, declared: DeclaredCommands = DeclaredCommands()) -> list[Finding]:
    """Return what the checks doubt in a log, worst first, and one of each name.

    Args:
        store: The log.
        declared: What the robot's declaration says about commands.
    """
    return findings_of(LogColumns.of(store, declared))


def findings_of(log: LogColumns) -> list[Finding]:
    """Return what the checks doubt in the columns of a log, worst first, and one of each name."""
    if not log.joints or not len(log.rows):
        return []
    found = doubts(one for check in LOG_CHECKS.values() for one in check(log))
    return list({one.name: one for one in reversed(found)}.values())[::-1]


def order_of_rows(log: LogColumns) -> Iterator[Finding]:
    """Doubt rows that do not follow one another: shuffled, or with jumps."""
    steps, names = log.steps, [joint.name for joint in log.joints]
    if not len(steps):
        return
    spread = np.array([log.position(name).std() for name in names])
    sizes = np.sqrt((steps**2).mean(axis=0))
    loose = [name for name, size, wide in zip(names, sizes, spread, strict=True) if size > _SHUFFLED * wide > 0.0]
    if loose and len(loose) == int((spread > 1e-9).sum()):
        yield Finding(
            "order", "fails", f"consecutive rows do not follow one another: {_names(loose)} jump by "
            f"{float(sizes.max()):.2g} from row to row",
            "sort the rows of the log by its clock, and check its rate and how runs were joined",
        )  # fmt: skip
        return
    steps = log.surprises
    usual = np.quantile(np.abs(steps), _USUAL, axis=0)
    fastest = np.array([np.abs(log.velocity(name)).max() for name in names]) * log.spec.dt * log.logged_rates
    jumps = np.abs(steps) > np.maximum(np.maximum(_JUMP * usual, _LEAST_JUMP), fastest)
    if float(jumps.mean()) > _DISORDER:
        yield Finding(
            "order", "fails",
            f"{percent(float(jumps.any(axis=1).mean()))} of the rows do not follow the one before: readings jump by up "
            f"to {float(np.abs(steps[jumps]).max()):.2g}",
            "sort the rows of the log by its clock, and check for lost rows",
        )  # fmt: skip
        return
    torn = {name: int(count) for name, count in zip(names, jumps.sum(axis=0), strict=True) if count}
    if torn:
        worst = max(torn, key=torn.__getitem__)
        most = float(np.abs(steps[:, names.index(worst)]).max())
        yield Finding(
            "jump", "warning",
            f"the reading of {worst} jumps {torn[worst]} times from one row to the next, by up to {most:.2g}",
            "check for lost rows, a reset, or an encoder that slips, and leave these parts out",
        )  # fmt: skip


def rates_of_positions(log: LogColumns) -> Iterator[Finding]:
    """Doubt velocities that are not the rates of positions: another joint's, a sign, a unit, a clock."""
    joints = [k for k in range(len(log.joints)) if log.moving[k]]
    if not log.logged_rates or not joints:
        return
    names = [log.joints[k].name for k in joints]
    rates, speeds = log.rates[:, joints], log.speeds[:, joints]
    table = np.array([[log.correlation(a, b) for b in speeds.T] for a in rates.T])
    for k in range(len(names)):
        other = int(table[k].argmax())
        own, crossed = table[[k, other], [k, other]], table[[k, other], [other, k]]
        if table[k, k] >= _ALIKE and not (1.0 - crossed < _CLOSER * (1.0 - own)).all():
            continue
        if table[k, k] < -_ALIKE:
            yield Finding(
                "velocity-sign", "fails",
                f"{names[k]} moves opposite to its logged velocity (correlation {table[k, k]:.2f}): a sign",
                "correct the sign of one of both columns in the map (`sign: -1`)",
            )  # fmt: skip
        elif other != k and table[k, other] > _ALIKE and table[other, k] > _ALIKE:
            told = f"the velocities of {names[k]} and {names[other]} are swapped"
            yield Finding(
                "swapped", "fails", f"{told} (correlation {table[k, other]:.2f}, its own {table[k, k]:.2f})",
                "correct the columns in the map, and import the log again",
            )  # fmt: skip
        elif table[k, k] < _UNLIKE:
            yield Finding(
                "velocity", "warning",
                f"the velocity of {names[k]} is not the rate of its position (correlation {table[k, k]:.2f})",
                "correct its column in the map, or leave velocities out (qd: differentiate)",
            )  # fmt: skip
    fine = [k for k in range(len(names)) if table[k, k] > _ALIKE]
    yield from _of_ratios(
        [names[k] for k in fine],
        [float((rates[:, k] * speeds[:, k]).sum() / max((speeds[:, k] ** 2).sum(), 1e-12)) for k in fine],
    )


def _of_ratios(names: Sequence[str], ratios: Sequence[float]) -> Iterator[Finding]:
    """Doubt units and clocks by the ratio of rates to velocities of each joint."""
    for name, ratio in zip(names, ratios, strict=True):
        words = next((what for known, what in _RATIOS.items() if abs(ratio / known - 1.0) < _NEAR), None)
        if words:
            yield Finding(
                "degrees" if "degrees" in words else "units", "fails",
                f"the position of {name} changes {ratio:.3g} times as fast as its velocity says, as {words} would",
                "give the `unit` of the column in the map, and import the log again",
            )  # fmt: skip
            return
    if not ratios:
        return
    middle = float(np.median(ratios))
    if len(ratios) > 1 and np.ptp(ratios) < _EQUAL * middle and abs(middle - 1.0) > _CLOCK:
        yield Finding(
            "clock", "fails",
            f"all joints' positions change {middle:.3g} times as fast as the logged velocities say: the log's clock is "
            f"off by {percent(abs(1.0 - 1.0 / middle))}",
            "correct `time`, `time_unit` or `period` in the map, or the units of all velocities",
        )  # fmt: skip
        return
    odd = [(n, r) for n, r in zip(names, ratios, strict=True) if not _SLOPES[0] < r < _SLOPES[1]]
    if odd:
        yield Finding(
            "velocity", "warning",
            f"positions of {_names([name for name, _ in odd])} change {', '.join(f'{r:.2g}' for _, r in odd[:3])} "
            "times as fast as the logged velocities say",
            "correct their columns, units or gears (`scale`) in the map, or leave them out (qd: differentiate)",
        )  # fmt: skip


def same_column(log: LogColumns) -> Iterator[Finding]:
    """Doubt two joints with the same readings."""
    for k, one in enumerate(log.joints):
        for other in log.joints[:k]:
            a, b = log.position(one.name), log.position(other.name)
            if a.std() > 1e-9 and np.array_equal(a, b):
                yield Finding(
                    "same", "fails", f"{other.name} and {one.name} have the same readings: one column for both",
                    "correct the columns in the map, and import the log again",
                )  # fmt: skip
                return


def noise_of_readings(log: LogColumns) -> Iterator[Finding]:
    """Doubt readings whose noise is large."""
    noisy = [joint.name for joint, size in zip(log.joints, log.noise, strict=True) if size > _NOISY]
    if noisy:
        yield Finding(
            "noise", "warning", f"readings of {_names(noisy)} are noisy: {float(log.noise.max()):.2g} rad or m",
            "log encoders themselves, check their units, or expect wide intervals",
        )  # fmt: skip


def frozen_readings(log: LogColumns) -> Iterator[Finding]:
    """Doubt readings that stay the same to the last bit while the joint's command moves."""
    frozen: dict[str, float] = {}
    least, followed = max(3, round(_FROZEN / log.spec.dt)), set(_target_commands(log))
    late = round(_REACTS / log.spec.dt)
    for joint in log.driven:
        name, q, u = joint.name, log.position(joint.name), log.command(joint.name)
        span, qd = float(np.ptp(u)), log.velocity(joint.name)
        still = [(begin, end) for begin, end in _constant(q, log.offsets) if end - begin >= least]
        moving = np.ones(len(q), bool)
        for begin, end in still:
            moving[begin:end] = False
        away = np.abs(u - q)  # friction may hold a joint, but not farther from its target than one that moves
        usual = float(np.quantile(away[moving], _USUALLY)) if moving.any() else 0.0
        for begin, end in still if span > 0.0 else ():
            if name in followed:
                rows = slice(begin, end - late)
                odd = float(np.ptp(u[rows])) > _MOVED * span and float(away[rows].max()) > usual
            elif log.logged_rates:
                odd = float(np.ptp(np.cumsum(qd[begin:end]))) * log.spec.dt > _MOVED
            else:
                odd = False  # friction may hold the joint
            stirred = log.logged_rates and float(np.ptp(u[begin:end])) > _STIRRED * span
            if odd or (stirred and _is_held(qd, still, begin, end)):
                frozen[name] = max(frozen.get(name, 0.0), (end - begin) * log.spec.dt)
    if frozen:
        worst = max(frozen, key=frozen.__getitem__)
        yield Finding(
            "frozen", "fails",
            f"the reading of {_names(list(frozen))} does not change for {frozen[worst]:.2g} s while its command does: "
            "the encoder froze",
            "leave that part of the log out (give it no rows, or a gap), and check the encoder",
        )  # fmt: skip


def _is_held(qd: np.ndarray, still: Sequence[tuple[int, int]], begin: int, end: int) -> bool:
    """Return whether a velocity is the same to the last bit in a stretch, and not in others where a joint is still."""
    varies = [bool((qd[first + 1 : last] != qd[first]).any()) for first, last in still]
    return any(varies) and not varies[still.index((begin, end))]


def _constant(values: np.ndarray, offsets: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield first row and end of each stretch of equal values within an episode."""
    new = np.ones(len(values) + 1, bool)
    new[1:-1] = values[1:] != values[:-1]
    new[np.asarray(offsets)] = True
    edges = np.flatnonzero(new)
    yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def units_of_angles(log: LogColumns) -> Iterator[Finding]:
    """Doubt that angles of joints without limits are in radians."""
    for joint, rates in zip(log.joints, log.rates.T, strict=True):
        if joint.kind != "revolute" or not len(rates):
            continue
        q, fast = log.position(joint.name), float(np.quantile(np.abs(rates), 0.95))
        turns = joint.lower is None and not joint.continuous and np.ptp(q) > _TURNS
        if fast > FASTEST_TURN or turns:
            yield Finding(
                "degrees", "warning",
                f"{joint.name} goes from {q.min():.3g} to {q.max():.3g} at {fast:.3g} per second: degrees?",
                "give `unit: deg` in the map if they are, and import the log again",
            )  # fmt: skip
            return


def beyond_limits(log: LogColumns) -> Iterator[Finding]:
    """Doubt positions beyond the declared limits of joints: degrees, an offset, another robot."""
    outside: dict[str, float] = {}
    for joint in log.joints:
        low, high = joint.lower, joint.upper
        if low is None or high is None or not 0.0 < high - low < math.inf:
            continue
        margin, q = _BEYOND * (high - low), log.position(joint.name)
        share = float(((q < low - margin) | (q > high + margin)).mean())
        if share > _OUTSIDE:
            outside[joint.name] = share
    if not outside:
        return
    name = max(outside, key=outside.__getitem__)
    joint = next(one for one in log.joints if one.name == name)
    q, share = log.position(name), outside[name]
    assert joint.lower is not None
    assert joint.upper is not None
    within = joint.lower - 0.35 < math.radians(q.min()) and math.radians(q.max()) < joint.upper + 0.35
    if joint.kind == "revolute" and within and share > _FAR and np.ptp(q) > joint.upper - joint.lower:
        yield Finding(
            "degrees", "fails", f"positions of {name} from {q.min():.3g} to {q.max():.3g} leave its limits, and would "
            "not as degrees",
            "give `unit: deg` in the map, and import the log again",
        )  # fmt: skip
        return
    yield Finding(
        "range", "fails" if share > _MOST_OUTSIDE else "warning",
        f"{_names(list(outside))} {'is' if len(outside) == 1 else 'are'} beyond declared limits, {name} in "
        f"{percent(share)} of the rows (from {q.min():.3g} to {q.max():.3g}, limits {joint.lower:.3g} to "
        f"{joint.upper:.3g})",
        "check whether the log is of this robot, and unit, sign and offset of the column; or declare other limits",
    )  # fmt: skip


def commands_beyond_limits(log: LogColumns) -> Iterator[Finding]:
    """Doubt commands beyond the declared ones."""
    beyond = {}
    for joint in log.driven:
        low, high = log.declared.limits.get(joint.name, (-math.inf, math.inf))
        u = log.command(joint.name)
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        share = float((np.abs(u - middle) > _ABOVE * half).mean()) if 0.0 < half < math.inf else 0.0
        if share > _EXCEEDED:
            beyond[joint.name] = share
    if beyond:
        name = max(beyond, key=beyond.__getitem__)
        low, high = log.declared.limits[name]
        u = log.command(name)
        yield Finding(
            "command-limits", "warning",
            f"commands of {_names(list(beyond))} exceed the declared limits, {name} in {percent(beyond[name])} of the "
            f"rows (from {u.min():.3g} to {u.max():.3g}, declared {low:.3g} to {high:.3g})",
            "check their unit and scale in the map (currents, percent, degrees?), or declare the limits",
        )  # fmt: skip


def _are_targets(log: LogColumns) -> list[str]:
    """Return the joints whose commands are declared as positions that a controller follows."""
    if log.spec.control_kind == "torque":
        return []
    names = []
    for joint in log.driven:
        drive = log.declared.drives.get(joint.name)
        gains = None if drive is None else drive.pd_gains()
        if log.spec.control_kind == "target" or (gains is not None and gains[0] > 0.0):
            names.append(joint.name)
    return names


def _target_commands(log: LogColumns) -> list[str]:
    return _are_targets(log) or targets_among({j.name: (log.position(j.name), log.command(j.name)) for j in log.driven})


def targets_for_torques(log: LogColumns) -> Iterator[Finding]:
    """Doubt commands that are positions where torques are declared."""
    if log.spec.control_kind != "torque":
        return
    pairs = {joint.name: (log.position(joint.name), log.command(joint.name)) for joint in log.driven}
    alike = targets_among(pairs)
    if alike:
        name = alike[0]
        ratio = float(pairs[name][1].std() / pairs[name][0].std())
        yield Finding(
            "targets", "fails",
            f"commands of {_names(alike)} are like their positions ({name}: correlation "
            f"{log.correlation(*pairs[name]):.2f}, {ratio:.2g} times their size): targets, where the map says torques",
            "give `control_kind: target` and the `drives` that follow them in the map",
        )  # fmt: skip


def readings_for_commands(log: LogColumns) -> Iterator[Finding]:
    """Doubt commands that are the readings themselves."""
    same = [
        joint.name
        for joint in log.driven
        if (spread := log.position(joint.name).std()) > 1e-9
        and np.abs(log.position(joint.name) - log.command(joint.name)).mean() < _SAME * spread
    ]
    if same:
        yield Finding(
            "readings", "fails", f"commands of {_names(same)} are the readings of their positions, not what was "
            "commanded",
            "give the columns of the commands in the map, or log them",
        )  # fmt: skip


def commands_of_something_else(log: LogColumns) -> Iterator[Finding]:
    """Doubt position targets that their joints do not follow at any delay."""
    names = [n for n in _are_targets(log) if log.position(n).std() > 1e-9 and log.command(n).std() > 1e-9]
    table = {name: {joint: _best_correlation(log, name, joint) for joint in names} for name in names}
    for name in names:
        own, other = table[name][name], max(names, key=table[name].__getitem__)
        if own < -_ALIKE:
            yield Finding(
                "sign", "fails", f"{name} moves opposite to its targets (correlation {own:.2f}): a sign",
                "correct the sign of the reading or of the command in the map (`sign: -1`), or the joint's axis",
            )  # fmt: skip
            return
        if table[name][other] > max(_ALIKE, own + _CLEARLY):
            yield Finding(
                "swapped", "fails",
                f"{other} follows the targets of {name} (correlation {table[name][other]:.2f}), {name} does not "
                f"({own:.2f}): the columns of their readings or of their commands are swapped",
                "correct the order of the columns in the map, and import the log again",
            )  # fmt: skip
            return
    astray = [name for name in names if table[name][name] < _FOLLOWS and not _moved_by_loads(log, name)]
    if not astray:
        return
    sizes = [_size_of_commands(log, name) for name in astray]
    cause = "torques, another column, or another run" if max(sizes) > 5.0 or min(sizes) < 0.2 else (
        "another column, or another run"
    )  # fmt: skip
    yield Finding(
        "commands", "fails",
        f"{_names(astray)} {'does' if len(astray) == 1 else 'do'} not follow the logged targets at any delay: {cause}",
        "correct the columns of the commands in the map; targets are positions",
    )  # fmt: skip


def _moved_by_loads(log: LogColumns, name: str) -> bool:
    """Return whether a robot stands on a soft joint whose targets vary less than loads move it."""
    return log.spec.floating and _size_of_commands(log, name) < _SMALL


def _size_of_commands(log: LogColumns, name: str) -> float:
    """Return the deviation of a joint's commands, relative to that of its positions."""
    return float(log.command(name).std() / log.position(name).std())


def _best_correlation(log: LogColumns, command: str, joint: str) -> float:
    """Return the correlation of a command with a joint's position at the delay at which it is largest in size."""
    u, q, most = log.command(command), log.position(joint), round(_LATEST / log.spec.dt)
    shifts = range(0, most + 1, max(1, most // 10))
    return max((log.correlation(u[: len(u) - k], q[k:]) for k in shifts), key=abs)


def pushes_of_torques(log: LogColumns) -> Iterator[Finding]:
    """Doubt torques that push their own joint backwards, or another joint instead of their own."""
    if log.spec.control_kind != "torque" or targets_among(
        {joint.name: (log.position(joint.name), log.command(joint.name)) for joint in log.driven}
    ):
        return
    found = log.pushes
    if found is None:
        return
    sizes, sure = found
    names = [joint.name for joint in log.driven]
    for k, name in enumerate(names):
        if sizes[k, k] > 0.0 and sure[k, k] > _PUSHES:
            continue
        other = int(np.where(np.arange(len(names)) == k, -np.inf, sizes[k]).argmax())
        mutual = sizes[k, other] > 0.0 and sure[k, other] > _PUSHES and sure[other, k] > _PUSHES
        if other != k and mutual and sizes[other, k] > abs(sizes[other, other]):
            yield Finding(
                "swapped", "fails",
                f"torques of {names[other]} push {name} ({sure[k, other]:.0f} standard errors), those of {name} push "
                f"{names[other]}, and their own do not: columns of their readings or commands are swapped",
                "correct the order of the columns in the map, and import the log again",
            )  # fmt: skip
            return
    for k, name in enumerate(names):
        if sure[k, k] < -_PUSHES and -sizes[k, k] > 0.5 * np.abs(sizes[k]).max():
            yield Finding(
                "sign", "fails", f"torques of {name} push it backwards ({-sure[k, k]:.0f} standard errors): a sign",
                "correct the sign of the reading or of the command in the map (`sign: -1`), or the joint's axis",
            )  # fmt: skip
            return


_CLOCKS = "check the clocks and the columns of commands and readings; declare a known shift in the map (`alignment`)"


def strange_delay(log: LogColumns) -> Iterator[Finding]:
    """Doubt clocks and commands by the delay that was measured between them and the motion."""
    delay = log.delays.get(CONTROL)
    if delay is None or delay.error is None:
        return
    left, error = 1e3 * (delay.seconds - delay.applied), delay.error
    told = log.reason.partition("measured: ")[2]
    if log.doubt == "negative" or (not log.doubt and left < -1e3 * _SURE * error):
        grade = "fails" if log.doubt == "negative" or left < -1e3 * _CERTAIN * error else "warning"
        yield Finding(
            "clock", grade, f"motion begins before its commands ({told or f'{left:.3g} ms'}): these are late, of "
            "another clock, or measured torques", _CLOCKS,
        )  # fmt: skip
    elif log.reason.startswith("declared"):
        return  # someone looked at it
    elif log.doubt == "end":
        yield Finding(
            "clock", "warning",
            f"{told}: commands and readings have two clocks, or the commands are another column, or targets", _CLOCKS,
        )  # fmt: skip
    elif log.doubt == "senseless":
        yield Finding(
            "commands", "warning",
            f"{told}: the commands may be another column, those of another run, or in another order",
            "check the columns of the commands in the map; log more and faster motion",
        )  # fmt: skip
    elif not log.doubt and left - 1e3 * _SURE * error > 1e3 * _LATE:
        yield Finding(
            "late", "warning", f"motion follows its commands {left:.3g} ms late, more than robots take: commands are "
            "early, or of another clock", _CLOCKS,
        )  # fmt: skip


def little_motion(log: LogColumns) -> Iterator[Finding]:
    """Doubt what is said of driven joints that hardly move."""
    still = [joint.name for joint in log.driven if log.position(joint.name).std() < _STILL * _range(joint)]
    if still:
        yield Finding(
            "motion", "warning",
            f"{_names(still)} hardly {'moves' if len(still) == 1 else 'move'}: the log says nothing of it",
            "log motion of every joint that matters",
        )  # fmt: skip


def _range(joint: JointSpec) -> float:
    if joint.lower is None or joint.upper is None or not 0.0 < joint.upper - joint.lower < math.inf:
        return 1.0
    return min(1.0, joint.upper - joint.lower)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


LOG_CHECKS: Registry[LogCheck] = Registry(
    "check of logs",
    order=order_of_rows,
    same=same_column,
    rates=rates_of_positions,
    frozen=frozen_readings,
    range=beyond_limits,
    units=units_of_angles,
    targets=targets_for_torques,
    readings=readings_for_commands,
    commands=commands_of_something_else,
    pushes=pushes_of_torques,
    delay=strange_delay,
    limits=commands_beyond_limits,
    noise=noise_of_readings,
    motion=little_motion,
)
"""Checks of a log, in the order of their findings within a grade: causes first."""
