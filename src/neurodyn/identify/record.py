# SPDX-License-Identifier: Apache-2.0
"""How an identification was made, and whether another one may write where it stands."""

from pathlib import Path

from neurodyn.core.blueprint import Blueprint
from neurodyn.core.config import Config, read_config
from neurodyn.core.errors import InputError
from neurodyn.core.parameter import Parameter
from neurodyn.identify.settings import IdentificationSettings


class IdentificationRecord(Config, frozen=True):
    """How a run was made: RUN/config.yaml.

    Attributes:
        kind: Kind of dynamics.
        robot: Name or path of the robot's declaration.
        data: Path of the trajectories.
        parameters: The free quantities.
        blueprint: The networks.
        settings: Resolved settings.
        versions: Versions of the packages that made it.
    """

    kind: str
    robot: str
    data: str
    parameters: tuple[Parameter, ...]
    blueprint: Blueprint
    settings: IdentificationSettings
    versions: dict[str, str]


def check_run(out: Path, record: IdentificationRecord, resume: bool) -> bool:
    """Compare what a run is about with what is there; return whether there is a state to go on from."""
    path = out / "config.yaml"
    if resume:
        if not path.exists():
            raise InputError(f"{out}: holds no identification to resume; leave out --resume to start one")
        before = read_config(path, IdentificationRecord)
        for name in ("robot", "parameters", "blueprint", "settings"):
            if getattr(before, name) != getattr(record, name):
                raise InputError(
                    f"{path}: --resume needs the {name} that the run was started with; leave out the flags that "
                    "differ, or give another --out"
                )
        return (out / "state" / "data.json").is_file()
    if path.exists():
        raise InputError(f"{out}: already holds a run; add --resume to go on with it, or give another --out")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for the run")
    return False
