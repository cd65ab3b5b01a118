# SPDX-License-Identifier: Apache-2.0
"""Whether a log fits better with other columns: two joints swapped, a sign turned, degrees, commands shifted in time.

Each such change is applied to short windows of the log, and the declared and the adapted model are rolled out along
them. A log whose columns are right fits no change better; errors are relative to the motion of each joint, so that a
change of units or order does not make them smaller by itself. A model that predicts worse than that nothing moves, also
after the change, and a log of a second tell nothing of its columns.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.core.verdict import Finding
from neurodyn.data.header import Split
from neurodyn.data.windows import Windows, select_windows
from neurodyn.dynamics.coordinates import position_difference
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.identify.doubts.evidence import Evidence
from neurodyn.identify.ladder.rungs import settle_and_roll_out

_SECONDS, _WINDOWS = (0.1, 0.25, 0.5), 60
"""Horizons [s], of which one suffices, and number of the windows."""
_SHIFTS = (0.03, 0.06, 0.1, 0.15, 0.2)
"""Shifts of the commands [s], either way."""
_BETTER = 0.7
"""Error after a change, relative to the best error without one, below which the change is real."""
_SENSE, _LEAST_WINDOWS = 0.8, 8
"""Error after a change, relative to the motion, below which the model says anything of the log, and fewest windows."""
_EXPLAINED = 0.05
"""Error relative to the motion below which nothing is looked for."""
_WORST = 6
"""Joints whose pairs are tried, of robots that have more."""
_CLIP = 3.0
"""Most that one joint's error in one window counts, relative to its motion."""
_DEGREES = 180.0 / math.pi


@dataclass(frozen=True)
class Change:
    """A change of a log's columns.

    Attributes:
        name: Name of its finding.
        what: The change in words, after "the log fits better with".
        advice: Next step.
        apply: Maps windows with a margin of commands to those of the changed log.
        factor: By which readings of `joints` are multiplied, and their noise.
        joints: Joints whose readings change their unit.
    """

    name: str
    what: str
    advice: str
    apply: Callable[["_Margin"], Windows]
    factor: float = 1.0
    joints: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Margin:
    """Windows with a `margin` of frames at both ends, from which commands can be shifted into the window.

    Attributes:
        windows: The windows, of `past` frames, the margins and the frames to predict.
        margin: Frames.
        past: Frames in which motors settle.
    """

    windows: Windows
    margin: int
    past: int

    def cut(self, shift: int = 0) -> Windows:
        """Return the windows with commands that act `shift` frames later than logged."""
        whole, k = self.windows, self.margin
        last = whole.frames - k
        moved = whole.cut(k - shift, last - shift)
        return replace(whole.cut(k, last), control=moved.control, parts=moved.parts).after(self.past)


def fits_with_other_columns(evidence: Evidence) -> Iterator[Finding]:
    """Doubt the columns of a log if a change of them fits much better; only the best change is named."""
    spec = evidence.store.header.spec
    margin = _windows(evidence)
    if margin is None:
        return
    noise = evidence.noise.q
    plain = {name: _shares(model, evidence, margin.cut(), noise) for name, model in _models(evidence).items()}
    before = torch.stack([shares.mean(1) for shares in plain.values()]).amin(0)
    if not bool((before > _EXPLAINED).any()):
        return
    best: tuple[float, float, Change] | None = None
    for change in _changes(spec, plain["declared"].amax(0), margin.margin):
        windows = change.apply(margin)
        noise = evidence.noise.q.clone()
        noise[[spec.tangent_names.index(name) for name in change.joints]] *= change.factor
        each = [_shares(model, evidence, windows, noise).mean(1) for model in _models(evidence).values()]
        after = torch.stack(each).amin(0)
        shares = torch.where((before > _EXPLAINED) & (after < _SENSE), after / before, 1.0)
        share, k = torch.min(shares, 0)
        if best is None or float(share) < best[0]:
            best = float(share), _SECONDS[int(k)], change
    if best is not None and best[0] < _BETTER:
        yield Finding(
            best[2].name, "fails",
            f"the log fits better with {best[2].what}: the error after {best[1]:g} s falls to {best[0]:.2f} of it",
            best[2].advice,
        )  # fmt: skip


def _models(evidence: Evidence) -> dict[str, HybridDynamics]:
    return {"declared": evidence.declared, "adapted": evidence.model}


