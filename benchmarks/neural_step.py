# SPDX-License-Identifier: Apache-2.0
"""A neural step: for one world against Newton's captured frame, and for many ants against the network alone.

One world (`--robots`): `SolverNeural.step`, called and captured in a graph, a step of the dynamics, the same step with
torch operations, and the reference simulator's captured frame; all on the same state. Then the number of worlds up to
which the compiled network is faster than torch's, and what the compiled encoding saves at 512 worlds.

Many worlds (`--worlds`): a step is forward kinematics and contact points, inputs, network, and integration. The peer of
the second comparison keeps the last ten inputs of every world and runs them through the same network at every step;
everything else about its step is the same.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import torch
import warp as wp
from torch import Tensor

import neurodyn
from _common import compare, require, single_thread, write_result
from neurodyn.core import Plane, Scene
from neurodyn.dynamics import Control, Environment, NeuralDynamics, State
from neurodyn.dynamics.control import frame_torque
from neurodyn.dynamics.neural.base_prediction import Base
from neurodyn.dynamics.neural.compiled import CompiledFrame
from neurodyn.dynamics.neural.encoding import fit_encoding
from neurodyn.geometry import Ground
from neurodyn.nets import NetConfig, Transformer, build_predictor
from neurodyn.robots import ContactPointSelection, load
from neurodyn.sim import ReferenceSimulator, build, contact_point_layout, mechanism
from neurodyn.sim.newton.articulation import newton_articulation
from neurodyn.solvers import SolverNeural
from rollout_cache import WindowRecompute

NETWORK = NetConfig(kind="transformer", width=384, depth=6, heads=12, window=10, head=64)
SCENE = Scene(shapes=(Plane(),))


def random_ants(worlds: int, free_motion: bool = False) -> tuple[NeuralDynamics, State, Control]:
    """Return a model of the ant with random weights, and ants near the ground."""
    torch.manual_seed(0)
    robot = msgspec.structs.replace(load("ant"), contact_points=ContactPointSelection())  # all 25
    spec = robot.spec
    built = build(robot, worlds=1)
    layout = contact_point_layout(newton_articulation(built, robot), robot)
    base = Base(kind="free", substeps=robot.simulator.substeps) if free_motion else None
    motion = torch.randn(1000, spec.nv)
    encoding = fit_encoding(
        spec, motion, spec.dt * motion, motion, velocity_products=False, layout=layout,
        base=base, mechanism=mechanism(newton_articulation(built, robot), robot),
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
        """Compute the inputs: kinematics, contact points, and everything else."""
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
        """Do everything except the network."""
        self.encode()
        self.decode()

    def network(self) -> None:
        """Run only the network: normalisation, transformer with its cache, and skip connection."""
        _, self.memory = self.model.predictor.step_(self.inputs, self.memory)

    @torch.no_grad()
    def outside(self) -> float:
        """Take a whole step; return the CPU seconds outside the network, which finds and leaves caches cold."""
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
    """Check that both step methods agree once the windows are full of the same inputs."""
    work = Work(worlds)
    work.carry = work.model.begin(work.state, work.environment)
    window = work.window
    worst = 0.0
    for frame in range(NETWORK.window):
        work.state = State(work.state.q, torch.randn(worlds, work.model.spec.nv))
        a, b = work.step(), work.recompute()
        # Rotary positions are relative, but the peer's window is zero-padded until full.
        if frame == NETWORK.window - 1:
            worst = float((a.qd - b.qd).abs().max())
    require(bool(window.window.abs().sum() > 0) and worst < 1e-4, f"both ways to step differ by {worst:.1e}")
    return worst


class OneWorld:
    """Methods to step one world of a pretrained model, and the reference simulator's frame."""

    def __init__(self, name: str) -> None:
        self.model = model = neurodyn.load(f"pretrained:{name}")
        robot = load(name)
        self.simulator = ReferenceSimulator(robot, 1, scene=model.scene)
        built = build(robot, worlds=1, scene=model.scene)
        self.solver, self.newton_state = SolverNeural(built, model), built.state()
        self.newton_control = built.control()
        torch.manual_seed(0)
        rows = [wp.to_torch(array).view(1, -1) for array in (self.newton_state.joint_q, self.newton_state.joint_qd)]
        rows[1].normal_()
        self.state = State(rows[0].clone(), rows[1].clone())
        self.control = Control(torque=10.0 * torch.randn(1, robot.spec.nu))
        forces = torch.zeros(1, robot.spec.nv)
        forces[:, list(robot.spec.control_dofs)] = self.control.torque
        self.newton_control.joint_f.assign(forces.numpy().ravel())
        self.carry = model.begin(self.state)
        self.out = built.state()
        with wp.ScopedCapture(built.device) as capture:
            self.solve()
        self.graph = capture.graph
        self.simulator.step_(self.state.q, self.state.qd, self.control.torque)

    def solve(self) -> None:
        """Step the solver."""
        self.solver.step(self.newton_state, self.out, self.newton_control, None, self.model.spec.dt)

    def captured(self) -> None:
        """Replay a captured step of the solver."""
        wp.capture_launch(self.graph)

    def step(self) -> State:
        """Step the dynamics."""
        return self.model.step(self.carry, self.state, self.control)[1].state

    def in_torch(self) -> State:
        """Step the dynamics with torch operations."""
        return torch_step(self.model, self.carry, self.state, self.control)

    def check(self) -> float:
        """Check that all methods give the same next state; return the largest difference."""
        expected, found = self.in_torch(), [torch.cat([(x := self.step()).q, x.qd], -1)]
        for work in (self.solve, self.captured):
            work()
            rows = [wp.to_torch(array).view(1, -1) for array in (self.out.joint_q, self.out.joint_qd)]
            found.append(torch.cat(rows, -1).clone())
        exact = torch.cat([expected.q, expected.qd], -1)
        worst = max(float((one - exact).abs().max() / exact.abs().max()) for one in found)
        require(worst < 2e-6, f"ways to step one world differ by {worst:.1e}")
        return worst


