# SPDX-License-Identifier: Apache-2.0
"""Walking robots: convex model-predictive control, gaits, and its imitation by a network."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
