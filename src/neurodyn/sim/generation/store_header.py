# SPDX-License-Identifier: Apache-2.0
"""The header of data of a simulated robot, whatever drove it."""

from typing import TYPE_CHECKING, Any

from neurodyn.core.config import to_dict
from neurodyn.core.description.mechanism import Mechanism
from neurodyn.core.description.scene import Scene
from neurodyn.core.versions import package_versions
from neurodyn.data.header import StoreHeader
from neurodyn.robots import Robot
from neurodyn.robots.bundle import source_digest
from neurodyn.sim.contact_points import contact_point_layout
from neurodyn.sim.fingerprint import fingerprint
from neurodyn.sim.mechanism import mechanism

if TYPE_CHECKING:
    import newton

MOST_POINTS = 64
"""Contact points above which a mechanism has only those that the robot declares: every one is compiled."""


def simulated_header(
    robot: Robot, model: "newton.Model", scene: Scene | None, *, seed: int, simulator: dict[str, Any], **others: Any
) -> StoreHeader:
    """Return the header of data of a robot in its reference simulator.

    Args:
        robot: The declared robot.
        model: The robot as built.
        scene: The ground that the data are on; None for free space.
        seed: Seed of the data.
        simulator: How the data were made, beside the simulator's own settings.
        others: Further fields of the header.
    """
    return StoreHeader(
        spec=others.pop("spec", robot.spec),
        source="teacher",
        simulator={
            **to_dict(robot.simulator), **simulator, "material": to_dict(robot.material), "gains": to_dict(robot.gains)
        },
        seed=seed,
        fingerprint=fingerprint(model),
        sources=others.pop("sources", None) or source_digest(robot),
        versions=package_versions("newton", "warp-lang"),
        scene=scene,
        contact_points=None if robot.contact_points is None else contact_point_layout(model, robot),
        mechanism=_known_mechanism(model, robot),
        **others,
    )  # fmt: skip


def _known_mechanism(model: "newton.Model", robot: Robot) -> Mechanism:
    """Return the mechanism that models may start from, with all contact points of its simulator where they are few."""
    whole = mechanism(model, robot, every_contact=robot.simulator.solver == "mujoco")
    return whole if len(whole.points) <= MOST_POINTS else mechanism(model, robot)
