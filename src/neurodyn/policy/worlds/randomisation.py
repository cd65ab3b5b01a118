# SPDX-License-Identifier: Apache-2.0
"""Domain randomisation in training and evaluation; distributions: `sim.draws`, `policy.worlds.disturbances`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec import UNSET
from torch import Tensor

from neurodyn.control.returns import EpisodeOutcomes, QuantitySensitivity, Returns
from neurodyn.control.starts import task_ground
from neurodyn.core.description.drive import Drive
from neurodyn.core.description.randomisation import RandomisedQuantity, is_run
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.dynamics.analytic import AnalyticDynamics
from neurodyn.dynamics.batch import Environment, WorldParameters, device_generator
from neurodyn.dynamics.hybrid.declared import declared_hybrid
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.evaluate.calibration import rank_correlation
from neurodyn.identify.ladder.rungs import DECLARED
from neurodyn.identify.result import read_adaptation
from neurodyn.multibody.engine import nominal
from neurodyn.policy.worlds.disturbances import Disturbances, EpisodeDraws, disturbances_of, is_disturbance
from neurodyn.policy.worlds.ground_levels import GroundLevels
from neurodyn.sim.draws import POSTERIOR, JoinedDraws, QuantityDraws, draws_of_drives, quantity_draws
from neurodyn.tasks import Task

_GROUND = "ground="


class DrawnRobots:
    """Values drawn for the current episodes of a batch of worlds: randomised quantities, then disturbances.

    Attributes:
        names: Names of all values.
        parameters: Quantities of the robot, which dynamics read; None if all worlds have the same robot.
        disturbed: Values of disturbances, shape [worlds, names]; None if there are none.
        seen: All values under the key "robot", copied into observations; empty if nothing is drawn.
    """

    def __init__(
        self, draws: QuantityDraws | None, disturbances: Disturbances, worlds: int, device: torch.device, seed: int
    ) -> None:
        """Draw for the first episodes; `draws` are those of the robot."""
        parts: tuple[QuantityDraws, ...] = () if draws is None else (draws,)
        if disturbances.names:
            parts = (*parts, EpisodeDraws(disturbances.draws))
        self._draws = parts[0] if len(parts) == 1 else JoinedDraws(parts) if parts else None
        self._robot_columns = 0 if draws is None else len(draws.names)
        self.names = () if self._draws is None else self._draws.names
        self.parameters: WorldParameters | None = None
        self.disturbed: Tensor | None = None
        self.seen: dict[str, Tensor] = {}
        if self._draws is None:
            return
        self._drawing = device_generator(device, derive_seed(seed, "robots"))
        self._numbers = self._draws.draw(worlds, self._drawing)
        if draws is not None:
            robot_numbers = self._numbers if len(parts) == 1 else self._numbers[:, : self._robot_columns].clone()
            self.parameters = WorldParameters(draws.names, robot_numbers)
        self._set(self._numbers)

    @property
    def numbers(self) -> Tensor | None:
        """All values, shape [worlds, names]; None if nothing is drawn."""
        return None if self._draws is None else self._numbers

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """Generator of the draws."""
        return () if self._draws is None else (self._drawing,)

    def renew(self, done: Tensor) -> None:
        """Redraw for some worlds, shape [worlds], bool."""
        if self._draws is not None:
            fresh = self._draws.draw(len(done), self._drawing).to(self._numbers)
            self._set(torch.where(done[:, None], fresh, self._numbers))

    def _set(self, numbers: Tensor) -> None:
        """Write values in place, where dynamics and recorded frames read them."""
        self._numbers.copy_(numbers)
        if self.parameters is not None and self.parameters.numbers is not self._numbers:
            self.parameters.numbers.copy_(self._numbers[:, : self._robot_columns])
        self.disturbed = self._numbers[:, self._robot_columns :] if len(self.names) > self._robot_columns else None
        self.seen = {"robot": self._numbers.clone()}

    def checkpoint(self) -> dict[str, Any]:
        """Return the values and the state of their generator, for a checkpoint."""
        if self._draws is None:
            return {}
        return {"robots": self._numbers.cpu().clone(), "drawing": self._drawing.get_state()}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore what `checkpoint` returned."""
        if self._draws is not None:
            self._set(saved["robots"].to(self._numbers))
            self._drawing.set_state(saved["drawing"])


@dataclass(frozen=True)
class Randomisation:
    """Dynamics with randomised worlds, and their distributions.

    Attributes:
        dynamics: The dynamics.
        draws: Distribution of the robot's quantities; None for one robot.
        disturbed: Disturbances of the robot (`policy.worlds.disturbances`).
        ground: Ground of which each world gets a piece; None for the robot's own.
    """

    dynamics: Dynamics
    draws: QuantityDraws | None
    disturbed: tuple[RandomisedQuantity, ...] = ()
    ground: str | None = None

    def surroundings(self, task: Task, worlds: int, seed: int) -> Environment | None:
        """Return the pieces of ground of some worlds; None for the robot's own ground."""
        return None if self.ground is None else task_ground(task, self.ground, worlds, seed)

    def ground_levels(self, task: Task, worlds: int, seed: int) -> GroundLevels | None:
        """Return a terrain that grows as some worlds master it; None for a ground that stays."""
        return None if self.ground is None else GroundLevels.of(task, self.ground, self.dynamics, worlds, seed)


