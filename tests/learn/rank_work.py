# SPDX-License-Identifier: Apache-2.0
"""Trainings that `test_ranks` runs in two processes with half of each batch, and in one process with the whole.

`python -m tests.learn.rank_work FOLDER` writes what each rank found to FOLDER/rank{0,1}.pt.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor

from neurodyn.control.resolve import ResolvedDynamics
from neurodyn.control.starts import SampledStarts
from neurodyn.core.artifacts import read_tree
from neurodyn.core.errors import InputError
from neurodyn.core.interruption import Interrupted
from neurodyn.core.verdict import Finding
from neurodyn.data.mixture import Mixture
from neurodyn.learn.budget import TrainingBudget, TrainState
from neurodyn.learn.devices import current_ranks, joined
from neurodyn.learn.loop import Callback, TrainingLoop
from neurodyn.learn.neural.settings import Phase, Settings
from neurodyn.learn.neural.trainer import LossPart, LossScale, NeuralLearner
from neurodyn.learn.world_model.settings import WorldPhase, WorldSettings
from neurodyn.learn.world_model.train import event_weights
from neurodyn.learn.world_model.trainer import WorldModelLearner
from neurodyn.policy.learners.ppo import PPO
from neurodyn.policy.learners.training import train as train_policy
from neurodyn.policy.settings import NetworkSettings, PolicySettings, ShacSettings
from tests import plant, worlds
from tests.learn.callbacks import SignalAt, StopAt, Stopped
from tests.learn.test_loop import One
from tests.policy.small_worlds import Hold, Mass

RANKS = 2
STEPS = 12
BATCH = 32
"""Windows of all ranks together."""

Found = dict[str, Any]


def doubled(values: Any) -> Any:
    """Return windows in float64."""
    changed = {name: x.double() for name, x in vars(values).items() if isinstance(x, Tensor) and x.is_floating_point()}
    return replace(values, **changed)


class Losses(Callback):
    """Notes the loss of every step."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_step(self, loop: TrainingLoop) -> None:
        self.found.append(float(loop.last.loss))


