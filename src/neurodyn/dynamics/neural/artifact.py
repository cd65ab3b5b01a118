# SPDX-License-Identifier: Apache-2.0
"""A trained model as files: RUN/model/{model.safetensors, config.json, spec.json}."""

from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from torch import nn

from neurodyn.core import artifacts
from neurodyn.core.config import Config, from_dict, to_dict
from neurodyn.core.contact_points import ContactPointLayout
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.mechanism import Mechanism
from neurodyn.core.scene import Scene
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.nets.build import NetConfig, build_predictor

C = TypeVar("C", bound=Config)
S = TypeVar("S", bound=Config)
M = TypeVar("M", bound=nn.Module)

KINDS = ("neural", "hybrid", "world-model")
"""What config.json of a model may say that it is."""


class _Known(Protocol):
    """A model that knows of which robot it is."""

    spec: StateSpec
    fingerprint: Fingerprint | None


class ModelConfig(Config, frozen=True):
    """Everything but the weights: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        net: The network.
        encoding: Constants of the encoding.
        robot: Name or path of the declaration that the model was trained for.
    """

    kind: Literal["neural"]
    net: NetConfig
    encoding: EncodingConfig
    robot: str


class ModelSpec(Config, frozen=True, rename={"contact_points": "probes"}):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt.
        fingerprint: The articulation that it was trained on; None for a model of logs.
        contact_points: Points that are measured against the ground; None where no ground enters the inputs.
        scene: The ground that is assumed where no environment is given; None for free space.
        mechanism: The robot's tree of links, where its free motion is known to the model.
    """

    state: StateSpec
    fingerprint: Fingerprint | None
    contact_points: ContactPointLayout | None = None
    scene: Scene | None = None
    mechanism: Mechanism | None = None


def build_model(config: ModelConfig, spec: ModelSpec) -> NeuralDynamics:
    """Build a model with fresh weights."""
    encoding = Encoding(spec.state.with_context(0), config.encoding, spec.contact_points, spec.mechanism)
    predictor = build_predictor(config.net, encoding.inputs, encoding.outputs)
    return NeuralDynamics(encoding, predictor, spec.fingerprint, spec.scene)


def save_model(run: Path, model: NeuralDynamics, config: ModelConfig) -> None:
    """Write a model into a run directory; each file replaces its predecessor atomically."""
    folder = run / "model"
    artifacts.write_tensors(folder / "model.safetensors", model.state_dict())
    artifacts.write_json(folder / "config.json", to_dict(config))
    spec = ModelSpec(
        state=model.spec, fingerprint=model.fingerprint, contact_points=model.encoding.layout, scene=model.scene,
        mechanism=model.encoding.mechanism,
    )  # fmt: skip
    artifacts.write_json(folder / "spec.json", to_dict(spec))


def read_model_config(run: str | Path) -> tuple[ModelConfig, ModelSpec]:
    """Read what a run directory says about its model, without the weights.

    Raises:
        InputError: There is no such run, its files are malformed, or its model is no neural one.
    """
    return read_described(run, "neural", ModelConfig, ModelSpec)


def read_described(run: str | Path, kind: str, config: type[C], spec: type[S]) -> tuple[C, S]:
    """Read config.json and spec.json of a run's model, which must be of this kind.

    Raises:
        InputError: There is no such run, its files are malformed, or its model is of another kind.
    """
    folder = artifacts.resolve_run(run) / "model"
    built = from_dict(_of_kind(folder, kind), config, str(folder / "config.json"))
    return built, from_dict(artifacts.read_json(folder / "spec.json"), spec, str(folder / "spec.json"))


def load_weights(run: str | Path, model: M, device: str) -> M:
    """Give a model the weights of a run, and return it frozen.

    Raises:
        InputError: The file is missing, truncated, or does not fit the model.
    """
    path = artifacts.resolve_run(run) / "model" / "model.safetensors"
    try:
        model.load_state_dict(artifacts.read_tensors(path))
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"{path}: weights do not fit config.json beside them ({reason})") from None
    return model.requires_grad_(False).eval().to(device)


def _of_kind(folder: Path, kind: str) -> Any:
    """Return what config.json of a model says; refuse a model of another kind."""
    given = artifacts.read_json(folder / "config.json")
    found = given.get("kind") if isinstance(given, dict) else None
    if found in KINDS and found != kind:
        raise InputError(f"{folder}: holds a {_called(found)}; valid here: a {_called(kind)}")
    return given


def _called(kind: str) -> str:
    return "world model" if kind == "world-model" else f"{kind} model"


def load(run: str | Path, *, device: str = "cpu") -> NeuralDynamics:
    """Load the model of a run directory, or one that ships with the package, with frozen weights.

    Args:
        run: A run directory, or "pretrained:NAME".
        device: Torch device of the weights.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    config, spec = read_model_config(run)
    return load_weights(run, build_model(config, spec), device)


def require_match(model: _Known, spec: StateSpec, built: Fingerprint | None, where: str) -> None:
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
