# SPDX-License-Identifier: Apache-2.0
"""`neurodyn robots`, `init`, `check`, `hybrid`: robots, their declarations and simulators."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from neurodyn.cli.terminal.console import ProgressBar, shell_word, terminal, write_figures
from neurodyn.cli.terminal.flags import JsonFile, command
from neurodyn.core.artifacts import require_writable, write_json
from neurodyn.core.config import to_dict
from neurodyn.core.errors import InputError
from neurodyn.core.glossary import explanations
from neurodyn.evaluate.requests import CheckRequest


def robots(robot: str | None = None, /, *, json: Path | None = None) -> None:
    """List the robots and their pretrained models; or show all named quantities in the dynamics of one.

    Args:
        robot: Name of a robot, or the path of your own declaration; by default all shipped robots.
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
    from neurodyn.cli.terminal.tables import print_table
    from neurodyn.robots.listing import list_policies, list_robots

    with ProgressBar("listing robots"):
        listed = list_robots()
    rows = [
        (
            robot.name,
            _shorten(robot.joints),
            "all" if robot.controls == robot.joints else _shorten(robot.controls) or "-",
            f"{robot.dt:.3g}",
            f"{robot.simulator} x{robot.substeps}",
            ", ".join(robot.pretrained) or "-",
        )
        for robot in listed
    ]
    print_table(terminal(), ("robot", "joints", "controls", "dt [s]", "simulator", "pretrained"), rows)
    for robot in listed:
        for model, measured in robot.measured.items():
            errors = ", ".join(f"{value:.2g} {_UNITS[key]}" for key, value in measured.errors.items())
            caveat = f" ({robot.caveats[model]})" if model in robot.caveats else ""
            motion = f"{measured.what}, {measured.rollouts:,} roll-outs of {measured.horizon} frames"
            print(f"{model}{caveat}: {errors}; {motion}")
    policies = list_policies()
    for policy in policies:
        caveat = f" ({policy.caveat})" if policy.caveat else ""
        print(f"{policy.name}: {policy.task}, trained in {policy.dynamics}{caveat}")
    caveats = [*(text for robot in listed for text in robot.caveats.values()), *(policy.caveat for policy in policies)]
    for name, meaning in explanations(part for text in caveats if text for part in text.split(", ")):
        print(f"{name}: {meaning}")
    missing: dict[str, list[str]] = {}
    for robot in listed:
        if robot.extra:
            missing.setdefault(robot.extra, []).append(robot.name)
    for extra, lacking in missing.items():
        print(f"Not installed: {', '.join(lacking)}; install with: pip install 'neurodyn[{extra}]'")
    if json is not None:
        write_json(
            json, {"robots": [to_dict(robot) for robot in listed], "policies": [policy.name for policy in policies]}
        )


def _show(name: str, json: Path | None) -> None:
    from neurodyn.dynamics.hybrid.declared import declared_hybrid, list_quantities
    from neurodyn.robots import load

    require_writable(json, text=True)
    declared = load(name)
    with ProgressBar(f"building {declared.name}"):
        quantities = list_quantities(declared_hybrid(declared))
    console = terminal(highlight=False)
    console.print(f"{declared.name}: {declared.description}", soft_wrap=True)
    console.print(f"frame {declared.dt:.4g} s; grounds: {', '.join(declared.grounds) or 'none'}")
    console.print(
        "parameters (SI units; free with identify --parameters; a network may act on them, too):", soft_wrap=True
    )
    console.print(*(f"  {item.name} = {item.value:.6g}" for item in quantities if item.value is not None), sep="\n")
    for role, text in (("computed", "on which networks may act besides"), ("seen", "that networks may see besides")):
        names = ", ".join(item.name for item in quantities if item.role == role)
        console.print(f"quantities {text}: {names}", soft_wrap=True)
    if json is not None:
        write_json(json, {"robot": declared.name, "quantities": [to_dict(item) for item in quantities]})


_UNITS = {
    "base_position_m": "m (base)",
    "base_orientation_rad": "rad (base)",
    "joint_rad": "rad (joints)",
    "joint_m": "m (joints)",
}


