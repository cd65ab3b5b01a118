# SPDX-License-Identifier: Apache-2.0
from .checks import write_check as write_check
from .identification import write_identification as write_identification
from .notebook import NotebookBar as NotebookBar
from .recording import Recording as Recording, record as record, record_log as record_log, record_run as record_run
from .recording_files import readme_gif as readme_gif, write_recording as write_recording
from .run_comparison import comparison_tables as comparison_tables, write_comparison as write_comparison
from .write import report_path as report_path, write_report as write_report
