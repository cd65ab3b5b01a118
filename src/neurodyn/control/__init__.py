# SPDX-License-Identifier: Apache-2.0
"""Acting in any dynamics: starts and ends of episodes, and planning through a model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
