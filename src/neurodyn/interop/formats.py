# SPDX-License-Identifier: Apache-2.0
"""Names of other projects' formats, and exports and imports by these names; heavy imports wait for their use."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from neurodyn.core.artifacts import atomic_folder, export_folder, read_json, require_writable
from neurodyn.core.errors import InputError, notice
from neurodyn.core.registry import Later, Registry

if TYPE_CHECKING:
    from neurodyn.data.store import Store
    from neurodyn.dynamics.base import LearnedDynamics
    from neurodyn.dynamics.interface import Dynamics
    from neurodyn.interop.c_code.source import CUnit
    from neurodyn.interop.identified import IdentifiedRobot
    from neurodyn.interop.replays import Replay
    from neurodyn.robots import Robot


def _c_source() -> Any:
    from neurodyn.interop.c_code import source

    return source


def _mjcf() -> Any:
    from neurodyn.interop import mjcf

    return mjcf


def _mjcf_drives() -> Any:
    from neurodyn.interop import mjcf_drives

    return mjcf_drives


def _nerd() -> Any:
    from neurodyn.interop import nerd

    return nerd


def _newton() -> Any:
    from neurodyn.interop import newton

    return newton


def _policies() -> Any:
    from neurodyn.interop import policies

    return policies


def _rwm() -> Any:
    from neurodyn.interop import rwm

    return rwm


def _trainers() -> Any:
    from neurodyn.interop import trainers

    return trainers


def _trajectories() -> Any:
    from neurodyn.interop import trajectories

    return trajectories


def _urdf() -> Any:
    from neurodyn.interop import urdf

    return urdf


SIMULATOR_FORMATS: "Registry[Callable[[IdentifiedRobot, Path], set[str]]]" = Registry(
    "simulator to export to",
    newton=Later(lambda: _newton().write_newton),
    isaaclab=Later(lambda: _trainers().write_isaaclab),
    mjcf=Later(lambda: _mjcf().write_mjcf),
    urdf=Later(lambda: _urdf().write_urdf),
    mjlab=Later(lambda: _trainers().write_mjlab),
)
"""Writers by target: (identified robot, empty folder) -> names of the quantities that the target can represent.

They raise an InputError if the target cannot represent the robot or its actuator network.
"""

WITH_NETWORKS = {"mjcf"}
"""Targets that support a blueprint's networks; others refuse runs with such networks."""

WITH_TRANSMISSIONS = {"mjcf"}
"""Targets that support drives with a transmission of their own; others refuse robots with such drives."""

REMARKS: "Registry[Callable[[IdentifiedRobot], list[str]]]" = Registry(
    "simulator with remarks on its exports",
    mjcf=Later(lambda: _mjcf_drives().remarks),
    urdf=Later(lambda: _urdf().remarks),
    isaaclab=Later(lambda: _trainers().remarks),
    mjlab=Later(lambda: _trainers().remarks),
)
"""By target: what its files need, and what they only approximate, one line each."""

MODEL_LAYOUTS: "Registry[Callable[[Path, Robot, Path | None], LearnedDynamics]]" = Registry(
    "layout of a model", rwm=Later(lambda: _rwm().read_rwm), nerd=Later(lambda: _nerd().read_nerd)
)
"""Readers by layout: (checkpoint, robot, statistics) -> model."""

POLICY_FORMATS: Registry[Callable[[str | Path, Path], Path]] = Registry(
    "format of a policy", **{"rsl-rl": Later(lambda: _policies().export_rsl_rl)}
)
"""Writers by format: (policy, output folder) -> file that the other trainer loads."""

CODE: "Registry[Callable[[CUnit, str], dict[str, str]]]" = Registry(
    "code to export to",
    **{
        "c": Later(lambda: _c_source().c_files),
        "c-base-filter": Later(lambda: _c_source().c_files),
        "cpp-header": Later(lambda: _c_source().cpp_files),
    },
)
"""Writers by language: (C unit, its name in the code) -> file contents by name."""

WRITERS: "Registry[Callable[[Store, Path], None]]" = Registry(
    "format of trajectories",
    lerobot=Later(lambda: _trajectories().write_lerobot),
    mcap=Later(lambda: _trajectories().write_mcap),
)
"""Writers by format: (store, path); the path must not exist."""


