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
