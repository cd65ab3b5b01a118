# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics, and the operations on models of each, declared in one place.

The parts live in rooms above this one, so a kind names them as "module:attribute" and imports each at its first use.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from neurodyn.core.errors import InputError
from neurodyn.core.registry import Registry

if TYPE_CHECKING:
    import newton

    from neurodyn.data.mixture import Mixture
    from neurodyn.dynamics.artifact import Artifact
    from neurodyn.dynamics.interface import Dynamics
    from neurodyn.evaluate.records import Evaluation
    from neurodyn.evaluate.requests import EvaluationRequest
    from neurodyn.interop.c_code.source import CUnit
    from neurodyn.interop.identified import IdentifiedRobot, TrainedNetwork
    from neurodyn.interop.onnx import OnnxFrame
    from neurodyn.learn.plan import TrainingPlan, TrainState
    from neurodyn.learn.requests import FinetuneRequest, TrainRequest
    from neurodyn.learn.run_folder import FinetuningJob, TrainingJob
    from neurodyn.policy.online_learning.refit import Refit
    from neurodyn.robots import Robot
    from neurodyn.solvers.learned import SolverLearned

    Planned = tuple[TrainingPlan, Mixture]

# ruff: noqa: D102  # the call of a protocol is what the protocol's docstring says

T = TypeVar("T")


class KindPart(Generic[T]):
    """An operation on models of a kind, which some kinds lack."""

    def __init__(self, entry: "T | str | None" = None) -> None:
        """Store the part itself, or "module:attribute"; None if a kind lacks it."""
        self._entry = entry
        self._kind: Kind | None = None
        self._name = ""

    def bind(self, kind: "Kind", name: str) -> None:
        """Record the owner of the part, for the error message."""
        self._kind, self._name = kind, name

    def __bool__(self) -> bool:
        """Return whether the kind has this part."""
        return self._entry is not None

    def get(self, where: str | Path = "") -> T:
        """Return the part, imported at its first use; `where` is the run that holds the model, for the error message.

        Raises:
            InputError: The kind lacks this part; the message names the kinds that have it.
        """
        if self._entry is None:
            able = " or ".join(f"a {kind.title}" for kind in KINDS.values() if getattr(kind, self._name))
            title = "model" if self._kind is None else self._kind.title
            raise InputError(f"{where}: holds a {title}; valid here: {able or '(none)'}")
        if isinstance(self._entry, str):
            module, _, attribute = self._entry.partition(":")
            self._entry = cast(T, getattr(import_module(module), attribute))
        return self._entry


def _absent() -> Any:
    return KindPart()


class Simulate(Protocol):
    """Makes dynamics of a declared robot, without a run."""

    def __call__(self, robot: "Robot", *, device: str) -> "Dynamics": ...


class Identified(Protocol):
    """Returns the quantities identified by a model that comes from a run, with an actuator network beside it.

    `networks` says whether to include the networks of the model.
    """

    def __call__(
        self, model: Any, run: str, network: "TrainedNetwork | None" = None, *, networks: bool = False
    ) -> "IdentifiedRobot": ...


