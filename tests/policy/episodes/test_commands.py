# SPDX-License-Identifier: Apache-2.0
"""Commanded and achieved values: a policy that stands or ignores its command is called that."""

from dataclasses import replace

import msgspec
import pytest
import torch
from msgspec import UNSET

pytest.importorskip("rsl_rl")

from neurodyn.control.commands import CommandFigures, CommandTally, mean_commands, of_commands, read_commands
from neurodyn.policy.episodes.evaluation import PolicyEvaluation, play
from neurodyn.policy.episodes.report import returns
from neurodyn.tasks import load
from neurodyn.tasks.commands import GOAL, SPEED, TURNING, GoalCommand, VelocityCommand
from tests.policy.small_worlds import Fixed, Hold, Mass
from tests.tasks.quantities import given, standing, walking_memory, with_command


class Walk(Hold):
    """The mass is asked to move at .6 m/s, or in the second half of the line to stand."""

    def commanded(self, quantities, memory):
        speed = quantities["joint_velocity"][:, :1]
        asked = torch.full_like(speed, 0.6).masked_fill(quantities["joint_position"] > 1.0, 0.0)
        return {SPEED: VelocityCommand.of(asked, speed)}


class Reach(Hold):
    """The mass is asked to go to zero."""

    def commanded(self, quantities, memory):
        return {GOAL: GoalCommand(quantities["joint_position"][:, 0].abs())}


def found(task, starts, action):
    return play(lambda seen: torch.full((len(seen), 1), action), task, Mass(), Fixed(starts), len(starts)).commands


def test_a_velocity_is_compared_over_frames_with_a_command():
    still = found(Walk(), [0.0, 1.5], 0.0)[SPEED]  # the second world is asked to stand
    assert (still.commanded, still.achieved, still.moved) == (pytest.approx(0.6), 0.0, 0.0)
    away = found(Walk(), [0.0], -0.2)[SPEED]
    assert away.achieved == pytest.approx(-away.moved)
    assert away.moved > 0.0
    assert found(Walk(), [1.5], 0.0) == {}


class Paced(Hold):
    """The mass is asked to move at 1 m/s for 2.5 s, then at 2 m/s."""

    def commanded(self, quantities, memory):
        asked = torch.where(memory.frame < 25, 1.0, 2.0)[:, None]
        return {SPEED: VelocityCommand.of(asked, quantities["joint_velocity"])}


def test_the_error_is_of_means_over_a_second_from_a_second_after_a_change_of_the_command():
    task, running = Paced(), torch.ones(1, dtype=torch.bool)
    tally, short = CommandTally(task), CommandTally(task)
    for frame in range(55):
        settled = frame % 25 >= 10 or frame >= 50
        speed = (1.2 if settled else 9.0) + (-0.3) ** (frame % 2)  # a wobble that means take out
        now = given(joint_velocity=[speed - 0.35], joint_position=[0.0])
        memory = replace(task.begin(now, torch.Generator()), frame=torch.tensor([frame]))
        tally.count(now, memory, running)
        short.count(now, memory, running & (frame % 15 > 0))
    assert tally.figures()[SPEED].error == pytest.approx(((0.2**2 + 2 * 0.8**2) / 3) ** 0.5, rel=1e-5)
    assert short.figures()[SPEED].error is UNSET  # no second whole second without a pause


def test_a_goal_is_compared_from_the_start_to_the_end():
    way = found(Reach(), [0.5, -1.5], 0.0)[GOAL]
    assert way == CommandFigures(commanded=1.0, achieved=0.0, moved=0.0)
    assert found(Reach(), [0.5], -0.1)[GOAL].achieved > 0.0


@pytest.mark.parametrize(
    ("commanded", "achieved", "moved", "name", "words"),
    [
        (0.6, 0.01, 0.02, "stands", "the policy stands: speed commanded 0.6, achieved 0.01 m/s"),
        (0.6, 0.1, 0.5, "ignores-command", "the policy ignores its command: speed commanded 0.6, achieved 0.1 m/s"),
        (0.6, 0.5, 0.5, None, ""),
        (0.0, 0.0, 0.0, None, ""),
    ],
)
def test_standing_and_ignoring_are_findings(commanded, achieved, moved, name, words):
    given = {SPEED: CommandFigures(commanded=commanded, achieved=achieved, moved=moved)}
    judged = of_commands(given)
    assert [one.name for one in judged] == ([] if name is None else [name])
    assert all(one.what == words and one.grade == "warning" and one.advice for one in judged)


def test_several_policies_are_averaged_and_shown():
    one = {SPEED: CommandFigures(commanded=0.6, achieved=0.2, moved=0.2)}
    two = {SPEED: CommandFigures(commanded=0.6, achieved=0.4, moved=0.4)}
    assert mean_commands([one, two])[SPEED].achieved == pytest.approx(0.3)
    assert mean_commands([one, two])[SPEED].error is UNSET
    exact, rough = (msgspec.structs.replace(part[SPEED], error=error) for part, error in ((one, 0.1), (two, 0.3)))
    assert mean_commands([{SPEED: exact}, {SPEED: rough}])[SPEED].error == pytest.approx(0.2)
    assert exact.in_words(SPEED) == "speed commanded 0.6, achieved 0.2, error 0.1 m/s"
    assert read_commands({SPEED: exact.plain()}) == {SPEED: exact}
    outcome = play(lambda seen: torch.zeros(len(seen), 1), Walk(), Mass(), Fixed([0.0]), 1)
    shown = PolicyEvaluation(
        task="walk", policy="p", episodes=1, seed=0, results=[outcome.returns_in("model")], reward_error=[]
    )
    (table,) = [table for table in returns(shown) if table.title == "Commanded and achieved"]
    assert table.rows == [["model", SPEED, "0.6", "0", "0", ""]]
    assert shown.plain()["results"][0]["commands"] == {SPEED: {"commanded": pytest.approx(0.6), "achieved": 0.0,
                                                             "moved": 0.0}}  # fmt: skip


def test_tasks_with_commands_say_what_the_robot_does():
    walks = load("anymal-velocity")
    now = standing(walks, walks.contacts, base_linear_velocity=torch.tensor([[0.1, 0.0, 0.0]]))
    walking = walks.commanded(now, walking_memory(walks, (0.6, 0.0, 0.5)))
    speed, turning = walking[SPEED], walking[TURNING]
    assert isinstance(speed, VelocityCommand)
    assert isinstance(turning, VelocityCommand)
    assert [float(speed.asked), float(speed.along), float(speed.moved)] == pytest.approx([0.6, 0.1, 0.1])
    assert [float(turning.asked), float(turning.along), float(turning.moved)] == pytest.approx([0.5, 0.0, 0.0])
    sideways = load("anymal-side").commanded(now, walking_memory(walks))[SPEED]
    assert isinstance(sideways, VelocityCommand)
    assert [float(sideways.asked), float(sideways.along)] == pytest.approx([1.0, 0.0])
    reach = load("franka-torque")
    hand = given(joint_velocity=[0.0] * 7, end_effector_position=[0.3, 0.0, 0.4])
    goal = reach.commanded(hand, with_command(reach, hand, [0.3, 0.3, 0.0]))[GOAL]
    assert isinstance(goal, GoalCommand)
    assert float(goal.distance) == pytest.approx(0.5)
    assert load("ant-run").commanded(now, walking_memory(walks)) == {}
