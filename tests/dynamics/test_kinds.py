# SPDX-License-Identifier: Apache-2.0
"""Kinds of dynamics: every part is where its kind says, and is called as its type says."""

import inspect
from collections.abc import Callable
from dataclasses import fields

import pytest

from neurodyn.core.errors import InputError
from neurodyn.core.requests import arguments_of
from neurodyn.dynamics import kinds
from neurodyn.dynamics.artifact import Artifact
from neurodyn.dynamics.kinds import KINDS, Kind, KindPart
from neurodyn.learn.run_folder import FinetuningJob, TrainingJob
from neurodyn.policy.online_learning.refit import Refit

PROTOCOLS = {"simulate": kinds.Simulate, "identified": kinds.Identified}
POSITIONAL = {
    "solver": 2,
    "plan_training": 2,
    "plan_finetuning": 1,
    "evaluate": 1,
    "along_log": 2,
    "export": 1,
    "code": 1,
}
JOBS = {"train": TrainingJob, "finetune": FinetuningJob}
PARTS = [one.name for one in fields(Kind) if one.name not in ("name", "title")]
THERE = [(kind.name, part) for kind in KINDS.values() for part in PARTS if getattr(kind, part)]


def test_every_part_has_a_type_and_is_of_some_kind():
    for part in PARTS:
        assert "KindPart[" in str(inspect.get_annotations(Kind)[part])
    assert {part for _, part in THERE} == set(PARTS)


@pytest.mark.parametrize(("name", "part"), THERE)
def test_a_part_is_there_and_takes_what_its_type_says(name: str, part: str):
    if part == "solver":
        pytest.importorskip("newton")
    found = getattr(KINDS[name], part).get("here")
    if part not in PROTOCOLS:
        assert isinstance(found, {"artifact": Artifact, "refit": Refit, "settings": type}.get(part, Callable))
        if part in POSITIONAL:
            inspect.signature(found).bind(*[None] * POSITIONAL[part])
        if part in JOBS:
            assert [*inspect.signature(found).parameters] == [one.name for one in arguments_of(JOBS[part])]
        return
    wanted = list(inspect.signature(PROTOCOLS[part].__call__).parameters.values())[1:]
    given = inspect.signature(found).parameters
    for one in wanted:
        assert one.name in given, (found, one.name)
        if one.kind is one.POSITIONAL_OR_KEYWORD:
            assert list(given).index(one.name) == wanted.index(one)
    known = {one.name for one in wanted}
    for one in given.values():
        assert one.name in known or one.default is not one.empty, (found, one.name)


def test_a_part_that_a_kind_lacks_is_refused_with_the_kinds_that_have_it():
    with pytest.raises(
        InputError, match=r"^runs/a: holds a hybrid model; valid here: a neural model or a world model$"
    ):
        KINDS["hybrid"].export.get("runs/a")
    assert not KINDS["hybrid"].export


def test_a_part_may_be_the_thing_itself():
    KINDS.add("still", Kind("still", "model of nothing", settings=KindPart(dict)))  # pyright: ignore
    try:
        assert KINDS["still"].settings.get() is dict
    finally:
        KINDS.remove("still")
