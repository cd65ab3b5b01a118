# SPDX-License-Identifier: Apache-2.0
"""Quantities as a forest plot, in units of their priors or of their declared values, with intervals and bounds."""

from collections.abc import Sequence

from msgspec import UNSET

from neurodyn.identify.result import IdentifiedParameter
from neurodyn.report.page import ForestRow, fold, forest, paragraph, section
from neurodyn.report.sentences import at_bound, change, declared, has_changed, phrase

_LEAST, _MOST = 3.0, 8.0
"""Range of the ends of the axis, in standard deviations of priors."""
_SHARE, _SHARES = 0.2, 2.0
"""The same without priors, as shares of declared values."""


def forest_section(parameters: Sequence[IdentifiedParameter], confidence: str) -> str:
    """Return what the logs tell of each quantity, largest changes first; undetermined ones are folded."""
    told = sorted((one for one in parameters if one.determined), key=_order)
    silent = [one for one in parameters if not one.determined]
    rows = {one.name: _row(one) for one in parameters}
    scaled = any(_prior_scaled(one) for one in parameters)
    ends = (_LEAST, _MOST) if scaled else (_SHARE, _SHARES)
    reach = round(min(max([1.15 * abs(row.value) for row in rows.values()] + [ends[0]]), ends[1]), 2)
    shown = [_within(rows[one.name], reach) for one in told]
    folds = []
    if silent:
        verb, which = ("quantity stays", "it") if len(silent) == 1 else ("quantities stay", "them")
        title = f"{len(silent)} {verb} as declared: the logs do not determine {which}"
        folds = [fold(title, forest((_within(rows[one.name], reach) for one in silent), reach, band=scaled))]
    lead = (
        "The axis is in standard deviations of what was known before the logs (the prior): the dashed line is its "
        "centre, the declared value, and the shaded band one standard deviation. "
        if scaled
        else "The axis is the change relative to the declared value, the dashed line. "
    )
    lead += (
        f"Dots are values, bars {confidence} intervals, upright strokes bounds of the search. Orange: the declared "
        "value is outside of the interval. Red: at a bound, so take it as a hint that something else differs."
    )
    parts = [forest(shown, reach, band=scaled)] if shown else [paragraph("The logs tell none of the quantities.")]
    return section("What differs from the declaration", *parts, *folds, lead=lead) if parameters else ""


def _order(one: IdentifiedParameter) -> tuple[int, float]:
    return (0 if at_bound(one) else 1 if has_changed(one) else 2), -change(one)


def _prior_scaled(one: IdentifiedParameter) -> bool:
    return one.in_prior is not UNSET or (one.prior is not UNSET and one.prior > 0)


def _row(one: IdentifiedParameter) -> ForestRow:
    words = f"{phrase(one)}; declared {declared(one)}" if one.determined else f"declared {declared(one)} {one.unit}"
    state = "silent" if not one.determined else "bound" if at_bound(one) else "changed" if has_changed(one) else "same"
    if one.in_prior is not UNSET:
        scaled = one.in_prior
        low, high = scaled.interval
        return ForestRow(one.name, words, scaled.value, low, high, tuple(scaled.bounds), scaled.declared, state)
    size = one.prior if one.prior is not UNSET and one.prior > 0 else abs(one.nominal)
    if not size:
        size = max(map(abs, one.interval or (one.value,)), default=0.0) or 1.0
    low, high = (None, None) if one.interval is None else ((end - one.nominal) / size for end in one.interval)
    return ForestRow(one.name, words, (one.value - one.nominal) / size, low, high, (), 0.0, state)


def _within(row: ForestRow, reach: float) -> ForestRow:
    """Return a row cut to the axis, with numbers of few digits."""

    def clip(value: float) -> float:
        return round(min(max(value, -reach), reach), 3)

    return ForestRow(
        row.name, row.words, clip(row.value), None if row.low is None else clip(row.low),
        None if row.high is None else clip(row.high),
        tuple(round(end, 3) for end in row.bounds if abs(end) <= reach), clip(row.declared), row.state,
    )  # fmt: skip
