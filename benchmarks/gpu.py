# SPDX-License-Identifier: Apache-2.0
"""Ants on your GPU: neural and hybrid roll-outs, a policy environment and gradients, against Newton's MuJoCo.

    python benchmarks/gpu.py --json gpu.json
    python benchmarks/gpu.py --check

Needs a CUDA GPU, and exits with 2 if torch finds none; `--check` (kernels for A100 and H100, launches, graphs,
throughput, gradients, memory) runs what needs none in any case. Each piece of work is checked against the CPU before
timing; times are wall times, device synchronised, the median of interleaved rounds.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

FRAMES = 50
WORLDS = (1, 64, 1024, 4096, 16384)
ROUNDS = 5


def require_gpu() -> torch.device:
    """Return the GPU; exit with 2 if there is none."""
    if not torch.cuda.is_available():
        print("benchmarks/gpu.py: needs a CUDA GPU, and torch finds none here", file=sys.stderr)
        sys.exit(2)
    return torch.device("cuda", torch.cuda.current_device())


def timed(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the wall seconds of each piece of work; pieces take turns, and warm up once."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(ROUNDS + 1):
        for name, work in works.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            work()
            torch.cuda.synchronize()
            if turn:
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in times.items()}


def measure(device: torch.device, most: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return frames per second of each piece of work by number of worlds, and ratios to Newton's time."""
    import neurodyn
    from _common import require
    from neurodyn.control import SampledStarts
    from neurodyn.dynamics import Control, Dynamics, Environment, State, declared_hybrid
    from neurodyn.geometry import Ground
    from neurodyn.policy import PolicyEnvironment
    from neurodyn.sim import ReferenceSimulator
    from neurodyn.tasks import load

    task = load("ant-run")
    robot = task.declaration()
    scene = robot.named_ground()
    environment = Environment(ground=Ground(scene)) if scene is not None else Environment()
    models: dict[str, Dynamics] = {
        "neural": neurodyn.load("pretrained:ant", device=str(device)),
        "hybrid": declared_hybrid(robot).requires_grad_(False).to(device=device, dtype=torch.float32),
    }
    on_cpu = {"neural": neurodyn.load("pretrained:ant"), "hybrid": declared_hybrid(robot).requires_grad_(False)}
    few = SampledStarts(task, 0).draw(8)
    for name, model in models.items():
        torques = torch.zeros(8, 10, robot.spec.nu)
        here = model.rollout(few.to(device), torques.to(device), environment).q.cpu()
        there = on_cpu[name].rollout(few, torques, environment).q
        worst = float((here - there).abs().max())
        require(worst < 1e-3, f"{name}: GPU and CPU are {worst:.2g} apart after ten frames")
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for worlds in (count for count in WORLDS if count <= most):
        start = SampledStarts(task, 1).draw(worlds).to(device)
        torques = 100.0 * torch.randn(worlds, FRAMES, robot.spec.nu, device=device)
        simulator = ReferenceSimulator(robot, worlds, scene=scene, device=str(device))
        env = PolicyEnvironment(task, models["neural"], SampledStarts(task, 0, device=str(device)), worlds)
        actions = torch.zeros(worlds, env.num_actions, device=device)

        def frame_by_frame(start: State = start, torques: torch.Tensor = torques) -> None:
            carry, state = models["neural"].begin(start, environment), start
            for torque in torques.unbind(1):
                carry, step = models["neural"].step_(carry, state, Control(torque=torque))
                state = step.state

        def act(env: PolicyEnvironment = env, actions: torch.Tensor = actions) -> None:
            for _ in range(FRAMES):
                env.step(actions)

        found = timed(
            {
                "newton": lambda s=simulator, a=start, t=torques: s.rollout(a.q, a.qd, t),
                "neural": lambda a=start, t=torques: models["neural"].rollout(a, t, environment),
                "neural_frame_by_frame": frame_by_frame,
                "hybrid": lambda a=start, t=torques: models["hybrid"].rollout(a, t, environment),
                "environment": act,
            }
        )
        for name, seconds in found.items():
            figures[f"{name}_frames_per_second_b{worlds}"] = worlds * FRAMES / seconds
            if name != "newton":
                ratios[f"{name}_vs_newton_b{worlds}"] = seconds / found["newton"]
    return figures, ratios


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worlds", type=int, default=WORLDS[-1], help="most worlds")
    parser.add_argument("--check", action="store_true", help="print the checklist instead")
    arguments = parser.parse_args()
    if arguments.check:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        from benchmarks._gpu_checks import run_checks

        found = run_checks()
        print("\n".join(f"{name}: {text}" for name, text in found.items()))
        sys.exit(any(text.startswith("failed") for text in found.values()))
    device = require_gpu()
    from _common import write_result

    print(torch.cuda.get_device_name(device))
    write_result(arguments.json, "gpu", *measure(device, arguments.worlds))


if __name__ == "__main__":
    main()
