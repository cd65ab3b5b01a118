# SPDX-License-Identifier: Apache-2.0
"""Statistics of a store: counts, ranges, coverage, rates, gaps, and how episodes ended."""

from typing import Any

import numpy as np

from neurodyn.core.progress import tracked
from neurodyn.data.header import Split, Status
from neurodyn.data.readers.units import state_units
from neurodyn.data.store import Store

Ranges = dict[str, dict[str, tuple[float, float]]]
"""For "q", "qd", "control" and "channel": the interval that each coordinate is meant to cover, by name."""

_BINS = 50
_PLANE_BINS = 20


def inspect_store(store: Store, ranges: Ranges | None = None) -> dict[str, Any]:
    """Return statistics of a store as plain data.

    Args:
        store: The trajectories.
        ranges: Intervals against which coverage is counted; None or missing ones: the data's own range.
    """
    return counts(store) | {
        "coordinates": coordinates(store, ranges or {}),
        "planes": _planes(store, ranges or {}),
        "ground": _ground(store),
        "rewards": _rewards(store),
    }


def counts(store: Store) -> dict[str, Any]:
    """Return what is known of a store without its rows: origin, counts of episodes and transitions, notes of logs."""
    header, lengths = store.header, store.lengths
    return {
        "robot": header.robot,
        "source": header.source,
        "dt_s": header.spec.dt,
        "seed": header.seed,
        "teacher": header.simulator,
        "versions": header.versions,
        "episodes": len(store.table),
        "transitions": store.transitions,
        "duration_s": store.transitions * header.spec.dt,
        "length": {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())},
        "splits": {split.name.lower(): _count(store, store.split == split) for split in Split},
        "ends": {status.name.lower(): _count(store, store.status == status) for status in Status},
        "groups": {name: _count(store, store.group == index) for index, name in enumerate(header.groups)},
        "log": header.notes if header.source == "log" else None,
        "sensors": _readings(store),
    }


def _readings(store: Store) -> dict[str, float]:
    """Return the share of rows in which each sensor has a reading."""
    shares: dict[str, float] = {}
    place = 0
    for stream in store.header.streams:
        assert store.measured is not None
        shares[stream.name] = float(np.isfinite(store.measured[:, place]).mean())
        place += stream.width
    return shares


def coordinates(store: Store, ranges: Ranges) -> list[dict[str, Any]]:
    """Return unit, range, moments and coverage of each coordinate of q, qd and control, channel, contact and reading.

    Coverage is the fraction of 50 equal bins of the coordinate's interval that hold at least one state. Readings are
    those of sensors ("measured"), where there are any.
    """
    spec = store.header.spec
    units = state_units(spec)
    units |= {"channel": {c.name: c.unit for c in spec.channels}, "contact": dict.fromkeys(spec.contacts, "1")}
    acting = np.ones(len(store.frames), bool)
    acting[store.offsets[1:] - 1] = False  # the last row of an episode has no control
    columns = {"q": store.q, "qd": store.qd, "channel": store.channel, "contact": store.contact}
    columns["control"] = store.control[acting]
    if store.measured is not None:
        streams = store.header.streams
        units["measured"] = {x: unit for one in streams for x, unit in zip(one.columns, one.units, strict=True)}
        columns["measured"] = store.measured
    entries = []
    for what, named in tracked(units.items()):
        for index, (name, unit) in enumerate(tracked(named.items())):
            column = wrapped(store, what, index, columns[what][:, index])
            column = column[np.isfinite(column)]  # between readings there is none
            interval = ranges.get(what, {}).get(name)
            entry = {"what": what, "name": name, "unit": unit, "range": None if interval is None else list(interval)}
            entries.append(entry | _moments(column, interval) if len(column) else entry)
    return entries


def wrapped(store: Store, what: str, index: int, column: np.ndarray) -> np.ndarray:
    """Return a column in float64, wrapped to [-pi, pi) where it is the position of a continuous joint."""
    column = column.astype(np.float64)
    if what == "q" and store.header.spec.continuous[index]:
        return np.mod(column + np.pi, 2 * np.pi) - np.pi
    return column


def _moments(column: np.ndarray, interval: tuple[float, float] | None) -> dict[str, Any]:
    low, high = interval or (float(column.min()), float(column.max()))
    counts = np.histogram(column, bins=_BINS, range=(low, high) if high > low else (low - 1, low + 1))[0]
    return {
        "min": float(column.min()),
        "max": float(column.max()),
        "mean": float(column.mean()),
        "std": float(column.std()),
        "p01": float(np.percentile(column, 1)),
        "p99": float(np.percentile(column, 99)),
        "coverage": float((counts > 0).mean()),
        "outside": float(((column < low) | (column > high)).mean()),
    }


def _planes(store: Store, ranges: Ranges) -> dict[str, float]:
    """Return the fraction of the 20 x 20 bins of position and velocity that hold a state, by single-axis joint."""
    spec = store.header.spec
    coverage = {}
    for joint in spec.joints:
        if not joint.scalar:
            continue
        row, dof = spec.q_names.index(joint.name), spec.qd_names.index(joint.name)
        pair = [wrapped(store, "q", row, store.q[:, row]), store.qd[:, dof].astype(np.float64)]
        limits = [
            ranges.get(what, {}).get(joint.name) or (float(values.min()), float(values.max()) + 1e-9)
            for what, values in zip(("q", "qd"), pair, strict=True)
        ]
        counts = np.histogram2d(pair[0], pair[1], bins=_PLANE_BINS, range=limits)[0]
        coverage[joint.name] = float((counts > 0).mean())
    return coverage


def _ground(store: Store) -> dict[str, Any] | None:
    """Return the kinds of shapes in the scene, and the ranges of its height [m] and tilt [rad] over the episodes."""
    scene, ground = store.header.scene, store.ground
    if scene is None or ground is None:
        return None
    x, y = ground[:, 3].astype(np.float64), ground[:, 4].astype(np.float64)
    tilt = 2 * np.arcsin(np.clip(np.hypot(x, y), 0.0, 1.0))
    height = ground[:, 2]
    return {
        "shapes": [type(shape).__name__.lower() for shape in scene.shapes],
        "height": [float(height.min()), float(height.max())],
        "tilt": [float(tilt.min()), float(tilt.max())],
        "poses": len(np.unique(ground, axis=0)),
        "probes": None if store.header.contact_points is None else len(store.header.contact_points.contact_points),
    }


def _rewards(store: Store) -> dict[str, Any] | None:
    """Return moments of the reward of a frame and of the return of an episode, and mean returns by group."""
    returns = store.returns
    if returns is None or store.reward is None or not store.transitions:
        return None
    acting = np.ones(len(store.frames), bool)
    acting[store.offsets[1:] - 1] = False
    parts = {"frame": store.reward[acting].astype(np.float64), "return": returns}
    groups = enumerate(store.header.groups)
    return {
        **{
            name: {key: float(getattr(values, key)()) for key in ("min", "mean", "max", "std")}
            for name, values in parts.items()
        },
        "groups": {name: float(returns[store.group == i].mean()) for i, name in groups if (store.group == i).any()},
    }


def _count(store: Store, chosen: np.ndarray) -> dict[str, int]:
    return {"episodes": int(chosen.sum()), "transitions": int(store.lengths[chosen].sum())}
