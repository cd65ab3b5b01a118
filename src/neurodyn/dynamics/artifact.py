# SPDX-License-Identifier: Apache-2.0
"""Models of every kind as files: RUN/model/{model.safetensors, config.json, spec.json}.

config.json holds everything but the weights, spec.json what the model is a model of.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor

from neurodyn.core import artifacts
from neurodyn.core.config import Config, from_dict, to_dict
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.interface import Dynamics
from neurodyn.dynamics.kinds import KINDS

C = TypeVar("C", bound=Config)
S = TypeVar("S", bound=Config)
M = TypeVar("M", bound=LearnedDynamics)


def load_weights(model: LearnedDynamics, tensors: dict[str, Tensor]) -> None:
    """Give a model the weights of a file.

    Raises:
        InputError: They do not fit.
    """
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"weights do not fit config.json beside them ({reason})") from None


@dataclass(frozen=True)
class Artifact(Generic[C, S, M]):
    """How models of one kind are written to files, and read again.

    Attributes:
        kind: Name of the kind.
        config: Type of config.json, with the fields `kind` and `robot`.
        spec: Type of spec.json.
        build: From config and spec to a model with fresh weights.
        describe: From a model to its config and spec.
        tensors: From a model to what model.safetensors holds.
        restore: Gives a model what model.safetensors holds; says in an `InputError` what does not fit.
    """

    kind: str
    config: type[C]
    spec: type[S]
    build: Callable[..., M]
    describe: Callable[[M], tuple[C, S]]
    tensors: Callable[[M], dict[str, Tensor]] = LearnedDynamics.state_dict
    restore: Callable[[M, dict[str, Tensor]], None] = load_weights

    def save(self, run: Path, model: M) -> None:
        """Write a model into a run directory; each file replaces its predecessor atomically."""
        folder, (config, spec) = run / "model", self.describe(model)
        artifacts.write_tensors(folder / "model.safetensors", self.tensors(model))
        artifacts.write_json(folder / "config.json", to_dict(config))
        artifacts.write_json(folder / "spec.json", to_dict(spec))

    def read(self, run: str | Path) -> tuple[C, S]:
        """Read what a run directory says about its model, without the weights.

        Raises:
            InputError: There is no such run, its files are malformed, or its model is of another kind.
        """
        folder = artifacts.resolve_run(run) / "model"
        given = artifacts.read_json(folder / "config.json")
        found = given.get("kind") if isinstance(given, dict) else None
        if isinstance(found, str) and found in KINDS and found != self.kind:
            titles = (KINDS[name].title for name in (found, self.kind))
            raise InputError("{}: holds a {}; valid here: a {}".format(folder, *titles))
        config = from_dict(given, self.config, str(folder / "config.json"))
        return config, from_dict(artifacts.read_json(folder / "spec.json"), self.spec, str(folder / "spec.json"))

    def load(self, run: str | Path, *, device: str = "cpu", **options: Any) -> M:
        """Load the model of a run directory, or one that ships with the package, with frozen weights.

        Args:
            run: A run directory, or "pretrained:NAME".
            device: Torch device of the weights.
            options: Further arguments of `build`.

        Raises:
            InputError: There is no such run, or its files are missing, truncated, or of another kind or version.
        """
        model = self.build(*self.read(run), **options)
        path = artifacts.resolve_run(run) / "model" / "model.safetensors"
        tensors = artifacts.read_tensors(path)
        try:
            self.restore(model, tensors)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        return model.requires_grad_(False).eval().to(device)


def save(run: Path, model: LearnedDynamics) -> None:
    """Write a model of any kind into a run directory; each file replaces its predecessor atomically."""
    KINDS[model.kind].part("artifact", str(run)).save(run, model)


def load(run: str | Path, *, device: str = "cpu") -> LearnedDynamics:
    """Load the model of a run directory, or one that ships with the package, with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the model.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    return KINDS[kind_of(run)].part("artifact", str(run)).load(run, device=device)


def load_simulator(run: str | Path, *, device: str = "cpu") -> LearnedDynamics:
    """Load a model that predicts what a simulator has as its state; arguments and errors as of `load`.

    Raises:
        InputError: It predicts what a log measures.
    """
    model = load(run, device=device)
    if model.measured:
        title = KINDS[model.kind].title
        raise InputError(f"{run}: holds a {title}, which knows what its log measures; valid here: {_SIMULATING}")
    return model


_SIMULATING = "a neural or hybrid model"


def kind_of(run: str | Path) -> str:
    """Return the kind of a run's model; errors as of `robot_of`."""
    return _field(run, "kind")


def robot_of(run: str | Path) -> str:
    """Return name or path of the robot that a run's model was made for.

    Raises:
        InputError: There is no such run, or its config.json is malformed.
    """
    return _field(run, "robot")


def _field(run: str | Path, name: str) -> str:
    path = artifacts.resolve_run(run) / "model" / "config.json"
    config = artifacts.read_json(path)
    kind, value = (config.get("kind"), config.get(name)) if isinstance(config, dict) else (None, None)
    valid = [kind.name for kind in KINDS.values() if "artifact" in kind.parts]
    if kind not in valid:
        raise InputError(f"{path}: kind is {kind!r}; valid: {' or '.join(valid)}")
    if not isinstance(value, str):
        raise InputError(f"{path}: {name} is {value!r}; valid: a text")
    return value


def require_match(model: Dynamics, spec: StateSpec, built: Fingerprint | None, where: str) -> None:
    """Refuse a robot that the model was not made for.

    Args:
        model: The model.
        spec: The state that it is to be used on.
        built: The articulation as built; None where there is none to compare.
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
