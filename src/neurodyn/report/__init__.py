# SPDX-License-Identifier: Apache-2.0
"""Reports on models: self-contained HTML pages with tables, plots and recordings."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
