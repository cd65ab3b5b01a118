# SPDX-License-Identifier: Apache-2.0
"""Pages on models: self-contained HTML with tables, plots and recordings."""

from neurodyn.report.write import report_path, write_report

__all__ = ["report_path", "write_report"]
