# SPDX-License-Identifier: Apache-2.0
"""Policies: trained in one model of the dynamics, evaluated in any other."""

import os

import lazy_loader

# rsl_rl imports GitPython, whose import fails without git unless this is set.
os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
