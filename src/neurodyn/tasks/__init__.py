# SPDX-License-Identifier: Apache-2.0
"""Tasks by name, tasks of any robot by NAME@ROBOT, and user tasks by file and class."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
