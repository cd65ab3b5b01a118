# SPDX-License-Identifier: Apache-2.0
"""Dynamics of articulated bodies: from a mechanism to a compiled, differentiable step."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
