# SPDX-License-Identifier: Apache-2.0
"""Settings files (your own, else the robot's, else the general presets), and the record in a run's config.yaml."""

from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config, read_config
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.parameter import Parameter

S = TypeVar("S", bound=Config)

_SUFFIXES = {".yaml", ".yml", ".toml", ".json"}


def settings_file(given: str) -> Path | None:
    """Return the path of a settings file; None if `given` is the name of a size."""
    path = Path(given)
    return path if path.suffix in _SUFFIXES else None


def load_preset(kind: type[S], path: str | Path | None, presets: Iterable[Path]) -> S | None:
    """Read settings from a file, or, without a path, from the first preset that exists; None if none does.

    Raises:
        InputError: The file is missing or malformed.
    """
    if path is not None:
        return read_config(Path(path), kind)
    return next((read_config(preset, kind) for preset in presets if preset.is_file()), None)


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
