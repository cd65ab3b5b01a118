# SPDX-License-Identifier: Apache-2.0
"""The number of network inputs is known before any data are made, and is what trained models have."""

import pytest

import neurodyn
from neurodyn import robots
from neurodyn.core.description.contacts import ContactPoint, ContactPointLayout
from neurodyn.dynamics.neural.encoding import periodic_columns
from neurodyn.learn.neural.settings import MANY_CONTACT_POINTS, contact_point_advice, load_settings, network_inputs


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "ant", "anymal-c"])
def test_the_count_is_that_of_the_pretrained_model(name):
    model, robot = neurodyn.load(f"pretrained:{name}"), robots.load(name)
    based = (model.encoding.config.base is not None) - (load_settings(robot, "small").base is not None)
    raw = len(periodic_columns(robot.spec)) - len(model.encoding.config.periodic)  # of models made before they turned
    assert network_inputs(robot, model.contact_points) + based * robot.spec.nv - raw == model.encoding.inputs


def test_many_contact_points_are_named_with_the_shapes_to_choose_from():
    points = [ContactPoint(name=f"foot_{i // 8}/{i % 8}", joint=0, point=(0, 0, 0), radius=0.0) for i in range(64)]
    few = ContactPointLayout(joints=(), contact_points=tuple(points[:MANY_CONTACT_POINTS]))
    many = ContactPointLayout(joints=(), contact_points=tuple(points))
    assert contact_point_advice(None) is None
    assert contact_point_advice(few) is None
    assert "64 contact points on 8 shapes" in (contact_point_advice(many) or "")
    assert "contact_points: {shapes: [foot_0, foot_1, foot_2, ...]}" in (contact_point_advice(many) or "")
