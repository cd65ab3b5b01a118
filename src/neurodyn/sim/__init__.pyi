# SPDX-License-Identifier: Apache-2.0
from .contact_points import contact_point_layout as contact_point_layout
from .declaration.declare import declare as declare
from .energies import energy as energy
from .newton.fingerprints import fingerprint as fingerprint
from .generation import generate as generate
from .newton.build import build as build, build_world as build_world
from .pictures import render as render
from .newton.simulator import ReferenceSimulator as ReferenceSimulator
from .sampling import sample_states as sample_states, sample_torques as sample_torques
from .newton.scene import ground_of_model as ground_of_model
from .simulators import articulation as articulation, mechanism as mechanism, simulator as simulator
