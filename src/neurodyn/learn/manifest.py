# SPDX-License-Identifier: Apache-2.0
"""Record of a run: RUN/config.yaml, and RUN/manifest.json, written when the run starts.

The manifest holds machine, software and inputs of a training.
"""

import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import torch
from msgspec import UNSET, UnsetType

from neurodyn.core import artifacts
from neurodyn.core.config import Config, from_dict, to_dict, to_yaml
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.parameter import Parameter
from neurodyn.core.errors import InputError
from neurodyn.core.provenance import file_checksum, files_checksum, package_versions, processor, source_commit
from neurodyn.learn.devices import current_ranks

S = TypeVar("S", bound=Config)


class RunRecord(Config, Generic[S], frozen=True, kw_only=True, omit_defaults=True):
    """The contents of a run's config.yaml; kinds of runs omit fields that do not apply.

    Attributes:
        kind: Kind of dynamics; empty for policies.
        robot: Name or path of the robot's declaration.
        data: Path or paths of the trajectories.
        shares: Share of each file in the windows of a batch; UNSET for one file.
        task: Name of a policy's task.
        algorithm: Algorithm of a policy; empty for `DEFAULT_ALGORITHM`.
        dynamics: Dynamics that a policy was trained in, as the user named them.
        parameters: Identified quantities.
        blueprint: Networks of a hybrid model, or the candidates of a discovery.
        settings: Resolved settings.
        starts: Log with the initial states of a policy's episodes.
        versions: Versions of packages.
        base: Run of the initial weights; None for a training from scratch.
    """

    kind: str = ""
    robot: str = ""
    data: str | tuple[str, ...] = ""
    shares: tuple[float, ...] | UnsetType = UNSET
    task: str = ""
    algorithm: str = ""
    dynamics: str = ""
    parameters: tuple[Parameter, ...] | UnsetType = UNSET
    blueprint: Blueprint | UnsetType | None = UNSET
    settings: S
    starts: str | UnsetType | None = UNSET
    versions: dict[str, str]
    base: str | UnsetType | None = UNSET


DEFAULT_ALGORITHM = "ppo"
"""Algorithm of policies whose record names none."""


MANIFEST = "manifest.json"

_PACKAGES = ("torch", "scipy", "safetensors", "newton", "warp-lang", "mujoco", "mujoco-warp", "rsl-rl-lib")
_DECLARATIONS = ("robot.yaml", "robot.yml", "robot.toml", "robot.json")
_SETTINGS = ("size", "finetune")
"""Settings that may name settings files."""


class Manifest(Config, frozen=True, kw_only=True):
    """Everything beyond config.yaml that the result of a training depends on.

    Attributes:
        training: The command: train, finetune, identify, discover, "policy train" or "policy online".
        started: Time of the start [UTC].
        command: The command line, or that of the Python script.
        commit: Commit of neurodyn's source (`core.provenance.source_commit`); empty for an installed package.
        packages: Versions of packages and of Python.
        processor: Model of the processor.
        device: Torch device that trained, with the model of a GPU.
        threads: Threads of tensor operations.
        seed: Seed of all random numbers.
        files: SHA-256 of the files read: data, starts, your own robot's declaration, settings files named in
            config.yaml.
        models: SHA-256 of the runs and policies that the training started from or took place in.
        ranks: Processes that trained together, each with the batch or worlds of the settings.
    """

    training: str
    started: str
    command: str
    commit: str
    packages: dict[str, str]
    processor: str
    device: str
    threads: int
    seed: int | None
    files: dict[str, str]
    models: dict[str, str]
    ranks: int = 1


def start_run(out: Path, record: RunRecord[Any], *, device: torch.device | str = "cpu") -> None:
    """Write config.yaml and the manifest of a new or resumed run.

    The manifest of a resumed run is kept; only its files change if they were moved or replaced.
    """
    config, before = out / "config.yaml", None
    if config.exists() and (out / MANIFEST).exists():
        before = read_manifest(out)
    artifacts.write_text(config, to_yaml(record))
    if before is None:
        now = manifest_of(record, device)
    else:
        now = msgspec.structs.replace(before, files=file_checksums(record))
    if now != before:
        artifacts.write_checksummed(out / MANIFEST, to_dict(now))


def manifest_of(record: RunRecord[Any], device: torch.device | str = "cpu") -> Manifest:
    """Return the manifest of a training starting now on this machine."""
    known = torch.device(device)
    gpu = f" ({torch.cuda.get_device_name(known)})" if known.type == "cuda" else ""
    return Manifest(
        training=verb_of(record), started=datetime.now(UTC).isoformat(timespec="seconds"), command=shlex.join(sys.argv),
        commit=source_commit(), packages={"python": platform.python_version(), **package_versions(*_PACKAGES)},
        processor=processor(), device=f"{known}{gpu}", threads=torch.get_num_threads(),
        seed=getattr(record.settings, "seed", None),
        files=file_checksums(record), models=model_checksums(record), ranks=current_ranks().count,
    )  # fmt: skip


def read_manifest(run: Path) -> Manifest:
    """Read the manifest of a run, or raise an InputError if there is none or it is damaged."""
    path = run / MANIFEST
    if not path.exists():
        raise InputError(f"{run}: holds no {MANIFEST}; valid: a run directory that a training wrote")
    return from_dict(artifacts.read_json(path), Manifest, str(path))


def verb_of(record: RunRecord[Any]) -> str:
    """Return the command that creates a run with this record."""
    if record.task:
        return "policy online" if record.kind else "policy train"
    if record.kind == "hybrid":
        named = isinstance(record.parameters, tuple)
        return "identify" if named else "adapt" if record.blueprint is UNSET else "discover"
    if isinstance(record.parameters, tuple):
        return "adapt conditions"
    return "finetune" if isinstance(record.base, str) else "train"


def data_of(record: RunRecord[Any]) -> tuple[str, ...]:
    """Return the paths of the data of a training."""
    return record.data if isinstance(record.data, tuple) else (record.data,) if record.data else ()


def file_checksums(record: RunRecord[Any]) -> dict[str, str]:
    """Return the SHA-256 of the existing files that a training reads."""
    starts = record.starts if isinstance(record.starts, str) else ""
    named = (getattr(record.settings, name, None) for name in _SETTINGS)
    names = [*data_of(record), starts, declaration_of(record.robot), *(name for name in named if isinstance(name, str))]
    return {name: file_checksum(Path(name)) for name in names if name and Path(name).is_file()}


def declaration_of(robot: str) -> str:
    """Return the declaration of your own robot; empty for a shipped one."""
    folder = Path(robot)
    inside = next((str(folder / name) for name in _DECLARATIONS if (folder / name).is_file()), "")
    return inside or (robot if folder.suffix else "")


def model_checksums(record: RunRecord[Any]) -> dict[str, str]:
    """Return the SHA-256 of the models and policies that a training starts from or takes place in."""
    sums = {}
    for name in (record.base, record.dynamics):
        if not isinstance(name, str) or not name:
            continue
        folder = artifacts.resolve_run(name) if name.startswith(artifacts.PRETRAINED) else Path(name)
        if (folder / "model").is_dir():
            sums[name] = files_checksum(folder, "model/*")
        elif (folder / "config.json").is_file():
            sums[name] = files_checksum(folder, "config.json", "policy.safetensors", "state/*")
    return sums
