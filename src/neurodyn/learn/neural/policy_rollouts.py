# SPDX-License-Identifier: Apache-2.0
r"""Roll-outs of a model under the policies whose logs it learns from.

A model that is right on average along logged torques may be wrong when a policy answers its states: the policy steers
into its small errors, and they add up. From logged states the policy acts on the states of the model, and its worlds
are compared with the log k frames later. Contacts make single motions diverge, so only distributions are compared: over
the quantities $x_j$ in units of the log's standard deviation $\sigma_j$,

$$L = \sum_k \sum_j \frac{(\bar x_j - \bar x^{log}_j)^2 + w\,(s_j - s^{log}_j)^2}{\sigma_j^2}$$

with mean and standard deviation over the batch. Gradients reach back to the last comparison: over a longer time those
through contacts explode.

A copy that learns from roll-outs alone judges policies that it does not know, but cannot train them: policies find
other errors than the corrected ones, and returned less than those trained in the original model. Beside windows, in the
training of that model, roll-outs keep its returns true at the same return of policies (docs/benchmarks.md, ant run).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neurodyn.core.errors import InputError, choices, notice
from neurodyn.core.seeds import derive_seed
from neurodyn.data.header import Split
from neurodyn.data.mixture import Mixture, first_frames
from neurodyn.data.split import episodes_of
from neurodyn.data.store import Store
from neurodyn.data.windows import Windows, WindowSampler
from neurodyn.dynamics.batch import State
from neurodyn.dynamics.interface import Dynamics
from neurodyn.learn.neural.settings import PolicyRollouts

LEAD = 4
"""Logged frames before a roll-out, which fill the memories of policy and task."""
QUANTITIES = (
    "base_height", "projected_gravity", "base_linear_velocity", "base_angular_velocity", "joint_position",
    "joint_velocity",
)  # fmt: skip
"""Compared quantities, as far as the robot has them; base frame."""
_FAR = 5.0
"""Largest distance from the log's mean at which a world counts [standard deviations]; beyond it is clipped."""
_LEAST = 1e-3
"""Least standard deviation of a quantity, in its own unit."""

Follow = Callable[[Dynamics, Windows, int, int, int], Iterator[State]]
"""Rolls a model out: follow(dynamics, windows, lead, cut, seed) yields the state after each frame beyond the first
`lead` of the windows, during which the policy only observes. Every `cut` frames, gradients are cut and worlds in
implausible states restart from the log."""


@dataclass(frozen=True)
class LoggedActor:
    """A policy that acted in some episodes of a log.

    Attributes:
        log: Path of the log, one of the model's training files.
        group: Group of the episodes without noise.
        follow: Rolls the policy out.
        beginnings: Whether roll-outs start at the start of episodes, as needed if the log lacks the task's commands.
    """

    log: str
    group: int
    follow: Follow
    beginnings: bool = False


