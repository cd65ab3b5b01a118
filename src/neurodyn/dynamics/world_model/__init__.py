# SPDX-License-Identifier: Apache-2.0
"""World models: ensembles that are learned from logs alone."""

from neurodyn.dynamics.kinds import Kind

KIND = Kind("world-model", "world model")
KIND.add("artifact", "neurodyn.dynamics.world_model.artifact:WORLD_MODEL")
KIND.add("export", "neurodyn.dynamics.world_model.frame:world_frame")
