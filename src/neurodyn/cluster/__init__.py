# SPDX-License-Identifier: Apache-2.0
"""Several machines, with Ray: workers that share calls, and sweeps of trainings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