class Exact(NeuralLearner):
    """Neural dynamics in float64; windows that start beyond `edge` [m] have no finite gradient."""

    edge = 1e9

    def draw(self) -> None:
        super().draw()
        self._batch = [LossPart(doubled(part.batch), part.environment, part.members) for part in self._batch]

    def loss(self) -> Tensor:
        beyond = any(bool((part.batch.q[:, 0, 0] > self.edge).any()) for part in self._batch)
        return super().loss() * (float("nan") if beyond else 1.0)

    def report_breakdown(self, row: int) -> None:
        """Report nothing."""

    def finish(self, train_state: TrainState) -> None:
        """Calibrate nothing: no model was kept."""

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Judge nothing: no model was kept."""
        return []


def neural(*, members: int = 1, balance: float | None = None, files: int = 1, edge: float = 1e9) -> Found:
    """Train neural dynamics in two phases."""
    batch = BATCH // current_ranks().count
    phases = (
        Phase(share=0.5, rate=1e-2, batch=batch, frames=4, balance=balance),
        Phase(share=0.5, rate=3e-3, batch=batch, forecast=3, context=1, balance=balance),
    )
    settings = Settings(net=plant.NETS["mlp"], phases=phases, steps=STEPS, members=members, optimiser="adam")
    data = Mixture.of([plant.make_store(seed=n, gravity=9.81 - n) for n in range(files)])
    scale = LossScale(torch.full((2,), 0.02).double(), torch.full((2,), 0.3).double())
    learner = Exact(Path("none"), plant.make_model("mlp", members=members), data, settings, scale)
    learner.edge = edge
    return of_loop(learner, settings)


class ExactWorld(WorldModelLearner):
    """A world model in float64."""

    def draw(self) -> None:
        super().draw()
        batch, ends = self._batch
        self._batch = (doubled(batch), None if ends is None else replace(ends, windows=doubled(ends.windows)))

    def finish(self, train_state: TrainState) -> None:
        """Calibrate nothing: no model was kept."""

    def verdicts(self, train_state: TrainState) -> list[Finding]:
        """Judge nothing: no model was kept."""
        return []


def world_model() -> Found:
    """Train a world model that predicts failures."""
    batch = 2 * BATCH // current_ranks().count  # as many windows of failures in two batches as in one of twice the size
    phases = (
        WorldPhase(share=0.5, rate=1e-2, batch=batch, context=6, forecast=1, teach=1.0),
        WorldPhase(share=0.5, rate=3e-3, batch=batch, context=6, forecast=5, loss="absolute"),
    )
    settings = WorldSettings(net=worlds.SMALL, phases=phases, steps=8, context=6, optimiser="adam")
    store, model = worlds.make_store(), worlds.make_model()
    weights = event_weights(model, store, settings)
    weights = replace(weights, positive=weights.positive.double(), event=weights.event.double())
    change = torch.full((5,), 0.05).double()
    return of_loop(ExactWorld(Path("none"), model.double(), store, settings, change, weights), settings)


def of_loop(learner: Any, settings: Any) -> Found:
    losses = Losses()
    end = TrainingLoop(learner, settings.budget, callbacks=[losses]).run()
    return {
        "losses": losses.found, "weights": {k: v.clone() for k, v in learner._model.state_dict().items()},
        "step": end.step, "left_out": end.left_out, "skipped": end.skipped, "verdict": end.verdict,
    }  # fmt: skip


def ppo(filled: PPO) -> Found:
    """Update PPO twice on frames that were collected before; this rank has every second of the worlds."""
    ranks, whole = current_ranks(), filled.storage
    part = make_ppo(whole.num_envs // ranks.count)
    part.actor.load_state_dict(filled.actor.state_dict())
    part.critic.load_state_dict(filled.critic.state_dict())
    for name in ("rewards", "dones", "values", "actions", "actions_log_prob", "returns"):
        getattr(part.storage, name).copy_(getattr(whole, name)[:, ranks.rows])
    part.storage.observations.copy_(whole.observations[:, ranks.rows])
    part.storage.distribution_params = tuple(x[:, ranks.rows].clone() for x in whole.distribution_params)
    frames, minibatches = whole.num_transitions_per_env, part.num_mini_batches
    local = [
        torch.randperm(frames * whole.num_envs // RANKS, generator=torch.Generator().manual_seed(rank))
        for rank in range(RANKS)
    ]
    if ranks.count == 1:  # the minibatches of both ranks together
        half = whole.num_envs // RANKS
        rows = [(p // half) * whole.num_envs + RANKS * (p % half) + rank for rank, p in enumerate(local)]
        order = torch.cat([x for parts in zip(*(p.chunk(minibatches) for p in rows), strict=True) for x in parts])
    else:
        order = local[ranks.rank]
    torch.randperm, drawn = lambda count, device=None: order, torch.randperm
    losses = []
    try:
        part.compute_returns(whole.observations[-1, ranks.rows])
        advantages = part.storage.advantages.clone()
        losses.append(part.update())
    finally:
        torch.randperm = drawn
    means = ranks.total(list(losses[0].values()))
    weights = {**part.actor.state_dict(), **{f"critic.{k}": v for k, v in part.critic.state_dict().items()}}
    return {
        "losses": [value / ranks.count for value in means], "rate": part.learning_rate,
        "weights": weights, "advantages": torch.cat(ranks.gather(advantages.flatten())).sort().values,
    }  # fmt: skip


def make_ppo(count: int) -> PPO:
    """A learner with an empty storage of `count` worlds."""
    several = current_ranks().count > 1
    settings = PolicySettings(
        worlds=count, horizon=6, network=NetworkSettings(hidden=(8,)), epochs=3, minibatches=2, rate=2e-3, entropy=0.01
    )
    config = settings.runner()
    seen = TensorDict({"policy": torch.zeros(count, 3)}, batch_size=[count])
    models = [
        MLPModel(seen, config["obs_groups"], name, size, **{k: v for k, v in config[name].items() if k != "class_name"})
        for name, size in (("actor", 2), ("critic", 1))
    ]
    options = {name: value for name, value in config["algorithm"].items() if name != "class_name"}
    group = (
        {"global_rank": current_ranks().rank, "local_rank": 0, "world_size": current_ranks().count} if several else None
    )
    return PPO(*models, RolloutStorage("rl", count, 6, seen, [2]), **options, multi_gpu_cfg=group)


def fill(algorithm: PPO) -> PPO:
    """Let a random policy act; before the ranks are joined, so that each has the same frames."""
    count = algorithm.storage.num_envs
    for step in range(6):
        seen = TensorDict({"policy": 2.0 * torch.randn(count, 3) + 1.0}, batch_size=[count])
        algorithm.act(seen)
        done = torch.rand(count) < 0.1
        algorithm.process_env_step(seen, torch.randn(count) + step, done, {"time_outs": done})
        algorithm.actor.update_normalization(seen)
        algorithm.critic.update_normalization(seen)
    return algorithm


class Drawn(ResolvedDynamics):
    """The mass, whose starts are its task's."""

    def starts(self, task: Any, seed: int) -> SampledStarts:
        return SampledStarts(task, seed)


