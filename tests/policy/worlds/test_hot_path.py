# SPDX-License-Identifier: Apache-2.0
"""One frame of an environment, as Python runs it: few calls, and each thing once; `pytest -s` prints them as a tree."""

import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import neurodyn
from neurodyn.control.resolve import open_dynamics
from neurodyn.policy.worlds.environment import PolicyEnvironment
from neurodyn.tasks import load

SOURCE = Path(neurodyn.__file__).parent
PARTS_OF_FUNCTIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


@dataclass(frozen=True)
class Call:
    """A call of a function of the library.

    Attributes:
        name: Its qualified name.
        file: Its file, within the library.
        depth: How many functions of the library it was called within.
    """

    name: str
    file: str
    depth: int

    @property
    def room(self) -> str:
        return self.file.partition("/")[0]


def calls_of_a_frame(task_name: str, dynamics: str, worlds: int = 16) -> list[Call]:
    """Return the calls of a frame without gradients in which no episode ends, after some that warm up."""
    task = load(task_name)
    where = open_dynamics(task, dynamics)
    env = PolicyEnvironment(task, where.dynamics, where.starts(task, 0), worlds, frames=1000)
    still = torch.zeros(worlds, env.num_actions)
    for _ in range(3):
        env.step(still)
    calls: list[Call] = []
    depth = 0

    def watch(frame, event, _):
        nonlocal depth
        code = frame.f_code
        if SOURCE not in Path(code.co_filename).parents or code.co_name in PARTS_OF_FUNCTIONS:
            return
        if event == "call":
            calls.append(Call(code.co_qualname, Path(code.co_filename).relative_to(SOURCE).as_posix(), depth))
        depth += {"call": 1, "return": -1}.get(event, 0)

    sys.setprofile(watch)
    try:
        done = env.step_frame(still).done
    finally:
        sys.setprofile(None)
    assert not done.any()
    files, rooms = {call.file for call in calls}, [call.room for call in calls]
    changes = sum(a != b for a, b in pairwise(rooms))
    print(f"\n{task_name} in {dynamics}: {len(calls)} calls, {len(files)} files, {changes} changes of room")
    print(*(f"{'  ' * call.depth}{call.file}: {call.name}" for call in calls), sep="\n")
    return calls


def without_formulas(calls: list[Call]) -> list[Call]:
    """Return the calls but those within a function of the task, which are its formulas and what they read."""
    kept, within = [], None
    for call in calls:
        if within is not None and call.depth > within:
            continue
        within = call.depth if call.room == "tasks" else None
        kept.append(call)
    return kept


# Many worlds take the same path as a few.
@pytest.mark.parametrize("worlds", [16, 1024])
def test_a_frame_of_hybrid_dynamics_is_a_short_story(worlds):
    calls = calls_of_a_frame("cartpole-swingup", "hybrid", worlds)
    assert len(calls) <= 45
    assert len({call.file for call in calls}) <= 15
    assert max(call.depth for call in calls) <= 6


@pytest.mark.parametrize(("dynamics", "most"), [("pretrained:cartpole", 56), ("analytic", 49)])
def test_a_frame_of_other_dynamics_is_not_much_longer(dynamics, most):
    assert len(calls_of_a_frame("cartpole-swingup", dynamics)) <= most


@pytest.mark.parametrize(("task", "most"), [("ant-run", 29), ("franka-position", 36)])
def test_tasks_differ_by_their_formulas_and_controllers_alone(task, most):
    calls = calls_of_a_frame(task, "hybrid")
    assert len(without_formulas(calls)) <= most
    names = [call.name for call in calls]
    controlled = task == "franka-position"
    assert names.count("frame_torque") == names.count("pd_torque") == int(controlled)


def test_what_depends_on_the_robot_alone_is_not_looked_up_in_a_frame():
    names = {call.name for call in calls_of_a_frame("anymal-forward", "hybrid")}
    assert not names & {"contact_layout", "is_floating", "Dynamics.reader", "StateReader.__init__", "ground_mode"}
