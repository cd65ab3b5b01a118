# SPDX-License-Identifier: Apache-2.0
"""Imitation of the quadratic program by a network: decisions on random commands, then rounds of DAgger."""

from dataclasses import dataclass, field

import numpy as np
import torch

from neurodyn.core.config import Config, require_numbers
from neurodyn.core.errors import InputError, require
from neurodyn.core.progress import tell, tracked
from neurodyn.core.seeds import derive_seed, generator
from neurodyn.dynamics.batch import State
from neurodyn.walking.closed_loop import walk
from neurodyn.walking.controller import QuadrupedController
from neurodyn.walking.convex_mpc import ConvexMpc, ForceLaw, MpcSettings
from neurodyn.walking.force_network import WIDTHS, ForceNetwork, ImitatedForces, ImitationConfig, Matrices
from neurodyn.walking.gait import GAITS, Commands
from neurodyn.walking.plant import WalkingPlant
from neurodyn.walking.state import ForceInputs


class ImitationSettings(Config, frozen=True):
    """Settings of the imitation.

    Attributes:
        transitions: Decisions of the quadratic program on random commands for the first fit.
        rounds: Rounds of DAgger.
        round_transitions: Decisions per round.
        seconds: Length of an episode in which decisions are gathered [s].
        push: Standard deviation of velocity changes by pushes [m/s], every second and in each direction.
        share: Factor on the drawn commands, so that those used later lie inside.
        epochs: Passes over the decisions in the first fit, and after the last round; half as many in between.
        batch: Decisions per batch.
        rate: Initial learning rate; it falls along a cosine.
    """

    transitions: int = 10_000
    rounds: int = 4
    round_transitions: int = 6_000
    seconds: float = 6.0
    push: float = 0.15
    share: float = 1.15
    epochs: int = 60
    batch: int = 256
    rate: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("transitions", "round_transitions", "epochs", "batch"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        require(self.rounds >= 0, "rounds", self.rounds, "at least 0")
        for name in ("seconds", "share", "rate"):
            require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        require_numbers(self)


@dataclass
class Decisions:
    """Inputs of the quadratic program and the resulting forces.

    Attributes:
        features: Shape [decisions, 41] in parts.
        forces: Shape [decisions, 12] in parts [N].
    """

    features: list[np.ndarray] = field(default_factory=list)
    forces: list[np.ndarray] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.features))


def imitate(
    plant: WalkingPlant,
    gait: str = "trot",
    mpc: MpcSettings | None = None,
    settings: ImitationSettings | None = None,
    *,
    seed: int = 0,
) -> tuple[ForceNetwork, ImitatedForces]:
    """Train a network to compute forces as convex model-predictive control does.

    Args:
        plant: The plant to walk in.
        gait: Name of the gait.
        mpc: Settings of the imitated controller.
        settings: Settings of the imitation.
        seed: Seed of commands, pushes and weights.

    Raises:
        InputError: The robot falls before the first decision.
    """
    mpc, settings = mpc or MpcSettings(), settings or ImitationSettings()
    quadruped = plant.quadruped
    teacher = ConvexMpc(quadruped, mpc)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "imitation"))
        network = ForceNetwork(quadruped.mass * quadruped.gravity)
    config = ImitationConfig(
        robot=plant.robot.name, gait=gait, settings=mpc, widths=WIDTHS, mass=quadruped.mass, height=quadruped.height
    )
    greatest = mpc.greatest_force * quadruped.mass * quadruped.gravity
    gathered = Decisions()
    steps = settings.rounds + 1
    for number in tracked(range(steps)):
        tell(0.0, f"{len(gathered):,} decisions")
        law = teacher if number == 0 else ImitatedForces(Matrices(network), config, greatest)
        wanted = settings.transitions if number == 0 else settings.round_transitions
        _gather(plant, law, teacher, gait, mpc, settings, wanted, derive_seed(seed, "imitation", number), gathered)
        if number == 0:
            network.normaliser.fit(np.concatenate(gathered.features))
        last = number in (0, settings.rounds)
        _fit(network, gathered, settings, settings.epochs if last else settings.epochs // 2, seed + number)
    return network, ImitatedForces(Matrices(network), config, greatest)


class _Labelled:
    """A force law that records its inputs, and the teacher's forces for them."""

    def __init__(self, law: ForceLaw, teacher: ConvexMpc) -> None:
        self._law, self._teacher = law, teacher
        self.last: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, inputs: ForceInputs) -> np.ndarray:
        labels = self._teacher(inputs)
        self.last = inputs.features(), labels.reshape(inputs.worlds, -1).astype(np.float32)
        return labels if self._law is self._teacher else self._law(inputs)


def _gather(
    plant: WalkingPlant,
    law: ForceLaw,
    teacher: ConvexMpc,
    gait: str,
    mpc: MpcSettings,
    settings: ImitationSettings,
    wanted: int,
    seed: int,
    into: Decisions,
) -> None:
    """Add decisions from episodes in which the robot walks by `law`."""
    per_episode = round(settings.seconds / max(mpc.interval, plant.dt))
    worlds = max(1, -(-wanted // per_episode))
    labelled = _Labelled(law, teacher)
    controller = QuadrupedController(plant.quadruped, labelled, GAITS[gait], plant.dt, mpc)
    pushes = generator(seed, "pushes")
    every = round(1.0 / plant.dt)

    def push(state: State, frame: int) -> State:
        if frame == 0 or frame % every or not settings.push:
            return state
        change = torch.as_tensor(pushes.normal(0.0, settings.push, (worlds, 6))).to(state.qd)
        change[:, 3:] *= 2.0  # rad/s
        return State(state.q, torch.cat([state.qd[:, :6] + change, state.qd[:, 6:]], 1))

    before = len(into)

    def watch(standing: np.ndarray, _: int) -> None:
        assert labelled.last is not None
        features, labels = labelled.last
        kept = standing & np.isfinite(labels).all(1) & np.isfinite(features).all(1)
        into.features.append(features[kept])
        into.forces.append(labels[kept])

    walk(
        plant, controller, Commands.drawn(worlds, settings.seconds, seed, settings.share), seconds=settings.seconds,
        seed=seed, disturb=push, watch=watch,
    )  # fmt: skip
    if len(into) == before:
        raise InputError(f"robot {plant.robot.name!r}: falls at once, and nothing can be imitated; `neurodyn check` it")


def _fit(network: ForceNetwork, data: Decisions, settings: ImitationSettings, epochs: int, seed: int) -> None:
    """Fit the network to all decisions so far, by least squares of forces."""
    x = torch.as_tensor(np.concatenate(data.features))
    y = torch.as_tensor(np.concatenate(data.forces)) / network.weight
    inputs = network.normaliser(x)
    optimiser = torch.optim.Adam(network.layers.parameters(), settings.rate)
    batches = max(1, len(x) // settings.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * batches)
    order = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=order)[: batches * settings.batch].chunk(batches):
            optimiser.zero_grad(set_to_none=True)
            loss = (network.layers(inputs[rows]) - y[rows]).square().mean()
            loss.backward()
            optimiser.step()
            schedule.step()
    network.eval()
