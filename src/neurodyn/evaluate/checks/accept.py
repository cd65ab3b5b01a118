# SPDX-License-Identifier: Apache-2.0
"""A quick verdict on a simulator that is still being chosen."""

from neurodyn.evaluate.checks.run import check
from neurodyn.robots import Robot

_WORLDS, _FRAMES = 16, 60


def why_refused(robot: Robot) -> str | None:
    """Return in a line which checks a robot's simulator fails in few worlds; None where it fails none."""
    result = check(robot, worlds=_WORLDS, frames=_FRAMES)
    if not result.failed:
        return None
    advice = [
        finding.advice
        for name in result.failed
        for finding in result.checks[name].findings
        if finding.verdict == "fails" and finding.advice
    ]
    return f"check fails ({', '.join(name.replace('_', ' ') for name in result.failed)}): {'; '.join(advice)}"
