# SPDX-License-Identifier: Apache-2.0
"""How fast the simulator is, at the worlds that were asked for."""

from neurodyn.evaluate.checks.records import CheckResult, Finding
from neurodyn.evaluate.checks.subject import Subject

SLOW = 300.0
"""Steps per CPU-second below which a million transitions take about an hour."""


def check_speed(subject: Subject) -> CheckResult:
    """Time the simulator under random control."""
    recording = subject.driven
    rate = subject.worlds * subject.frames / max(recording.cpu_seconds, 1e-9)
    slow = rate < SLOW
    return CheckResult(
        findings=[
            Finding(
                what=f"steps per CPU-second in {subject.worlds} worlds",
                verdict="warning" if slow else "ok",
                value=rate,
                unit="1/s",
                bound=SLOW,
                advice="give more worlds, fewer simulator.substeps, or fewer colliders" if slow else "",
            )
        ]
    )
