# SPDX-License-Identifier: Apache-2.0
"""Programs as operators of torch, where a call is traced or counted; on a CPU they are called directly."""

from torch import Tensor

from neurodyn.geometry.launching import held, operator


def _rollout(
    state: Tensor, control: Tensor, given: Tensor, parameters: Tensor, weights: Tensor, program: int, frames: int,
    substeps: int,
) -> Tensor:  # fmt: skip
    found = held(program)
    run = found.run(
        state, frames=frames, substeps=substeps, control=control, held=given, parameters=parameters, weights=weights
    )
    return found.forward(run, state)


def _fake(
    state: Tensor, control: Tensor, given: Tensor, parameters: Tensor, weights: Tensor, program: int, frames: int,
    substeps: int,
) -> Tensor:  # fmt: skip
    return state.new_empty(state.shape[0], frames + 1, state.shape[1])


rollout_operator = operator(
    "rollout",
    "(Tensor state, Tensor control, Tensor held, Tensor parameters, Tensor weights, int program, int frames, "
    "int substeps) -> Tensor",
    _rollout,
    _fake,
)
"""States at the frames of a program, shape [worlds, frames + 1, state], without gradients."""