def _windows(evidence: Evidence) -> _Margin | None:
    """Return the windows with margins that episodes have room for; None without any."""
    store, dt = evidence.store, evidence.store.header.spec.dt
    longest = int(store.lengths[store.episodes(Split.TRAIN)].max()) - evidence.past
    frames = min(max(3, round(_SECONDS[-1] / dt)), longest)
    margin = min(round(_SHIFTS[-1] / dt), (longest - frames) // 2)
    try:
        windows = select_windows(store, Split.TRAIN, evidence.past + frames + 2 * margin, most=_WINDOWS)
    except InputError:
        return None
    return _Margin(windows, margin, evidence.past) if windows.count >= _LEAST_WINDOWS else None


def _shares(model: HybridDynamics, evidence: Evidence, windows: Windows, noise: Tensor) -> Tensor:
    """Return the error of each coordinate relative to its motion and `noise` [nv], by horizon, shape [horizons, nv]."""
    spec = evidence.store.header.spec
    predicted = settle_and_roll_out(model, evidence.store, windows).q
    rows = []
    for seconds in _SECONDS:
        frame = min(max(3, round(seconds / spec.dt)), windows.frames)
        error = position_difference(spec, predicted[:, frame], windows.q[:, frame]).abs()
        motion = position_difference(spec, windows.q[:, frame], windows.q[:, 0]).abs()
        share = (error / (motion.mean(0) + noise)).clamp(max=_CLIP)
        rows.append(torch.nan_to_num(share, nan=_CLIP).mean(0))
    return torch.stack(rows)


def _changes(spec: StateSpec, shares: Tensor, margin: int) -> Iterator[Change]:
    """Yield the changes that are tried, given each coordinate's error relative to its motion."""
    kinds = {joint.name: joint.kind for joint in spec.joints if joint.scalar}
    names = sorted(kinds, key=lambda name: -float(shares[spec.tangent_names.index(name)]))[:_WORST]
    driven = [name for name in names if name in spec.controls]
    for a, b in combinations(names, 2):
        if kinds[a] != kinds[b]:  # metres are not taken for radians
            continue
        what = f"{a} and {b} swapped"
        yield Change("swapped", f"the readings of {what}", _MAP, _state_columns(spec, {a: b, b: a}))
        yield Change(
            "swapped-velocities", f"the velocities of {what}", _MAP, _state_columns(spec, {a: b, b: a}, q=False)
        )
    for a, b in combinations(driven, 2):
        yield Change("crossed", f"the commands of {a} and {b} swapped", _MAP, _controls(spec, {a: b, b: a}))
    for name in names:
        yield Change("sign", f"the sign of {name}'s reading turned", _SIGN, _state_columns(spec, {name: name}, -1.0))
    for name in driven:
        yield Change("sign", f"the sign of {name}'s command turned", _SIGN, _controls(spec, {name: name}, -1.0))
    for factor, what in ((1.0 / _DEGREES, "degrees"), (_DEGREES, "radians that were taken for degrees")):
        if names:
            change = _state_columns(spec, {name: name for name in names}, factor)
            yield Change("degrees", f"positions in {what}", _UNITS, change, factor, tuple(names))
        if driven and spec.control_kind != "torque":
            yield Change("degrees", f"commands in {what}", _UNITS, _controls(spec, {n: n for n in driven}, factor))
    for frames in sorted({round(s / spec.dt) for s in _SHIFTS}):
        for shift in (frames, -frames):
            if 0 < frames <= margin:
                when = f"commands {abs(shift) * spec.dt:.2g} s {'later' if shift > 0 else 'earlier'}"
                yield Change("shifted", when, _CLOCK, _shift_by(shift))


_MAP = "correct the order of the columns in the map (neurodyn inspect drafts one), and import the log again"
_SIGN = "correct the sign in the map (`sign: -1`), or the joint's axis in the declaration"
_UNITS = "correct the units in the map (`scale`), and import the log again"
_CLOCK = "check the clocks of commands and readings, and declare the shift in the map (`alignment`)"


def _shift_by(shift: int) -> Callable[[_Margin], Windows]:
    return lambda margin: margin.cut(shift)


def _state_columns(
    spec: StateSpec, columns: dict[str, str], factor: float = 1.0, *, q: bool = True
) -> Callable[[_Margin], Windows]:
    """Return a change by which joints get the readings of others, times a factor."""
    places = [_columns_to_move(names, columns) for names in (spec.q_names, spec.qd_names)]

    def apply(margin: _Margin) -> Windows:
        def change(one: Windows) -> Windows:
            return replace(
                one, q=_take(one.q, *places[0], factor) if q else one.q, qd=_take(one.qd, *places[1], factor)
            )

        windows = change(margin.cut())
        return windows if windows.past is None else replace(windows, past=change(windows.past))

    return apply


def _controls(spec: StateSpec, columns: dict[str, str], factor: float = 1.0) -> Callable[[_Margin], Windows]:
    """Return a change by which joints get the commands of others, times a factor."""
    places = _columns_to_move(spec.controls, columns)

    def apply(margin: _Margin) -> Windows:
        def change(one: Windows) -> Windows:
            parts = None if one.parts is None else _take(one.parts, *places, factor)
            return replace(one, control=_take(one.control, *places, factor), parts=parts)

        windows = change(margin.cut())
        return windows if windows.past is None else replace(windows, past=change(windows.past))

    return apply


def _columns_to_move(names: Sequence[str], columns: dict[str, str]) -> tuple[list[int], list[int]]:
    """Return the columns that are replaced, and those that replace them."""
    return [names.index(to) for to in columns], [names.index(source) for source in columns.values()]


def _take(values: Tensor, to: list[int], source: list[int], factor: float) -> Tensor:
    changed = values.clone()
    changed[..., to] = factor * values[..., source]
    return changed
