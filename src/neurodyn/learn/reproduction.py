# SPDX-License-Identifier: Apache-2.0
"""Repetition of a run's training: are the inputs the same, and are the results?

Files named by a run are read and compared, never executed: a user's task runs only if the user names its file.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from neurodyn.core import artifacts
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError, notice
from neurodyn.core.plain_data import require_regular
from neurodyn.core.progress import Progress
from neurodyn.core.provenance import file_checksum
from neurodyn.core.registry import Registry
from neurodyn.core.requests import accepts_request
from neurodyn.core.verdict import Verdict
from neurodyn.dynamics.artifact import ROBOT
from neurodyn.learn.devices import require_device
from neurodyn.learn.manifest import (
    Manifest,
    RunRecord,
    data_of,
    declaration_of,
    manifest_of,
    model_checksums,
    read_manifest,
    verb_of,
)
from neurodyn.learn.metrics import best_metric
from neurodyn.learn.plan import TrainingPlan
from neurodyn.learn.requests import ReproduceRequest
from neurodyn.learn.training import TRAINED_KINDS, finetune, train

_RESULTS = ("model/*.safetensors", "policy.safetensors", "policy/policy.safetensors")
_SCORES: Mapping[str, Callable[..., float]] = {
    "rollout_score": min,
    "return_training": max,
    "return_reference": max,
    "held_out": min,
}
"""Metrics that rate a result, by name, and the function that picks the best; the first one present counts."""
_MOST_NAMED = 3


@dataclass(frozen=True)
class TrainingAgain:
    """A training to repeat.

    Attributes:
        run: The run.
        record: Its record; settings are plain data.
        data: Current paths of its data.
        robot: Its robot, or the declaration stored in the run.
        out: Run directory to write.
        device: Torch device.
        task: User's task, as the user names it; None for the one of the record.
        progress: Progress display.
    """

    run: Path
    record: RunRecord[Any]
    data: tuple[str, ...]
    robot: str
    out: Path
    device: str
    task: str | None = None
    progress: Progress | None = None

    def read(self, record: type[RunRecord[Any]]) -> RunRecord[Any]:
        """Return the record with settings of the given type."""
        return read_config(self.run / "config.yaml", record)


REPETITIONS: Registry[Callable[[TrainingAgain], None]] = Registry("training that can be reproduced")
"""Functions that repeat a training, by the command in its manifest; each registers with the import of its module."""


@dataclass(frozen=True)
class Reproduction:
    """Result of a repeated training.

    Attributes:
        same: Whether all weights and parameters are bitwise those of the run.
        changed: Versions, processor or device that differ, in words.
        differing: Number of tensors that differ.
        tensors: Total number of tensors.
        greatest: Greatest difference of two numbers; None if the tensors cannot be compared.
        score_before: Best held-out error (of a policy: return) in the run; None if its metrics hold none.
        score_now: That of the new run.
        verdict: Whether it is the same, and whether it should be.
    """

    same: bool
    changed: tuple[str, ...]
    differing: tuple[str, ...]
    tensors: int
    greatest: float | None
    score_before: float | None
    score_now: float | None
    verdict: str

    def plain(self) -> dict[str, Any]:
        """Return the result as plain data for JSON."""
        return asdict(self)


@accepts_request(ReproduceRequest)
def reproduce(request: ReproduceRequest) -> Reproduction:
    """Repeat the training of a run from the same inputs, and compare the results.

    Raises:
        InputError: The run has no manifest or no result, an input is missing or changed, or `out` holds a run.
        Interrupted: Ctrl-C or SIGTERM.
    """
    run = artifacts.run_folder(request.run)
    again, manifest = _prepare(run, request)
    before = _tensors(again.run)
    if not before:
        raise InputError(
            f"{run}: holds no result to compare with (model/ or policy.safetensors); valid: a finished run"
        )
    now = manifest_of(again.record, again.device)
    changed = _differences(manifest, now)
    if changed:
        notice(f"{run}: was made elsewhere: {'; '.join(changed)}; its result may differ")
    REPETITIONS[manifest.training](again)
    exact = (
        manifest.training != "policy online" and manifest.device == "cpu" and not again.record.settings.get("minutes")
    )
    return _compare(again, before, changed, exact)


@REPETITIONS.register("train")
def train_again(again: TrainingAgain) -> None:
    """Repeat a training of dynamics."""
    train(
        again.robot, list(again.data), again.out, kind=again.record.kind, size=_settings(again), shares=_shares(again),
        device=again.device, progress=again.progress,
    )  # fmt: skip


@REPETITIONS.register("finetune")
def finetune_again(again: TrainingAgain) -> None:
    """Repeat a fine-tuning of dynamics; raises an InputError if policies of a loop took part in it."""
    if any(phase.get("policy_rollouts") for phase in again.record.settings.get("phases", ())):
        raise InputError(
            f"{again.run}: was made with the policies of its logs; valid: the folder of the loop that it belongs to"
        )
    finetune(
        str(again.record.base), list(again.data), again.out, size=_settings(again), shares=_shares(again),
        device=again.device, progress=again.progress,
    )  # fmt: skip


def _prepare(run: Path, request: ReproduceRequest) -> tuple[TrainingAgain, Manifest]:
    """Return the training to repeat, after checking that all its inputs are unchanged."""
    manifest = read_manifest(run)
    record: RunRecord[Any] = read_config(run / "config.yaml", RunRecord[dict[str, Any]])  # pyright: ignore
    if manifest.training != verb_of(record):
        raise InputError(f"{run}: its manifest is of `{manifest.training}`, and its config.yaml of `{verb_of(record)}`")
    REPETITIONS.require(manifest.training)
    if manifest.ranks > 1:
        raise InputError(
            f"{run}: was trained by {manifest.ranks} processes, and reproduce runs in one; valid: its own command with "
            f"another --out ({manifest.command})"
        )
    if request.task is not None and not manifest.training.startswith("policy"):
        raise InputError(f"--task is for policies; {run} is of `{manifest.training}`")
    out, device = Path(request.out), request.device or manifest.device.partition(" ")[0]
    require_device(device)
    if (out / "config.yaml").exists() or (out / "model").exists():
        raise InputError(f"{out}: already holds a run; give another --out")
    again = TrainingAgain(
        run, record, _data_paths(run, record, manifest, request.data), _robot(run, record, manifest), out, device,
        request.task, request.progress,
    )  # fmt: skip
    for name, wanted in manifest.models.items():
        now = model_checksums(msgspec.structs.replace(record, base=name, dynamics="")).get(name)
        _require_same(name, now, wanted, run, "the same model where it was")
    for name in manifest.files.keys() - {*data_of(record), declaration_of(record.robot)}:  # starts, settings files
        _require_file(name, manifest.files[name], run, "the same file where it was")
    return again, manifest


def _data_paths(run: Path, record: RunRecord[Any], manifest: Manifest, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return the current paths of the data, checked to be the run's training data."""
    names = data_of(record)
    if given and len(given) != len(names):
        raise InputError(f"--data names {len(given)} files, and {run} was trained on {len(names)}; valid: all of them")
    if not names and manifest.training in ("train", "finetune", "identify", "discover", "adapt", "adapt conditions"):
        raise InputError(f"{run}: was trained on data in memory, which no file holds; valid: a run of data in files")
    for name, path in zip(names, given or names, strict=True):
        if name not in manifest.files:
            raise InputError(f"{run}: its manifest holds no checksum of {name}; valid: a run of data in files")
        _require_file(path, manifest.files[name], run, "the same file, by --data where it lies elsewhere")
    return given or names


