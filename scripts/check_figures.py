# SPDX-License-Identifier: Apache-2.0
"""Re-run the cheap commands of docs/benchmarks.md and compare their results with the page.

    python scripts/check_figures.py [NAME...] [--page FILE] [--data FOLDER] [--list]

A checked block of commands has a name, and a figure names its place in the results:

    <!-- command cartpole -->          before a block of ```sh
    .0056<!--= cartpole by_horizon/1000/base_position_m 25% -->

Each command runs with `--json`. `cartpole.1` is the result of the first command of a block, `cartpole` that of the
last. A step `name=gravity.z` of a path picks the item of a list by a field. A tolerance is relative (`25%`) or absolute
(`.01`) and covers rounding differences on other processors; half a unit of the last printed digit is added.

Commands with missing logs are skipped. Exit code 2: a figure is off, or a command failed.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
LOGS = (".npz", ".csv")
_BLOCK = re.compile(r"^<!-- command (\w+) -->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NUMBER = r"-?(?:\d[\d,]*)?\.?\d+(?:e[+-]?\d+)?"
_MARK = re.compile(rf"({_NUMBER})\**<!--= (\w+)(?:\.(\d+))? (\S+) ([\d.]+)(%?) -->")


class PageError(Exception):
    """The page's marks cannot be read."""


@dataclass(frozen=True)
class Figure:
    """A figure on the page.

    Attributes:
        text: The printed text.
        command: Name of the block that measures it.
        index: Which result of the block, from 0; -1 is that of the last command.
        path: Its path in that result.
        slack: Maximum allowed difference.
    """

    text: str
    command: str
    index: int
    path: str
    slack: float

    @property
    def value(self) -> float:
        """The printed number."""
        return float(self.text.replace(",", ""))

    def agrees(self, measured: float) -> bool:
        """Return whether a measured value rounds to the printed one, or is off by no more than the tolerance."""
        return abs(measured - self.value) <= self.slack


def read_figures(page: str) -> list[Figure]:
    """Return the marked figures of a page, in order.

    Raises:
        PageError: A mark does not follow a number, or is malformed (see the module's docstring).
    """
    figures = []
    for text, command, index, path, tolerance, percent in _MARK.findall(page):
        number = Decimal(text.replace(",", ""))
        allowed = float(tolerance) * (abs(float(number)) / 100 if percent else 1.0)
        half_digit = 0.5 * 10.0 ** int(number.as_tuple().exponent)
        figures.append(Figure(text, command, int(index) - 1 if index else -1, path, allowed + half_digit))
    marks = page.count("<!--=")
    if len(figures) != marks:
        raise PageError(f"{marks} figures are marked, but {len(figures)} can be read; expected {_MARK.pattern}")
    return figures


def read_commands(page: str) -> dict[str, list[list[str]]]:
    """Return the words of the commands of each named block."""
    blocks = {name: text.replace("\\\n", " ").splitlines() for name, text in _BLOCK.findall(page)}
    return {
        name: [shlex.split(line, comments=True) for line in lines if line.strip()] for name, lines in blocks.items()
    }


def lookup(result: Any, path: str) -> float:
    """Return the number at a path of keys, separated by slashes.

    Raises:
        PageError: There is no number at the path.
    """
    found = result
    for step in path.split("/"):
        if isinstance(found, list):
            field, _, wanted = step.partition("=")
            found = next((item for item in found if item.get(field) == wanted), None)
        else:
            found = found.get(step) if isinstance(found, dict) else None
    if not isinstance(found, int | float):
        raise PageError(f"the result holds no number at {path}")
    return float(found)


def find_logs(commands: list[list[str]], data: Path) -> dict[str, Path | None]:
    """Return the paths of the logs that commands read, in `data` or one of its folders; None if missing."""
    logs = {word for words in commands for word in words if word.endswith(LOGS)}
    return {log: next(iter([*data.glob(log), *data.glob(f"*/{log}")]), None) for log in sorted(logs)}


def measure(commands: list[list[str]], folder: Path) -> list[Any]:
    """Run the commands of a block in a folder and return the result of each.

    Raises:
        PageError: A command failed.
    """
    results = []
    for number, words in enumerate(commands):
        settings = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_]+=", word))
        program, *arguments = [word for word in words if not re.match(r"[A-Z_]+=", word)]
        if program == "python":
            start = [sys.executable, str(ROOT / arguments[0]), *arguments[1:]]
        else:
            start = [sys.executable, "-m", "neurodyn.cli.main", *arguments]
        file = folder / f"{number}.json"
        done = subprocess.run(
            [*start, "--json", str(file)], cwd=folder, env=os.environ | settings, capture_output=True, text=True
        )
        if done.returncode:
            raise PageError(
                f"{shlex.join(words)}: exit code {done.returncode}: {(done.stderr or done.stdout)[-300:].strip()}"
            )
        results.append(json.loads(file.read_text()))
    return results


def check(name: str, commands: list[list[str]], figures: list[Figure], logs: dict[str, Path]) -> int:
    """Run one block, print a line for each of its figures, and return the number of deviations."""
    with tempfile.TemporaryDirectory() as scratch:
        for log, file in logs.items():
            (Path(scratch) / log).symlink_to(file.resolve())
        try:
            results = measure(commands, Path(scratch))
        except PageError as error:
            print(f"{name}: {error}", flush=True)
            return max(1, len(figures))
    off = 0
    for figure in figures:
        try:
            measured = lookup(results[figure.index], figure.path)
        except PageError as error:
            print(f"OFF   {name} {figure.path}: page {figure.text}, {error}")
            off += 1
            continue
        agrees = figure.agrees(measured)
        off += not agrees
        print(
            f"{'ok ' if agrees else 'OFF'}   {name} {figure.path}: page {figure.text}, measured {measured:.4g}",
            flush=True,
        )
    return off


def main(arguments: list[str] | None = None) -> int:
    """Check the page and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="blocks to check; by default all")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("NEURODYN_DATA", ".")), help="folder with the logs"
    )
    parser.add_argument("--list", action="store_true", help="print blocks and figures, and run nothing")
    options = parser.parse_args(arguments)
    page = options.page.read_text(encoding="utf-8")
    try:
        figures = read_figures(page)
    except PageError as error:
        print(f"{options.page}: {error}", file=sys.stderr)
        return 2
    commands = read_commands(page)
    unknown = {figure.command for figure in figures} | set(options.names)
    unknown -= set(commands)
    if unknown:
        print(f"{options.page}: no commands {sorted(unknown)}; there are {', '.join(commands)}", file=sys.stderr)
        return 2
    off = compared = 0
    for name in options.names or commands:
        mine = [figure for figure in figures if figure.command == name]
        logs = find_logs(commands[name], options.data)
        missing = [log for log, file in logs.items() if file is None]
        if options.list:
            print(f"{name}: {len(mine)} figures; {'; '.join(shlex.join(words) for words in commands[name])}")
        elif missing:
            print(f"skip  {name}: {', '.join(missing)} not found under {options.data}")
        else:
            off += check(name, commands[name], mine, {log: file for log, file in logs.items() if file is not None})
            compared += len(mine)
    if not options.list:
        print(f"{compared} figures compared, {off} off")
    return 2 if off else 0


if __name__ == "__main__":
    sys.exit(main())
