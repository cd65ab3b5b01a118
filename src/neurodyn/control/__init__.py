# SPDX-License-Identifier: Apache-2.0
"""Acting in any dynamics: where episodes start and how their frames end, and planning through a model."""

from typing import TYPE_CHECKING

from neurodyn.core.lazy import lazy

if TYPE_CHECKING:
    from neurodyn.control.starts import LoggedStarts, SampledStarts

__all__ = ["LoggedStarts", "SampledStarts"]

lazy(__name__)
