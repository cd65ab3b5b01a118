# SPDX-License-Identifier: Apache-2.0
"""Reference pages: every verb with its flags, every figure of the benchmarks, and the public names.

    python scripts/reference_pages.py [commands|results]      # print what the site shows
    python scripts/reference_pages.py --write                 # write what a clone shows

`docs/commands.md` and `docs/results.md` hold a marker that `scripts/site_hooks.py` replaces by these texts, and the
pages of docs/api one that mkdocstrings replaces. So that they can be read in a clone, too, each page has a table of
verbs, of benchmarks, or of the names that a room exports, with the first sentence of their docstrings.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
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
        lines.append(_table("argument|default|meaning", rows))
    return "\n".join(lines)


def _row(one: inspect.Parameter, meaning: str) -> tuple[str, ...]:
    flag = one.name.strip("_").replace("_", "-")
    shown = f"`{flag.upper()}`" if one.kind is one.POSITIONAL_ONLY else f"`--{flag}`"
    unset = one.default in (inspect.Parameter.empty, None, (), False)
    valid = ", ".join(_literals(one.annotation))
    more = f" ({valid})" if valid and valid not in meaning else ""
    return shown, "" if unset else f"`{one.default}`", f"{meaning}{more}".replace("|", "\\|")


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
    lines = [f"## {_title(path)}\n"]
    lines += [f"{machine}; {versions}{f'; commit `{commit}`' if commit else ''}.\n"]
    lines += ["```sh", command, "```\n"] if script.is_file() else []
    figures = {**found.get("figures", {}), **found.get("ratios", {})}
    rows = [(f"`{name}`", f"{value:.4g}") for name, value in figures.items() if isinstance(value, int | float)]
    return "\n".join([*lines, _table("figure|value", rows)])


def _commit(path: Path) -> str:
    """Return the commit that last changed a file; empty outside of a repository."""
    try:
        command = ["git", "log", "-1", "--format=%h", "--", str(path)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


_BEGIN, _END = "<!-- overview: written by scripts/reference_pages.py -->\n", "<!-- end of overview -->\n"


def overviews() -> dict[Path, str]:
    """Return the text of every page that has an overview."""
    docs = REPOSITORY / "docs"
    tables = {docs / "commands.md": _verbs(), docs / "results.md": _benchmarks()}
    for page in sorted((docs / "api").glob("*.md")):
        room = page.stem if page.stem != "neurodyn" else ""
        tables[page] = _table("name|meaning|file", _names(REPOSITORY / "src" / "neurodyn" / room))
    return {page: _with_overview(page.read_text(encoding="utf-8"), table) for page, table in tables.items()}


def _with_overview(page: str, table: str) -> str:
    head, rest = page.split(_BEGIN)
    return head + _BEGIN + table + _END + rest.split(_END)[1]


def _table(head: str, rows: Sequence[tuple[str, ...]]) -> str:
    columns = "|".join("---" for _ in head.split("|"))
    return "\n".join([f"|{head}|", f"|{columns}|", *(f"|{'|'.join(row)}|" for row in rows)]) + "\n"


def _verbs() -> str:
    rows = [(f"`neurodyn {name}`", verb.help.replace("|", "\\|")) for name, verb in every_verb().items()]
    return _table("command|what it does", rows)


def _benchmarks() -> str:
    return _table("benchmark|figures", [(_title(path), f"[{path.name}](../benchmarks/results/{path.name})")
                                        for path in sorted(RESULTS.glob("*.json"))])  # fmt: skip


def _title(path: Path) -> str:
    return path.stem.replace("_", " ")


def _names(folder: Path) -> list[tuple[str, ...]]:
    """Return the names that a package's stub exports, with the first sentence and the file of each."""
    rows = []
    for node in ast.parse((folder / "__init__.pyi").read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        for name in (alias.name for alias in node.names if alias.asname == alias.name):
            file = _file(folder, node.module.split(".") if node.module else [], name)
            shown = file.relative_to(REPOSITORY / "src" / "neurodyn").as_posix()
            rows.append((f"`{name}`", _sentence(file, name), f"[{shown}](../../src/neurodyn/{shown})"))
    return sorted(rows)


def _file(folder: Path, parts: list[str], name: str) -> Path:
    """Return the file of a name that a stub imports from a module, or of a module that it imports itself."""
    module = folder.joinpath(*parts)
    inner = module / name if module.is_dir() and (module / name / "__init__.py").is_file() else module
    return inner / "__init__.py" if inner.is_dir() else inner.with_suffix(".py")


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _sentence(file: Path, name: str) -> str:
    """Return the first sentence of the docstring of a name, where it is defined; of the file if it is a module."""
    tree = _tree(file)
    text = ast.get_docstring(tree) or ""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom) and name in {one.asname or one.name for one in node.names}:
            above = file.parents[node.level - 1] if node.level else REPOSITORY / "src"
            origin = _file(above, (node.module or "").split("."), name)
            return _sentence(origin, name) if origin.is_file() else text
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            text = ast.get_docstring(node) or ""
        inner = node.body[0] if isinstance(node, ast.Try) else node
        targets = inner.targets if isinstance(inner, ast.Assign) else [getattr(inner, "target", None)]
        if any(isinstance(one, ast.Name) and one.id == name for one in targets) and isinstance(after, ast.Expr):
            text = str(getattr(after.value, "value", ""))
    sentence = re.split(r"(?<=[.:;]) (?=[A-Z`])|\n\n", " ".join(text.split("\n\n")[0].split()))[0]
    return sentence.rstrip(".;:").replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {"commands": commands, "results": results}
"""Generator of each text, by marker."""


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for page, text in overviews().items():
            page.write_text(text, encoding="utf-8")
    else:
        for name in sys.argv[1:] or PAGES:
            print(PAGES[name]())
