# SPDX-License-Identifier: Apache-2.0
"""Newton as the simulator: worlds, reference simulators, energies, generated data and pictures."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
