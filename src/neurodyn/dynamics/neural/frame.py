# SPDX-License-Identifier: Apache-2.0
"""A frame of neural dynamics as a module of tensors."""

import torch
from torch import Tensor, nn

from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.files.export import EXAMPLES, Frame
from neurodyn.dynamics.neural.base_prediction import BasePrediction
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.dynamics.uncertainty import deviation
from neurodyn.geometry import rotation
from neurodyn.nets.streaming import StreamingPredictor


class NeuralFrame(nn.Module):
    """One frame of neural dynamics at home: q, qd, control and the memory, one frame later.

    With members the frame follows their mean, and says on what they disagree.
    """

    def __init__(self, model: NeuralDynamics) -> None:
        super().__init__()
        self.encoding = model.encoding
        self.environment = model.home
        self.predictor = StreamingPredictor(model.predictor)
        self.members = model.members

    def outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs."""
        known = ("epistemic",) if self.members > 1 else ()
        return ("q_next", "qd_next", *known, *(f"{name}_next" for name in self.predictor.memory_names))

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; shapes [worlds, nq], [worlds, nv], [worlds, nu]."""
        base_prediction = self.encoding.predict_base(q, qd, control, self.environment)
        return self._after(base_prediction, self.encoding.encode(base_prediction, control, self.environment), memory)

    def _after(self, base_prediction: BasePrediction, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        output, *memory_next = self.predictor(inputs if self.members == 1 else inputs[None], *memory)
        state = self.encoding.decode(base_prediction, output if self.members == 1 else output.mean(0))
        if self.members == 1:
            return (state.q, state.qd, *memory_next)
        each = self.encoding.decode(base_prediction.repeated(self.members), output)
        return (state.q, state.qd, deviation(torch.cat([each.q, each.qd], -1)), *memory_next)


class PlainFrame(NeuralFrame):
    """The same without kernels: it is given where predictions start from, after the memory, where that is elsewhere."""

    def __init__(self, model: NeuralDynamics) -> None:
        """Take a model.

        Raises:
            InputError: Its contact points are measured against a ground that is no plane.
        """
        super().__init__(model)
        self._contacts = None
        contact, layout = self.encoding.config.contact, self.encoding.layout
        if contact is not None and layout is not None:
            from neurodyn.geometry.plane_contacts import PlaneContacts
            from neurodyn.multibody.held_ground import plane_numbers  # loads Warp

            plane = plane_numbers(self.environment.ground)
            if plane is None:
                raise InputError(
                    f"model of {model.spec.robot!r}: its ground is no plane, and has no form in ONNX; valid: models "
                    "whose own ground is one plane"
                )
            pairs = zip(layout.contact_points, contact.margins, strict=True)
            sight = [(point.radius, margin, model.spec.dt) for point, margin in pairs]
            self._contacts = PlaneContacts(layout, sight, [plane])

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; shapes as of `NeuralFrame.forward`, with the state ahead as the last two."""
        memory, start = rest, BasePrediction(q, qd)
        if self.encoding.starts_ahead:
            *memory, q_ahead, qd_ahead = rest
            start = BasePrediction(q_ahead, qd_ahead, qd_ahead - qd)
        start = self.encoding.viewed(start, self.environment)
        return self._after(start, self.encoding.encode(start, control, self.environment, self._contacts), tuple(memory))


def neural_frame(model: NeuralDynamics) -> Frame:
    """Return a frame of a model.

    Raises:
        InputError: Its ground or its base has no form in ONNX.
    """
    module = PlainFrame(model)
    names = module.predictor.memory_names
    spec = model.spec
    state = {
        "q": _positions(spec),
        "qd": torch.randn(EXAMPLES, spec.nv),
        "control": torch.randn(EXAMPLES, spec.nu),
    }
    memory = dict(zip(names, module.predictor.begin(EXAMPLES), strict=True))
    before = model.encoding.base_onnx(model.home)
    return Frame(module, {**state, **memory}, module.outputs(), before=before, reference=NeuralFrame(model))


def _positions(spec: StateSpec) -> Tensor:
    """Return example positions; quaternions have unit length."""
    q = torch.randn(EXAMPLES, spec.nq)
    for joint, place in zip(spec.joints, spec.places, strict=True):
        if not joint.scalar:
            q[:, place.quaternion] = rotation.normalise(q[:, place.quaternion])
    return q
