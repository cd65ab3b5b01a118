# SPDX-License-Identifier: Apache-2.0
"""Reports on models: self-contained HTML pages with tables, plots and recordings."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.report.checks import write_check
    from neurodyn.report.identification import write_identification
    from neurodyn.report.notebook import NotebookBar
    from neurodyn.report.recording import Recording, record, record_log, record_run
    from neurodyn.report.recording_files import readme_gif, write_recording
    from neurodyn.report.run_comparison import comparison_tables, write_comparison
    from neurodyn.report.write import report_path, write_report

__all__ = [
    "NotebookBar", "Recording", "comparison_tables", "readme_gif", "record", "record_log", "record_run", "report_path",
    "write_check", "write_comparison", "write_identification", "write_recording", "write_report",
]  # fmt: skip
