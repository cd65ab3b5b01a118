# SPDX-License-Identifier: Apache-2.0
"""Figures that notebooks show although nothing imported pyplot, and that leave its global state alone."""

import io
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(**options: Any) -> "Figure":
    """Return an empty figure.

    Args:
        options: Options of `matplotlib.figure.Figure`.
    """
    return _kind()(layout="constrained", **options)


@cache
def _kind() -> "type[Figure]":
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=90)
            return buffer.getvalue()

    return NotebookFigure
