# SPDX-License-Identifier: Apache-2.0
"""Coverage of the 90 % intervals of `neurodyn adapt`, on synthetic robots.

Each robot is the declared one with every coordinate of the default set drawn from its prior (within one and a half
standard deviations); the compiled engine makes its log, with sensor noise. Counts, over robots, how many of the
quantities determined by the logs lie in their intervals.

    python benchmarks/adaptation_intervals.py --robot cartpole --task cartpole-swingup --robots 20 --effort .3
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.measures import displace
from neurodyn.identify import AdaptationSettings, identifiability
from neurodyn.identify.confidence.certainty import coordinate_parameters, hold_undetermined
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_lag
from neurodyn.identify.stages.growing_windows import Fitting
from neurodyn.identify.unknowns.quantities import effort
from neurodyn.robots import load
from neurodyn.robots.plausible import declared_bounds
from neurodyn.tasks import load as load_task

_MOST = 1.5


def drawn(model: FitModel, generator: torch.Generator) -> torch.Tensor:
    """Return the coordinates of a random robot."""
    x = torch.randn(len(model.space.names), generator=generator, dtype=torch.float64).clamp(-_MOST, _MOST)
    return model.space.clip(x)


def log_of(model: FitModel, x: torch.Tensor, path: Path, args: argparse.Namespace, seed: int) -> Store:
    """Write the log of a robot: smooth random commands from its resets, with noise."""
    robot, spec, rng = model.robot, model.robot.spec, np.random.default_rng(seed)
    plant = model.dynamics(None, args.threads)
    with torch.no_grad():
        plant.physical.raw.copy_(plant.physical.raw_of(model.space.values(x)))
    starts = starts_of(args, seed)
    index = {name: model.mechanism.names.index(name) for name in spec.controls}
    size = np.array([effort(robot, model.mechanism, index[name]) for name in spec.controls])
    wave, commands = np.zeros((args.episodes, spec.nu)), []
    for _ in range(args.frames):
        wave = 0.85 * wave + 0.5 * rng.normal(size=wave.shape)
        commands.append(np.clip(args.effort * wave, -1, 1) * size)
    control = torch.from_numpy(np.stack(commands, 1))
    with torch.no_grad():
        path_ = plant.rollout(starts, control)
    bad = declared_bounds(robot).outside(path_.q, path_.qd)
    lengths = np.where(bad.any(1), bad.double().argmax(1), args.frames + 1).astype(int) - 1
    kept = np.nonzero(lengths > 30)[0]
    noise = torch.from_numpy(rng.normal(size=(*path_.qd.shape[:2], 2 * spec.nv)))
    q = displace(spec, path_.q, args.noise * noise[..., : spec.nv])
    qd = path_.qd + 10 * args.noise * noise[..., spec.nv :]
    split = np.where(np.arange(len(kept)) % 5 == 0, Split.VALIDATION, Split.TRAIN).astype(np.int8)
    with StoreWriter(path, StoreHeader(spec=spec, source="log")) as writer:
        writer.append(*(x[kept].float().numpy() for x in (q, qd, control)), lengths=lengths[kept], split=split)
    return Store.open(path)


def starts_of(args: argparse.Namespace, seed: int) -> State:
    """Return states from the robot's resets, in double precision."""
    from neurodyn.control import SampledStarts

    if args.task is None:
        robot = load(args.robot)
        generator = torch.Generator().manual_seed(seed)
        q = 2.0 * torch.rand(args.episodes, robot.spec.nq, generator=generator, dtype=torch.float64) - 1.0
        return State(q, torch.zeros(args.episodes, robot.spec.nv, dtype=torch.float64))
    state = SampledStarts(load_task(args.task), seed=seed).draw(args.episodes)
    return State(state.q.double(), state.qd.double())


def main() -> None:
    """Draw robots, log, fit, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--robot", default="ant")
    parser.add_argument("--task", default=None, help="task whose starts episodes have")
    parser.add_argument("--robots", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--effort", type=float, default=0.5)
    parser.add_argument("--noise", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = AdaptationSettings()
    model = structures(FitModel.declared(with_lag(load(args.robot)), args.robot, settings), settings)[0]
    held: dict[str, list[bool]] = {}
    shares, seconds = [], []
    for number in range(args.robots):
        generator = torch.Generator().manual_seed(number)
        x, begun = drawn(model, generator), time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            store = log_of(model, x, Path(folder) / "log.h5", args, number)
            fitting = Fitting(model, store, settings, args.threads)
            fitting.screen()
            fit = fitting.run()
            analysis = identifiability(fit.residuals, fit.point)
            fit, analysis, determined = hold_undetermined(fit, analysis, settings)
        seconds.append(time.process_time() - begun)
        inside, quantities = [], coordinate_parameters(fitting.space, fit.point.x[0], analysis, determined)
        for one, k in zip(quantities, range(len(x)), strict=True):
            if one.determined and not one.bound:
                true = float(model.space.coordinates[k].value(x[k]))
                inside.append(one.interval[0] <= true <= one.interval[1])
                held.setdefault(one.name, []).append(inside[-1])
        shares.append(float(np.mean(inside)))
        print(f"robot {number}: {np.sum(inside)} of {len(inside)} intervals hold, {seconds[-1]:.0f} CPU-s", flush=True)
    every = [one for found in held.values() for one in found]
    print(f"90 % intervals hold the truth in {np.mean(every):.1%} of {len(every)} cases over {args.robots} robots")
    for name, found in sorted(held.items(), key=lambda item: np.mean(item[1]))[:12]:
        print(f"  {name}: {np.mean(found):.0%} of {len(found)}")
    if args.json is not None:
        args.json.write_text(json.dumps({"coverage": float(np.mean(every)), "robots": shares, "cpu_seconds": seconds}))


if __name__ == "__main__":
    main()