class PolicyRolloutTerm:
    """Draws roll-outs of logged policies and differentiates their distance from the logs.

    Attributes:
        mismatch: Distance of the last roll-outs, the mean over comparisons; NaN before the first.
    """

    def __init__(
        self, model: Dynamics, data: Mixture, actors: Sequence[LoggedActor], settings: PolicyRollouts, seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        """Index the windows of the actors' episodes; an actor without a long enough one is left out, with a notice.

        Raises:
            InputError: An actor's log is not among the data.
        """
        self._model, self._settings, self.mismatch = model, settings, math.nan
        self._actors, self._leads, self._samplers, shares = [], [], [], []
        for number, actor in enumerate(actors):
            if actor.log not in data.names:
                raise InputError(f"policy of {actor.log!r}: no such data; valid: {choices(data.names)}")
            log_index = data.names.index(actor.log)
            lead = max(model.spec.context, 0 if actor.beginnings else LEAD)
            frames = lead + settings.frames
            store, episodes = _episodes(data.stores[log_index], actor, frames)
            if not len(episodes):
                notice(f"{actor.log}: no episode without noise has {frames} frames; its policy is not rolled out")
                continue
            self._actors.append(actor)
            self._leads.append(lead)
            self._samplers.append(
                WindowSampler(
                    store, frames, batch=settings.worlds, seed=derive_seed(seed, "policy rollouts", number),
                    device=device, episodes=episodes,
                )
            )  # fmt: skip
            shares.append(data.shares[log_index])
        self._shares = torch.tensor(shares, dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "policy rollouts"))

    @property
    def usable(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self._actors)

    def draw(self) -> None:
        """Draw the policy of the next step by the shares of the logs, and windows of its log."""
        self._chosen = int(torch.multinomial(self._shares, 1, generator=self._generator))
        self._seed = int(torch.randint(1 << 31, (), generator=self._generator))
        self._windows = self._samplers[self._chosen].draw()

    def roll_out(self) -> Iterator[tuple[State, State, Tensor]]:
        """Roll out the drawn windows; yield states, logged states, and the worlds that count, at each comparison.

        Worlds count until they reach an implausible state; indices have shape [kept]. Ends when fewer than two are
        left.
        """
        windows, lead, cut = self._windows, self._leads[self._chosen], self._settings.cut
        bounds, lost = self._model.rollout_bounds, None
        follow = self._actors[self._chosen].follow
        for frame, state in enumerate(follow(self._model, windows, lead, cut, self._seed), 1):
            outside = bounds.outside(state.q, state.qd)
            lost = outside if lost is None else lost | outside
            if frame % cut == 0:
                kept = (~lost).nonzero()[:, 0]
                if len(kept) < 2:
                    return
                yield state, State(windows.q[:, lead + frame], windows.qd[:, lead + frame]), kept

    def losses(self) -> Iterator[Tensor]:
        """Return the distance from the log at each comparison, shape [], for the drawn roll-outs."""
        windows, model, lead = self._windows, self._model, self._leads[self._chosen]
        q, qd = (x[:, lead :: self._settings.cut].flatten(0, 1) for x in (windows.q, windows.qd))
        logged_quantities = compared_quantities(model, State(q, qd))
        center, scale = logged_quantities.mean(0), logged_quantities.std(0).clamp_min(_LEAST)
        for state, logged, kept in self.roll_out():
            predicted, truth = (
                ((compared_quantities(model, x)[kept] - center) / scale).clamp(-_FAR, _FAR) for x in (state, logged)
            )
            spread = (_spread(predicted) - _spread(truth)).square()
            yield ((predicted.mean(0) - truth.mean(0)).square() + self._settings.spread * spread).sum()

    def gradients(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the sum of the distances; comparisons with a non-finite gradient are left out."""
        gradients, distances = [torch.zeros_like(p) for p in parameters], []
        for loss in self.losses():
            loss_gradient = torch.autograd.grad(loss, parameters, allow_unused=True)
            norm = torch.stack([g.norm() for g in loss_gradient if g is not None])
            distances.append(loss.detach())
            if bool(norm.isfinite().all()):
                for total, gradient in zip(gradients, loss_gradient, strict=True):
                    if gradient is not None:
                        total += gradient
        self.mismatch = float(torch.stack(distances).mean()) if distances else math.nan
        return gradients

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the draws."""
        states = {str(number): sampler.state_dict() for number, sampler in enumerate(self._samplers)}
        return {"generator": self._generator.get_state(), "actors": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore `state_dict`."""
        self._generator.set_state(state["generator"])
        for number, sampler in enumerate(self._samplers):
            sampler.load_state_dict(state["actors"][str(number)])


def compared_quantities(dynamics: Dynamics, state: State) -> Tensor:
    """Return the compared quantities of states, shape [worlds, quantities]."""
    seen = dynamics.quantities(state)
    parts = [seen[name] for name in QUANTITIES if name in seen]
    for name in dynamics.spec.objects:
        parts += [seen[f"{name}.{part}"] for part in ("position", "linear_velocity", "angular_velocity")]
    return torch.cat(parts, dim=-1)


def _episodes(store: Store, actor: LoggedActor, frames: int) -> tuple[Store, np.ndarray]:
    """Return a store and the actor's training episodes that are long enough; or only their beginnings."""
    chosen = episodes_of(store, Split.TRAIN)
    chosen = chosen[(store.group[chosen] == actor.group) & (store.lengths[chosen] >= frames)]
    if not len(chosen) or not actor.beginnings:
        return store, chosen
    return first_frames(store.select(chosen), frames), np.arange(len(chosen))


def _spread(x: Tensor) -> Tensor:
    """Return the standard deviation over worlds, with a finite gradient even if all are equal."""
    return (x.var(0) + 1e-12).sqrt()
