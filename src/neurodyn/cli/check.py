# SPDX-License-Identifier: Apache-2.0
"""`neurodyn check`: whether a robot's reference simulator can be learned from."""

from pathlib import Path

from neurodyn.cli.terminal.flags import Device, Threads


def check(
    robot: str,
    /,
    *,
    ground: str | None = None,
    worlds: int = 128,
    frames: int = 250,
    seed: int = 500,
    json: Path | None = None,
    report: Path | None = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Measure whether a robot's reference simulator can be learned from, and say what to change where it cannot.

    Ends with exit code 2 where a check fails.

    Args:
        robot: Name of a robot, or the path of a declaration.
        ground: One of the robot's grounds by name, or a YAML file with a scene; by default those that it declares.
        worlds: Worlds under random control.
        frames: Frames under random control, and the longest horizon at which steps are compared.
        seed: Seed of states and torques.
        json: File for the result as JSON.
        report: File for the result as a page (.html).
        device: Device of the simulator: cpu, cuda:0 ...
        threads: Threads of tensor operations; by default 1.

    Example:
        neurodyn check my-arm --report check.html
    """
    from neurodyn.cli.terminal.console import ProgressBar
    from neurodyn.cli.terminal.results import print_check
    from neurodyn.core.artifacts import require_writable, write_json
    from neurodyn.core.errors import InputError
    from neurodyn.evaluate import check as measure
    from neurodyn.report import write_check

    require_writable(json, report, text=True)
    with ProgressBar(f"checking {robot}"):
        result = measure(
            robot, ground=ground, worlds=worlds, frames=frames, seed=seed, device=device, threads=threads or 1
        )
    print_check(result)
    if json is not None:
        write_json(json, result.plain())
        print(f"figures: {json}")
    if report is not None:
        print(f"report: {write_check(report, result)}")
    if result.failed:
        names = ", ".join(name.replace("_", " ") for name in result.failed)
        raise InputError(f"{robot}: the reference simulator cannot be trusted ({names}); change what is listed above")
    print(f"next: neurodyn generate {robot} --transitions 200000 --out {result.robot}.h5")
