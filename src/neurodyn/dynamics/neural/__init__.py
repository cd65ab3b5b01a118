# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics: a network in place of a simulator's solver."""

from neurodyn.dynamics.kinds import Kind

KIND = Kind("neural", "neural model")
KIND.add("artifact", "neurodyn.dynamics.neural.model:NEURAL")
KIND.add("export", "neurodyn.interop.onnx:neural_frame")
