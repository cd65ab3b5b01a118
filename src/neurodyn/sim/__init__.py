# SPDX-License-Identifier: Apache-2.0
"""Newton as the simulator: worlds, simulators, energies, generated data and pictures."""

from neurodyn.sim.build import build, build_world

__all__ = ["build", "build_world"]