def _robot(run: Path, record: RunRecord[Any], manifest: Manifest) -> str:
    """Return the robot of a run, or the declaration stored in the run if the robot's own is gone."""
    if (run / ROBOT).is_dir() and not Path(record.robot).exists():
        return str(run / ROBOT)
    name = declaration_of(record.robot)
    if name in manifest.files:
        _require_file(name, manifest.files[name], run, "the declaration that it was trained with")
    return record.robot


def _require_file(path: str, wanted: str, run: Path, valid: str) -> None:
    file = Path(path)
    if file.exists():
        require_regular(file, "a file")
    _require_same(path, file_checksum(file) if file.is_file() else None, wanted, run, valid)


def _require_same(name: str, now: str | None, wanted: str, run: Path, valid: str) -> None:
    if now is None:
        raise InputError(f"{name}: is not there, and {run} was made from it; valid: {valid}")
    if now != wanted:
        raise InputError(
            f"{name}: is not what {run} was made from ({now[:19]}... instead of {wanted[:19]}...); valid: {valid}"
        )


def _differences(before: Manifest, now: Manifest) -> tuple[str, ...]:
    """Return the differences of machine and software, in words."""
    pairs = [(name, version, now.packages.get(name)) for name, version in before.packages.items()]
    pairs += [
        (name.replace("_", " "), getattr(before, name), getattr(now, name))
        for name in ("commit", "processor", "device")
    ]
    return tuple(
        f"{name} is {new or 'unknown'} instead of {old or 'unknown'}" for name, old, new in pairs if old != new
    )


