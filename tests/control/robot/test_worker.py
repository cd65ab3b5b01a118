# SPDX-License-Identifier: Apache-2.0
"""The worker of a robot's process, without the process: answers to orders, and values that it refuses."""

import queue

import numpy as np
import pytest

from neurodyn.control.robot.worker import Worker, describe_error
from neurodyn.core.errors import InputError


class Line:
    """A mass on a line that goes where it is told."""

    rate, realtime, control = 50.0, False, "target"

    def __init__(self):
        self.q, self.told = 0.0, []

    def reset(self):
        self.q = 1.0

    def observe(self):
        return {"q": self.q, "force": np.array([1, 2]), "nothing": None}

    def command(self, values):
        self.q = float(values[0])
        self.told.append(self.q)


def serve(robot, *orders):
    answers, waiting = [], queue.SimpleQueue()
    for number, order in enumerate((*orders, {"do": "close"})):
        waiting.put({"id": number, **order})
    Worker(robot, [0], answers.append).serve(waiting)
    return answers


def test_orders_are_answered_and_the_robot_ends_where_it_is():
    robot = Line()
    answers = serve(robot, {"do": "command", "values": [9.0]}, {"do": "reset"}, {"do": "command", "values": [0.5]})
    assert [answer["is"] for answer in answers] == ["stopped", "observed", "observed"]
    assert [answer["to"] for answer in answers] == [0, 1, 2]
    assert answers[1]["values"] == {"q": [1.0], "force": [1.0, 2.0]}
    assert robot.told == [0.5, 0.5]  # the last one is its position, as a target


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 0}, "rate is 0; valid: frames per second"),
        ({"control": "current"}, "control is 'current'; valid"),
        ({"control": "command"}, "without a method stop"),
        ({"patience": -1.0}, "patience is -1.0; valid: a time above 0"),
        ({"observe": lambda: [1.0]}, "observe() returned list; valid: a dict"),
        ({"observe": lambda: {"q": "far"}}, "'q' is str; valid: numbers"),
        ({"observe": lambda: {"q": np.zeros((2, 2))}}, "'q' has shape [2, 2]"),
    ],
)
def test_classes_and_measurements_that_do_not_fit_are_refused(changes, message):
    robot = Line()
    vars(robot).update(changes)
    with pytest.raises(InputError) as caught:
        serve(robot, {"do": "reset"})
    assert message in str(caught.value)


def test_an_error_of_the_class_is_reported_with_its_line():
    def heat():
        raise RuntimeError("motor 1 is too hot")

    with pytest.raises(RuntimeError) as caught:
        heat()
    assert describe_error(caught.value).startswith("RuntimeError: motor 1 is too hot (test_worker.py, line ")
