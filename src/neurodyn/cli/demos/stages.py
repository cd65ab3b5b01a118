# SPDX-License-Identifier: Apache-2.0
"""How far an interrupted demo had come."""

from pathlib import Path


def is_trained(run: Path) -> bool:
    """Return whether the training of a run or of a policy has ended."""
    from neurodyn.learn import read_metrics

    metrics = read_metrics(run)
    return bool(metrics and metrics[-1].get("finished"))


def is_unfinished(run: Path) -> bool:
    """Return whether a training was begun."""
    return (run / "config.yaml").exists()
