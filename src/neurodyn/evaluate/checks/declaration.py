# SPDX-License-Identifier: Apache-2.0
"""Quick checks of a declaration: agreement with its asset, contact points, and simulator speed."""

from neurodyn.evaluate.checks.run import CheckResult, Finding
from neurodyn.evaluate.checks.subject import Subject
from neurodyn.learn.neural.settings import MANY_CONTACT_POINTS, contact_point_advice, network_inputs

SLOW = 300.0
"""Steps per CPU-second below which a million transitions take about an hour."""


def check_asset(subject: Subject) -> CheckResult:
    """Compare the declaration with the asset."""
    from neurodyn.sim.declaration.contradictions import contradictions

    found = contradictions(subject.robot)
    if not found:
        return CheckResult(findings=[Finding(what="declaration agrees with the asset", verdict="ok")])
    findings = []
    for what in dict.fromkeys(one.what for one in found):
        first, *others = (one for one in found if one.what == what)
        more = f" and {len(others)} more" if others else ""
        findings.append(
            Finding(
                what=what,
                verdict="fails" if first.fatal else "warning",
                value=first.value,
                unit=first.unit,
                bound=first.bound,
                note=first.joint + more,
                advice=first.advice + (f"; likewise {len(others)} more" if more else ""),
            )
        )
    return CheckResult(findings=findings)


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


def check_speed(subject: Subject) -> CheckResult:
    """Measure the throughput of the simulator under random control."""
    rate = subject.worlds * subject.frames / max(subject.driven.cpu_seconds, 1e-9)
    what, verdict, advice = f"steps per CPU-second in {subject.worlds} worlds", "ok", ""
    if rate < SLOW:
        verdict, advice = "warning", "give more worlds, fewer simulator.substeps, or fewer colliders"
    return CheckResult(
        findings=[Finding(what=what, verdict=verdict, value=rate, unit="1/s", bound=SLOW, advice=advice)]
    )
