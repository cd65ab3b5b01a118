# SPDX-License-Identifier: Apache-2.0
"""Robots, mechanisms and scenes as plain data; artifacts, configuration and errors."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