class Smooth(Mass):
    """The mass, through which gradients pass."""

    differentiable = True


SHORT: dict[str, Any] = {"worlds": 8, "iterations": 4, "evaluations": 2, "evaluation_worlds": 8, "horizon": 6}


def policy(out: Path, settings: Any) -> Found:
    """Train a policy whole, and stopped and resumed; return the weights of both."""
    found: Found = {}
    for name, stop in (("whole", None), ("part", 2)):
        try:
            stops = () if stop is None else (StopAt(stop),)
            train_policy(Hold(), Drawn("mass", Smooth()), out / name, settings, callbacks=stops)
        except Stopped:
            train_policy(Hold(), Drawn("mass", Smooth()), out / name, settings, resume=True)
        current_ranks().wait()
        found[name] = read_tree(out / name / "state", "training")["learner"]["actor_state_dict"]
    return found


def interrupted(out: Path) -> Found:
    """Stop a training by a signal to the last rank alone."""
    stops = [SignalAt(4, signal.SIGTERM)] if current_ranks().rank == current_ranks().count - 1 else []
    loop = TrainingLoop(One(), TrainingBudget(40), out, callbacks=stops)
    try:
        loop.run()
    except Interrupted as error:
        current_ranks().wait()
        return {"step": loop.state.step, "code": error.code, "saved": sorted(os.listdir(out / "state"))}
    return {}


def timed() -> Found:
    """Train for a time that the ranks' clocks would not agree on."""
    end = TrainingLoop(Slow(), TrainingBudget(minutes=0.3 / 60, clock="wall")).run()
    return {"step": end.step, "seconds": end.seconds}


class Slow(One):
    """Draws of the last rank take longer."""

    def draw(self) -> None:
        super().draw()
        time.sleep(0.002 * current_ranks().rank)


def refused() -> Found:
    """Leave a step out whose gradient is not finite on one rank alone."""
    learner = One(bad=(2, 5) if current_ranks().leads else (5, 7))
    end = TrainingLoop(learner, TrainingBudget(10)).run()
    return {"skipped": end.skipped, "weight": learner.weight.item(), "verdict": end.verdict}


def disagreeing() -> Found:
    """Compare settings of which one differs."""
    try:
        current_ranks().require_equal({"seed": "1", "settings.steps": str(10 + current_ranks().rank)})
    except InputError as error:
        return {"error": str(error)}
    return {}


EQUAL: dict[str, Callable[[], Found]] = {
    "neural": neural,
    "members": lambda: neural(members=2, balance=0.25, files=2),
    "balanced": lambda: neural(balance=0.25),
    "isolated": lambda: neural(edge=0.9),
    "isolated and balanced": lambda: neural(balance=0.25, edge=0.9),
    "world model": world_model,
}
"""Trainings that are the same in one process."""


def filled_ppo() -> PPO:
    """Return a learner with frames of 8 worlds."""
    torch.manual_seed(4)
    return fill(make_ppo(8))


def all_of(out: Path, filled: PPO) -> Found:
    """Run everything that several processes do."""
    found = {name: work() for name, work in EQUAL.items()}
    torch.set_default_dtype(torch.float64)
    found["ppo"] = ppo(filled)
    torch.set_default_dtype(torch.float32)
    network = NetworkSettings(hidden=(8,))
    found["policy"] = policy(out / "ppo", PolicySettings(**SHORT, minibatches=2, epochs=2, network=network))
    found["shac"] = policy(out / "shac", ShacSettings(**SHORT, critic_minibatches=2, network=network))
    return found | {
        "interrupted": interrupted(out / "interrupted"), "timed": timed(), "refused": refused(),
        "disagreeing": disagreeing(),
    }  # fmt: skip


def main(out: Path) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    filled = filled_ppo()
    torch.set_default_dtype(torch.float32)
    with joined():
        torch.save(all_of(out, filled), out / f"rank{current_ranks().rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
