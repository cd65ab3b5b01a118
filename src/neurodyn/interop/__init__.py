# SPDX-License-Identifier: Apache-2.0
"""Interfaces to other projects: checkpoints, simulators, file formats, and ONNX."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
