# SPDX-License-Identifier: Apache-2.0
"""The training loop: phases, validation by roll-out, checkpoints that a killed run resumes from."""

import time
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from neurodyn.core import artifacts
from neurodyn.core.errors import InputError
from neurodyn.core.seeds import derive_seed
from neurodyn.core.spec import StateSpec
from neurodyn.data.store import Store
from neurodyn.data.windows import WindowSampler
from neurodyn.dynamics.artifact import ModelConfig, save_model
from neurodyn.dynamics.neural import NeuralDynamics
from neurodyn.fit.devices import require_device, threads
from neurodyn.fit.losses import Scale, training_loss
from neurodyn.fit.metrics import MetricsLog, Progress
from neurodyn.fit.optimiser import build_optimiser, set_rate
from neurodyn.fit.settings import Phase, Settings
from neurodyn.fit.surroundings import Surroundings
from neurodyn.fit.validation import Validation

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


class Trainer:
    """Trains a model in place and keeps the best one, by validation roll-out, in the run directory.

    In steps mode everything depends on the seed alone: a run that was killed and resumed ends in bitwise the
    same weights on a CPU. In minutes mode the learning rate follows the clock, and a resumed run uses what is
    left of its budget.
    """

    def __init__(
        self,
        run: Path,
        model: NeuralDynamics,
        config: ModelConfig,
        store: Store,
        settings: Settings,
        scale: Scale,
        *,
        device: str = "cpu",
    ) -> None:
        self._device = require_device(device)
        self._run, self._model, self._config = run, model.to(self._device), config
        self._store, self._settings, self._scale = store, settings, scale.to(self._device)
        self._validation = Validation(store, settings, self._device)
        self._surroundings = Surroundings(store, self._device)
        self._data = zlib.crc32(store.frames.tobytes())
        self._at = Position()
        self._shares = sum(phase.share for phase in settings.phases)
        self._enter_phase()

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
        if self._at.phase < len(self._settings.phases):
            self._enter_phase()
            self._optimiser.load_state_dict(saved["optimiser"])
            self._sampler.load_state_dict(saved["sampler"])
        try:
            self._model.load_state_dict(saved["model"])
        except RuntimeError as error:
            raise InputError(f"{self._run}: state does not fit its configuration ({error})") from None

    def run(self, progress: Progress | None = None) -> Position:
        """Train to the end of the budget and return where the training ended."""
        with threads(self._settings.threads), MetricsLog(self._run, self._at.step) as metrics:
            if self._at.step == 0:
                self._validate(metrics, loss=float("nan"), rate=0.0)
            while self._at.phase < len(self._settings.phases):
                self._run_phase(metrics, progress)
            metrics.write(self._at.step, finished=True, seconds=self._at.seconds, cpu_seconds=self._at.cpu_seconds)
        return self._at

    @property
    def _phase(self) -> Phase:
        return self._settings.phases[self._at.phase]

    def _enter_phase(self) -> None:
        phase, settings = self._phase, self._settings
        self._optimiser = build_optimiser(self._model.parameters(), settings, phase)
        self._sampler = WindowSampler(
            self._store,
            phase.window,
            batch=phase.batch,
            seed=derive_seed(settings.seed, "batches", self._at.phase),
            device=self._device,
        )

    def _done(self) -> float:
        """Share of the present phase that is done."""
        settings, share = self._settings, self._phase.share / self._shares
        if settings.steps is not None:
            return self._at.phase_step / max(1, round(settings.steps * share))
        assert settings.minutes is not None  # settings hold one of the two
        return self._at.phase_seconds / (60.0 * settings.minutes * share)

    def _run_phase(self, metrics: MetricsLog, progress: Progress | None) -> None:
        at, phase = self._at, self._phase
        checks = max(1, round(self._settings.validations * phase.share / self._shares))
        wall, cpu, saved = time.perf_counter(), time.process_time(), time.perf_counter()
        loss, rate = torch.tensor(float("nan")), 0.0
        while (done := self._done()) < 1.0:
            rate = set_rate(self._optimiser, self._settings, phase, done)
            loss = self._descend(phase)
            wall, cpu = self._clock(wall, cpu)
            if self._done() * checks >= at.measured + 1:
                at.measured += 1
                self._validate(metrics, float(loss), rate, progress)
            if time.perf_counter() - saved > SAVE_SECONDS:
                self._save()
                saved = time.perf_counter()
        self._at = replace(at, phase=at.phase + 1, phase_step=0, phase_seconds=0.0, measured=0)
        if self._at.phase < len(self._settings.phases):
            self._enter_phase()
        self._save()

    def _descend(self, phase: Phase) -> torch.Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        batch = self._sampler.draw()
        loss = training_loss(self._model, batch, phase, self._scale, self._surroundings.of(batch))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip)
        if torch.isfinite(norm):
            self._optimiser.step()
        else:
            self._at.skipped += 1
        self._at.step += 1
        self._at.phase_step += 1
        return loss.detach()

    def _clock(self, wall: float, cpu: float) -> tuple[float, float]:
        wall_now, cpu_now = time.perf_counter(), time.process_time()
        self._at.seconds += wall_now - wall
        self._at.phase_seconds += wall_now - wall
        self._at.cpu_seconds += cpu_now - cpu
        return wall_now, cpu_now

    def _validate(self, metrics: MetricsLog, loss: float, rate: float, progress: Progress | None = None) -> None:
        at, error = self._at, self._validation.measure(self._model)
        if error.score < at.best or at.step == 0:
            at.best = error.score
            save_model(self._run, self._model, self._config)
        values: dict[str, Any] = {
            "phase": at.phase,
            "loss": loss,
            "rate": rate,
            "seconds": round(at.seconds, 3),
            "cpu_seconds": round(at.cpu_seconds, 3),
            "skipped": at.skipped,
            "rollout_score": error.score,
            "rollout_q": dict(zip(self._model.spec.tangent_names, error.q, strict=True)),
            "rollout_qd": dict(zip(self._model.spec.qd_names, error.qd, strict=True)),
        }
        metrics.write(at.step, **values)
        if progress is not None:
            shown = "  ".join(f"{name} {value:.2g} {unit}" for name, value, unit in _by_size(self._model.spec, error.q))
            progress.update(self._overall(), f"held-out roll-out error: {shown}")

    def _overall(self) -> float:
        before = sum(phase.share for phase in self._settings.phases[: self._at.phase])
        return min(1.0, (before + min(1.0, self._done()) * self._phase.share) / self._shares)

    def _save(self) -> None:
        tree = {
            "data": self._data,
            "position": {**asdict(self._at), "best": str(self._at.best)},
            "model": self._model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "sampler": self._sampler.state_dict(),
        }
        artifacts.write_tree(self._run / "state", _STATE, tree)


def _by_size(spec: StateSpec, errors: tuple[float, ...], most: int = 4) -> list[tuple[str, float, str]]:
    """Return name, error and unit of the positions; of many, the largest."""
    named = list(zip(spec.tangent_names, errors, spec.tangent_units, strict=True))
    return named if len(named) <= most else sorted(named, key=lambda entry: -entry[1])[:most]


def has_state(run: Path) -> bool:
    """Return whether a run directory holds a state to resume from."""
    return (run / "state" / f"{_STATE}.json").is_file()
