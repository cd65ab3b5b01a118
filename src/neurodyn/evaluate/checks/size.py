# SPDX-License-Identifier: Apache-2.0
"""How many contact points a robot has, and how many inputs they make a network."""

from neurodyn.evaluate.checks.records import CheckResult, Finding
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.learn.neural.inputs import MANY_CONTACT_POINTS, contact_point_advice, network_inputs


def check_size(subject: Subject) -> CheckResult:
    """Count contact points and network inputs."""
    layout, inputs = subject.layout, network_inputs(subject.robot, subject.layout)
    points = 0 if layout is None else len(layout.contact_points)
    advice, verdict = contact_point_advice(layout) or "", "ok"
    if advice:
        verdict = "warning"
    elif layout is None and subject.scenario.grounded:
        verdict, advice = "warning", "declare contact_points: {} so that models see the ground"
    return CheckResult(
        findings=[
            Finding(what="contact points", verdict=verdict, value=points, bound=MANY_CONTACT_POINTS, advice=advice),
            Finding(what="network inputs", verdict="ok", value=inputs),
        ]
    )
