# SPDX-License-Identifier: Apache-2.0
"""Every number of all settings: negative, endless and absurdly large ones are refused in one line."""

import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator

import msgspec
import pytest

import neurodyn
from neurodyn.core.config import Config, from_dict
from neurodyn.core.errors import InputError

PHASE = {"share": 1.0, "rate": 0.01, "batch": 32}
BASES = {
    "neurodyn.learn.plan.TrainingPhase": PHASE,
    "neurodyn.learn.plan.TrainingPlan": {"phases": [PHASE], "steps": 5},
    "neurodyn.learn.neural.settings.Phase": PHASE,
    "neurodyn.learn.neural.settings.Settings": {"phases": [PHASE], "steps": 5, "net": {"kind": "mlp"}},
    "neurodyn.learn.world_model.settings.WorldPhase": PHASE,
    "neurodyn.learn.world_model.settings.WorldSettings": {"phases": [PHASE], "steps": 5, "net": {}},
}
"""Least that settings need, by class; of others nothing."""
PARTS = {
    "neurodyn.nets.networks.NetConfig", "neurodyn.nets.ensemble.EnsembleConfig",
    "neurodyn.multibody.engine.EngineConfig",
    "neurodyn.robots.sections.SimulatorConfig", "neurodyn.robots.sections.ContactPointSelection",
}  # fmt: skip
"""What is said in settings and declarations, and not called settings."""
SIGNED = {f"{kind}Settings.failure" for kind in ("Training", "Policy", "Shac", "Distillation")} | {
    "MotionLimitSettings.floor"
}
"""Numbers that may be negative."""


def settings() -> list[type[Config]]:
    """Return the classes of all settings."""
    for module in pkgutil.walk_packages(neurodyn.__path__, "neurodyn."):
        if "settings" in module.name or any(name.startswith(module.name) for name in (*BASES, *PARTS)):
            importlib.import_module(module.name)
    for module in ("ilqr", "sampling"):
        importlib.import_module(f"neurodyn.control.planning.{module}")
    for module in (
        "walking.imitation",
        "walking.convex_mpc",
        "identify.discovery.sparse_groups",
        "identify.drives",
        "policy.settings",
    ):
        importlib.import_module(f"neurodyn.{module}")

    def below(kind: type[Config]) -> Iterator[type[Config]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    return sorted({one for one in below(Config) if _ours(one)}, key=_place)


def _ours(kind: type) -> bool:
    known = kind.__name__.endswith("Settings") or _place(kind) in {*BASES, *PARTS}
    return known and kind.__module__.startswith("neurodyn.")  # tests have settings of their own


def _place(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def numbers_in(hint: object) -> set[str]:
    """Return of which numbers an annotation is: "int", "float", or "ints", "floats" in lists."""
    if hint in (int, float):
        return {hint.__name__}  # type: ignore[union-attr]
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    found = {kind for one in inner for kind in numbers_in(one)}
    if origin in (typing.Union, types.UnionType, typing.Annotated):
        return found
    return {f"{kind}s" for kind in found if not kind.endswith("s")} if origin in (tuple, list) else set()


def refused(kind: type[Config], name: str, value: object) -> bool:
    """Return whether settings with this value are refused, which takes one line."""
    base = BASES.get(_place(kind), {})
    try:
        from_dict({**base, name: value}, kind, "settings.yaml")
    except InputError as error:
        return str(error).startswith("settings.yaml: ") and len(str(error).splitlines()) == 1
    return False


CASES = [
    pytest.param(kind, name, hints, id=f"{kind.__qualname__}.{name}")
    for kind in settings()
    for name, hint in typing.get_type_hints(kind, include_extras=True).items()
    if name in kind.__struct_fields__ and (hints := numbers_in(hint))
]


def test_all_settings_are_found():
    assert len(CASES) > 250
    for kind in {case.values[0] for case in CASES}:
        from_dict(BASES.get(_place(kind), {}), kind)  # what is changed below is the only fault


@pytest.mark.parametrize(("kind", "name", "hints"), CASES)
def test_numbers_that_no_setting_can_be_are_refused(kind, name, hints):
    listed = all(hint.endswith("s") for hint in hints)
    whole = not any("float" in hint for hint in hints)
    default = next((field.default for field in msgspec.structs.fields(kind) if field.name == name), ())
    length = len(default) if listed and isinstance(default, tuple) and default else 1
    wrong = [float("inf"), float("nan"), 1 << 63]
    if f"{kind.__name__}.{name}" not in SIGNED:
        wrong += [-1, -1e308]
    if whole and name != "seed":
        wrong.append(1 << 62)
    if not whole:
        wrong.remove(1 << 63)  # large, and a number like others
    for value in wrong:
        assert refused(kind, name, [value] * length if listed else value), value
    if name == "seed":
        assert not refused(kind, name, (1 << 63) - 1)


ZERO = {
    *(
        f"{kind}Settings.{name}" for kind in ("Adaptation", "Identification")
        for name in (
            "base_rounds", "bootstrap", "profile", "memory", "proposals", "reference_steps", "refits", "rollouts",
        )
    ),
    "AimSettings.updates", "CloneSettings.critic", "DiscoverySettings.polish", "DistillationSettings.evaluations",
    "EngineConfig.context", "EstimationSettings.rounds",
    "ImitationSettings.rounds",
    "NetConfig.depth", "NetConfig.head", "NetworkSettings.latent",
    "NetConfig.warmup", "OnlineSettings.frames", "Phase.context", "Phase.forecast",
    "WorldPhase.context", "WorldSettings.context",
    *(f"{name}Settings.evaluations" for name in ("Training", "Policy", "Shac")),
}  # fmt: skip
"""Counts of which 0 means none, or what the docstring says."""


def test_counts_of_zero_mean_something_or_are_refused():
    taken = {
        f"{kind.__name__}.{name}"
        for kind, name, hints in (case.values for case in CASES)
        if hints & {"int", "ints"} and name != "seed" and not refused(kind, name, [0] if "ints" in hints else 0)
    }
    assert taken == ZERO
