# SPDX-License-Identifier: Apache-2.0
"""The verdict on an evaluation: whether a model is any use, by what was measured of it."""

from collections.abc import Iterator
from functools import singledispatch

from msgspec import UNSET

from neurodyn.core.verdict import Verdict, of_bounds, of_faults, of_persistence, together
from neurodyn.dynamics.guard import Fault
from neurodyn.evaluate.records import PERSISTENCE, Comparison, Evaluation, Forecast, Logged, Simulated, Tossed


def judge(result: Evaluation, faults: list[Fault]) -> Verdict:
    """Return the verdict on an evaluation: beside persistence, on what broke down, and on what left its bounds.

    A model is compared with persistence at the shortest horizon: over longer ones motion may be chaotic, and nothing
    that is predicted may be better than the mean.

    Args:
        result: What was measured.
        faults: What broke down meanwhile.
    """
    worst = max(faults, key=lambda fault: fault.worlds / fault.of, default=None)
    found = [*_beside_persistence(result)]
    if worst is not None:
        found.append(of_faults(worst.words, worst.worlds, worst.of))
    if isinstance(result, Simulated) and result.stability is not UNSET:
        for mode in ("passive", "driven"):
            run = getattr(result.stability, mode)
            if run is not UNSET:
                found.append(of_bounds(mode, run.in_bounds_fraction, result.stability.frames, run.first_out))
    return together(found)


@singledispatch
def _beside_persistence(result: Evaluation) -> Iterator[Verdict]:
    raise TypeError(type(result))


@_beside_persistence.register
def _(result: Simulated | Tossed) -> Iterator[Verdict]:
    yield from _compared(result.comparison)


@_beside_persistence.register
def _(result: Logged) -> Iterator[Verdict]:
    marks = result.at_horizon["all"].marks
    mark = marks[min(marks, key=int)]
    yield of_persistence(mark.model.q_mean, mark.persistence.q_mean, f"joint error {mark.seconds:.3g} s ahead")


@_beside_persistence.register
def _(result: Forecast) -> Iterator[Verdict]:
    mark = result.at_horizon[min(result.at_horizon, key=int)]
    mine, still = mark.by_model["model"].scaled, mark.by_model[PERSISTENCE].scaled
    yield of_persistence(mine, still, f"error {mark.seconds:.3g} s ahead, in standard deviations,")


def _compared(comparison: Comparison) -> Iterator[Verdict]:
    """Judge each metric; a model that is better in one of them knows something."""
    horizon = min(comparison.by_horizon, key=int)
    mine, still = comparison.by_horizon[horizon], comparison.baselines.persistence[horizon]
    judged = [
        of_persistence(mine.means[name], still.means[name], f"{name} over {horizon} frames")
        for name in mine.percentiles
    ]
    if judged and all(one.grade == "fails" for one in judged):
        yield judged[0]
