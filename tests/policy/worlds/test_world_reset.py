# SPDX-License-Identifier: Apache-2.0
"""Starts that are warmed up beforehand: the same as a reset with the full window, and nobody else is touched."""

import numpy as np
import pytest
import torch

pytest.importorskip("rsl_rl")

from neurodyn.control.starts import Starts
from neurodyn.core.description.spec import Channel, JointSpec, StateSpec
from neurodyn.dynamics.batch import Control, Window, present_state
from neurodyn.dynamics.world_model.model import WorldModel
from neurodyn.nets.ensemble import EnsembleConfig
from neurodyn.policy.worlds.world_reset import WarmStartPool

_SPEC = StateSpec(
    robot="slider",
    joints=(JointSpec(name="slide", kind="prismatic"),),
    controls=("slide",),
    dt=0.02,
    context=6,
    channels=(Channel("load", "N"),),
)


class _Counted(Starts):
    """Windows of random numbers, all kept."""

    def __init__(self) -> None:
        self.drawn: list[Window] = []

    def draw(self, count: int) -> Window:
        frames = _SPEC.context
        window = Window(
            torch.randn(count, frames + 1, 1), torch.randn(count, frames + 1, 1), torch.randn(count, frames, 1),
            torch.randn(count, frames + 1, 1),
        )  # fmt: skip
        self.drawn.append(window)
        return window


def _model() -> WorldModel:
    torch.manual_seed(0)
    model = WorldModel(_SPEC, EnsembleConfig(members=3, width=8, depth=2, head=8)).requires_grad_(False)
    model.net.mean.weight.normal_()
    return model


@pytest.mark.parametrize("batch", [2, 16])
def test_a_start_from_the_reserve_continues_as_one_with_its_full_window(batch: int) -> None:
    model, starts = _model(), _Counted()
    first = starts.draw(5)
    carry, state = model.begin(first), present_state(first)
    reserve = WarmStartPool(model, starts, count=batch)
    rows = torch.tensor([1, 4])
    mask = torch.zeros(5, dtype=torch.bool).index_fill(0, rows, True)
    taken, after = reserve.renew(carry, state, mask)
    window = starts.drawn[1]
    # The last of those that were read are given first; whichever they are, the model's own reset is the truth.
    number = [int((window.q[:, -1] == after.q[row]).nonzero()[0, 0]) for row in rows]
    context = Window(*(_spread(part, number, rows) for part in (window.q, window.qd, window.torque, window.channels)))
    reset = model.reset(carry, context, mask)
    control = Control(torque=torch.randn(5, 1))
    a, b = model.step(taken, after, control)[1], model.step(reset, after, control)[1]
    torch.testing.assert_close(a.state.q, b.state.q, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(a.state.channels, b.state.channels, rtol=1e-5, atol=1e-6)
    untouched = torch.tensor([0, 2, 3])
    for new, old in zip(taken.hidden, carry.hidden, strict=True):
        assert torch.equal(new[:, untouched], old[:, untouched])
    assert torch.equal(after.q[untouched], state.q[untouched])
    assert taken.member is not None
    assert reset.member is not None
    assert torch.equal(taken.member, reset.member)


def test_every_start_is_used_once() -> None:
    model, starts = _model(), _Counted()
    first = starts.draw(4)
    carry, state = model.begin(first), present_state(first)
    reserve = WarmStartPool(model, starts, count=4)
    seen: list[float] = []
    for rows in ([0], [1, 2], [3], [0, 1, 2, 3]):
        mask = torch.zeros(4, dtype=torch.bool).index_fill(0, torch.tensor(rows), True)
        carry, state = reserve.renew(carry, state, mask)
        seen += state.q[rows, 0].tolist()
    assert len(np.unique(seen)) == len(seen)
    assert len(starts.drawn) == 3  # and not one draw for each call


def _spread(part: torch.Tensor | None, number: list[int], rows: torch.Tensor) -> torch.Tensor:
    assert part is not None
    wide = torch.zeros(5, *part.shape[1:])
    wide[rows] = part[number]
    return wide
