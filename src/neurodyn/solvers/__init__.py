# SPDX-License-Identifier: Apache-2.0
"""Solvers for Newton's own simulation loops; Newton is imported when one of them is accessed."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
