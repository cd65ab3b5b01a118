# SPDX-License-Identifier: Apache-2.0
"""Tasks as Gymnasium environments, by id, registered when `neurodyn` is imported.

import gymnasium
import neurodyn

env = gymnasium.make("neurodyn/ant-run-v0")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
