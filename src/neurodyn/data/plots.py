# SPDX-License-Identifier: Apache-2.0
"""A picture of a store: histograms of each coordinate, and sample episodes."""

from pathlib import Path

import numpy as np

from neurodyn.core.artifacts import atomic
from neurodyn.data.inspection import Ranges, wrapped
from neurodyn.data.readers.units import state_units
from neurodyn.data.store import Store

_MOST_ROWS = 12
_SAMPLES = 4


def plot_store(store: Store, path: Path, ranges: Ranges | None = None) -> None:
    """Draw histograms of q, qd and control, and a few episodes, into a PNG file.

    Raises:
        InputError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    spec = store.header.spec
    units = state_units(spec)
    columns = (
        *((what, getattr(store, what), units[what]) for what in ("q", "qd", "control")),
        ("channel", store.channel, {channel.name: channel.unit for channel in spec.channels}),
    )
    columns = [column for column in columns if column[2]]
    rows = min(_MOST_ROWS, max(len(units) for _, _, units in columns))
    figure = Figure(figsize=(16 * len(columns) / 3, 2.2 * rows + 0.8), layout="constrained")
    figure.suptitle(
        f"{spec.robot}: {store.transitions:,} transitions of {spec.dt:.4g} s in {len(store.table):,} episodes"
    )
    axes = figure.subplots(rows, 2 * len(columns), squeeze=False, width_ratios=(1, 1.6) * len(columns))
    for axis in axes.flat:
        axis.set_axis_off()
    samples = np.linspace(0, len(store.table) - 1, min(_SAMPLES, len(store.table))).round().astype(int)
    for kind, (what, values, units) in enumerate(columns):
        for row, (name, unit) in enumerate(list(units.items())[:rows]):
            label = f"{what} {name} [{unit}]"
            _histogram(axes[row, 2 * kind], wrapped(store, what, row, values[:, row]), label, ranges, what, name)
            _episodes(axes[row, 2 * kind + 1], store, samples, what, row, label)
    with atomic(path) as partial:
        figure.savefig(partial, format="png", dpi=80)


def _histogram(axis, column: np.ndarray, label: str, ranges: Ranges | None, what: str, name: str) -> None:  # noqa: ANN001
    axis.set_axis_on()
    axis.hist(column, bins=60, color="#3b6fb5", log=True)
    for bound in (ranges or {}).get(what, {}).get(name, ()):
        axis.axvline(bound, color="#d9822b", linewidth=1)
    axis.set_title(label, fontsize=8)
    axis.tick_params(labelsize=6)


def _episodes(axis, store: Store, samples: np.ndarray, what: str, row: int, label: str) -> None:  # noqa: ANN001
    axis.set_axis_on()
    for index in samples:
        arrays: dict[str, np.ndarray] = dict(zip(("q", "qd", "control"), store.episode(int(index)), strict=True))
        arrays["channel"] = store.channel[store.offsets[index] : store.offsets[index + 1]]
        axis.plot(store.header.spec.dt * np.arange(len(arrays[what])), arrays[what][:, row], linewidth=0.8)
    axis.set_title(f"{label}, episodes {', '.join(map(str, samples))}", fontsize=8)
    axis.tick_params(labelsize=6)
