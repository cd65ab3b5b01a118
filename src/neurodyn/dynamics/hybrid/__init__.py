# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics: identified rigid bodies, with networks where a blueprint puts them."""

from neurodyn.dynamics.kinds import Kind

KIND = Kind("hybrid", "hybrid model")
KIND.add("artifact", "neurodyn.dynamics.hybrid.artifact:HYBRID")
KIND.add("simulate", "neurodyn.dynamics.hybrid.declared:declared_hybrid")
KIND.add("identified", "neurodyn.interop.identified:identified")
