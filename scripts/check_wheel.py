# SPDX-License-Identifier: Apache-2.0
"""Build the wheel twice, from two copies, compare the bytes, check its size, and test it in isolation.

    python scripts/check_wheel.py [--venv] [--out FOLDER]

With --venv the wheel and the extra `sim` are installed into a new virtual environment at the versions of
constraints.txt, which downloads torch, and its command does a round of typical work; without, only the wheel's contents
are checked. The list of files comes from git, so that files left by runs are not shipped.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
MOST_BYTES = 60 << 20
"""Maximum size of the wheel."""
EPOCH = "1767225600"
"""SOURCE_DATE_EPOCH of builds that set none: the start of 2026."""
SMOKE = (
    "--version", "doctor", "robots cartpole", "examples --out examples", "hybrid cartpole --out hybrid",
    "generate cartpole --transitions 2000 --threads 1 --out data.h5", "inspect data.h5",
    "train cartpole --data data.h5 --steps 2 --out run", "evaluate run --horizon 20 --rollouts 32",
    "init examples/own_robot/arm.urdf --out arm", "view pretrained:cartpole --seconds 0.2 --out film.html",
)  # fmt: skip
"""A round of typical work."""


def call(command: Sequence[str | Path], **options: object) -> str:
    """Run a command and return its output; print all of it on failure."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def tracked() -> list[str]:
    """Return the existing files under version control."""
    listed = call(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=REPOSITORY).splitlines()
    return [name for name in listed if (REPOSITORY / name).is_file()]


def built(folder: Path, names: Sequence[str], age: int) -> Path:
    """Build a wheel from a copy of the tree, `age` seconds old and private unless 0; return its path."""
    source = folder / "source"
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, source / name)
        stamp = int(EPOCH) - age
        os.utime(source / name, (stamp, stamp))
        (source / name).chmod(0o600 if age else 0o644)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", EPOCH)}
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", folder, source]
    call(build, env=environment)
    (wheel,) = folder.glob("*.whl")
    return wheel


def require_contents(wheel: Path, names: Sequence[str]) -> None:
    """Exit unless the wheel has every file of the package, the examples and the licences."""
    with zipfile.ZipFile(wheel) as archive:
        there = set(archive.namelist())
    licences = {name.rpartition("/licenses/")[2] for name in there if "/licenses/" in name}
    wanted = {name.removeprefix("src/") for name in names if name.startswith("src/neurodyn/")}
    wanted |= {f"neurodyn/{name}" for name in names if name.startswith("examples/")}
    lacking = sorted(wanted - there) + sorted({"LICENSE", "LICENSES.md"} - licences)
    if lacking:
        sys.exit(f"the wheel lacks {', '.join(lacking[:5])}")


def smoke(wheel: Path, folder: Path) -> None:
    """Install the wheel into its own environment, and do a round of typical work there."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint"]
    call([*pip, REPOSITORY / "constraints.txt", "torch"])
    call([*pip, REPOSITORY / "constraints.txt", f"{wheel}[sim]"])
    work = folder / "work"
    work.mkdir()
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    for words in SMOKE:
        print(f"neurodyn {words}", flush=True)
        call([python.with_name("neurodyn"), *words.split()], cwd=work, env=clean)
    code = "import neurodyn, torch; d = neurodyn.load('pretrained:pendulum'); print(neurodyn.__file__, d.spec.q_names)"
    print(call([python, "-c", code], cwd=work, env=clean).strip())


def main() -> None:
    """Build, compare, check the size, test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", action="store_true", help="install it into a new environment and try it there")
    parser.add_argument("--out", type=Path, help="folder for the wheel")
    arguments = parser.parse_args()
    names = tracked()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheels = []
        for number, age in enumerate((0, 86_400)):
            place = folder / f"build{number}"
            place.mkdir()
            wheels.append(built(place, names, age))
        digests = [hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels]
        if len(set(digests)) != 1:
            sys.exit(f"two builds differ: {', '.join(digests)}; valid: equal bytes")
        size = wheels[0].stat().st_size
        print(f"{wheels[0].name}: {size / 1e6:.1f} MB, sha256 {digests[0]}, the same twice")
        if size > MOST_BYTES:
            sys.exit(f"the wheel has {size:,} bytes; valid: at most {MOST_BYTES:,}")
        require_contents(wheels[0], names)
        if arguments.venv:
            smoke(wheels[0], folder)
        if arguments.out is not None:
            arguments.out.mkdir(parents=True, exist_ok=True)
            shutil.copy(wheels[0], arguments.out)


if __name__ == "__main__":
    main()
