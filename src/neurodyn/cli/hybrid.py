# SPDX-License-Identifier: Apache-2.0
"""`neurodyn hybrid`: a declared robot as a hybrid model."""

from pathlib import Path


def hybrid(
    robot: str,
    /,
    *,
    out: Path,
    contact: str | None = None,
    substeps: int | None = None,
    parameters: tuple[str, ...] = (),
) -> None:
    """Write a declared robot as a hybrid model: what its simulator computes, differentiable, without any data.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        out: Run directory to write.
        contact: Contact model: soft, force or impulse; by default that of the robot's simulator (soft for MuJoCo).
        substeps: Steps in a frame; by default as many as the simulator takes.
        parameters: Quantities with other values than declared, as slider.mass=60 (neurodyn robots ROBOT lists them).

    Example:
        neurodyn hybrid ant --out runs/ant-hybrid
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.dynamics.hybrid.declared import write_declared_hybrid

    with ProgressBar(f"compiling {robot}"):
        model = write_declared_hybrid(out, robot, contact=contact, substeps=substeps, parameters=parameters)
    print(f"contacts: {model.config.contact or 'none'}; steps in a frame: {model.config.substeps}")
    print(f"model: {out / 'model'}")
