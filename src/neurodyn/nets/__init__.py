# SPDX-License-Identifier: Apache-2.0
"""Networks without physics: normaliser, MLP, recurrent net, cached transformer, and the predictor around them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