def over_posterior(texts: Sequence[str], dynamics: str) -> tuple[str, ...]:
    """Return requested randomisation behind the posterior of a model identified from logs, if it holds one.

    A run whose ladder kept the declaration, or a text that names a run already, changes nothing.

    Args:
        texts: The request; its distributions win over the posterior.
        dynamics: Name of the training dynamics.

    Raises:
        InputError: The results of the run are damaged.
    """
    run = Path(dynamics)
    if any(is_run(text) for text in texts) or not (run / "model").is_dir() or not (run / POSTERIOR).is_file():
        return tuple(texts)
    adaptation = read_adaptation(run)
    if adaptation is None or adaptation.chosen in (UNSET, DECLARED):
        return tuple(texts)
    return dynamics, *texts


def seen_by_critic(texts: Sequence[str], *, privileged: bool) -> tuple[str, ...]:
    """Return the requests whose values a critic sees: none beside a posterior's (`TrainingSettings.seen_by`)."""
    alike = any(is_run(text) for text in texts)
    return () if alike and not privileged else tuple(texts)


def open_randomisation(texts: Sequence[str], dynamics: Dynamics, task: Task | None = None) -> Randomisation:
    """Return the requested randomisation, and dynamics that support it.

    A text is a distribution (`core.description.randomisation`), or a run of `neurodyn identify` or `neurodyn adapt`
    whose posterior is sampled. Quantities of drives ("actuator.JOINT.gain") are also allowed for robots that declare no
    drives. With a task, a text may also be a disturbance (`policy.worlds.disturbances`), in any dynamics, or
    "ground=NAME".

    Raises:
        InputError: A text is malformed or names an unknown quantity, or worlds of the dynamics cannot differ.
    """
    others = [text for text in texts if task is not None and is_disturbance(text)]
    disturbed = () if task is None else disturbances_of(others, task)
    grounds = [text.removeprefix(_GROUND) for text in texts if task is not None and text.startswith(_GROUND)]
    if len(grounds) > 1:
        raise InputError(f"randomise: {', '.join(grounds)} are several grounds; valid: one")
    ground = grounds[0] if grounds else None
    texts = [text for text in texts if text not in others and not (grounds and text.startswith(_GROUND))]
    if not texts:
        return Randomisation(dynamics, None, disturbed, ground)
    if dynamics.conditions:
        values = {condition.name: condition.value for condition in dynamics.conditions}
        return Randomisation(dynamics, quantity_draws(texts, values, {}), disturbed, ground)
    if not isinstance(dynamics, HybridDynamics | AnalyticDynamics):
        raise InputError(
            f"randomise: worlds of {dynamics.kind} dynamics cannot differ in quantities of the robot; valid: hybrid, a "
            "run of kind hybrid, analytic, or a model that was trained with --conditions"
        )
    if draws_of_drives(texts):
        dynamics = _with_drives(dynamics)
    model = dynamics if isinstance(dynamics, HybridDynamics) else declared_hybrid(dynamics.robot)
    values = nominal(model.mechanism, model.config.contact)
    values |= dict(zip((spec.name for spec in model.physical.specs), model.physical().tolist(), strict=True))
    draws = quantity_draws(texts, values, model.mechanism.bounds())
    if isinstance(dynamics, HybridDynamics):
        dynamics = dynamics.freeing(draws.names)
    return Randomisation(dynamics, draws, disturbed, ground)


def _with_drives(dynamics: HybridDynamics | AnalyticDynamics) -> HybridDynamics | AnalyticDynamics:
    """Return dynamics with a drive on every driven joint; dynamics that have drives are returned unchanged."""
    has = dynamics.mechanism.drives if isinstance(dynamics, HybridDynamics) else dynamics.robot.drives
    if has:
        return dynamics
    driven = dynamics.with_drives({name: Drive() for name in dynamics.spec.controls})
    if driven is None:
        raise InputError("randomise: quantities of drives in a model whose networks see the controls; valid: others")
    return driven


def robust(returns: Returns, policies: Sequence[EpisodeOutcomes]) -> Returns:
    """Return the returns of policies with their worst tenth and their sensitivity to randomised quantities.

    Without randomisation they are returned unchanged.
    """
    if not policies[0].drawn:
        return returns
    values = torch.cat([one.returns for one in policies]).double()
    numbers = torch.cat([one.robots for one in policies if one.robots is not None]).double()
    worst = values.sort().values[: max(1, len(values) // 10)].mean()
    columns = dict(zip(policies[0].drawn, numbers.unbind(1), strict=True))
    sensitivities = [_sensitivity(name, column, values) for name, column in columns.items()]
    sensitivities.sort(key=lambda one: -abs(one.correlation))
    return msgspec.structs.replace(
        returns, worst_tenth=float(worst), sensitivity=sensitivities,
        drawn={name: _short(column) for name, column in columns.items()}, returns=_short(values),
    )  # fmt: skip


def _short(numbers: Tensor) -> list[float]:
    """Return numbers rounded to single precision, as they were drawn."""
    return [float(f"{number:.7g}") for number in numbers.tolist()]


def _sensitivity(name: str, numbers: Tensor, returns: Tensor) -> QuantitySensitivity:
    order = numbers.argsort()
    third = max(1, len(order) // 3)
    low, high = order[:third], order[-third:]
    return QuantitySensitivity(
        name=name, low=float(numbers[low].mean()), high=float(numbers[high].mean()),
        return_low=float(returns[low].mean()), return_high=float(returns[high].mean()),
        correlation=rank_correlation(numbers, returns),
    )  # fmt: skip
