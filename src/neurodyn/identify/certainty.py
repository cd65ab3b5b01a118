# SPDX-License-Identifier: Apache-2.0
"""How sure identified quantities are: convergence first, then intervals, or why there are none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.description.parameter import Parameter
from neurodyn.identify.intervals.block_bootstrap import Resamples, bootstrap
from neurodyn.identify.intervals.blocks import blocks_of
from neurodyn.identify.intervals.convergence import Convergence, curvature, elsewhere, judge
from neurodyn.identify.intervals.identifiability import Identifiability, identifiability
from neurodyn.identify.parameter_search import Searched
from neurodyn.identify.profile import profiles
from neurodyn.identify.residuals import Residuals
from neurodyn.identify.result import Found, ProfileCurve
from neurodyn.identify.settings import IdentificationSettings
from neurodyn.learn.loop import has_state

_STATE = "bootstrap"
_DISAGREE = 2.0
"""Ratio of an interval's widths by sandwich and by bootstrap from which on it is said."""

Show = Callable[[str, int, int], bool]
"""Called with what is done, how much of it, and how much there is; ends it where it returns true."""


@dataclass(frozen=True)
class Certainty:
    """What is known about the end of a search.

    Attributes:
        analysis: Directions and standard deviations.
        convergence: Whether the search has converged.
        resamples: Fits of resampled logs; None without a bootstrap.
        profiles: Profile likelihoods by name; None where none were asked for.
        blocks: What counts as independent.
        derivatives: Whether the search followed derivatives.
    """

    analysis: Identifiability
    convergence: Convergence
    resamples: Resamples | None
    profiles: dict[str, ProfileCurve] | None
    blocks: str
    derivatives: bool = True

    def found(
        self, specs: Sequence[Parameter], values: Tensor, prior: dict[str, float], together: Tensor | None
    ) -> list[Found]:
        """Return the quantities with their intervals, or why they have none.

        Args:
            specs: The free quantities.
            values: Their values, shape [n].
            prior: Standard deviations of priors by name.
            together: Values of the model's own beside networks, the first of them; None without networks.
        """
        lower, upper = _bounds(specs, "lower", -torch.inf), _bounds(specs, "upper", torch.inf)
        sandwich = self.analysis.intervals(values, lower, upper)
        resampled = self.resamples is not None and self.resamples.enough
        drawn = self.resamples.intervals(values, lower, upper) if self.resamples is not None and resampled else None
        found = []
        for k, spec in enumerate(specs):
            why = self._why_not(k, spec, float(values[k]))
            fast = sandwich[k]
            best = fast if drawn is None else drawn[k]
            both = drawn is not None and why is None and fast is not None
            found.append(
                Found(
                    name=spec.name,
                    value=float(values[k]),
                    interval=None if why is not None or best is None else list(best),
                    why_not=UNSET if why is None else why,
                    sandwich=list(fast) if both and fast is not None else UNSET,
                    prior=prior.get(spec.name, UNSET),
                    nominal=spec.nominal,
                    with_networks=UNSET if together is None or k >= len(together) else float(together[k]),
                )
            )
        return found

    def warnings(self, found: Sequence[Found]) -> list[str]:
        """Return what a user should know beside the table."""
        lines = (
            [] if self.convergence.converged else [f"not converged: {self.convergence.reason}; there are no intervals"]
        )
        for entry in found:
            if entry.sandwich is not UNSET and entry.interval is not None:
                ratio = (entry.interval[1] - entry.interval[0]) / max(entry.sandwich[1] - entry.sandwich[0], 1e-300)
                if ratio > _DISAGREE or ratio < 1.0 / _DISAGREE:
                    lines.append(
                        f"the bootstrap's interval of {entry.name} is {ratio:.2g} times as wide as the sandwich's: "
                        "the cost is no parabola there"
                    )
        if self.resamples is not None and not self.resamples.enough:
            lines.append(f"{self._failed()}; there are no intervals")
        return lines

    def _failed(self) -> str:
        assert self.resamples is not None
        return (
            f"{self.resamples.asked - len(self.resamples.values)} of {self.resamples.asked} resamples did not converge"
        )

    def _why_not(self, k: int, spec: Parameter, value: float) -> str | None:
        if not self.convergence.converged:
            return "not converged"
        if bool(self.analysis.bound[k]):
            return f"on its {'lower' if value == spec.lower else 'upper'} bound"
        if not self.derivatives:
            return "found without derivatives, which intervals need"
        if spec.name in self.analysis.combined:
            return "seen in a combination only"
        if self.resamples is not None and not self.resamples.enough:
            return self._failed()
        return None if bool(torch.isfinite(self.analysis.deviations[k])) else "not seen"


def certainty(searched: Searched, settings: IdentificationSettings, run: Path, resume: bool, show: Show) -> Certainty:
    """Analyse the end of a search: convergence, then what settings ask for, if it has converged.

    Args:
        searched: The end.
        settings: How.
        run: Run directory, for the resamples.
        resume: Whether to read them from there.
        show: See `Show`.
    """
    residuals, point = searched.residuals, searched.point
    analysis = identifiability(residuals, point)
    smooth = curvature(residuals, point, analysis) if searched.end.derivatives else None
    convergence = judge(searched.end, analysis, smooth)
    if convergence.converged:
        convergence = elsewhere(searched.ends, searched.costs, analysis) or convergence
    resamples = curves = None
    if convergence.converged and settings.bootstrap:
        resamples = _resampled(searched, residuals, settings, run, resume, show)
    if convergence.converged and settings.profile:
        curves = profiles(
            residuals, point, analysis, settings.profile, lambda done, all_: show("profile likelihoods", done, all_)
        )
    return Certainty(
        analysis, convergence, resamples, curves, blocks_of(residuals.windows).text, searched.end.derivatives
    )


def _resampled(
    searched: Searched, residuals: Residuals, settings: IdentificationSettings, run: Path, resume: bool, show: Show
) -> Resamples:
    if resume and has_state(run, _STATE):
        saved = artifacts.read_tree(run / "state", _STATE)
        return Resamples(saved["values"], int(saved["asked"]), blocks_of(residuals.windows))
    found = bootstrap(
        residuals, searched.point, settings.bootstrap, seed=settings.seed,
        report=lambda done, all_: show("bootstrap", done, all_),
    )  # fmt: skip
    artifacts.write_tree(run / "state", _STATE, {"values": found.values, "asked": found.asked})
    return found


def _bounds(specs: Sequence[Parameter], name: str, default: float) -> Tensor:
    return torch.tensor([default if getattr(s, name) is None else getattr(s, name) for s in specs], dtype=torch.float64)