@dataclass(frozen=True)
class Exported:
    """Result of an export.

    Attributes:
        folder: The written folder.
        files: Paths of its files, relative to the folder.
        placed: Names of the quantities that the target can represent.
        left_out: Names of the quantities that it cannot represent.
        replay: Errors of the files on the held-out log, beside the original's and the model's.
        remarks: What the files need, and what they only approximate.
    """

    folder: Path
    files: tuple[str, ...]
    placed: tuple[str, ...]
    left_out: tuple[str, ...]
    replay: "Replay"
    remarks: tuple[str, ...] = ()


class WorseError(InputError):
    """An exported file predicts the log worse than the original; `replay` has the errors."""

    def __init__(self, message: str, replay: "Replay") -> None:
        super().__init__(message)
        self.replay = replay


def export_identified(
    run: "Dynamics | str | Path",
    to: str,
    out: str | Path | None = None,
    *,
    data: "Store | str | Path | None" = None,
    force: bool = False,
    without_delay: bool = False,
) -> Exported:
    """Export an identified robot and its actuator network to another simulator, after a replay of the held-out log.

    Args:
        run: A run of `identify` or `adapt`, "pretrained:NAME", or a hybrid model.
        to: Name of the target in `SIMULATOR_FORMATS`.
        out: Folder to write, which must not exist; None for RUN/TARGET, or ./NAME-TARGET for pretrained runs and
            models.
        data: Log to replay; None for that of the run.
        force: Whether to write files that predict the log worse than the original.
        without_delay: Whether an MJCF has filters of commands instead of delays, which MuJoCo knows since 3.5.

    Raises:
        InputError: There is no such run or target, the folder exists, the run is not a hybrid model, or the target can
            represent none of its identified quantities or not all of its networks.
        WorseError: The files predict the log worse than the original; nothing is written.
    """
    from neurodyn.interop.identified import read_identified
    from neurodyn.interop.replays import losses, replay_export, worse

    SIMULATOR_FORMATS.require(to)
    identified = read_identified(run, networks=to in WITH_NETWORKS, transmissions=to in WITH_TRANSMISSIONS)
    if without_delay:
        identified = replace(identified, delays=False)
    usual = export_folder(run, to) if isinstance(run, str | Path) else Path(f"{run.spec.robot}-{to}")
    folder = _new_folder(usual if out is None else Path(out))
    remarks: tuple[str, ...] = ()
    with atomic_folder(folder) as partial:
        placed = SIMULATOR_FORMATS[to](identified, partial)
        left_out = tuple(name for name in identified.required_quantities if name not in placed)
        held = identified.network is not None or identified.model is not None
        if identified.free and not held and set(identified.free) <= set(left_out):
            raise InputError(
                f"{identified.run}: {to} cannot hold any identified quantity, {', '.join(identified.free)}; "
                "valid: another target"
            )
        if to in REMARKS:
            remarks = tuple(REMARKS[to](identified))
        if to != "mjcf" and (
            paced := [joint for joint, drive in identified.drives.items() if drive.updates is not UNSET]
        ):
            notice(
                f"{identified.run}: {to} evaluates drives in every step, not `updates` times per frame: "
                f"{', '.join(paced)}"
            )
        files = tuple(sorted(path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file()))
        replay = replay_export(run, to, partial, data)
        if replay.worse and not force:
            raise WorseError(f"{identified.run}: {worse(replay)}; nothing is written; valid: --force", replay)
        remarks = (*remarks, *losses(replay, left_out))
    named = tuple(name for name in identified.required_quantities if name in placed)
    return Exported(folder, files, named, left_out, replay, remarks)


def export_code(
    run: str, to: str, out: Path | None = None, *, data: "Store | Path | None" = None, force: bool = False
) -> Path:
    """Return the folder of `replayed_code`."""
    return replayed_code(run, to, out, data=data, force=force)[0]


