# SPDX-License-Identifier: Apache-2.0
"""A training step of a world model of ANYmal's sizes: 32 frames of warm-up, 8 of forecast, 256 windows, five members.

The sizes are those of Robotic World Model (state 45, action 12, contacts 8, two recurrent layers of 256, heads of 128).
The members are computed in one batched pass; the peer does the same step with torch.nn.GRU, member by member, with
equal loss and gradients. Its authors' code needs 1.07 CPU-s for one member and 5.8 CPU-s for five that share a trunk
(one thread, another machine).

    OMP_NUM_THREADS=1 python benchmarks/world_model_training.py [--json FILE]
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.core import Channel, JointSpec, StateSpec
from neurodyn.data import Windows
from neurodyn.dynamics import WorldModel
from neurodyn.learn.optimiser import MemberParameters
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.learn.world_model.trainer import EventWeights, WorldModelLoss, negative_log_likelihood
from neurodyn.nets import EnsembleConfig
from neurodyn.nets.members import MemberGRU, MemberLinear

CONTEXT, FORECAST, BATCH, MEMBERS = 32, 8, 256, 5
PHASE = WorldPhase(share=1.0, rate=1e-4, batch=BATCH, context=CONTEXT, forecast=FORECAST)


def spec() -> StateSpec:
    """Twelve joints, 21 channels, 8 contacts: 45 numbers and 12 controls."""
    joints = tuple(JointSpec(name=f"joint{i}", kind="revolute") for i in range(12))
    return StateSpec(
        robot="quadruped", joints=joints, controls=tuple(joint.name for joint in joints), dt=0.02, context=CONTEXT,
        channels=tuple(Channel(name=f"measured.{i}", unit="1") for i in range(21)),
        contacts=tuple(f"body{i}" for i in range(8)),
    )  # fmt: skip


def build(members: int, trunk: str, width: int = 256, head: int = 128) -> WorldModel:
    """Return a model with random weights, in which every part matters."""
    torch.manual_seed(0)
    config = EnsembleConfig(members=members, trunk=trunk, width=width, depth=2, head=head)  # type: ignore[arg-type]
    model = WorldModel(spec(), config, terminates=True)
    with torch.no_grad():
        for layer in (model.net.mean, model.net.log_std, model.net.skip):
            assert layer is not None
            layer.weight.normal_(0.0, 0.05)
        model.scale.fill_(0.1)
    return model


def windows(streams: int, batch: int, dtype: torch.dtype = torch.float32) -> Windows:
    """Return random windows with the members as their first axis."""
    generator = torch.Generator().manual_seed(1)
    frames = CONTEXT + FORECAST
    draw = lambda *size: torch.randn(*size, generator=generator).to(dtype)  # noqa: E731
    return Windows(
        draw(streams, batch, frames + 1, 12), draw(streams, batch, frames + 1, 12), draw(streams, batch, frames, 12),
        channels=draw(streams, batch, frames + 1, 21), contacts=(draw(streams, batch, frames + 1, 8) > 0).to(dtype),
        failed=draw(streams, batch, frames + 1) > 2,
    )  # fmt: skip


def settings(model: WorldModel) -> WorldSettings:
    """Return the settings of the loss."""
    return WorldSettings(net=model.net.config, phases=(PHASE,), steps=1)


def weights(dtype: torch.dtype = torch.float32) -> EventWeights:
    """Return equal weights of all events."""
    return EventWeights(torch.ones(9, dtype=dtype), torch.ones(9, dtype=dtype))


class Plain(nn.Module):
    """One member with torch's own recurrent layers, in a straightforward implementation."""

    def __init__(self, model: WorldModel, member: int) -> None:
        super().__init__()
        self.model, self.member = model, member
        width, layers = model.net.config.width, cast(list[MemberGRU], list(model.net.trunk))
        self.cells = nn.GRU(model.net.inputs, width, len(layers), batch_first=True).to(model.scale.dtype)
        with torch.no_grad():
            for k, layer in enumerate(layers):
                getattr(self.cells, f"weight_ih_l{k}").copy_(layer.project.weight[member].t())
                getattr(self.cells, f"weight_hh_l{k}").copy_(layer.weight[member].t())
                getattr(self.cells, f"bias_ih_l{k}").copy_(layer.project.bias[member, 0])
                bias = getattr(self.cells, f"bias_hh_l{k}")
                bias.zero_()
                bias[2 * width :].copy_(layer.bias[member, 0])

    def head(self, hidden: str, out: str, top: Tensor) -> Tensor:
        """Return the output of one of the member's heads."""
        first, last = (cast(MemberLinear, getattr(self.model.net, name)) for name in (hidden, out))
        m = self.member
        middle = functional.silu(top @ first.weight[m] + first.bias[m, 0])
        return middle @ last.weight[m] + last.bias[m, 0]

    def forward(self, batch: Windows) -> Tensor:
        """Return the member's loss."""
        m, model = self.member, self.model
        states = torch.cat([batch.q[m], batch.qd[m], batch.channels[m]], -1)  # type: ignore[index]
        inputs = torch.cat([states[:, :-1], batch.control[m]], -1).clamp(-10, 10)
        _, hidden = self.cells(inputs[:, :CONTEXT])
        x, loss = states[:, CONTEXT], 0.0
        skip = model.net.skip
        assert skip is not None
        for k in range(FORECAST):
            now = torch.cat([x, batch.control[m][:, CONTEXT + k]], -1).clamp(-10, 10)
            out, hidden = self.cells(now[:, None], hidden)
            top = out[:, 0]
            mean = self.head("mean_hidden", "mean", top) + now @ skip.weight[m] + skip.bias[m, 0]
            x = x + model.shift + model.scale * mean
            raw = self.head("spread_hidden", "log_std", top) + model.growth[m, 0, 0] * math.log(k + 1)
            raw = 8 - functional.softplus(8 - raw)
            log_std = -8 + functional.softplus(raw + 8)
            error = (x - states[:, CONTEXT + k + 1]) / model.scale
            loss = loss + negative_log_likelihood(error, log_std, 0.5, model.scale).mean() / FORECAST
            labels = torch.cat([batch.contacts[m], batch.failed[m, :, :, None].to(x)], -1)[:, CONTEXT + k + 1]  # type: ignore[index]
            logits = self.head("event_hidden", "logits", top)
            found = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            loss = loss + found.mean(0).sum() / FORECAST
        return loss  # type: ignore[return-value]