def _shorten(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} ... ({len(names)})"


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
    self_contacts: bool = False,
    check: bool = True,
    force: bool = False,
) -> None:
    """Write a complete declaration of a robot (robot.yaml) beside a copy of its URDF, MJCF or USD.

    What the asset leaves open is chosen, tried in the simulator, and printed with a reason: contact points, a standing
    pose, state ranges, gains, rotor inertias, substeps.

    Args:
        asset: URDF, MJCF (.xml) or USD.
        out: Folder to write; by default one named after the robot.
        name: Name of the robot; by default that of the asset.
        fixed_base: Fix a URDF's base to the world; by default guessed.
        floating: Let a URDF's base float; by default guessed.
        dt: Length of a frame [s].
        lock: Joints to lock at zero, in addition to mimic joints and grippers.
        points: Maximum number of contact points; by default 44.
        self_contacts: Enable contacts between links as in the asset; contacts with objects are always enabled.
        check: Raise substeps until `neurodyn check` passes in a few worlds; without it a short trial decides.
        force: Replace robot.yaml and the asset in an existing folder.

    Example:
        neurodyn init my_arm.urdf --fixed-base
    """
    from neurodyn.cli.terminal.tables import print_decisions
    from neurodyn.evaluate.checks.run import Acceptance
    from neurodyn.robots import ROBOTS
    from neurodyn.sim.declaration.declare import declare
    from neurodyn.sim.declaration.pose import BUDGET

    if fixed_base and floating:
        raise InputError("--fixed-base and --floating contradict each other; valid: one of them, or none to guess")
    with ProgressBar(f"declaring {asset.name}"):
        declaration = declare(
            asset, out, name=name, floating=True if floating else False if fixed_base else None, dt=dt, lock=lock,
            budget=BUDGET if points is None else points, self_contacts=self_contacts, force=force,
            accept=Acceptance() if check else None,
        )  # fmt: skip
    print_decisions(declaration.decisions)
    robot, path = declaration.robot.name, declaration.path.parent
    folder = f"./{path}" if str(path) in ROBOTS else str(path)  # a bare name would select the shipped robot
    if not declaration.robot.actuated:
        print(f"{declaration.path} written; next: give {asset.name} motors or servos and run this again with --force, "
              "which finds gains, rotor inertias and ranges for them; or declare `actuated: {JOINT: effort}` yourself. "
              "Without any it only falls")  # fmt: skip
        return
    print(f"{declaration.path} written; next: neurodyn check {shell_word(folder)}")
    print(f"then: neurodyn generate {shell_word(folder)} --transitions 100000 --out {shell_word(robot)}.h5")
    to = f"--out runs/{shell_word(robot)} --base {declaration.base}"
    print(f"then: neurodyn train {shell_word(folder)} --data {shell_word(robot)}.h5 {to}")
    if declaration.robot.legs is not None:
        to = f"--out policies/{shell_word(robot)}"
        print(f"or: neurodyn policy train velocity@{shell_word(folder)} --dynamics hybrid {to}")


@command(CheckRequest)
def check(
    request: CheckRequest,
    *,
    json: JsonFile = None,
    report: Annotated[Path | None, arg(help="File for the result as a page (.html).")] = None,
) -> None:
    """Check whether a model can be learned from a robot's reference simulator, and advise on what to change.

    Exits with code 2 if a check fails.

    Example:
        neurodyn check my-arm --report check.html
    """
    from neurodyn.evaluate import check as measure
    from neurodyn.report import write_check
    from neurodyn.robots import load

    require_writable(json, report, text=True)
    with ProgressBar(f"checking {request.robot}"):
        result = measure(request)
    from neurodyn.cli.terminal.results import print_check  # imported after the check

    print_check(result)
    write_figures(json, result.plain())
    if report is not None:
        print(f"report: {write_check(report, result)}")
    if result.failed:
        names = ", ".join(name.replace("_", " ") for name in result.failed)
        raise InputError(
            f"{request.robot}: the reference simulator cannot be trusted ({names}); change what is listed above"
        )
    if not load(str(request.robot)).spec.nu:
        print("next: give it motors, in its asset or by `actuated: {JOINT: effort}`: without any it only falls")
        return
    print(
        f"next: neurodyn generate {shell_word(request.robot)} --transitions 200000 --out {shell_word(result.robot)}.h5"
    )


def hybrid(
    robot: str,
    /,
    *,
    out: Path,
    contact: str | None = None,
    substeps: int | None = None,
    parameters: tuple[str, ...] = (),
) -> None:
    """Write a declared robot as a hybrid model: its simulator's physics, differentiable, without any data.

    Args:
        robot: Name of a robot, or the path of your own declaration.
        out: Run directory to write.
        contact: Contact model: soft, force or impulse; by default that of the robot's simulator (soft for MuJoCo).
        substeps: Steps per frame; by default the simulator's.
        parameters: Quantities with other values than declared, such as slider.mass=60 (neurodyn robots ROBOT lists
            them).

    Example:
        neurodyn hybrid ant --out runs/ant-hybrid
    """
    from neurodyn.dynamics.hybrid.declared import write_declared_hybrid

    with ProgressBar(f"compiling {robot}"):
        model = write_declared_hybrid(out, robot, contact=contact, substeps=substeps, parameters=parameters)
    print(f"contacts: {model.config.contact or 'none'}; steps in a frame: {model.config.substeps}")
    print(f"model: {out / 'model'}")
