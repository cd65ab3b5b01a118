# SPDX-License-Identifier: Apache-2.0
"""Analytic, hybrid, neural and world-model robot dynamics behind one interface.

    import neurodyn

    robot = neurodyn.robots.load("cartpole")        # or the path of your own declaration
    model = neurodyn.sim.build(robot, worlds=512)   # a newton.Model
    dynamics = neurodyn.load("pretrained:cartpole")
    solver = neurodyn.solvers.SolverNeural(model, "pretrained:cartpole")

Subpackages are imported on first use, so that importing the package is fast and needs no simulator. Where Gymnasium is
installed, tasks are registered as its environments: `gymnasium.make("neurodyn/ant-run-v0")`.
"""

from contextlib import suppress
from typing import Any

import lazy_loader

from neurodyn.core.errors import InputError
from neurodyn.dynamics.kinds import KINDS, Kind
from neurodyn.interop.gymnasium.registration import register as register_environments

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _nerd_artifact() -> Any:
    from neurodyn.interop.nerd import NERD

    return NERD


KINDS.add("nerd", Kind("nerd", "network of NeRD", _nerd_artifact))


with suppress(InputError):  # without Gymnasium, or with one that cannot be imported
    register_environments()
