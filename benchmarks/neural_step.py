# SPDX-License-Identifier: Apache-2.0
"""One whole neural step of many ants on a plane: what it costs beside the network, and beside recomputing windows.

A step is forward kinematics and contact points, inputs, network, and integration. The peer of the second comparison
keeps the last ten inputs of every world and runs them through the same network at every step; everything else about its
step is the same.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from _common import compare, require, single_thread, write_result
from neurodyn.core import Plane, Scene
from neurodyn.dynamics import Control, Environment, NeuralDynamics, State
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.geometry import Ground
from neurodyn.nets import NetConfig, Transformer, build_predictor
from neurodyn.robots import ContactPointSelection, load
from neurodyn.sim import build, contact_point_layout, mechanism
from rollout_cache import WindowRecompute

NETWORK = NetConfig(kind="transformer", width=384, depth=6, heads=12, window=10, head=64)
SCENE = Scene(shapes=(Plane(),))


def random_ants(worlds: int, free_motion: bool = False) -> tuple[NeuralDynamics, State, Control]:
    """Return a model of the ant with random weights, and ants about the ground."""
    torch.manual_seed(0)
    robot = msgspec.structs.replace(load("ant"), contact_points=ContactPointSelection())  # all 25
    spec = robot.spec
    built = build(robot, worlds=1)
    layout = contact_point_layout(built, robot)
    base = Base(kind="free", substeps=robot.simulator.substeps) if free_motion else None
    motion = torch.randn(1000, spec.nv)
    encoding = fit_encoding(
        spec, motion, spec.dt * motion, motion, velocity_products=False, layout=layout,
        base=base, mechanism=mechanism(built, robot),
    )  # fmt: skip
    predictor = build_predictor(NETWORK, encoding.inputs, encoding.outputs)
    model = NeuralDynamics(encoding, predictor, scene=SCENE).requires_grad_(False).eval()
    q = torch.zeros(worlds, spec.nq)
    q[:, 2], q[:, 6] = 0.3 + 0.3 * torch.rand(worlds), 1.0
    q[:, 7:] = 0.3 * torch.randn(worlds, spec.nq - 7)
    state = State(q, torch.randn(worlds, spec.nv))
    return model, state, Control(torque=torch.randn(worlds, spec.nu))


class Work:
    """The pieces of a step, on the same states at every call."""

    def __init__(self, worlds: int, free_motion: bool = False) -> None:
        self.model, self.state, self.control = random_ants(worlds, free_motion)
        self.environment = self.model.resolve_environment(Environment(ground=Ground(SCENE)))
        self.carry = self.model.begin(self.state, self.environment)
        self.inputs = self.encode()
        self.output = torch.zeros(worlds, self.model.encoding.outputs)
        net = self.model.predictor.net
        assert isinstance(net, Transformer)
        self.window = WindowRecompute(net, worlds)
        self.window.window = torch.zeros(worlds, net.window, net.inputs)
        self.memory = self.model.predictor.begin(worlds)
        for _ in range(2 * NETWORK.window):
            self.step()
            self.network()

    def step(self) -> State:
        """Take a whole step."""
        self.carry, step = self.model.step_(self.carry, self.state, self.control)
        return step.state

    def encode(self) -> Tensor:
        """Find the inputs: kinematics, contact points, and all the rest."""
        assert self.control.torque is not None
        encoding, state, torque = self.model.encoding, self.state, self.control.torque
        with torch.no_grad():
            self.base_prediction = encoding.predict_base(state.q, state.qd, torque, self.environment)
            return encoding.encode(self.base_prediction, torque, self.environment)

    def decode(self) -> State:
        """Integrate one frame."""
        with torch.no_grad():
            return self.model.encoding.decode(self.base_prediction, self.output)

    def beside(self) -> None:
        """Do everything but the network."""
        self.encode()
        self.decode()

    def network(self) -> None:
        """Run the network alone: normalisation, transformer with its cache, and short cut."""
        _, self.memory = self.model.predictor.step_(self.inputs, self.memory)

    @torch.no_grad()
    def outside(self) -> float:
        """Take a whole step; return the CPU seconds outside of the network, which finds and leaves caches cold."""
        model, state, clock = self.model, self.state, time.process_time
        start = clock()
        torque = frame_torque(model.spec, state, self.control)
        base_prediction = model.encoding.predict_base(state.q, state.qd, torque, self.environment)
        inputs = model.encoding.encode(base_prediction, torque, self.environment)
        before = clock()
        output, self.memory = model.predictor.step_(inputs, self.memory)
        after = clock()
        model.encoding.decode(base_prediction, output)
        return before - start + clock() - after

    @torch.no_grad()
    def recompute(self) -> State:
        """Take a whole step with the window recomputed."""
        predictor = self.model.predictor
        n = predictor.normaliser(self.encode())
        y = self.window.step(n)
        assert predictor.skip is not None
        y = predictor.denormaliser.inverse(torch.addmm(y, n, predictor.skip.weight.t()).add_(predictor.skip.bias))
        return self.model.encoding.decode(self.base_prediction, y)


def check(worlds: int = 8) -> float:
    """Check that both ways to step agree once the windows are full of the same inputs."""
    work = Work(worlds)
    work.carry = work.model.begin(work.state, work.environment)
    window = work.window
    worst = 0.0
    for frame in range(NETWORK.window):
        work.state = State(work.state.q, torch.randn(worlds, work.model.spec.nv))
        a, b = work.step(), work.recompute()
        # Rotary positions are relative, but the peer's window is padded with zeros until it is full.
        if frame == NETWORK.window - 1:
            worst = float((a.qd - b.qd).abs().max())
    require(bool(window.window.abs().sum() > 0) and worst < 1e-4, f"both ways to step differ by {worst:.1e}")
    return worst


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="The whole neural step, beside its network and window recomputation.")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--worlds", type=int, nargs="+", default=[512])
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds per piece of work and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="print where the time beside the network goes")
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {"largest_deviation": check()}
    ratios: dict[str, float] = {}
    for worlds in options.worlds:
        work = Work(worlds)
        if options.profile:
            _profile(work)
        works = {
            "step": work.step, "network": work.network, "beside_network": work.beside,
            "encode": work.encode, "decode": work.decode, "recompute": work.recompute,
        }  # fmt: skip
        times = compare(works, seconds=options.seconds, rounds=options.rounds)
        for name, seconds in times.items():
            figures[f"{name}_ms_b{worlds}"] = 1e3 * seconds
        outside = statistics.median(work.outside() for _ in range(60))
        figures[f"outside_network_in_step_ms_b{worlds}"] = 1e3 * outside
        free = Work(worlds, free_motion=True)
        taken = compare({"with": free.beside, "without": work.beside}, seconds=options.seconds, rounds=options.rounds)
        figures[f"free_motion_ms_b{worlds}"] = 1e3 * (taken["with"] - taken["without"])
        figures[f"step_env_steps_per_cpu_second_b{worlds}"] = worlds / times["step"]
        figures[f"speedup_over_recompute_b{worlds}"] = times["recompute"] / times["step"]
        ratios[f"step_vs_network_b{worlds}"] = times["step"] / times["network"]
        ratios[f"step_vs_recompute_b{worlds}"] = times["step"] / times["recompute"]
    write_result(options.json, "neural_step", figures, ratios)


def _profile(work: Work, calls: int = 200) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(calls):
        work.beside()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


if __name__ == "__main__":
    main()