def _compare(
    again: TrainingAgain, before: dict[str, torch.Tensor], changed: tuple[str, ...], exact: bool
) -> Reproduction:
    """Compare the results; `exact` is whether they depend on the seed alone, on one machine."""
    now = _tensors(again.out)
    names = sorted(before.keys() | now.keys())
    differing = tuple(name for name in names if not _same_bits(before.get(name), now.get(name)))
    gaps = None
    if all(name in now and now[name].shape == tensor.shape for name, tensor in before.items()):
        gaps = [(now[name].double() - tensor.double()).abs() for name, tensor in before.items() if tensor.numel()]
    old, new = _score(again.run), _score(again.out)
    named = ", ".join(differing[:_MOST_NAMED]) + (" ..." if len(differing) > _MOST_NAMED else "")
    error = "" if old is None or new is None else f"; held-out score {old:.4g} before, {new:.4g} now"
    what = f"{len(differing)} of {len(names)} tensors differ ({named}){error}"
    if not differing:
        verdict = Verdict("ok", f"reproduced: the same bits in all {len(names)} tensors")
    elif changed:
        verdict = Verdict("warning", what, f"compare where nothing differs; here: {'; '.join(changed)}")
    elif not exact:
        verdict = Verdict("warning", what, "only a budget in steps, on a CPU, gives the same bits; compare the scores")
    else:
        advice = "was config.yaml or the run edited, or was it made with other flags (docs/reliability.md)?"
        verdict = Verdict("fails", what, advice)
    greatest = None if gaps is None else max((float(gap.max()) for gap in gaps), default=0.0)
    return Reproduction(not differing, changed, differing, len(names), greatest, old, new, verdict=str(verdict))


def _tensors(run: Path) -> dict[str, torch.Tensor]:
    """Return the final weights and parameters of a run."""
    files = [path for pattern in _RESULTS for path in sorted(run.glob(pattern))]
    return {
        f"{path.relative_to(run).as_posix()}:{name}": tensor
        for path in files
        for name, tensor in artifacts.read_tensors(path).items()
    }


def _same_bits(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return False
    return first.contiguous().numpy().tobytes() == second.contiguous().numpy().tobytes()


def _score(run: Path) -> float | None:
    """Return the best held-out score in the metrics of a run."""
    scores = (best_metric(run, name, best) for name, best in _SCORES.items())
    return next((score for score in scores if score is not None), None)


def _shares(again: TrainingAgain) -> tuple[float, ...] | None:
    return again.record.shares if isinstance(again.record.shares, tuple) else None


def _settings(again: TrainingAgain) -> TrainingPlan:
    return again.read(RunRecord[TRAINED_KINDS.of(again.record.kind).settings]).settings
