# SPDX-License-Identifier: Apache-2.0
"""Declared robots: shipped ones by name, and user-defined ones by path."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
