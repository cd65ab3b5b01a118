# SPDX-License-Identifier: Apache-2.0
"""A quadruped's controller as one object, for loops of your own and for episodes."""

from pathlib import Path

from neurodyn.control.mpc.controller import QuadrupedController
from neurodyn.control.mpc.forces import ConvexMpc, ForceLaw
from neurodyn.control.mpc.gait import GAITS
from neurodyn.control.mpc.imitation import load_imitation
from neurodyn.control.mpc.plant import WalkingPlant
from neurodyn.control.mpc.settings import MpcSettings
from neurodyn.core.config import read_config
from neurodyn.core.errors import InputError

MPC, IMITATION = "mpc", "imitation"


def walker(
    plant: WalkingPlant,
    *,
    gait: str | None = None,
    settings: MpcSettings | str | Path | None = None,
    imitation: str | Path | None = None,
    onnx: bool = False,
) -> tuple[QuadrupedController, str, str]:
    """Return a controller for a plant, the name of what decides on its forces, and that of its gait.

    Args:
        plant: Where it walks.
        gait: Name of a gait; None for trot, or for that which was imitated.
        settings: Settings, or a file with them (YAML, TOML or JSON); None for the defaults, or for those imitated.
        imitation: Folder of a network that decides on forces (`imitate`); None for the quadratic program.
        onnx: Whether that network is run by ONNX Runtime.

    Raises:
        InputError: There is no such gait or network, the settings are wrong, or the network was made for another gait.
    """
    chosen = read_config(Path(settings), MpcSettings) if isinstance(settings, str | Path) else settings
    if imitation is None:
        gait, chosen = gait or "trot", chosen or MpcSettings()
        GAITS.require(gait)
        law: ForceLaw = ConvexMpc(plant.quadruped, chosen)
        return QuadrupedController(plant.quadruped, law, GAITS[gait], plant.dt, chosen), MPC, gait
    if settings is not None:
        raise InputError("settings of the controller are those that the network imitates; valid: none")
    imitated = load_imitation(imitation, plant.quadruped, plant.robot.name, onnx=onnx)
    own = imitated.config
    if gait not in (None, own.gait):
        raise InputError(f"{imitation}: imitates forces of the gait {own.gait!r}, not {gait!r}; valid: {own.gait}")
    controller = QuadrupedController(plant.quadruped, imitated, GAITS[own.gait], plant.dt, own.settings)
    return controller, IMITATION, own.gait
