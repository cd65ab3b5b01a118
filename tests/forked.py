# SPDX-License-Identifier: Apache-2.0
"""Work that may die: in a fork of this process, which has imported what takes seconds to import."""

import os
import sys
import traceback
from collections.abc import Callable


def in_fork(work: Callable[[], object]) -> int:
    """Do work in a fork; return its exit code, which of a killed one is minus the signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
