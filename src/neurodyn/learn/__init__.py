# SPDX-License-Identifier: Apache-2.0
"""Training: one loop, its optimisers, run folders and metrics, and the specifics of each kind of dynamics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
