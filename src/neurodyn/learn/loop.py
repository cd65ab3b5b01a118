# SPDX-License-Identifier: Apache-2.0
"""The training loop of all models: phases, validation, checkpoints that a killed run resumes from."""

import time
import zlib
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.learn.devices import require_device, threads
from neurodyn.learn.metrics import MetricsLog, Progress
from neurodyn.learn.optimiser import set_rate
from neurodyn.learn.plan import Plan, Stage

SAVE_SECONDS = 30.0
_STATE = "training"


@dataclass
class Position:
    """Where a training stands.

    Attributes:
        phase: Index of the phase.
        step: Optimiser steps in all phases.
        phase_step: Optimiser steps in this phase.
        seconds: Wall time of the training so far, resumed parts included [s].
        cpu_seconds: Processor time of the training so far [s].
        phase_seconds: Wall time of this phase so far [s].
        best: Least validation score so far.
        measured: Validations in this phase so far.
        skipped: Steps left out because their gradient was not finite.
        stale: Validations in a row that brought nothing better.
    """

    phase: int = 0
    step: int = 0
    phase_step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    phase_seconds: float = 0.0
    best: float = float("inf")
    measured: int = 0
    skipped: int = 0
    stale: int = 0


class PhasedTraining(ABC):
    """Trains a model in place and keeps the best one, by validation roll-out, in the run directory.

    In steps mode everything depends on the seed alone: a run that was killed and resumed ends in bitwise the
    same weights on a CPU. In minutes mode the learning rate follows the clock, and a resumed run uses what is
    left of its budget.
    """

    _optimiser: torch.optim.Optimizer
    _sampler: Any  # with state_dict and load_state_dict

    def __init__(self, run: Path, model: nn.Module, store: Store, plan: Plan, *, device: str = "cpu") -> None:
        self._device = require_device(device)
        self._run, self._network, self._store, self._plan = run, model.to(self._device), store, plan
        self._data = zlib.crc32(store.frames.tobytes())
        self._at = Position()
        self._shares = sum(phase.share for phase in plan.phases)

    @abstractmethod
    def _enter_phase(self) -> None:
        """Make the optimiser and the sampler of the present phase."""

    @abstractmethod
    def _descend(self, phase: Any) -> torch.Tensor:
        """Take one optimiser step and return the loss."""

    @abstractmethod
    def _validate(self, metrics: MetricsLog, loss: float, rate: float, progress: Progress | None = None) -> None:
        """Measure the model, keep it if it is the best, and log."""

    def _stop_early(self) -> bool:
        """Whether the present phase has nothing more to give."""
        return False

    def resume(self) -> None:
        """Go on from RUN/state.

        Raises:
            InputError: The state is missing or damaged, or the data are others than before.
        """
        saved = artifacts.read_tree(self._run / "state", _STATE)
        if saved.get("data") != self._data:
            raise InputError(
                f"{self._run}: --resume needs the data that the run was started with, and these differ; "
                "give the same --data, or another --out"
            )
        self._at = Position(**{**saved["position"], "best": float(saved["position"]["best"])})
        if self._at.phase < len(self._plan.phases):
            self._enter_phase()
            self._optimiser.load_state_dict(saved["optimiser"])
            self._sampler.load_state_dict(saved["sampler"])
        try:
            self._network.load_state_dict(saved["model"])
        except RuntimeError as error:
            raise InputError(f"{self._run}: state does not fit its configuration ({error})") from None

    def run(self, progress: Progress | None = None) -> Position:
        """Train to the end of the budget and return where the training ended."""
        with threads(self._plan.threads), MetricsLog(self._run, self._at.step) as metrics:
            if self._at.step == 0:
                self._validate(metrics, loss=float("nan"), rate=0.0)
            while self._at.phase < len(self._plan.phases):
                self._run_phase(metrics, progress)
            metrics.write(self._at.step, finished=True, seconds=self._at.seconds, cpu_seconds=self._at.cpu_seconds)
        return self._at

    @property
    def _stage(self) -> Stage:
        return self._plan.phases[self._at.phase]

    def _done(self) -> float:
        """Share of the present phase that is done."""
        plan, share = self._plan, self._stage.share / self._shares
        if plan.steps is not None:
            return self._at.phase_step / max(1, round(plan.steps * share))
        assert plan.minutes is not None  # settings hold one of the two
        return self._at.phase_seconds / (60.0 * plan.minutes * share)

    def _run_phase(self, metrics: MetricsLog, progress: Progress | None) -> None:
        at, phase = self._at, self._stage
        checks = max(1, round(self._plan.validations * phase.share / self._shares))
        wall, cpu, saved = time.perf_counter(), time.process_time(), time.perf_counter()
        loss, rate = torch.tensor(float("nan")), 0.0
        while (done := self._done()) < 1.0 and not self._stop_early():
            rate = set_rate(self._optimiser, self._plan, phase, done)
            loss = self._descend(phase)
            wall, cpu = self._clock(wall, cpu)
            if self._done() * checks >= at.measured + 1:
                at.measured += 1
                self._validate(metrics, float(loss), rate, progress)
            if time.perf_counter() - saved > SAVE_SECONDS:
                self._save()
                saved = time.perf_counter()
        self._at = replace(at, phase=at.phase + 1, phase_step=0, phase_seconds=0.0, measured=0, stale=0)
        if self._at.phase < len(self._plan.phases):
            self._enter_phase()
        self._save()

    def _apply(self, norm: torch.Tensor) -> None:
        """Step the optimiser along gradients of finite norm; others are counted and left out."""
        if torch.isfinite(norm):
            self._optimiser.step()
        else:
            self._at.skipped += 1
        self._at.step += 1
        self._at.phase_step += 1

    def _clock(self, wall: float, cpu: float) -> tuple[float, float]:
        wall_now, cpu_now = time.perf_counter(), time.process_time()
        self._at.seconds += wall_now - wall
        self._at.phase_seconds += wall_now - wall
        self._at.cpu_seconds += cpu_now - cpu
        return wall_now, cpu_now

    def _standing(self, loss: float, rate: float, score: float) -> dict[str, Any]:
        """Return what every line of a validation says."""
        at = self._at
        return {
            "phase": at.phase,
            "loss": loss,
            "rate": rate,
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
            "skipped": at.skipped,
            "rollout_score": score,
        }

    def _overall(self) -> float:
        before = sum(phase.share for phase in self._plan.phases[: self._at.phase])
        return min(1.0, (before + min(1.0, self._done()) * self._stage.share) / self._shares)

    def _save(self) -> None:
        tree = {
            "data": self._data,
            "position": {**asdict(self._at), "best": str(self._at.best)},
            "model": self._network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "sampler": self._sampler.state_dict(),
        }
        artifacts.write_tree(self._run / "state", _STATE, tree)


def has_state(run: Path) -> bool:
    """Return whether a run directory holds a state to resume from."""
    return (run / "state" / f"{_STATE}.json").is_file()
