# SPDX-License-Identifier: Apache-2.0
"""Shifts of commands against motion that an import applied to the data, taken back or compared."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from neurodyn.core.errors import notice
from neurodyn.data.header import CONTROL, Delay, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import widths

_ALIKE = 1e-4
"""Difference up to which shifts count as equal [s]."""


def measured_shift(header: StoreHeader) -> float:
    """Return the shift that the import of an older version applied because it measured a delay [s]; 0 for none.

    A shift that the column map declared is none: its clocks differ.
    """
    reason = str((header.notes.get("alignment") or {}).get("reason", ""))
    return 0.0 if CONTROL in header.delays or reason.startswith("declared") else header.shift


def without_measured_shift(store: Store) -> Store:
    """Return a log with its commands back at their logged times, if an import shifted them by a measured delay.

    Commands between two frames are their weighted mean. The frames at an end of each episode whose commands are lost
    are left out; the log is returned as it is if no episode is long enough, or nothing was shifted.
    """
    shift, dt = measured_shift(store.header), store.header.spec.dt
    steps = shift / dt
    lost = math.ceil(abs(steps) - 1e-6)
    long = np.flatnonzero(store.lengths > lost)
    if not lost or not len(long):
        return store
    notice(
        f"log of {store.header.robot!r}: its import shifted the commands by {1e3 * shift:.3g} ms, a delay of the "
        "robot; they are taken back to their logged times, so that the delay is identified as a whole"
    )
    wide = widths(store.header.spec)
    columns = slice(wide["q"] + wide["qd"], wide["q"] + wide["qd"] + wide["control"])
    whole, rows, controls = math.floor(steps + 1e-6), [], []
    share = max(steps - whole, 0.0)
    frames = np.asarray(store.frames)
    for index in long:
        begin, length = int(store.offsets[index]), int(store.lengths[index])
        own = frames[begin : begin + length, columns]
        first = lost if steps < 0 else 0
        kept = np.arange(first, first + length - lost)
        later = np.minimum(kept + whole + 1, length - 1)
        controls.append(np.concatenate(((1.0 - share) * own[kept + whole] + share * own[later], own[-1:])))
        rows.append(begin + np.arange(first, first + length - lost + 1))
    picked = np.concatenate(rows)
    frames = frames[picked]
    frames[:, columns] = np.concatenate(controls)
    table = store.table[long].copy()
    table["length"] -= lost
    table["start"] = np.cumsum(table["length"] + 1) - table["length"] - 1
    reason = f"an older import had shifted the commands by {1e3 * shift:.3g} ms, which is taken back"
    delays = {**store.header.delays, CONTROL: Delay(seconds=shift, reason=reason)}
    per_row = {name: getattr(store, name) for name in ("reward", "measured", "spread")}
    per_episode = {name: getattr(store, name) for name in ("ground", "parameters")}
    return Store(
        msgspec.structs.replace(store.header, delays=delays), frames, table,
        **{name: None if values is None else values[picked] for name, values in per_row.items()},
        **{name: None if values is None else values[long] for name, values in per_episode.items()},
    )  # fmt: skip


def different_shifts(shifts: Sequence[float], names: Sequence[str]) -> str | None:
    """Return in words that the commands of some of a robot's logs are shifted differently [s]; None if alike."""
    if not shifts or max(shifts) - min(shifts) <= _ALIKE:
        return None
    told = ", ".join(f"{1e3 * shift:.3g} ms in {name}" for name, shift in zip(names, shifts, strict=True))
    return f"commands are shifted differently against the motion: {told}"


def joined_delays(headers: Sequence[StoreHeader]) -> dict[str, Delay]:
    """Return the delays of several logs of one robot by stream: means of those that may be used, by their errors."""
    joined: dict[str, Delay] = {}
    for name in dict.fromkeys(name for header in headers for name in header.delays):
        known = [header.delays[name] for header in headers if name in header.delays]
        usable = [one for one in known if one.usable and one.error]
        if not usable:
            joined[name] = known[0]
            continue
        weights = np.array([1.0 / (one.error or 1.0) ** 2 for one in usable])
        left = np.array([one.seconds - one.applied for one in usable])
        mean = float(weights @ left / weights.sum())
        spread = float(np.sqrt(weights @ (left - mean) ** 2 / weights.sum()))
        error = math.hypot(float(weights.sum() ** -0.5), spread)
        joined[name] = Delay(
            seconds=mean + known[0].applied, error=error, applied=known[0].applied, usable=True,
            reason=f"mean of {len(usable)} logs",
        )  # fmt: skip
    return joined
