# SPDX-License-Identifier: Apache-2.0
"""Frames with the memory as plain tensors give what the nets give."""

import pytest
import torch

from neurodyn.nets.networks import NetConfig
from neurodyn.nets.predictor import StreamingPredictor, build_predictor

NETS = {
    "mlp": NetConfig(kind="mlp", width=8, depth=2),
    "gru": NetConfig(kind="gru", width=6, depth=2, head=0, clip=2.0),
    "transformer": NetConfig(kind="transformer", width=16, depth=2, heads=2, window=4, head=8, skip=False),
}


@pytest.fixture(params=NETS)
def predictor(request):
    torch.manual_seed(0)
    made = build_predictor(NETS[request.param], 3, 2).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.eval().requires_grad_(False)


def test_many_frames_agree_with_steps(predictor):
    streaming = StreamingPredictor(predictor)
    memory, carry = tuple(x.double() if x.is_floating_point() else x for x in streaming.begin(5)), predictor.begin(5)
    for _ in range(15):
        x = torch.randn(5, 3, dtype=torch.float64)
        found, *memory = streaming(x, *memory)
        wanted, carry = predictor.step(x, carry)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_memory_has_worlds_first_and_begins_as_zeros(predictor):
    streaming = StreamingPredictor(predictor)
    memory = streaming.begin(5)
    assert len(memory) == len(streaming.memory_names)
    for tensor in memory:
        assert tensor.shape[0] == 5
        assert not tensor.any()
