# SPDX-License-Identifier: Apache-2.0
"""A run directory at the start of a training: what may be begun, gone on with, or is refused."""

from pathlib import Path
from typing import Any

from neurodyn.core import artifacts
from neurodyn.core.config import Config, read_config, to_yaml
from neurodyn.core.errors import InputError
from neurodyn.learn.loop import PhasedTraining, Position, has_state
from neurodyn.learn.metrics import Progress


def check_run(out: Path, record: Config, resume: bool) -> bool:
    """Compare what a run is about with what is there; return whether there is a state to go on from.

    Args:
        out: Run directory.
        record: How the run is to be made; RUN/config.yaml must say the same of robot, settings and base model.
        resume: Whether to go on with a run that was killed.

    Raises:
        InputError: The run exists (and `resume` is not asked for), does not, or was made in another way.
    """
    path = out / "config.yaml"
    if resume:
        if not path.exists():
            raise InputError(f"{out}: holds no training to resume (no config.yaml); leave out --resume to start one")
        before: Any = read_config(path, type(record))
        for name in ("robot", "settings", "base"):
            if getattr(before, name, None) != getattr(record, name, None):
                raise InputError(
                    f"{path}: --resume needs the {name} that the run was started with; "
                    "leave out the flags that differ, or give another --out"
                )
        return has_state(out)  # a training that was killed before its first save begins anew
    if path.exists():
        raise InputError(f"{out}: already holds a run; add --resume to go on with it, or give another --out")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; give a folder for the run")
    return False


def run_training(
    trainer: PhasedTraining, out: Path, record: Config, going_on: bool, progress: Progress | None
) -> Position:
    """Run a training to its end, from where it was stopped if it goes on."""
    if going_on:
        trainer.resume()
    else:  # only now, when nothing of the input was refused: a run that exists cannot be started again
        artifacts.write_text(out / "config.yaml", to_yaml(record))
    return trainer.run(progress)
