# SPDX-License-Identifier: Apache-2.0
"""Install neurodyn beside packages that its users have, by pip's own resolver, and do a round of work there.

    python scripts/check_environments.py [NAME...] [--wheel FILE] [--keep]

Each environment has a folder in build/environments, made anew and removed unless --keep is given, and a script in
scripts/environments. Versions are those of constraints.txt, which keeps the build of torch, but for packages that the
others ask for in another version.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PLACE = REPOSITORY / "build" / "environments"


@dataclass(frozen=True)
class Environment:
    """A set of packages that neurodyn is installed beside.

    Attributes:
        extras: Extras of neurodyn.
        packages: The others.
        free: Packages whose version is theirs to choose.
        absent: Modules that must not be there.
    """

    extras: str
    packages: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    absent: tuple[str, ...] = ("newton",)


ENVIRONMENTS = {
    "mjlab": Environment("mujoco,policy", ("mjlab",), free=("mujoco", "mujoco-warp", "rsl-rl-lib")),
    "gymnasium": Environment("mujoco,gymnasium", ("stable-baselines3",), absent=("newton", "mujoco_warp")),
    # LeRobot asks for an older torch than neurodyn, so that its format is read and written without it.
    "lerobot": Environment("mujoco,logs", absent=("newton", "lerobot", "rsl_rl")),
}


def call(command: list[str | Path], **options: object) -> None:
    """Run a command; print its output and exit if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        output = done.stdout[-8000:] + done.stderr[-8000:]
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{output}")


def install(environment: Environment, folder: Path, wheel: Path) -> Path:
    """Make a virtual environment and install everything by one call of pip; return its Python."""
    venv.create(folder, with_pip=True)
    python, constraints = folder / "bin" / "python", folder / "constraints.txt"
    pinned = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    constraints.write_text("".join(line for line in pinned if line.partition("==")[0] not in environment.free))
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraints]
    call([*pip, "torch"])
    call([*pip, f"{wheel}[{environment.extras}]", *environment.packages])
    call([python, "-m", "pip", "check"])
    return python


def check(name: str, wheel: Path, *, keep: bool) -> None:
    """Install an environment and run its script away from the tree."""
    environment, folder, begun = ENVIRONMENTS[name], PLACE / name, time.monotonic()
    if not keep:
        shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    if not python.exists():
        python = install(environment, folder, wheel)
    installed, clean = time.monotonic(), {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    for module in environment.absent:
        call(
            [python, "-c", f"import importlib.util as u; assert u.find_spec({module!r}) is None, {module!r}"], env=clean
        )
    with tempfile.TemporaryDirectory() as place:
        call([python, REPOSITORY / "scripts" / "environments" / f"with_{name}.py"], cwd=place, env=clean)
    if not keep:
        shutil.rmtree(folder)
    print(
        f"{name}: ok, {installed - begun:.0f} s of installation, {time.monotonic() - installed:.0f} s of work",
        flush=True,
    )


def main() -> None:
    """Check the environments that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all: {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--wheel", type=Path, help="wheel to install; by default one is built")
    parser.add_argument("--keep", action="store_true", help="work in environments that are there already")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(ENVIRONMENTS):
        parser.error(f"unknown environment {', '.join(sorted(unknown))}; valid: {', '.join(ENVIRONMENTS)}")
    with tempfile.TemporaryDirectory() as place:
        wheel = arguments.wheel
        if wheel is None:
            call([sys.executable, "-m", "build", "--wheel", "--outdir", place, REPOSITORY])
            (wheel,) = Path(place).glob("*.whl")
        for name in arguments.names or ENVIRONMENTS:
            check(name, wheel.resolve(), keep=arguments.keep)


if __name__ == "__main__":
    main()
