# SPDX-License-Identifier: Apache-2.0
"""States of a floating base from what is on board: encoders, an IMU and a model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
