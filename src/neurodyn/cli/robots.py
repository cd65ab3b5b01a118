# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots`: the robots that ship with the package, and what is pretrained for each; or one robot in full."""

from pathlib import Path


def robots(
    robot: str | None = None,
    /,
    *,
    json: Path | None = None,
) -> None:
    """List the robots, and what is pretrained for each; or show all that has a name in the dynamics of one.

    Args:
        robot: Name of a robot, or the path of your own declaration; by default all that ship with the package.
        json: File to write the list to, as JSON.

    Example:
        neurodyn robots
        neurodyn robots ant
    """
    if robot is None:
        _list(json)
    else:
        _show(robot, json)


def _list(json: Path | None) -> None:
    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.core.artifacts import write_json
    from neurodyn.core.config import to_dict
    from neurodyn.robots.listing import list_policies, list_robots

    with ProgressBar("listing robots"):
        found = list_robots()
    rows = [
        (
            robot.name,
            _shorten(robot.joints),
            "all" if robot.controls == robot.joints else _shorten(robot.controls) or "-",
            f"{robot.dt:.3g}",
            f"{robot.simulator} x{robot.substeps}",
            ", ".join(robot.pretrained) or "-",
        )
        for robot in found
    ]
    print_table(terminal(128), ("robot", "joints", "controls", "dt [s]", "simulator", "pretrained"), rows)
    for robot in found:
        for model, measured in robot.measured.items():
            errors = ", ".join(f"{value:.2g} {_UNITS[key]}" for key, value in measured.errors.items())
            print(f"{model}: {errors}; {measured.what}, {measured.rollouts:,} roll-outs of {measured.horizon} frames")
    policies = list_policies()
    for policy in policies:
        print(f"{policy.name}: {policy.task}, trained in {policy.dynamics}")
    missing = [robot.name for robot in found if not robot.installed]
    if missing:
        print(f"Not installed: {', '.join(missing)}; install with: pip install 'neurodyn[robots]'")
    if json is not None:
        write_json(
            json, {"robots": [to_dict(robot) for robot in found], "policies": [policy.name for policy in policies]}
        )


def _show(name: str, json: Path | None) -> None:
    from neurodyn.cli.terminal.console import ProgressBar, terminal
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.config import to_dict
    from neurodyn.dynamics.hybrid.declared import declared_hybrid, list_quantities
    from neurodyn.robots import load

    require_writable(json, text=True)
    declared = load(name)
    with ProgressBar(f"building {declared.name}"):
        found = list_quantities(declared_hybrid(declared))
    console = terminal(highlight=False)
    console.print(f"{declared.name}: {declared.description}", soft_wrap=True)
    console.print(f"frame {declared.dt:.4g} s; grounds: {', '.join(declared.grounds) or 'none'}")
    console.print(
        "parameters (SI units; free with identify --parameters; a network may act on them, too):", soft_wrap=True
    )
    console.print(*(f"  {item.name} = {item.value:.6g}" for item in found if item.value is not None), sep="\n")
    for role, text in (("computed", "on which networks may act besides"), ("seen", "that networks may see besides")):
        names = ", ".join(item.name for item in found if item.role == role)
        console.print(f"quantities {text}: {names}", soft_wrap=True)
    if json is not None:
        write_json(json, {"robot": declared.name, "quantities": [to_dict(item) for item in found]})


_UNITS = {
    "base_position_m": "m (base)",
    "base_orientation_rad": "rad (base)",
    "joint_rad": "rad (joints)",
    "joint_m": "m (joints)",
}


def _shorten(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... ({len(names)})"