def check() -> None:
    """Compare loss and gradients of the batched pass with those of single members, in float64."""
    model = build(2, "own", width=16, head=8).double()
    batch = windows(2, 4, torch.float64)
    one = torch.ones(45, dtype=torch.float64)
    losses = WorldModelLoss(model, PHASE, settings(model), one, weights(torch.float64))(batch)
    losses.sum().backward()
    for member in range(2):
        plain = Plain(model, member)
        expected = plain(batch)
        require(torch.allclose(losses[member], expected, rtol=1e-10), "the loss of a member")
        expected.backward()
        for k, layer in enumerate(cast(list[MemberGRU], model.net.trunk)):
            theirs = getattr(plain.cells, f"weight_hh_l{k}").grad.t()
            assert layer.weight.grad is not None
            require(torch.allclose(layer.weight.grad[member], theirs, rtol=1e-7, atol=1e-12), "a gradient")


def step(model: WorldModel, batch: Windows):
    """Return one training step: loss, gradients, optimiser."""
    parameters = MemberParameters(model, model.members)
    optimiser = torch.optim.AdamW(parameters.views, lr=1e-6, fused=True)
    plan, one, equal = settings(model), torch.ones(45), weights()

    def run() -> None:
        model.zero_grad(set_to_none=True)
        WorldModelLoss(model, PHASE, plan, one, equal)(batch).sum().backward()
        parameters.take_gradients(1.0)
        optimiser.step()

    return run


def plain_step(model: WorldModel, batch: Windows):
    """Return the loss and gradients of all members, one after the other."""
    members = [Plain(model, m) for m in range(model.members)]

    def run() -> None:
        for member in members:
            member.zero_grad(set_to_none=True)
            member(batch).backward()

    return run


def main() -> None:
    """Check, time, and write the result."""
    parser = result_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    single_thread()
    check()
    own, one, shared = build(MEMBERS, "own"), build(1, "own"), build(MEMBERS, "shared")
    peer = build(MEMBERS, "own")
    times = compare(
        {
            "one": step(one, windows(1, BATCH)),
            "own": step(own, windows(MEMBERS, BATCH)),
            "shared": step(shared, windows(1, BATCH)),
            "plain": plain_step(peer, windows(MEMBERS, BATCH)),
        },
        seconds=1.0,
        rounds=given.rounds,
    )
    figures = {
        "one_member_cpu_s": times["one"],
        "five_independent_members_cpu_s": times["own"],
        "five_members_shared_trunk_cpu_s": times["shared"],
        "five_members_by_torch_gru_cpu_s": times["plain"],
        "independent_over_members_times_one": times["own"] / (MEMBERS * times["one"]),
    }
    ratios = {"step_independent_vs_torch_gru_b256": times["own"] / times["plain"]}
    write_result(given.json, "world_model_training", figures, ratios)


if __name__ == "__main__":
    main()
