# SPDX-License-Identifier: Apache-2.0
"""Models that others trained, as runs of ours: any verb that takes a run takes them."""

from pathlib import Path

from neurodyn.core.errors import InputError
from neurodyn.dynamics.base import LearnedDynamics
from neurodyn.dynamics.files.artifact import save
from neurodyn.dynamics.files.layouts import MODEL_LAYOUTS
from neurodyn.robots import load, locate


def import_model(
    file: str | Path, robot: str | Path, out: str | Path, *, layout: str, statistics: str | Path | None = None
) -> LearnedDynamics:
    """Write somebody else's model as a run of ours.

    Args:
        file: The checkpoint; nothing of it is executed.
        robot: Robot that it is a model of, by name or path.
        out: Run directory to write.
        layout: Layout of the file: "rwm" or "nerd".
        statistics: File with what the inputs were normalised with; None for the one that the robot comes with.

    Returns:
        The model.

    Raises:
        InputError: The file is no such checkpoint or would have to be unpickled, does not fit the robot, or `out`
            holds a run.
    """
    run, declared = Path(out), load(robot)
    if (run / "model").exists() or run.is_file():
        raise InputError(f"{run}: is there already; give another --out")
    model = MODEL_LAYOUTS[layout](Path(file), declared, None if statistics is None else Path(statistics))
    model.declaration = locate(robot)
    save(run, model)
    return model
