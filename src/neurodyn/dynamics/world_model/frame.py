# SPDX-License-Identifier: Apache-2.0
"""A frame of a world model as a module of tensors."""

import torch
from torch import Tensor, nn

from neurodyn.dynamics.files.export import EXAMPLES, Frame
from neurodyn.dynamics.interface import Control, State
from neurodyn.dynamics.world_model.model import WorldCarry, WorldModel


class WorldFrame(nn.Module):
    """One frame of a world model: the state by the mean of its members, and what they know about it."""

    def __init__(self, model: WorldModel) -> None:
        super().__init__()
        self.model = model

    def outputs(self, memory: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the outputs."""
        spec = self.model.spec
        offered = [("channels_next", spec.nx), ("contacts", spec.nc), ("termination", self.model.terminates)]
        names = ["q_next", "qd_next", *(name for name, there in offered if there), "epistemic", "aleatoric"]
        return (*names, *(f"{name}_next" for name in memory))

    def forward(self, q: Tensor, qd: Tensor, control: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """Predict one frame; `others` are the channels, where there are any, and the hidden states."""
        model, spec = self.model, self.model.spec
        channels, memory = (others[0], others[1:]) if spec.nx else (None, others)
        hidden = tuple(h.transpose(0, 1) for h in memory)  # members come first within the model
        state = State(q, qd, channels)
        given = Control(torque=control) if spec.control_kind == "torque" else Control(target=control)
        carry, step = model.step(WorldCarry(hidden, None), state, given)
        then = [step.state.q, step.state.qd, step.state.channels, step.contacts, step.termination]
        known = [x for x in (*then, step.epistemic, step.aleatoric) if x is not None]
        return (*known, *(h.transpose(0, 1) for h in carry.hidden))


def world_frame(model: WorldModel) -> Frame:
    """Return a frame of a world model."""
    spec, module = model.spec, WorldFrame(model)
    x = model.state_scale * torch.randn(EXAMPLES, model.observation.size)
    q, qd, channels = model.observation.split(x)
    given = {"q": q, "qd": qd, "control": torch.randn(EXAMPLES, spec.nu)}
    if channels is not None:
        given["channels"] = channels
    hidden = model.net.begin(EXAMPLES, x)
    memory = {f"hidden_{layer}": h.transpose(0, 1).contiguous() for layer, h in enumerate(hidden)}
    return Frame(module, {**given, **memory}, module.outputs(tuple(memory)))
