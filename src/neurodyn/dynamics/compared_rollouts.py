# SPDX-License-Identifier: Apache-2.0
"""Roll-outs beside the truth, from the same states under the same controls: what `Dynamics.compare` returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Trajectory
from neurodyn.dynamics.figures import new_figure
from neurodyn.dynamics.measures import error_names, error_units, finite_worlds, persistence, position_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HORIZONS = (10, 100, 500, 1000)
_MOST_COORDINATES = 12


@dataclass(frozen=True, eq=False)
class ComparedRollouts:
    """Roll-outs beside the truth.

    Attributes:
        spec: Names, units and dt of the states.
        predicted: What was predicted.
        truth: What happened, or what other dynamics predict.
        predicted_label: Name of the prediction.
        truth_label: Name of the truth.
    """

    spec: StateSpec
    predicted: Trajectory
    truth: Trajectory
    predicted_label: str = "predicted"
    truth_label: str = "truth"

    @property
    def names(self) -> tuple[str, ...]:
        """What the errors are of: joints, or position and orientation of a floating base."""
        return error_names(self.spec)

    @property
    def errors(self) -> Tensor:
        """Position errors of all frames but the first [m or rad], shape [worlds, T, errors]."""
        return position_errors(self.spec, self.predicted, self.truth)

    def mean_errors(self, horizon: int | None = None) -> dict[str, float | None]:
        """Return mean errors over all frames up to a horizon and over finite roll-outs, by name.

        Args:
            horizon: Number of frames; None for all.

        Returns:
            Errors [m or rad]; None where no roll-out is finite.
        """
        return self._means(self.predicted, self._frames if horizon is None else horizon)

    def plot(self, *, worlds: Sequence[int] = (0,)) -> "Figure":
        """Draw coordinates over time, the prediction over the truth.

        Args:
            worlds: Which roll-outs.

        Raises:
            InputError: There is no such roll-out.
        """
        count = self.truth.q.shape[0]
        for world in worlds:
            if not -count <= world < count:
                raise InputError(f"worlds has {world}; valid: 0 to {count - 1}")
        units = zip(self.spec.q_names, self.spec.q_units, strict=True)
        shown = [(i, name, unit) for i, (name, unit) in enumerate(units) if unit != "1"][:_MOST_COORDINATES]
        figure = new_figure(figsize=(8.0, 0.6 + 1.8 * len(shown)))
        seconds = [k * self.spec.dt for k in range(self._frames + 1)]
        for axes, (i, name, unit) in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
            for k, world in enumerate(worlds):
                truth, predicted = (path.q[world, :, i].detach().cpu() for path in (self.truth, self.predicted))
                labels = (None, None) if k else (self.truth_label, self.predicted_label)
                axes.plot(seconds, truth, color="#1971c2", linewidth=3.5, alpha=0.5, label=labels[0])
                axes.plot(seconds, predicted, color="#d9480f", linewidth=1.2, label=labels[1])
            axes.set_ylabel(f"{name} [{unit}]")
        figure.axes[0].legend(fontsize="small")
        figure.axes[-1].set_xlabel("time [s]")
        return figure

    @property
    def _frames(self) -> int:
        return self.truth.q.shape[1] - 1

    @property
    def _horizons(self) -> list[int]:
        return sorted({mark for mark in _HORIZONS if mark <= self._frames} | {self._frames})

    def _means(self, path: Trajectory, horizon: int) -> dict[str, float | None]:
        rows = finite_worlds(self.predicted) & finite_worlds(self.truth)
        errors = position_errors(self.spec, path, self.truth)[rows][:, :horizon].double()
        if not len(errors):
            return dict.fromkeys(self.names)
        return dict(zip(self.names, errors.mean((0, 1)).tolist(), strict=True))

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {_number(value)}" for name, value in self.mean_errors().items())
        worlds = self.truth.q.shape[0]
        return f"{self.predicted_label} beside {self.truth_label}: {worlds} roll-outs of {self._frames} frames: {means}"

    def _repr_html_(self) -> str:
        """Return a table of mean errors by horizon beside persistence, for notebooks."""
        units = dict(zip(self.names, error_units(self.spec), strict=True))
        heads = "".join(f"<th>{escape(name)} [{units[name]}]</th>" for name in self.names)
        lines = []
        for label, path in ((self.predicted_label, self.predicted), ("persistence", persistence(self.truth))):
            for horizon in self._horizons:
                cells = "".join(f"<td>{_number(value)}</td>" for value in self._means(path, horizon).values())
                lines.append(f"<tr><td>{escape(label)}</td><td>{horizon * self.spec.dt:.4g} s</td>{cells}</tr>")
        title = escape(f"Mean position error of {self.predicted_label} beside {self.truth_label}")
        return f"<b>{title}</b><table><tr><th></th><th>horizon</th>{heads}</tr>{''.join(lines)}</table>"


def compared(
    spec: StateSpec, predicted: Trajectory, truth: Trajectory, *, predicted_label: str, truth_label: str
) -> ComparedRollouts:
    """Return roll-outs beside the truth.

    Args:
        spec: Names, units and dt of the states.
        predicted: What was predicted.
        truth: What happened; where it is longer, its first frames.
        predicted_label: Name of the prediction.
        truth_label: Name of the truth.

    Raises:
        InputError: The truth is of other worlds or coordinates, or shorter.
    """
    frames = predicted.q.shape[1] - 1
    mine, theirs = list(predicted.q.shape), list(truth.q.shape)
    if [mine[0], mine[2]] != [theirs[0], theirs[2]] or theirs[1] < mine[1]:
        raise InputError(f"truth.q has shape {theirs}; valid: {mine}, or more states")
    moved = truth.until(frames).to(predicted.q.device).to(predicted.q.dtype)
    return ComparedRollouts(spec, predicted, moved, predicted_label, truth_label)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.3g}"
