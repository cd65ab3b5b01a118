# SPDX-License-Identifier: Apache-2.0
"""A hybrid model as files: RUN/model/{model.safetensors, config.json, spec.json}."""

from pathlib import Path
from typing import Literal

import msgspec
import torch

from neurodyn.core import artifacts
from neurodyn.core.config import Config, to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.core.mechanism import Mechanism
from neurodyn.core.parameter import Parameter
from neurodyn.core.scene import Scene
from neurodyn.core.spec import StateSpec
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.dynamics.neural.artifact import read_described
from neurodyn.multibody.engine import EngineConfig


class HybridConfig(Config, frozen=True):
    """Everything but the numbers that were identified: what config.json holds.

    Attributes:
        kind: Kind of dynamics.
        engine: What the engine computes, blueprint included.
        parameters: The free quantities, with their bounds and nominal values.
        robot: Name or path of the declaration that the model was identified for.
    """

    kind: Literal["hybrid"]
    engine: EngineConfig
    parameters: tuple[Parameter, ...]
    robot: str


class HybridSpec(Config, frozen=True):
    """What the model is a model of: what spec.json holds.

    Attributes:
        state: Names, order, units and dt.
        mechanism: The tree of links, nominal.
        fingerprint: The articulation that it was taken from; None where it is unknown.
        scene: The ground that is assumed where no environment is given; None for free space.
    """

    state: StateSpec
    mechanism: Mechanism
    fingerprint: Fingerprint | None = None
    scene: Scene | None = None


def save_hybrid(run: Path, model: HybridDynamics, robot: str) -> None:
    """Write a model into a run directory; each file replaces its predecessor atomically.

    The free quantities are written as physical values, for readers, and as `Parameters` has them, which is what a model
    is loaded from: rounding and bounds leave no trace.

    Args:
        run: Run directory.
        model: The model.
        robot: Name or path of the robot's declaration.
    """
    folder = run / "model"
    config = HybridConfig(
        kind="hybrid",
        engine=msgspec.structs.replace(model.config, free=()),
        parameters=model.physical.specs,
        robot=robot,
    )
    spec = HybridSpec(
        state=model.spec, mechanism=model.mechanism, fingerprint=model.fingerprint, scene=model.scene
    )  # fmt: skip
    tensors = {
        "raw": model.physical.raw.detach(),
        "quantities": model.physical().detach(),
        "weights": model.weights.detach(),
    }
    artifacts.write_tensors(folder / "model.safetensors", tensors)
    artifacts.write_json(folder / "config.json", to_dict(config))
    artifacts.write_json(folder / "spec.json", to_dict(spec))


def read_hybrid_config(run: str | Path) -> tuple[HybridConfig, HybridSpec]:
    """Read what a run directory says about its model, without the numbers.

    Raises:
        InputError: There is no such run, its files are malformed, or its model is no hybrid one.
    """
    return read_described(run, "hybrid", HybridConfig, HybridSpec)


def load_hybrid(run: str | Path, *, threads: int = 1) -> HybridDynamics:
    """Load the hybrid model of a run directory, with frozen numbers.

    Args:
        run: A run directory, or "pretrained:NAME".
        threads: CPU threads among which worlds are split.

    Raises:
        InputError: There is no such run, or its files are missing, truncated or of another version.
    """
    config, spec = read_hybrid_config(run)
    model = HybridDynamics(
        spec.state, spec.mechanism, config.engine, config.parameters, spec.fingerprint, spec.scene, threads=threads
    )
    path = artifacts.resolve_run(run) / "model" / "model.safetensors"
    tensors = artifacts.read_tensors(path)
    count = len(config.parameters)
    shapes = {"raw": (count,), "quantities": (count,), "weights": (config.engine.blueprint.weights,)}
    for name, shape in shapes.items():
        if name not in tensors or tuple(tensors[name].shape) != shape:
            raise InputError(f"{path}: {name!r} does not fit config.json beside it; valid: shape {list(shape)}")
        if not tensors[name].isfinite().all():
            raise InputError(f"{path}: {name!r} holds numbers that are not finite; valid: finite numbers")
    with torch.no_grad():
        model.physical.raw.copy_(tensors["raw"])
        model.weights.copy_(tensors["weights"])
        if not torch.allclose(model.physical(), tensors["quantities"].double(), rtol=1e-6, atol=1e-9):
            raise InputError(f"{path}: quantities do not follow from the start and bounds in config.json beside it")
    return model.requires_grad_(False).eval()
