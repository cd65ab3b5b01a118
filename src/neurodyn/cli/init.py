# SPDX-License-Identifier: Apache-2.0
"""`neurodyn init`: a declaration from an asset."""

from pathlib import Path


def init(
    asset: Path,
    /,
    *,
    out: Path | None = None,
    name: str | None = None,
    fixed_base: bool = False,
    floating: bool = False,
    dt: float = 0.01,
    lock: tuple[str, ...] = (),
    points: int | None = None,
    check: bool = True,
    force: bool = False,
) -> None:
    """Write a complete declaration of a robot (robot.yaml) beside a copy of its URDF, MJCF or USD.

    What the asset does not say is chosen, tried in the simulator, and printed with its reason: contact points, a pose
    to stand in, ranges of states, gains, rotor inertias, substeps.

    Args:
        asset: URDF, MJCF (.xml) or USD.
        out: Folder to write; by default one named after the robot.
        name: Name of the robot; by default that of the asset.
        fixed_base: The base of a URDF is bolted to the world; by default guessed.
        floating: The base of a URDF is free; by default guessed.
        dt: Length of a frame [s].
        lock: Joints to hold at zero, beside mimic joints and grippers.
        points: Most contact points; by default 44.
        check: Raise substeps until `neurodyn check` passes, in few worlds; without it a short trial decides alone.
        force: Replace robot.yaml and the asset in an existing folder.

    Example:
        neurodyn init my_arm.urdf --fixed-base
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.tables import print_decisions
    from neurodyn.core.errors import InputError
    from neurodyn.evaluate.checks.run import why_refused
    from neurodyn.robots import ROBOTS
    from neurodyn.sim.declaration.declare import declare
    from neurodyn.sim.declaration.pose import BUDGET

    if fixed_base and floating:
        raise InputError("--fixed-base and --floating contradict each other; valid: one of them, or none to guess")
    with ProgressBar(f"declaring {asset.name}"):
        declaration = declare(
            asset, out, name=name, floating=True if floating else False if fixed_base else None, dt=dt, lock=lock,
            budget=BUDGET if points is None else points, force=force,
            accept=why_refused if check else None,
        )  # fmt: skip
    print_decisions(declaration.decisions)
    robot, path = declaration.robot.name, declaration.path.parent
    folder = f"./{path}" if str(path) in ROBOTS else str(path)  # a bare name would be the robot that ships
    print(f"{declaration.path} written; next: neurodyn check {folder}")
    print(f"then: neurodyn generate {folder} --transitions 100000 --out {robot}.h5")
    print(f"then: neurodyn train {folder} --data {robot}.h5 --out runs/{robot} --base {declaration.base}")