@dataclass(frozen=True)
class Kind:
    """One kind of dynamics, and the operations on its models.

    Attributes:
        name: Its name in config.json and in `--kind`.
        title: Its name in words, for messages and pages.
        artifact: How models are written and read.
        simulate: Makes dynamics of a declared robot, without a run.
        export: Returns one frame of a model, for ONNX.
        code: Returns a model in C.
        identified: Reads what was identified of a robot from a model.
        solver: Makes a solver of Newton that steps all worlds of a Newton model with the model of a run.
        settings: Type of the training settings.
        plan_training: Resolves and checks settings and data of a training, without budget and seed.
        plan_finetuning: Resolves and checks settings and data of a fine-tuning, without budget and seed.
        train: Trains a model.
        finetune: Fine-tunes a model.
        evaluate: Evaluates a model, for kinds with an evaluation of their own.
        along_log: Loads the model of a run on a device for roll-outs along a log that start from estimated states; None
            if they start from logged ones.
        refit: Fits models in `neurodyn policy online`.
    """

    name: str
    title: str
    artifact: "KindPart[Artifact[Any, Any, Any]]" = field(default_factory=_absent)
    simulate: KindPart[Simulate] = field(default_factory=_absent)
    export: "KindPart[Callable[[Any], OnnxFrame]]" = field(default_factory=_absent)
    code: "KindPart[Callable[[Any], CUnit]]" = field(default_factory=_absent)
    identified: KindPart[Identified] = field(default_factory=_absent)
    solver: "KindPart[Callable[[newton.Model, str | Path], SolverLearned]]" = field(default_factory=_absent)
    settings: "KindPart[type[TrainingPlan]]" = field(default_factory=_absent)
    plan_training: "KindPart[Callable[[Robot, TrainRequest], Planned]]" = field(default_factory=_absent)
    plan_finetuning: "KindPart[Callable[[FinetuneRequest], Planned]]" = field(default_factory=_absent)
    train: "KindPart[Callable[[TrainingJob[Any]], TrainState]]" = field(default_factory=_absent)
    finetune: "KindPart[Callable[[FinetuningJob[Any]], TrainState]]" = field(default_factory=_absent)
    evaluate: "KindPart[Callable[[EvaluationRequest], Evaluation]]" = field(default_factory=_absent)
    along_log: "KindPart[Callable[[str | Path, str], Dynamics | None]]" = field(default_factory=_absent)
    refit: "KindPart[Refit]" = field(default_factory=_absent)

    def __post_init__(self) -> None:
        for one in fields(self):
            if isinstance(part := getattr(self, one.name), KindPart):
                part.bind(self, one.name)


_SHIPPED = (
    Kind("analytic", "simulator", simulate=KindPart("neurodyn.dynamics.analytic:AnalyticDynamics")),
    Kind(
        "neural",
        "neural model",
        artifact=KindPart("neurodyn.dynamics.neural.model:NEURAL"),
        export=KindPart("neurodyn.interop.onnx:neural_frame"),
        code=KindPart("neurodyn.interop.c_code.models:neural_unit"),
        solver=KindPart("neurodyn.solvers.learned:SolverNeural"),
        settings=KindPart("neurodyn.learn.neural.settings:Settings"),
        plan_training=KindPart("neurodyn.learn.training:plan_neural_training"),
        plan_finetuning=KindPart("neurodyn.learn.training:plan_neural_finetuning"),
        train=KindPart("neurodyn.learn.neural.train:train"),
        finetune=KindPart("neurodyn.learn.neural.train:finetune"),
        refit=KindPart("neurodyn.policy.online_learning.refit:NEURAL_REFIT"),
    ),
    Kind(
        "hybrid",
        "hybrid model",
        artifact=KindPart("neurodyn.dynamics.hybrid.artifact:HYBRID"),
        simulate=KindPart("neurodyn.dynamics.hybrid.declared:declared_hybrid"),
        code=KindPart("neurodyn.interop.c_code.models:hybrid_unit"),
        identified=KindPart("neurodyn.interop.identified:identified"),
        solver=KindPart("neurodyn.solvers.learned:SolverHybrid"),
        along_log=KindPart("neurodyn.identify.starts:as_identified"),
        refit=KindPart("neurodyn.policy.online_learning.refit:HYBRID_REFIT"),
    ),
    Kind(
        "world-model",
        "world model",
        artifact=KindPart("neurodyn.dynamics.world_model.model:WORLD_MODEL"),
        export=KindPart("neurodyn.interop.onnx:world_frame"),
        settings=KindPart("neurodyn.learn.world_model.settings:WorldSettings"),
        plan_training=KindPart("neurodyn.learn.training:plan_world_model_training"),
        plan_finetuning=KindPart("neurodyn.learn.training:plan_world_model_finetuning"),
        train=KindPart("neurodyn.learn.world_model.train:train_world_model"),
        finetune=KindPart("neurodyn.learn.world_model.train:finetune_world_model"),
        evaluate=KindPart("neurodyn.evaluate.run:evaluate_forecasting"),
        refit=KindPart("neurodyn.policy.online_learning.refit:WORLD_MODEL_REFIT"),
    ),
    Kind("nerd", "network of NeRD", artifact=KindPart("neurodyn.interop.nerd:NERD")),
)

KINDS: Registry[Kind] = Registry("kind of dynamics", **{kind.name: kind for kind in _SHIPPED})
"""All kinds of dynamics."""
