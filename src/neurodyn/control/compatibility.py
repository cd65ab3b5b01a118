# SPDX-License-Identifier: Apache-2.0
"""Which dynamics a task can be done in."""

import math
from typing import Literal

from neurodyn.core.errors import InputError, MismatchError
from neurodyn.dynamics.interface import Dynamics
from neurodyn.tasks import Task


def require_fit(task: Task, dynamics: Dynamics, penalty: float | Literal["auto"] = 0.0) -> None:
    """Refuse dynamics of another robot or frame length, a model that was never fitted, and a bad penalty.

    Raises:
        InputError: The penalty is below 0, or the dynamics know no uncertainty; or the model is not fitted.
        MismatchError: Joints, controls or dt are others than those of the task's robot.
    """
    if penalty != "auto" and not (math.isfinite(penalty) and penalty >= 0):
        raise InputError(f"penalty (lambda) is {penalty:g}; valid: a finite number of at least 0")
    name = dynamics.spec.robot
    if penalty and not dynamics.uncertain:
        asked = penalty if penalty == "auto" else f"{penalty:g}"
        raise InputError(
            f"penalty is {asked}, but these {dynamics.kind} dynamics of {name!r} do not know how uncertain they are; "
            "valid here: 0; world models and models of `neurodyn train --members 5` know it"
        )
    if not dynamics.trained:
        raise InputError(f"the world model of {name!r} was never fitted to data; train it with `neurodyn train` first")
    wanted, given = task.declaration().spec, dynamics.spec
    found = []
    if given.controls != wanted.controls:
        found.append(f"controls are {list(given.controls)} instead of {list(wanted.controls)}")
    mine, theirs = ([joint.name for joint in spec.joints if joint.kind != "free"] for spec in (wanted, given))
    if mine != theirs:
        found.append(f"joints are {theirs} instead of {mine}")
    if abs(given.dt - wanted.dt) > 1e-6 * wanted.dt:
        found.append(f"dt is {given.dt:.6g} s instead of {wanted.dt:.6g} s")
    if found:
        raise MismatchError(f"task {task.name!r} is not for these dynamics of {name!r}: {'; '.join(found[:3])}")
