# SPDX-License-Identifier: Apache-2.0
"""Roll-outs without gradients: a key/value ring against recomputing the window at every step, and small networks.

The peer keeps the last `window` inputs of every world and runs them through the same weights at every step, with the
head evaluated for the last frame only. Both predict the same number of frames per call. A second peer also omits the
last block's work for frames with unused output.
"""

import torch
from torch import Tensor
from torch.nn import functional

from _common import compare, require, result_parser, single_thread, write_result
from neurodyn.nets import NetConfig, SequenceNet, Transformer, build_net
from neurodyn.nets.transformer import TransformerBlock, rotate

INPUTS, OUTPUTS = 9, 4
LARGE = NetConfig(kind="transformer", width=192, depth=6, heads=12, window=10)
SMALL = {
    "gru_w64": NetConfig(kind="gru", width=64, depth=1, head=64),
    "mlp_w128_d3": NetConfig(kind="mlp", width=128, depth=3),
    "transformer_w64_d2": NetConfig(kind="transformer", width=64, depth=2, heads=4, window=10),
}


class WindowRecompute:
    """Steps a transformer by recomputing the window of the last inputs."""

    def __init__(self, net: Transformer, worlds: int, *, prune: bool = False) -> None:
        self.net, self.prune = net, prune
        self.window = torch.zeros(worlds, net.window, net.inputs)

    @torch.no_grad()
    def step(self, x: Tensor) -> Tensor:
        """Predict one frame, [worlds, inputs] -> [worlds, outputs]."""
        self.window = torch.cat((self.window[:, 1:], x[:, None]), 1)
        if not self.prune:
            return self.net.head(self.net.features(self.window)[:, -1])
        return self._pruned()

    def _pruned(self) -> Tensor:
        net, x = self.net, self.net.embed(self.window)
        cos, sin = net.rotary.at(net.window, x)
        blocks: list[TransformerBlock] = list(net.blocks)  # type: ignore[arg-type]
        for block in blocks[:-1]:
            x = block(x, cos, sin, None)
        last = blocks[-1]
        # The last block: keys and values of all frames, the rest for the last frame only.
        attention, worlds = last.attention, x.shape[0]
        n = last.norm1(x)
        width, shape = attention.width, (worlds, -1, attention.heads, attention.channels)
        k, v = functional.linear(n, attention.qkv.weight[width:]).chunk(2, -1)
        q = functional.linear(n[:, -1:], attention.qkv.weight[:width])
        q, k, v = (y.reshape(shape).transpose(1, 2) for y in (q, k, v))
        q, k = rotate(q, cos[-1:], sin[-1:]), rotate(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        y = x[:, -1] + attention.out(mixed.reshape(worlds, width))
        y = y + last.narrow(functional.gelu(last.widen(last.norm2(y))))
        return net.head(net.norm(y))


def random_net(config: NetConfig) -> SequenceNet:
    torch.manual_seed(0)
    return build_net(config, INPUTS, OUTPUTS).eval()


@torch.no_grad()
def check(net: SequenceNet, worlds: int = 16, frames: int = 200) -> float:
    """Compare stepping with the pass over the whole sequence, with a reset of half of the worlds midway."""
    x = torch.randn(worlds, frames, INPUTS)
    half, cut = torch.arange(worlds) % 2 == 0, frames // 2
    expected = net(x)
    expected[half, cut:] = net(x[half, cut:])
    carry, worst = net.begin(worlds), 0.0
    for t in range(frames):
        if t == cut:
            carry = net.reset(carry, half)
        y, carry = net.step_(x[:, t], carry)
        worst = max(worst, float((y - expected[:, t]).abs().max()))
    require(worst < 1e-5, f"stepping differs from the pass over the sequence by {worst:.2e}")
    return worst


@torch.no_grad()
def check_recompute(net: Transformer, worlds: int = 16) -> None:
    """Compare both window peers with the network's own pass over a window."""
    x = torch.randn(worlds, net.window, INPUTS)
    for prune in (False, True):
        peer = WindowRecompute(net, worlds, prune=prune)
        y = torch.stack([peer.step(frame) for frame in x.unbind(1)])
        worst = float((y[-1] - net(x)[:, -1]).abs().max())
        require(worst < 1e-5, f"recomputing the window differs from the pass over it by {worst:.2e}")


def stepper(net: SequenceNet, worlds: int):
    """Return a call that steps `worlds` worlds, past the first frames after a reset."""
    x, carry = torch.randn(worlds, INPUTS), [net.begin(worlds)]

    def step() -> None:
        _, carry[0] = net.step_(x, carry[0])

    for _ in range(2 * LARGE.window):
        step()
    return step


def resetting_stepper(net: SequenceNet, worlds: int):
    """Return a call that steps `worlds` worlds and resets one of them at every step."""
    x, carry, masks = torch.randn(worlds, INPUTS), [net.begin(worlds)], torch.eye(worlds, dtype=torch.bool)
    count = [0]

    def step() -> None:
        count[0] = (count[0] + 1) % worlds
        _, carry[0] = net.step_(x, net.reset(carry[0], masks[count[0]]))

    return step


def main() -> None:
    parser = result_parser("Cached roll-outs beside recomputing the window.")
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 64, 512], help="numbers of worlds")
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds per piece of work and round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    large = random_net(LARGE)
    assert isinstance(large, Transformer)
    figures["cache_largest_deviation"] = check(large)
    check_recompute(large)
    small = {name: random_net(config) for name, config in SMALL.items()}
    for name, net in small.items():
        check(net)
        figures[f"{name}_weights"] = sum(p.numel() for p in net.parameters())
    for worlds in options.worlds:
        x = torch.randn(worlds, INPUTS)
        window, pruned = WindowRecompute(large, worlds), WindowRecompute(large, worlds, prune=True)
        works = {
            "cache": stepper(large, worlds),
            "cache_resetting": resetting_stepper(large, worlds),
            "recompute": lambda window=window, x=x: window.step(x),
            "recompute_pruned": lambda pruned=pruned, x=x: pruned.step(x),
            **{name: stepper(net, worlds) for name, net in small.items()},
        }
        times = compare(works, seconds=options.seconds, rounds=options.rounds)
        for name, seconds in times.items():
            figures[f"{name}_env_steps_per_cpu_second_b{worlds}"] = worlds / seconds
        for peer in ("recompute", "recompute_pruned"):
            ratios[f"cache_vs_{peer}_b{worlds}"] = times["cache"] / times[peer]
            figures[f"cache_speedup_over_{peer}_b{worlds}"] = times[peer] / times["cache"]
    write_result(options.json, "rollout_cache", figures, ratios)


if __name__ == "__main__":
    main()
