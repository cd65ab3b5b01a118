# SPDX-License-Identifier: Apache-2.0
"""Where settings come from (a file of one's own, else the robot's, else the general ones of a room).

And how a run was made with them, as its config.yaml says.
"""

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
    """Return the path that is given for a size; None where it is a name."""
    path = Path(given)
    return path if path.suffix in _SUFFIXES else None


def load_preset(kind: type[S], path: str | Path | None, presets: Iterable[Path]) -> S | None:
    """Read settings.

    Args:
        kind: What they are.
        path: A file of one's own; None for a preset.
        presets: Files that may be there, the robot's own before the general ones.

    Returns:
        The settings; None where no preset is there.

    Raises:
        InputError: The file is missing or malformed.
    """
    if path is not None:
        return read_config(Path(path), kind)
    return next((read_config(preset, kind) for preset in presets if preset.is_file()), None)


class RunRecord(Config, Generic[S], frozen=True, kw_only=True, omit_defaults=True):
    """How a run was made: its config.yaml, which holds what there is to say of its kind.

    Attributes:
        kind: Kind of dynamics; empty for policies.
        robot: Name or path of the robot's declaration.
        data: Path of the trajectories; of several files all.
        shares: Share of each file in the windows of a batch; UNSET for one file.
        task: Name of a policy's task.
        algorithm: What trained a policy; empty for `DEFAULT_ALGORITHM`.
        dynamics: What a policy was trained in, as the user calls it.
        parameters: Quantities that were identified.
        blueprint: Networks of a hybrid model, or the candidates of a discovery.
        settings: Resolved settings.
        starts: Log that was given for a policy's starts.
        versions: Versions of the packages that made it.
        base: Run that it started from; None for one from scratch.
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
"""What trained a policy whose record names no algorithm."""
