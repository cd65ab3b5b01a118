# SPDX-License-Identifier: Apache-2.0
"""How a run was made, as its config.yaml says."""

from typing import Generic, TypeVar

from msgspec import UNSET, UnsetType

from neurodyn.core.config import Config
from neurodyn.core.description.blueprint import Blueprint
from neurodyn.core.description.parameter import Parameter

S = TypeVar("S", bound=Config)


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
