# SPDX-License-Identifier: Apache-2.0
"""Pages generated with the site: every verb with its flags, and every figure of the benchmarks.

    python scripts/reference_pages.py [commands|results]

`docs/commands.md` and `docs/results.md` hold a marker that `scripts/site_hooks.py` replaces by these texts.
"""

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from neurodyn.cli.main import every_verb
from neurodyn.cli.terminal.arguments import help_of

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"


def commands() -> str:
    """Return the description and arguments of every verb."""
    return "\n".join(_verb(name, verb.call) for name, verb in every_verb().items())


def _verb(name: str, called: Callable[..., None]) -> str:
    description, meanings, examples = help_of(called)
    lines = [f"## neurodyn {name}\n", f"{description}\n"]
    if examples:
        lines += ["```sh", examples, "```\n"]
    rows = [_row(one, meanings.get(one.name, "")) for one in inspect.signature(called).parameters.values()]
    if rows:
        lines += ["|argument|default|meaning|", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(one: inspect.Parameter, meaning: str) -> str:
    flag = one.name.strip("_").replace("_", "-")
    shown = f"`{flag.upper()}`" if one.kind is one.POSITIONAL_ONLY else f"`--{flag}`"
    unset = one.default in (inspect.Parameter.empty, None, (), False)
    valid = ", ".join(_literals(one.annotation))
    more = f" ({valid})" if valid and valid not in meaning else ""
    cells = (shown, "" if unset else f"`{one.default}`", f"{meaning}{more}".replace("|", "\\|"))
    return f"|{'|'.join(cells)}|"


def _literals(annotation: Any) -> list[str]:
    """Return the values of a literal in an annotation."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [value for part in get_args(annotation) if not isinstance(part, str) for value in _literals(part)]


def results() -> str:
    """Return every figure of the benchmarks, with the machine, the commit and the command that reproduces it."""
    return "\n".join(_result(path) for path in sorted(RESULTS.glob("*.json")))


def _result(path: Path) -> str:
    found = json.loads(path.read_text(encoding="utf-8"))
    where = found["machine"]
    commit = found.get("commit") or _commit(path)
    script = REPOSITORY / "benchmarks" / f"{path.stem}.py"
    command = found.get("command") or f"python benchmarks/{path.stem}.py --json benchmarks/results/{path.name}"
    machine = f"{where['cpu']}, {where['threads']} thread{'s' if where['threads'] != 1 else ''}"
    machine = f"{where['gpu']} beside {machine}" if "gpu" in where else machine
    versions = ", ".join(f"{name} {where[name]}" for name in ("python", "torch", "numpy") if name in where)
    lines = [f"## {path.stem.replace('_', ' ')}\n"]
    lines += [f"{machine}; {versions}{f'; commit `{commit}`' if commit else ''}.\n"]
    lines += ["```sh", command, "```\n"] if script.is_file() else []
    lines += ["|figure|value|", "|---|---|"]
    figures = {**found.get("figures", {}), **found.get("ratios", {})}
    lines += [f"|`{name}`|{value:.4g}|" for name, value in figures.items() if isinstance(value, int | float)]
    return "\n".join([*lines, ""])


def _commit(path: Path) -> str:
    """Return the commit that last changed a file; empty outside of a repository."""
    try:
        command = ["git", "log", "-1", "--format=%h", "--", str(path)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


PAGES: dict[str, Callable[[], str]] = {"commands": commands, "results": results}
"""Generator of each text, by marker."""


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        print(PAGES[name]())
