# SPDX-License-Identifier: Apache-2.0
"""Reports: what a model is, how well it does and how to repeat it, on one self-contained page."""

from neurodyn.report.write import write_report

__all__ = ["write_report"]