def replayed_code(
    run: str, to: str, out: Path | None = None, *, data: "Store | Path | None" = None, force: bool = False
) -> "tuple[Path, Replay | None]":
    """Write a policy, a model, an actuator network or the imitation of an MPC as code.

    The C code of an identified robot first replays its held-out log.

    Args:
        run: A run, "pretrained:NAME", the folder of a policy, or "pretrained-policy:NAME".
        to: Name of a language in `CODE`.
        out: Folder to write, which must not exist; None for RUN/TARGET, or ./NAME-TARGET for pretrained ones. Files and
            functions are named after the run.
        data: Log to replay; None for that of the run.
        force: Whether to write code that predicts the log worse than the robot's original file.

    Returns:
        The folder, and the errors of the replay; None for what is no C code of an identified robot.

    Raises:
        InputError: There is no such run, part of it has no C form, or the folder exists.
        WorseError: The code predicts the log worse than the original; nothing is written.
    """
    from neurodyn.interop.c_code.base_filter import filter_unit_of
    from neurodyn.interop.c_code.source import identifier
    from neurodyn.interop.c_code.units import code_unit
    from neurodyn.interop.replays import replay_code, worse

    folder = _new_folder(export_folder(run, to) if out is None else out)
    unit_of = filter_unit_of if to == "c-base-filter" else code_unit
    name, unit, replay = identifier(run.partition(":")[2] or Path(run).resolve().name), unit_of(run), None
    texts = CODE[to](unit, name)
    with atomic_folder(folder) as partial:
        for file, text in texts.items():
            (partial / file).write_text(text, encoding="utf-8")
        if to == "c" and any(one.name == "step" for one in unit.functions) and _is_identified(run):
            replay = replay_code(run, unit, texts, name, data)
            if replay.worse and not force:
                raise WorseError(f"{run}: {worse(replay)}; nothing is written; valid: --force", replay)
    return folder, replay


def replay(
    run: "str | Path | Dynamics", target: str, data: "Store | str | Path | None" = None, *, without_delay: bool = False
) -> "Replay":
    """Export a model to a temporary folder, and replay a held-out log there.

    Args:
        run: A run of `adapt` or `identify`, or a hybrid model.
        target: Name of the target.
        data: Log whose test episodes (validation without any) are replayed; None for the run's own.
        without_delay: See `export_identified`.

    Raises:
        InputError: See `export_identified`.
    """
    from neurodyn.interop.replays import Replay

    with tempfile.TemporaryDirectory() as folder:
        if target in CODE:
            given = None if data is None else Path(data) if isinstance(data, str | Path) else data
            _, replayed = replayed_code(str(run), target, Path(folder) / "exported", data=given, force=True)
            return replayed or Replay(target=target, reason=f"{target} is not replayed")
        exported = export_identified(
            run, target, Path(folder) / "exported", data=data, force=True, without_delay=without_delay
        )
    return exported.replay


def _is_identified(run: str) -> bool:
    """Return whether a run holds an identified robot of its own."""
    path = Path(run) / "model" / "config.json"
    return path.is_file() and read_json(path).get("kind") == "hybrid"


def _new_folder(folder: Path) -> Path:
    """Return a folder, or raise an InputError if it exists or cannot be written."""
    if folder.exists():
        raise InputError(f"{folder}: exists; valid: the path of a folder that does not (--out)")
    require_writable(folder)
    return folder


def import_model(
    file: str | Path, robot: str | Path, out: str | Path, *, layout: str, statistics: str | Path | None = None
) -> "LearnedDynamics":
    """Import a model of another project as a run.

    Args:
        file: The checkpoint; nothing in it is executed.
        robot: Robot of the model, by name or path.
        out: Run directory to write.
        layout: Layout of the file: "rwm" or "nerd".
        statistics: File with the input normalisation statistics; None for the robot's own.

    Raises:
        InputError: The file is not such a checkpoint, would have to be unpickled, or does not fit the robot; or `out`
            holds a run.
    """
    from neurodyn.dynamics.artifact import save
    from neurodyn.robots import load, locate

    run, declared = Path(out), load(robot)
    if (run / "model").exists() or run.is_file():
        raise InputError(f"{run}: already exists; give another --out")
    model = MODEL_LAYOUTS[layout](Path(file), declared, None if statistics is None else Path(statistics))
    model.declaration = locate(robot)
    save(run, model)
    return model