@torch.no_grad()
def torch_step(model: NeuralDynamics, carry: Any, state: State, control: Control) -> State:
    """Step as with gradients enabled, but without computing them."""
    torque = frame_torque(model.spec, state, control)
    base_prediction = model.encoding.predict_base(state.q, state.qd, torque, carry.environment)
    inputs = model.encoding.encode(base_prediction, torque, carry.environment)
    return model.encoding.decode(base_prediction, model.predictor.step_(inputs, carry.memory)[0])


def one_world(name: str, seconds: float, rounds: int, figures: dict[str, float], ratios: dict[str, float]) -> None:
    """Time one world of a model, and the two methods to run its network by number of worlds."""
    work, key = OneWorld(name), name.replace("-", "_")
    figures[f"{key}_largest_relative_difference"] = work.check()
    works = {
        "solver": work.solve, "captured": work.captured, "step": work.step, "torch": work.in_torch,
        "newton": work.simulator.replay,
    }  # fmt: skip
    times = compare(works, seconds=seconds, rounds=rounds)
    for way, taken in times.items():
        figures[f"{key}_{way}_us_b1"] = 1e6 * taken
    for way in ("solver", "captured"):
        ratios[f"{key}_{way}_vs_newton_b1"] = times[way] / times["newton"]
    ratios[f"{key}_step_vs_torch_b1"] = times["step"] / times["torch"]
    model, environment, meeting = work.model, work.model.home, 0
    for worlds in (8, 16, 24, 32, 48, 64):
        frame = CompiledFrame(model.encoding, model.predictor, worlds, environment, network=True)
        frame.state.copy_(torch.cat([work.state.q, work.state.qd], -1).expand(worlds, -1))

        def between(frame: CompiledFrame = frame) -> None:
            frame.encode()
            frame.y.copy_(model.predictor.step_(frame.x, None)[0])
            frame.decode()

        taken = compare({"compiled": frame.run, "torch": between}, seconds=seconds / 5, rounds=rounds)
        meeting = worlds if taken["compiled"] < taken["torch"] else meeting
    figures[f"{key}_worlds_of_compiled_network"] = meeting
    many, controls = work.state.rows(torch.zeros(512, dtype=torch.long)), work.control.torque.expand(512, -1)
    carry, control = model.begin(many), Control(torque=controls)
    taken = compare(
        {"step": lambda: model.step_(carry, many, control), "torch": lambda: torch_step(model, carry, many, control)},
        seconds=seconds, rounds=rounds,
    )  # fmt: skip
    figures[f"{key}_step_ms_b512"] = 1e3 * taken["step"]
    ratios[f"{key}_step_vs_torch_b512"] = taken["step"] / taken["torch"]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description="A neural step: one world beside Newton, and many beside the network.")
    parser.add_argument("--json", type=Path, help="file for the result")
    parser.add_argument("--robots", nargs="*", default=["cartpole", "ant", "anymal-c"], help="pretrained, one world")
    parser.add_argument("--worlds", type=int, nargs="*", default=[512], help="ants with the paper's network")
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU seconds per piece of work and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="print where the time beside the network goes")
    options = parser.parse_args()
    single_thread()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for name in options.robots:
        one_world(name, options.seconds / 2, options.rounds, figures, ratios)
    if options.worlds:
        figures["largest_deviation"] = check()
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
