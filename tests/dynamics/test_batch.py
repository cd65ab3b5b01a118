# SPDX-License-Identifier: Apache-2.0
"""Batches take numpy or torch, refuse what does not fit in one line, and can be picked, joined, printed and drawn."""

import numpy as np
import pytest
import torch

from neurodyn.core.description.scene import Plane, Scene
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.dynamics.batch import Control, Environment, State, Step, Trajectory, Window
from neurodyn.geometry.ground import Ground

SPEC = StateSpec(
    robot="cart", joints=(JointSpec(name="slider", kind="prismatic"), JointSpec(name="hinge", kind="revolute")),
    controls=("slider",), dt=0.02,
)  # fmt: skip
STATE = State(torch.arange(6.0).reshape(3, 2), torch.ones(3, 2))
WINDOW = Window(torch.zeros(3, 5, 2), torch.zeros(3, 5, 2), torch.zeros(3, 4, 1))
PATH = Trajectory(torch.rand(3, 6, 2), torch.rand(3, 6, 2), aleatoric=torch.rand(3, 5, 4))
EVERY = (
    STATE,
    Control(torque=torch.ones(3, 1), kp=torch.ones(3, 1)),
    Environment(torch.tensor([0.0, 0.0, -9.81])),
    WINDOW,
    Step(STATE, termination=torch.zeros(3)),
    PATH,
)


def test_numpy_arrays_become_tensors_of_their_own_dtype():
    state = State(np.zeros((2, 3)), np.ones((2, 3)))  # type: ignore[arg-type]
    assert state.q.dtype == torch.float64
    assert state.qd.tolist() == [[1.0] * 3] * 2


def test_whole_numbers_become_floats():
    assert State(np.zeros((2, 3), int), torch.zeros(2, 3)).q.dtype == torch.float32  # type: ignore[arg-type]


def test_tensors_are_kept_as_they_are():
    q = torch.zeros(2, 3, requires_grad=True)
    assert State(q, torch.zeros(2, 3)).q is q


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: State(torch.zeros(2), torch.zeros(1, 2)), r"State.q has shape \[2\] .*; one world is"),
        (lambda: State(torch.zeros(2, 3), torch.zeros(4, 3)), r"State.qd has shape \[4, 3\] beside q \[2, 3\]"),
        (lambda: State(torch.zeros(2, 3), torch.zeros(2, 3).double()), "qd is torch.float64, but .*torch.float32"),
        (lambda: State(torch.zeros(2, 3).int(), torch.zeros(2, 3)), "State.q is torch.int32; valid: a floating dtype"),
        (lambda: State([[0.0]], torch.zeros(1, 1)), "State.q is of type list; valid: a numpy array"),
        (lambda: State(np.array([["a"]]), torch.zeros(1, 1)), "State.q is of type ndarray of str"),
        (lambda: Window(WINDOW.q, WINDOW.qd, torch.zeros(3, 5, 1)), r".*\[3, 5, 1\].*\[worlds, states - 1, nu\]"),
        (lambda: Environment(torch.zeros(2)), r"gravity has shape \[2\]; valid: \[3\] or \[worlds, 3\]"),
        (lambda: Control(torque=torch.zeros(2, 1), target=torch.zeros(2, 2)), r"Control.target has shape \[2, 2\]"),
        (lambda: Step(STATE, contacts=torch.zeros(2, 1)), r"Step.contacts has shape \[2, 1\] beside state of 3 worlds"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(build, words: str):
    with pytest.raises(InputError, match=words):
        build()


@pytest.mark.parametrize("rows", [slice(1, 3), torch.tensor([1, 2]), torch.tensor([False, True, True])])
@pytest.mark.parametrize("batch", EVERY, ids=lambda batch: type(batch).__name__)
def test_rows_are_those_of_all_arrays(batch, rows):
    some = batch.rows(rows).numpy()
    for name, values in batch.numpy().items():
        assert np.array_equal(some[name], values if name == "gravity" else values[1:])


def test_rows_of_an_environment_are_those_of_its_ground():
    pose = torch.rand(4, 7)
    environment = Environment(torch.rand(4, 3), Ground(Scene(shapes=(Plane(),)), pose)).rows(torch.tensor([3, 0]))
    assert environment.ground is not None
    assert torch.equal(environment.ground.pose, pose[[3, 0]])
    assert environment.worlds == 2


def test_a_ground_that_all_see_is_that_of_some():
    ground = Ground(Scene(shapes=(Plane(),)))
    assert Environment(ground=ground).rows(slice(0, 1)).ground is ground


def test_rows_of_gains_that_broadcast_stay():
    control = Control(target=torch.zeros(3, 2), kp=torch.tensor([1.0, 2.0]), kd=torch.ones(3, 1)).rows(slice(0, 2))
    assert control.kp is not None
    assert control.kd is not None
    assert control.kp.shape == (2,)
    assert control.kd.shape == (2, 1)


def test_joined_parts_are_the_whole():
    whole = Step.concatenate(
        [Step(STATE, termination=torch.tensor([0.1, 0.2, 0.3])).rows(slice(i, i + 1)) for i in range(3)]
    )
    assert torch.equal(whole.state.q, STATE.q)
    assert whole.termination.tolist() == pytest.approx([0.1, 0.2, 0.3])


def test_another_dtype_is_that_of_all_arrays():
    step = Step(STATE, termination=torch.zeros(3)).to(torch.float64)
    assert {values.dtype for values in step.numpy().values()} == {np.dtype("float64")}


def test_a_roll_out_is_cut_with_all_that_it_knows():
    short = PATH.until(2)
    assert short.q.shape == (3, 3, 2)
    assert short.aleatoric.shape == (3, 2, 4)


@pytest.mark.parametrize("batch", EVERY, ids=lambda batch: type(batch).__name__)
def test_it_prints_in_a_line_and_as_a_table(batch):
    assert len(repr(batch)) < 200
    assert "\n" not in repr(batch)
    assert type(batch).__name__ in repr(batch)
    assert all(f"<td>{name}</td>" in batch._repr_html_() for name in batch.numpy())


def test_it_says_shapes_dtype_and_device():
    assert repr(STATE) == "State(q [3, 2], qd [3, 2]; float32 on cpu)"


@pytest.mark.parametrize("spec", [None, SPEC])
@pytest.mark.parametrize("batch", EVERY, ids=lambda batch: type(batch).__name__)
def test_every_array_is_drawn(batch, spec: StateSpec | None):
    figure = batch.plot(spec, worlds=2)
    assert [axes.get_ylabel() for axes in figure.axes] == list(batch.numpy())


def test_a_drawn_roll_out_has_a_line_for_each_coordinate_and_world_in_seconds():
    (axes, *_) = PATH.plot(SPEC, worlds=2).axes
    assert len(axes.lines) == 4
    assert axes.lines[0].get_xdata()[-1] == pytest.approx(0.1)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["slider", "hinge"]
