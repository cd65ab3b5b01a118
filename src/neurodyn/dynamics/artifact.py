# SPDX-License-Identifier: Apache-2.0
"""Models of every kind as files: RUN/model/{model.safetensors, config.json, spec.json}.

config.json holds everything but the weights, spec.json the system that the model describes. RUN/robot/ holds a robot
that does not ship with the package, so that the run can be moved.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import Config, from_dict, to_dict
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError, MismatchError, notice
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS, require_kind
from neurodyn.robots import Robot, ships
from neurodyn.robots import load as load_robot
from neurodyn.robots.assets import DECLARATION, moved_scene, write_bundle

ROBOT = "robot"
"""Folder in a run that holds the declaration of a robot that does not ship with the package."""

C = TypeVar("C", bound=Config)
S = TypeVar("S", bound=Config)
M = TypeVar("M", bound=LearnedDynamics)


def load_weights(model: LearnedDynamics, tensors: dict[str, Tensor]) -> None:
    """Load the weights of a file into a model; raise an `InputError` if they do not fit."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"weights do not fit config.json beside them ({reason})") from None


@dataclass(frozen=True)
class Artifact(Generic[C, S, M]):
    """File format of models of one kind: how they are written and read.

    Attributes:
        kind: Name of the kind.
        config: Type of config.json, with the fields `kind` and `robot`.
        spec: Type of spec.json.
        build: Builds a model with fresh weights from config and spec.
        describe: Returns config and spec of a model.
        tensors: Returns the contents of a model's model.safetensors.
        restore: Loads the contents of model.safetensors into a model; raises an `InputError` if they do not fit.
    """

    kind: str
    config: type[C]
    spec: type[S]
    build: Callable[..., M]
    describe: Callable[[M], tuple[C, S]]
    tensors: Callable[[M], dict[str, Tensor]] = LearnedDynamics.state_dict
    restore: Callable[[M, dict[str, Tensor]], None] = load_weights

    def save(self, run: Path, model: M) -> None:
        """Write a model into a run directory: the first time all of it or nothing, later file by file, atomically.

        The first time, the declaration of a robot that does not ship with the package is written beside it.
        """
        folder, (config, spec) = run / "model", self.describe(model)
        carry_robot(run, model)
        is_there = (folder / "spec.json").exists()
        with contextlib.nullcontext(folder) if is_there else artifacts.atomic_folder(folder) as place:
            artifacts.write_tensors(place / "model.safetensors", self.tensors(model))
            artifacts.write_checksummed(place / "config.json", to_dict(config))
            artifacts.write_checksummed(place / "spec.json", _without_folder(to_dict(spec), run))

    def read(self, run: str | Path) -> tuple[C, S]:
        """Read config and spec of the model in a run directory, without the weights.

        Raises:
            InputError: There is no such run, its files are malformed, or its model is of another kind.
        """
        run = artifacts.resolve_run(run)
        folder = run / "model"
        given = artifacts.read_json(folder / "config.json")
        kind = given.get("kind") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind in KINDS:
            require_kind(kind, (self.kind,), folder)
        carried = _robot_of_run(run)
        if carried is not None and isinstance(given, dict):
            given = given | {"robot": str(carried)}
        config = from_dict(given, self.config, str(folder / "config.json"))
        spec = _with_folder(artifacts.read_json(folder / "spec.json"), run)
        return config, from_dict(spec, self.spec, str(folder / "spec.json"))

    def load(self, run: str | Path, *, device: str = "cpu", **options: Any) -> M:
        """Load the model of a run, with frozen weights; see `load`. `options` are further arguments of `build`."""
        model = self.build(*self.read(run), **options)
        path = artifacts.resolve_run(run) / "model" / "model.safetensors"
        tensors = artifacts.read_weights(path)
        try:
            self.restore(model, tensors)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return model.requires_grad_(False).eval().to(device)


def save(run: Path, model: LearnedDynamics) -> None:
    """Write a model of any kind into a run directory; each file replaces its predecessor atomically."""
    _artifact(model.kind, run).save(run, model)


