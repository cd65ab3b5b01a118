# SPDX-License-Identifier: Apache-2.0
"""Tables on what models say about their own errors."""

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from neurodyn.evaluate.records import Coverage, MemberCalibration, OutOfDistribution, RankCorrelation
from neurodyn.report.numbers import MISSING, digits, share
from neurodyn.report.page import Table, section, tables

LEAD = (
    "A normal distribution has 68.3 % and 95.4 % within one and two standard deviations. The bands are scaled by "
    "factors that were fitted on validation episodes."
)


def coverage(title: str, found: Mapping[str, Coverage], ranks: Mapping[str, RankCorrelation]) -> Table:
    """Return coverage and rank correlations by horizon."""
    rows = []
    for mark, entry in found.items():
        both = (_number(rank) for rank in (ranks[mark].epistemic_rank, ranks[mark].total_rank))
        rows.append([f"{mark} frames", share(entry.one_sigma), share(entry.two_sigma), *both])
    rank = "Rank correlation of error and epistemic standard deviation"
    return Table(title, ["Horizon", "Within one sigma", "Within two", rank, "of error and total"], rows, strong=2)


def beyond(title: str, found: OutOfDistribution) -> Table:
    """Return the epistemic standard deviation out of distribution."""
    rows = [
        [f"{factor} times as far from the mean", f"{digits(entry.ratio)}x", share(entry.chance_above_usual)]
        for factor, entry in found.by_factor.items()
    ]
    return Table(title, ["States", "Epistemic standard deviation beside the usual", "Chance that it is above"], rows)


def of_members(parts: Mapping[str, MemberCalibration | UnsetType]) -> list[Table]:
    """Return the tables of neural dynamics with members, by what the roll-outs are in words."""
    found = []
    for words, part in parts.items():
        if part is not UNSET:
            title = f"{part.members} members beside their errors, {words}"
            found.append(coverage(title, part.coverage, part.epistemic))
            found.append(beyond(f"States beyond the data, {words}", part.out_of_distribution))
    return found


def member_section(parts: Mapping[str, MemberCalibration | UnsetType]) -> str:
    """Return the section on members; empty where there are none."""
    return section("Calibration", *tables(of_members(parts)), lead=LEAD)


def _number(value: float | None) -> str:
    return MISSING if value is None else digits(value)
