# SPDX-License-Identifier: Apache-2.0
"""Newton as the simulator: worlds, reference simulators, energies, generated data and pictures."""

from neurodyn.core.registry import lazy

with lazy(__name__):
    from neurodyn.sim.contact_points import contact_point_layout
    from neurodyn.sim.declaration.declare import declare
    from neurodyn.sim.energies import energy
    from neurodyn.sim.fingerprints import fingerprint
    from neurodyn.sim.generation import generate
    from neurodyn.sim.newton_build import build, build_world
    from neurodyn.sim.pictures import render
    from neurodyn.sim.reference import ReferenceSimulator
    from neurodyn.sim.sampling import sample_states, sample_torques
    from neurodyn.sim.scene import ground_of_model
    from neurodyn.sim.simulators import articulation, mechanism, simulator

__all__ = [
    "ReferenceSimulator", "articulation", "build", "build_world", "contact_point_layout", "declare", "energy",
    "fingerprint", "generate", "ground_of_model", "mechanism", "render", "sample_states", "sample_torques", "simulator",
]  # fmt: skip