def load(run: str | Path, *, device: str = "cpu") -> LearnedDynamics:
    """Load the model of a run directory, or one that ships with the package, with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the model.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    return _artifact(kind_of(run), run).load(run, device=device)


def _artifact(kind: str, run: str | Path) -> Artifact[Any, Any, Any]:
    artifacts_by_kind = {name: known.artifact for name, known in KINDS.items() if known.artifact is not None}
    require_kind(kind, artifacts_by_kind, run)
    return artifacts_by_kind[kind]()


def load_simulator(run: str | Path, *, device: str = "cpu") -> LearnedDynamics:
    """Load a model whose state is a simulator's; arguments and errors: see `load`.

    Raises:
        InputError: Its state is that of a log.
    """
    model = load(run, device=device)
    if model.measured:
        title = KINDS[model.kind].title
        raise InputError(
            f"{run}: holds a {title}, which predicts only what its log measures; valid here: {_SIMULATING}"
        )
    return model


_SIMULATING = "a neural or hybrid model"


def kind_of(run: str | Path) -> str:
    """Return the kind of a run's model; errors: see `robot_of`."""
    return _field(run, "kind")


def robot_of(run: str | Path) -> str:
    """Return name or path of the robot of a run's model: the declaration in the run, if it holds one.

    Raises:
        InputError: There is no such run, or its config.json is malformed.
    """
    recorded, carried = _field(run, "robot"), _robot_of_run(artifacts.resolve_run(run))
    return recorded if carried is None else str(carried)


def declared_robot(run: str | Path) -> Robot:
    """Return the robot of a run's model, with the model's frames, which a task may have made longer than declared.

    Raises:
        InputError: See `robot_of`; or the declaration is missing or malformed.
    """
    spec = artifacts.read_json(artifacts.resolve_run(run) / "model" / "spec.json")
    state = spec.get("state") if isinstance(spec, dict) else None
    robot, dt = load_robot(robot_of(run)), state.get("dt") if isinstance(state, dict) else None
    return robot.with_frames(dt) if isinstance(dt, float) else robot


def carry_robot(run: Path, model: LearnedDynamics) -> None:
    """Write the declaration of a model's robot, with the files it names, into a run that does not have it yet.

    Robots that ship with the package are left out. A notice says if the files are too large to be copied.
    """
    robot = model.robot
    if _robot_of_run(run) is not None or robot is None or ships(robot):
        return
    try:
        write_bundle(robot, run / ROBOT)
    except InputError as error:
        notice(f"{run}: {error}")


def _robot_of_run(run: Path) -> Path | None:
    """Return the absolute path of the robot in a run; None if the run holds none."""
    artifacts.restore_folder(run / ROBOT)
    return (run / ROBOT).resolve() if (run / ROBOT / DECLARATION).is_file() else None


def _without_folder(spec: Any, run: Path) -> Any:
    """Return the contents of spec.json with files of the ground relative to the run."""
    carried = _robot_of_run(run)
    if carried is None or not spec.get("scene"):
        return spec
    scene = moved_scene(from_dict(spec["scene"], Scene), carried)
    if scene.folder == str(carried):
        scene = msgspec.structs.replace(scene, folder="")
    return spec | {"scene": to_dict(scene)}


def _with_folder(spec: Any, run: Path) -> Any:
    """Return the contents of spec.json with the folder of the ground's files in the run."""
    carried, scene = _robot_of_run(run), spec.get("scene") if isinstance(spec, dict) else None
    if carried is None or not isinstance(scene, dict) or scene.get("folder"):
        return spec
    if not any(isinstance(shape, dict) and "file" in shape for shape in scene.get("shapes", ())):
        return spec
    return spec | {"scene": scene | {"folder": str(carried)}}


def _field(run: str | Path, name: str) -> str:
    path = artifacts.resolve_run(run) / "model" / "config.json"
    config = artifacts.read_json(path)
    kind, value = (config.get("kind"), config.get(name)) if isinstance(config, dict) else (None, None)
    valid = [kind.name for kind in KINDS.values() if kind.artifact]
    if kind not in valid:
        raise InputError(f"{path}: kind is {kind!r}; valid: {' or '.join(valid)}")
    if not isinstance(value, str):
        raise InputError(f"{path}: {name} is {value!r}; valid: a text")
    return value


def require_match(model: Dynamics, spec: StateSpec, built: Fingerprint | None, where: str) -> None:
    """Refuse a robot that the model was not made for.

    Args:
        model: The model.
        spec: State of the robot.
        built: The articulation as built; None to compare none.
        where: What is compared, for the error message.

    Raises:
        MismatchError: Joints, controls, dt or the built articulation differ; the message names the differences.
    """
    differences = model.spec.differences(spec)
    if model.fingerprint is not None and built is not None:
        differences += model.fingerprint.differences(built)
    if differences:
        shown = "; ".join(differences[:4]) + (f"; and {len(differences) - 4} more" if len(differences) > 4 else "")
        raise MismatchError(f"{where}: not the robot that the model of {model.spec.robot!r} was trained on: {shown}")
