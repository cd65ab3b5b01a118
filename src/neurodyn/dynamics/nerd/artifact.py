# SPDX-License-Identifier: Apache-2.0
"""Networks of NeRD as files of ours."""

from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.fingerprint import Fingerprint
from neurodyn.core.description.spec import StateSpec
from neurodyn.dynamics.files.artifact import Artifact
from neurodyn.dynamics.nerd.model import NerdDynamics, Part
from neurodyn.dynamics.nerd.network import NerdNetConfig


class NerdConfig(Config, frozen=True):
    """Everything but the weights: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        net: The network.
        robot: Name or path of the declaration.
        window: As of `NerdDynamics`.
        parts: As of `NerdDynamics`.
    """

    kind: Literal["nerd"]
    net: NerdNetConfig
    robot: str
    window: int
    parts: tuple[Part, ...]


class NerdSpec(Config, frozen=True):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt.
        fingerprint: The articulation as built when the network was read; None where there was no simulator.
    """

    state: StateSpec
    fingerprint: Fingerprint | None = None


def build_nerd(config: NerdConfig, spec: NerdSpec) -> NerdDynamics:
    """Build dynamics with fresh weights."""
    return NerdDynamics(spec.state, config.net, config.window, config.parts, spec.fingerprint, config.robot)


def describe(model: NerdDynamics) -> tuple[NerdConfig, NerdSpec]:
    """Return what a model's files say of it."""
    config = NerdConfig(
        kind="nerd", net=model.net.config, robot=model.declaration, window=model.window, parts=model.parts
    )  # fmt: skip
    return config, NerdSpec(state=model.spec, fingerprint=model.fingerprint)


NERD = Artifact("nerd", NerdConfig, NerdSpec, build_nerd, describe)
"""Files of networks of NeRD."""
