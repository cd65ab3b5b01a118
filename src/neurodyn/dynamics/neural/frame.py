# SPDX-License-Identifier: Apache-2.0
"""A frame of neural dynamics as a module of tensors."""

import torch
from torch import Tensor, nn

from neurodyn.core.errors import InputError
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.export import EXAMPLES, Frame
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.uncertainty import deviation
from neurodyn.geometry import rotation
from neurodyn.nets.streaming import StreamingPredictor


class NeuralFrame(nn.Module):
    """One frame of neural dynamics: q, qd, control and the memory, one frame later.

    With members the frame follows their mean, and says on what they disagree.
    """

    def __init__(self, model: NeuralDynamics) -> None:
        super().__init__()
        self.encoding = model.encoding
        self.predictor = StreamingPredictor(model.predictor)
        self.members = model.members

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs."""
        known = ("epistemic",) if self.members > 1 else ()
        return ("q_next", "qd_next", *known, *(f"{name}_next" for name in self.predictor.memory_names))

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; shapes [worlds, nq], [worlds, nv], [worlds, nu]."""
        base_prediction = self.encoding.predict_base(q, qd, control)
        inputs = self.encoding.encode(base_prediction, control)
        output, *memory_next = self.predictor(inputs if self.members == 1 else inputs[None], *memory)
        state = self.encoding.decode(base_prediction, output if self.members == 1 else output.mean(0))
        if self.members == 1:
            return (state.q, state.qd, *memory_next)
        each = self.encoding.decode(base_prediction.repeated(self.members), output)
        return (state.q, state.qd, deviation(torch.cat([each.q, each.qd], -1)), *memory_next)


def neural_frame(model: NeuralDynamics) -> Frame:
    """Return a frame of a model.

    Raises:
        InputError: Part of the model is compiled code, which ONNX cannot hold.
    """
    config = model.encoding.config
    compiled = [
        name
        for name, there in (("contact points", model.contact_points), ("base prediction", config.base))
        if there is not None
    ]
    if compiled:
        raise InputError(
            f"model of {model.spec.robot!r}: its {' and '.join(compiled)} are compiled code, which ONNX cannot hold; "
            "valid: models without them (a bolted robot without ground, trained without `base`), world models, policies"
        )
    module = NeuralFrame(model)
    names = module.predictor.memory_names
    spec = model.spec
    state = {
        "q": _positions(spec),
        "qd": torch.randn(EXAMPLES, spec.nv),
        "control": torch.randn(EXAMPLES, spec.nu),
    }
    memory = dict(zip(names, module.predictor.begin(EXAMPLES), strict=True))
    return Frame(module, {**state, **memory}, module.outputs())


def _positions(spec: StateSpec) -> Tensor:
    """Return example positions; quaternions have unit length."""
    q = torch.randn(EXAMPLES, spec.nq)
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[:, place.quaternion] = rotation.normalise(q[:, place.quaternion])
    return q
