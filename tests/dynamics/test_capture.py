# SPDX-License-Identifier: Apache-2.0
"""Captured steps: on a CPU by a recording that calls the step again on the same memory, as a graph would."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import neurodyn
from neurodyn.dynamics import Control, State
from neurodyn.dynamics.capture import CapturedStep, CaptureError, copy_of, cuda_graph, write

CPU = torch.device("cpu")


class Again:
    """A recording that calls what was recorded again; like a graph it takes and gives nothing but memory."""

    def __init__(self, work: Callable[[], None], *_: Any) -> None:
        work()
        self.replay = work


@dataclass(frozen=True)
class Pair:
    """Two tensors and what is none."""

    now: Tensor
    before: Tensor
    name: str = "pair"


def _shifted(pair: Pair, more: Tensor) -> tuple[Pair, dict[str, Tensor]]:
    # What one tensor is copied from is what the other is copied to.
    return Pair(pair.now + more, pair.now, pair.name), {"sum": pair.now + pair.before}


def test_a_captured_step_is_the_step() -> None:
    pair, captured_pair = Pair(torch.zeros(2), torch.ones(2)), Pair(torch.zeros(2), torch.ones(2))
    captured = CapturedStep(_shifted, captured_pair, (torch.zeros(2),), device=CPU, record=Again)
    outputs = []
    for k in range(4):
        more = torch.full((2,), float(k + 1))
        pair, wanted = _shifted(pair, more)
        outputs.append(captured(more))
        torch.testing.assert_close(outputs[-1], wanted)
        torch.testing.assert_close([captured.state.now, captured.state.before], [pair.now, pair.before])
    assert [float(output["sum"][0]) for output in outputs] == [1.0, 1.0, 4.0, 9.0]  # outputs have memory of their own
    assert torch.equal(captured_pair.now, torch.zeros(2))  # the first state is the caller's
    captured.restart(captured_pair)
    torch.testing.assert_close(captured(torch.zeros(2))["sum"], torch.ones(2))


def test_what_changes_beside_tensors_is_refused() -> None:
    def renamed(pair: Pair, more: Tensor) -> tuple[Pair, Tensor]:
        return Pair(pair.now, pair.before, pair.name + "'"), more

    with pytest.raises(CaptureError, match="no tensor"):
        CapturedStep(renamed, Pair(torch.zeros(1), torch.zeros(1)), (torch.zeros(1),), device=CPU, record=Again)


def test_trees_are_copied_whole() -> None:
    tree = {"a": (torch.ones(2), [torch.zeros(1)]), "b": State(torch.ones(1, 1), torch.zeros(1, 1)), "c": 3}
    other = copy_of(tree)
    write(tree, {"a": (torch.zeros(2), [torch.ones(1)]), "b": State(torch.zeros(1, 1), torch.ones(1, 1)), "c": 3})
    assert other["a"][0].tolist() == [1.0, 1.0]
    assert tree["a"][0].tolist() == [0.0, 0.0]
    assert float(tree["b"].qd) == float(tree["a"][1][0]) == 1.0
    assert other["c"] == 3


@pytest.mark.parametrize("name", ["cartpole", "ant"])
def test_a_roll_out_by_replays_is_the_roll_out(name: str) -> None:
    dynamics = neurodyn.load(f"pretrained:{name}")
    spec, generator = dynamics.spec, torch.Generator().manual_seed(0)
    for worlds in (3, 3, 2):  # the second time the recording is used again, the third it does not fit
        q = 0.1 * torch.randn(worlds, spec.nq, generator=generator)
        if spec.floating:
            q[:, 2] += 1.0
            q[:, 3:7] = torch.tensor([0.0, 0.0, 0.0, 1.0])
        state = State(q, torch.randn(worlds, spec.nv, generator=generator))
        controls = torch.randn(worlds, 10, spec.nu, generator=generator)
        wanted = dynamics.rollout(state, controls)
        found = dynamics._replay(dynamics.begin(state), state, controls, record=Again)
        assert found is not None
        torch.testing.assert_close(found.q, wanted.q)
        torch.testing.assert_close(found.qd, wanted.qd)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: torch finds none")
@pytest.mark.parametrize("name", ["cartpole", "ant", "anymal-c"])
def test_a_cuda_graph_holds_torch_and_warp(name: str) -> None:
    dynamics = neurodyn.load(f"pretrained:{name}", device="cuda")
    spec = dynamics.spec
    q = torch.zeros(16, spec.nq, device="cuda")
    if spec.floating:
        q[:, 2], q[:, 6] = 1.0, 1.0
    state, controls = State(q, torch.zeros(16, spec.nv, device="cuda")), torch.randn(16, 20, spec.nu, device="cuda")
    there = neurodyn.load(f"pretrained:{name}").rollout(state.to("cpu"), controls.cpu()).q
    carry, now, path = dynamics.begin(state), state, [state.q]
    for torque in controls.unbind(1):
        carry, step = dynamics.step_(carry, now, Control(torque=torque))
        now = step.state
        path.append(now.q)
    found = dynamics._replay(dynamics.begin(state), state, controls, record=cuda_graph)
    assert found is not None
    apart = {
        way: (q.cpu() - there).abs().amax((0, 2))  # by frame
        for way, q in (("frame by frame", torch.stack(path, 1)), ("by replays", found.q))
    }
    assert all(distance.max() < 1e-3 for distance in apart.values()), apart
    torch.testing.assert_close(found.q[:, -1], now.q)
