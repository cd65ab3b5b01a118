# SPDX-License-Identifier: Apache-2.0
"""World models: ensembles that are learned from logs alone."""

from neurodyn.dynamics.kinds import Kind

KIND = Kind("world-model", "world model")
KIND.add("artifact", "neurodyn.dynamics.world_model.model:WORLD_MODEL")
KIND.add("export", "neurodyn.interop.onnx:world_frame")
