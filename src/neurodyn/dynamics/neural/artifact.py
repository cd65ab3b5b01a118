# SPDX-License-Identifier: Apache-2.0
"""Neural dynamics as files."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.contact_points import ContactPointLayout
from neurodyn.core.description.fingerprint import Fingerprint
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.description.spec import StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.training_range import TrainingRange
from neurodyn.dynamics.files.artifact import Artifact
from neurodyn.dynamics.neural.encoding import Encoding, EncodingConfig
from neurodyn.dynamics.neural.model import NeuralDynamics
from neurodyn.nets.build import build_predictor
from neurodyn.nets.networks import NetConfig


class ModelConfig(Config, frozen=True):
    """Everything but the weights: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        net: The network.
        encoding: Constants of the encoding.
        robot: Name or path of the declaration that the model was trained for.
        members: Number of networks.
    """

    kind: Literal["neural"]
    net: NetConfig
    encoding: EncodingConfig
    robot: str
    members: int = 1


class ModelSpec(Config, frozen=True, rename={"contact_points": "probes"}):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt.
        fingerprint: The articulation that it was trained on; None for a model of logs.
        contact_points: Points that are measured against the ground; None where no ground enters the inputs.
        scene: The ground that is assumed where no environment is given; None for free space.
        mechanism: The robot's tree of links, where predictions start from its known motion.
        training_range: Range of motion in its training data; None where that is unknown.
    """

    state: StateSpec
    fingerprint: Fingerprint | None
    contact_points: ContactPointLayout | None = None
    scene: Scene | None = None
    mechanism: Mechanism | None = None
    training_range: TrainingRange | None = None


def build_model(config: ModelConfig, spec: ModelSpec) -> NeuralDynamics:
    """Build a model with fresh weights."""
    encoding = Encoding(spec.state.with_context(0), config.encoding, spec.contact_points, spec.mechanism)
    predictor = build_predictor(config.net, encoding.inputs, encoding.outputs, config.members)
    model = NeuralDynamics(encoding, predictor, spec.fingerprint, spec.scene, config.robot)
    model.training_range = spec.training_range
    return model


def describe(model: NeuralDynamics) -> tuple[ModelConfig, ModelSpec]:
    """Return what a model's files say of it.

    Raises:
        InputError: Its network was not built from a configuration.
    """
    encoding, net = model.encoding, model.predictor.config
    if net is None:
        raise InputError(
            f"model of {model.spec.robot!r}: its network has no configuration; build it by build_predictor"
        )
    config = ModelConfig(
        kind="neural", net=net, encoding=encoding.config, robot=model.declaration, members=model.members
    )  # fmt: skip
    return config, ModelSpec(
        state=model.spec, fingerprint=model.fingerprint, contact_points=encoding.layout, scene=model.scene,
        mechanism=encoding.mechanism, training_range=model.training_range,
    )  # fmt: skip


NEURAL = Artifact("neural", ModelConfig, ModelSpec, build_model, describe)
"""Files of neural dynamics."""
