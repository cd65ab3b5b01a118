# SPDX-License-Identifier: Apache-2.0
"""Hybrid dynamics of a declared robot before any data: its mechanism, its contacts, and the names of its quantities."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from neurodyn.core.config import Config
from neurodyn.core.description.mechanism import Fingerprint, Mechanism
from neurodyn.core.description.parameter import select_parameters
from neurodyn.core.description.scene import Scene
from neurodyn.core.errors import InputError, notice
from neurodyn.core.locks import exclusive
from neurodyn.dynamics.hybrid.model import HybridDynamics
from neurodyn.multibody.engine import CONTACT_MODELS, EngineConfig, nominal
from neurodyn.robots import Robot, load, locate


def declared_hybrid(
    robot: Robot | str | Path,
    *,
    contact: str | None = None,
    substeps: int | None = None,
    parameters: Sequence[str] = (),
    device: str = "cpu",
    threads: int = 1,
) -> HybridDynamics:
    """Return the hybrid dynamics of a robot as declared, without networks.

    Args:
        robot: A robot, its name, or the path of its declaration.
        contact: Name of a contact model; None for the one of the robot's simulator: "soft" for MuJoCo, none for
            Featherstone.
        substeps: Steps in a frame; None for as many as in the simulator.
        parameters: Free or changed quantities, see `core.description.parameter.select_parameters`, such as
            "contact.friction=0.4:0.1:2".
        device: Torch device.
        threads: CPU threads over which worlds are split.

    Raises:
        InputError: There is no such robot, contact model or quantity, the robot cannot be built, or it has nothing that
            the contact model could act on.
    """
    declared = robot if isinstance(robot, Robot) else load(robot)
    if declared.simulator.fluid is not None and declared.simulator.solver != "mujoco-c":
        notice(
            f"{declared.name}: the hybrid model has no fluid, the simulator has; networks of a blueprint on the "
            "wrenches of links learn its forces"
        )
    contact = declared.simulated_contact if contact is None else contact
    if contact is not None:
        CONTACT_MODELS.require(contact)
    if substeps is not None and substeps < 1:
        raise InputError(f"substeps is {substeps}; valid: at least 1")
    mechanism, fingerprint, scene = declared_mechanism(declared, contact)
    free = select_parameters(nominal(mechanism, contact), parameters, mechanism.bounds()) if parameters else ()
    config = EngineConfig(substeps=declared.simulator.substeps if substeps is None else substeps, contact=contact)
    dynamics = HybridDynamics(
        declared.spec, mechanism, config, free, fingerprint, scene, declaration=locate(robot), threads=threads
    )
    return dynamics.requires_grad_(False).eval().to(device)


def write_declared_hybrid(
    run: str | Path,
    robot: Robot | str | Path,
    *,
    contact: str | None = None,
    substeps: int | None = None,
    parameters: Sequence[str] = (),
) -> HybridDynamics:
    """Write the dynamics of `declared_hybrid` into a run directory, and return them.

    Other arguments: see `declared_hybrid`.

    Raises:
        InputError: See `declared_hybrid`; or the directory holds a model already.
    """
    from neurodyn.dynamics.hybrid.artifact import HYBRID

    with exclusive(run):
        if (Path(run) / "model").exists():
            raise InputError(f"{run}: holds a model already; valid: another directory")
        dynamics = declared_hybrid(robot, contact=contact, substeps=substeps, parameters=parameters)
        HYBRID.save(Path(run), dynamics)
    return dynamics


def declared_mechanism(robot: Robot, contact: str | None) -> tuple[Mechanism, Fingerprint, Scene | None]:
    """Return the mechanism of a robot, its fingerprint, and its ground for contacts.

    `contact` is the name of its contact model; soft constraints take every contact of the simulator.
    """
    from neurodyn.sim.simulators import articulation, mechanism

    built = articulation(robot)
    every = contact is not None and CONTACT_MODELS[contact].constrains_joints
    scene = None if contact is None or robot.ground is None else robot.grounds[robot.ground]
    return mechanism(built, robot, every_contact=every), built.fingerprint, scene


Role = Literal["parameter", "computed", "seen"]
_SEEN = ("q", "qd", "control", "velocity", "spin")


class Quantity(Config, frozen=True):
    """One named quantity.

    Attributes:
        name: Its name in blueprints and `--parameters`.
        role: "parameter": a number of the robot, which can be identified or made a function of others by a network.
            "computed": a result within a step, which a network can add to, scale or replace.
            "seen": only an input of networks.
        value: Nominal value of a parameter (SI units); None for others.
    """

    name: str
    role: Role
    value: float | None = None


def list_quantities(dynamics: HybridDynamics) -> list[Quantity]:
    """Return the quantities of a robot's dynamics in the order of their use in a step."""
    values = nominal(dynamics.mechanism, dynamics.config.contact)
    quantities = []
    for name in dynamics.names:
        role: Role = "parameter" if name in values else "seen" if name.split(".")[0] in _SEEN else "computed"
        quantities.append(Quantity(name=name, role=role, value=float(values[name]) if name in values else None))
    return quantities
