# SPDX-License-Identifier: Apache-2.0
"""Whether a robot, as built today, is the one that a model or its data were made with."""

from importlib.util import find_spec

from neurodyn.core.description.contacts import ContactPointLayout
from neurodyn.core.description.mechanism import Fingerprint
from neurodyn.core.errors import InputError, MismatchError
from neurodyn.data.store import Store
from neurodyn.dynamics.artifact import require_match
from neurodyn.dynamics.interface import Dynamics
from neurodyn.robots import Robot
from neurodyn.robots.bundle import source_digest


def require_robot(model: Dynamics, robot: Robot) -> None:
    """Refuse a robot whose declaration or asset changed since the model was trained.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    built, *layouts = _built(robot)
    layouts = layouts if model.contacts_of_simulator else layouts[:1]
    require_match(model, robot.spec, built, f"robot {robot.name!r}")
    if model.fingerprint is not None:
        differences, *others = (_contact_point_differences(model.contact_points, layout) for layout in layouts)
        if differences and all(others):
            shown = "; ".join(differences[:4])
            raise MismatchError(
                f"robot {robot.name!r} has other contact points than its model was trained with: {shown}"
            )


def require_same_simulator(robot: Robot, store: Store) -> None:
    """Refuse data from a simulator with another articulation or other contact points than the robot's.

    The robot is built only if one of its sources has changed, or if the data do not record theirs; and only if the
    simulator is installed, which training does not need.

    Raises:
        MismatchError: They differ; the message names the differences.
    """
    if store.header.fingerprint is None or find_spec("newton") is None or _unchanged(robot, store):
        return
    built, layout, _ = _built(robot)
    differences = store.header.fingerprint.differences(built)
    differences += _contact_point_differences(store.header.contact_points, layout)
    if differences:
        shown = "; ".join(differences[:4])
        raise MismatchError(f"data do not fit robot {robot.name!r}, which changed since they were generated: {shown}")


def built_articulation(robot: Robot) -> Fingerprint:
    """Return the identity of a robot as built today."""
    return _built(robot)[0]


def _unchanged(robot: Robot, store: Store) -> bool:
    """Return whether the robot has the sources that the robot of the data was built from."""
    try:
        return store.header.sources is not None and store.header.sources == source_digest(robot)
    except (InputError, OSError):  # whoever builds it says what is wrong
        return False


def _contact_point_differences(own: ContactPointLayout | None, now: ContactPointLayout | None) -> list[str]:
    if own is None or now is None:
        return [] if own is now else [f"contact points are {'declared' if own is None else 'no longer declared'}"]
    return own.differences(now)


def _built(robot: Robot) -> tuple[Fingerprint, ContactPointLayout | None, ContactPointLayout | None]:
    """Return the robot as built today: identity, declared contact points, and contact points of soft constraints."""
    from neurodyn.sim.contact_points import contact_point_layout, contacts_on_plane
    from neurodyn.sim.simulators import articulation

    built = articulation(robot)
    if robot.contact_points is None:
        return built.fingerprint, None, None
    return built.fingerprint, contact_point_layout(built, robot), contacts_on_plane(built, robot)
