# SPDX-License-Identifier: Apache-2.0
"""From a run to a folder that another simulator takes."""

from dataclasses import dataclass
from pathlib import Path

from neurodyn.core.artifacts import PRETRAINED, atomic_folder, require_writable
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.errors import InputError
from neurodyn.dynamics.artifact import load
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS
from neurodyn.interop.formats import SIMULATORS
from neurodyn.interop.identified import IdentifiedRobot, read_network


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        folder: Where.
        files: Names of the files in it.
        placed: Names of the quantities that the target has a place for.
        left_out: Names of those that it has none for.
    """

    folder: Path
    files: tuple[str, ...]
    placed: tuple[str, ...]
    left_out: tuple[str, ...]


def export_identified(run: Dynamics | str | Path, to: str, out: str | Path | None = None) -> Exported:
    """Write what was identified of a robot, and its actuator network, for another simulator.

    Args:
        run: A run of `identify`, "pretrained:NAME", or a hybrid model.
        to: Name of the target in `SIMULATORS`.
        out: Folder to write, which must not exist; None for one of the target's name in the run, or NAME-TARGET here
            for what is pretrained, and for a model.

    Raises:
        InputError: There is no such run or target, the folder exists, the run is no hybrid model or has networks that
            the target has no place for, or the target has none for anything that was identified.
    """
    SIMULATORS.require(to)
    identified = read_identified(run)
    folder = Path(out) if out is not None else _default_folder(run, to)
    if folder.exists():
        raise InputError(f"{folder}: exists; valid: the path of a folder that does not (--out)")
    require_writable(folder)
    with atomic_folder(folder) as partial:
        placed = SIMULATORS[to](identified, partial)
        left_out = tuple(name for name in identified.wanted if name not in placed)
        if identified.free and identified.network is None and set(identified.free) <= set(left_out):
            raise InputError(
                f"{identified.run}: {to} has no place for anything that was identified, {', '.join(identified.free)}; "
                "valid: another target"
            )
        files = tuple(sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file()))
    return Exported(folder, files, tuple(name for name in identified.wanted if name in placed), left_out)


def read_identified(run: Dynamics | str | Path) -> IdentifiedRobot:
    """Return what was identified in a run; arguments and errors: see `export_identified`."""
    if not isinstance(run, str | Path):
        where = f"model of {run.spec.robot!r}"
        return KINDS[run.kind].identified.get(where)(run, where)
    network = read_network(run)
    if network is not None and not (Path(run) / "model").is_dir():
        return IdentifiedRobot(str(run), None, Mechanism(links=()), network=network)
    model = load(run)
    return KINDS[model.kind].identified.get(run)(model, str(run), network)


def _default_folder(run: Dynamics | str | Path, to: str) -> Path:
    if not isinstance(run, str | Path):
        return Path(f"{run.spec.robot}-{to}")
    text = str(run)
    return Path(f"{text.partition(':')[2]}-{to}") if text.startswith(PRETRAINED) else Path(run) / to
