# SPDX-License-Identifier: Apache-2.0
"""Model errors against simulator, log and trivial baselines; calibration, long-run stability, timing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
