# SPDX-License-Identifier: Apache-2.0
"""Trajectories: the HDF5 store, windows of it, and readers of logs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
