# SPDX-License-Identifier: Apache-2.0
"""Whether a robot, as it is built today, is the one that a model or its data were made with."""

from importlib.util import find_spec

from neurodyn.core.errors import MismatchError
from neurodyn.core.fingerprint import Fingerprint
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.neural import NeuralDynamics
from neurodyn.robots import Robot


def require_robot(model: NeuralDynamics, robot: Robot) -> None:
    """Refuse a robot whose declaration or asset changed since the model was trained.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    require_match(model, robot.spec, _built(robot), f"robot {robot.name!r}")


def require_same_teacher(robot: Robot, store: Store) -> None:
    """Refuse data from a teacher whose articulation was another one than the robot is now.

    Only where there is a simulator to build the robot in: training itself needs none.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    if store.header.fingerprint is None or find_spec("newton") is None:
        return
    differences = store.header.fingerprint.differences(_built(robot))
    if differences:
        shown = "; ".join(differences[:4])
        raise MismatchError(f"data do not fit robot {robot.name!r}, which changed since they were generated: {shown}")


def _built(robot: Robot) -> Fingerprint:
    from neurodyn.sim.build import build
    from neurodyn.sim.fingerprint import fingerprint

    return fingerprint(build(robot, worlds=1))
