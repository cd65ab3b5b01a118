# SPDX-License-Identifier: Apache-2.0
"""Figures as cells of tables."""

from neurodyn.evaluate.metrics import shown
from neurodyn.evaluate.records import Summary

WIDTH = 120
"""Least width of tables where there is no terminal."""


def short(value: float | None, digits: int = 2) -> str:
    """Return a number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}g}"


def percent(value: float | None) -> str:
    """Return a share in percent, or a dash where there is none."""
    return "-" if value is None else f"{value:.1%}"


def headers(summary: Summary) -> list[str]:
    """Return the columns of a summary's metrics."""
    return [f"{metric.label} [{metric.unit}]" for metric in shown(summary).values()]


def means(summary: Summary, digits: int = 2) -> list[str]:
    """Return the means of a summary's metrics."""
    return [short(summary.means[name], digits) for name in shown(summary)]


def row(summary: Summary) -> str:
    """Return the means in one cell."""
    return " / ".join(means(summary))
