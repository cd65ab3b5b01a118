# SPDX-License-Identifier: Apache-2.0
"""Identification from logs: residuals, solvers, intervals, and discovery of missing effects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
