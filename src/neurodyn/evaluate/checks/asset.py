# SPDX-License-Identifier: Apache-2.0
"""What the declaration says against its asset: limits left out, torques beyond the actuator."""

from neurodyn.evaluate.checks.records import CheckResult, Finding
from neurodyn.evaluate.checks.subject import Subject


def check_asset(subject: Subject) -> CheckResult:
    """Compare the declaration with the asset."""
    from neurodyn.sim.contradictions import contradictions

    found = contradictions(subject.robot)
    if not found:
        return CheckResult(findings=[Finding(what="declaration agrees with the asset", verdict="ok")])
    return CheckResult(findings=[
        Finding(what=one.what, verdict="fails", value=one.value, unit=one.unit, bound=one.bound, note=one.joint,
                advice=one.advice)
        for one in found
    ])  # fmt: skip
