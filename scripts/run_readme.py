# SPDX-License-Identifier: Apache-2.0
"""Run the commands of README.md, in their order, in a fresh folder; print how long each takes.

    python scripts/run_readme.py [--short] [--out FOLDER] [--file FILE]

Commands run unchanged. With --short, long trainings and simulations get the extra flags of `SHORTER`, so that each runs
only briefly, and `neurodyn` commands run in this process, which imports the simulator once. Commands in `ELSEWHERE` are
not run here. Exit code 2: a command failed.
"""

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)

ELSEWHERE = {"pip install": "installs; .ci/run builds the wheel, installs it and runs it"}
"""Prefixes of commands not run here, and why."""

SHORTER = {
    "neurodyn demo": ("parsed", "takes two minutes; tests/cli/test_demo.py runs it shortened"),
    "neurodyn init": ("parsed", "reads another package's robot; tests/sim/declaration reads others"),
    "neurodyn policy log": ("--transitions 200", "six minutes of log"),
    "neurodyn adapt": ("parsed", "adapts for minutes; tests/identify/test_adapt.py runs it on a cartpole"),
    "neurodyn policy train": ("parsed", "trains for minutes, in what adapt writes"),
    "neurodyn policy play": ("parsed", "plays what was trained"),
}
"""Extra flags for short runs, by prefix of the command (the last flag wins), and what takes long.

"parsed" marks commands that are not run: tests/test_docs.py parses those of every page.
"""


def commands(page: Path) -> list[str]:
    """Return the commands of a page's `sh` blocks, without their comments."""
    lines = "\n".join(FENCE.findall(page.read_text())).replace("\\\n", " ").splitlines()
    found = (re.sub(r"\s+#.*$", "", line).strip() for line in lines)
    return [line for line in found if line and not line.startswith("#")]


def rule(command: str, rules: dict) -> object:
    """Return the rule with the longest prefix of a command; None if there is none."""
    fitting = [begin for begin in rules if command.startswith(begin)]
    return rules[max(fitting, key=len)] if fitting else None


def as_run(command: str) -> str:
    """Return a command with the programs of this environment."""
    command = re.sub(r"^neurodyn ", f"{sys.executable} -m neurodyn.cli.main ", command)
    return re.sub(r"^python ", f"{sys.executable} ", command)


def started(command: str, folder: Path) -> tuple[int, str]:
    """Run a command in its own process; return its exit code and output."""
    done = subprocess.run(
        as_run(command), shell=True, executable="/bin/bash", cwd=folder, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=os.environ | {"PYTHONWARNINGS": "ignore::RuntimeWarning:runpy"},
    )  # fmt: skip
    return done.returncode, done.stdout


def called(command: str, folder: Path) -> tuple[int, str]:
    """Run a command of `neurodyn` in this process; return its exit code and output."""
    from neurodyn.cli.main import run

    words, output, code = shlex.split(command)[1:], io.StringIO(), 1
    with contextlib.chdir(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        files = {word: sorted(map(str, Path().glob(word))) for word in words if "*" in word}
        try:
            code = run([one for word in words for one in files.get(word, [word])])
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        except Exception:  # any exception is a failure of the command
            traceback.print_exc()
    return code, output.getvalue()


def cpu_time() -> float:
    """Return the CPU time of this process and its finished children [s]."""
    return sum(os.times()[:4])


def run_all(page: Path, folder: Path, *, short: bool) -> int:
    """Run the commands of a page in a folder; return how many failed."""
    failed = 0
    for command in commands(page):
        why = rule(command, ELSEWHERE)
        more, _ = rule(command, SHORTER) or ("", "") if short else ("", "")  # type: ignore[misc]
        if why is not None or more == "parsed":
            print(f"      -       -  {command}  [{why or 'parsed'}]", flush=True)
            continue
        begun, before = time.monotonic(), cpu_time()
        run = called if short and command.startswith("neurodyn ") else started
        code, output = run(f"{command} {more}".strip(), folder)
        print(f"{time.monotonic() - begun:7.1f} {cpu_time() - before:7.1f}  {command} {more}", flush=True)
        if code:
            failed += 1
            print(f"exit code {code}\n{output[-4000:]}", flush=True)
    return failed


def main() -> int:
    """Run the requested commands."""
    parser = argparse.ArgumentParser(description="Run the commands of README.md in a fresh folder.")
    parser.add_argument("--short", action="store_true", help="cut the budgets of long commands")
    parser.add_argument("--out", type=Path, help="folder to run in; by default a temporary one")
    parser.add_argument("--file", type=Path, default=ROOT / "README.md", help="page whose commands are run")
    flags = parser.parse_args()
    print("   wall     CPU  [s]")
    if flags.out is not None:
        flags.out.mkdir(parents=True, exist_ok=True)
        return 2 if run_all(flags.file, flags.out, short=flags.short) else 0
    with tempfile.TemporaryDirectory() as folder:
        return 2 if run_all(flags.file, Path(folder), short=flags.short) else 0


if __name__ == "__main__":
    sys.exit(main())
