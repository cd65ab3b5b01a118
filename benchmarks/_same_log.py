# SPDX-License-Identifier: Apache-2.0
"""Whether drawn logs come back as the motion they are of: by the column map that is right, and by the drafted one."""

import contextlib
import io
import json
import re
from pathlib import Path
from random import Random
from typing import NamedTuple

import yaml

from _faults import complaints, place_of
from _generated_logs import DrawnLog, drawn_log, entries_of
from _known_motion import difference, write_robot
from _refusals import ROWS, SAYS_VALID, WIDTH
from neurodyn.cli.main import run
from neurodyn.data.store import Store

KINDS = ("arm", "cart", "body")
_UNKNOWABLE = {"sign", "offset", "scale", "minus"}
"""Keys of a column that no draft can know."""
CURES = re.compile(rf"{SAYS_VALID.pattern}|correct the|check `|`clock: log`")


class Said(NamedTuple):
    """What a command said: exit code, errors, and all of it."""

    code: int
    errors: list[str]
    text: str


def check_log(number: int, draw: Random, folder: Path) -> tuple[str, str | None]:
    """Draw a log and import it; return what it is, and what went wrong in silence, or None."""
    kind = draw.choice(KINDS)
    robot = write_robot(kind, folder / "robot")
    (folder / "log").mkdir()
    log = drawn_log(number, kind, draw, folder / "log")
    what = ", ".join(word for word in log.what if word)
    try:
        return what, _refused(log, robot, folder) if log.refused else _read(log, robot, folder)
    except Exception as error:
        return what, f"{type(error).__name__} at {place_of(error)}: {error}"


def _refused(log: DrawnLog, robot: Path, folder: Path) -> str | None:
    inspected = _command(
        "inspect", *map(str, log.files[:1]), "--robot", str(robot), "--map", str(folder / "draft.yaml")
    )
    if wrong := _unclear(inspected):
        return f"inspect: {wrong}"
    found = _import(log.tree, log, robot, folder / "out.h5", folder / "map.yaml")
    if not (folder / "out.h5").exists():
        return _unclear(found)
    if _doubts(folder / "out.h5") or "only roughly" in found.text:
        return None
    what = difference(Store.open(folder / "out.h5"), log.runs)
    return f"{log.refused} is imported in silence: {what}" if what else None


def _read(log: DrawnLog, robot: Path, folder: Path) -> str | None:
    """Import a log with the right map, with the draft, and with the draft that has the right keys."""
    right = folder / "right.h5"
    found = _import(log.tree, log, robot, right, folder / "map.yaml")
    if found.code not in (0, 2) or not right.exists():
        return f"refused: {' '.join(found.errors) or found.text[-300:]}"
    if what := difference(Store.open(right), log.runs):
        return f"right map: {what}"
    if found.code == 2:
        return f"right map: a sound log fails: {_doubts(right)}"
    draft = folder / "draft.yaml"
    inspected = _command("inspect", str(log.files[0]), "--robot", str(robot), "--map", str(draft))
    if inspected.code:
        return f"inspect: {' '.join(inspected.errors) or inspected.text[-300:]}"
    tree = yaml.safe_load(draft.read_text())
    drop = {"period"} if "time" in log.tree else {"time"}
    drop |= {"velocity"} if log.tree["qd"] != "differentiate" else set()
    mended = {name: value for name, value in tree.items() if name not in drop} | log.tree
    if log.tree["qd"] == "differentiate" and "velocity" not in log.tree:
        mended.pop("velocity", None)
    found = _import(mended, log, robot, folder / "mended.h5", folder / "mended.yaml")
    if found.code != 0:
        return f"mended draft: {' '.join(found.errors) or _doubts(folder / 'mended.h5')}"
    if what := difference(Store.open(folder / "mended.h5"), log.runs):
        return f"mended draft: {what}"
    return _drafted(log, robot, folder, draft)


def _drafted(log: DrawnLog, robot: Path, folder: Path, draft: Path) -> str | None:
    """Import with the draft as it is: what differs has to be named by it, or by the import."""
    out = folder / "drafted.h5"
    found = _command(
        "import",
        *map(str, log.files),
        "--reader",
        str(draft),
        "--robot",
        str(robot),
        "--out",
        str(out),
        "--split",
        "train",
    )
    if _doubts(out):
        return None
    if found.code:
        return (wrong := _unclear(found)) and f"draft: {wrong}"
    if {"frame", "world"} & set(log.tree.get("floating", {}).get("base", {})):
        return None
    if any(_UNKNOWABLE & set(entry) for part in ("q", "qd", "control") for entry in entries_of(log.tree[part])):
        return None
    what = difference(Store.open(out), log.runs)
    return f"draft: {what}" if what and not _named(what, draft.read_text(), log) else None


def _named(what: str, text: str, log: DrawnLog) -> bool:
    """Return whether a draft says that what differs is to be checked."""
    doubts = "\n".join(line for line in text.splitlines() if line.startswith("# -"))
    for part in what.split("; "):
        match = re.search(r"(q|qd|control) of (\S+) by", part)
        if match is None:
            return False
        quantity, name = match[1], match[2].partition(".")[0]
        block = text.partition(f"\n{quantity}:")[2]
        line = next((one for one in block.splitlines() if one.strip().startswith(f"{name}:")), "")
        entry = log.tree[quantity].get(name, {}) if isinstance(log.tree[quantity], dict) else {}
        if isinstance(entry, dict) and _tells_all(entry):
            return False
        if "?" not in line and name not in doubts and "actions are taken" not in doubts and "order of" not in doubts:
            if quantity == "qd" and "differentiated" in doubts:
                continue
            return False
    return True


def _tells_all(entry: dict) -> bool:
    """Return whether a column's name tells its unit, and nothing else is to be known of it."""
    name, unit = str(entry.get("column")), entry.get("unit", "")
    told = unit and name.endswith((f" [{unit}]", "_" + unit.replace("/", "_").replace(" ", "")))
    return bool(told) and not _UNKNOWABLE & set(entry)


def _doubts(out: Path) -> str:
    if not out.exists():
        return ""
    return "; ".join(str(one) for one in Store.open(out).header.findings)


def _import(tree: dict, log: DrawnLog, robot: Path, out: Path, map_: Path) -> Said:
    map_.write_text(yaml.safe_dump({"robot": str(robot)} | tree, sort_keys=False))
    return _command("import", *map(str, log.files), "--reader", str(map_), "--out", str(out), "--split", "train")


def _command(*arguments: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return Said(code, complaints(err.getvalue()), out.getvalue() + err.getvalue())


def _unclear(found: Said) -> str | None:
    """Return what is wrong with a refusal; None for a clear one, or none."""
    if found.code == 0 or not found.errors:
        return None
    if len(found.errors) != 1 or found.code != 2:
        return f"{len(found.errors)} lines, exit code {found.code}: {found.errors}"
    if not CURES.search(found.errors[0]):
        return f"does not say what is valid: {found.errors[0]}"
    if len(found.errors[0]) > ROWS * WIDTH + 240:
        return f"has {len(found.errors[0])} characters: {found.errors[0]}"
    return None


def main() -> None:
    """Try some numbers, for people who look for a fault."""
    import sys
    import tempfile
    import time

    first, count, seed = (int(text) for text in sys.argv[1:4])
    begin = time.monotonic()
    for number in range(first, first + count):
        with tempfile.TemporaryDirectory() as place:
            what, wrong = check_log(number, Random(f"{seed} logs {number}"), Path(place))
        if wrong:
            print(json.dumps({"number": number, "what": what, "wrong": wrong}), flush=True)
    print(f"{count} logs, {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
