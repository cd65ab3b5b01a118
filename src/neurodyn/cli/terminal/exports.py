# SPDX-License-Identifier: Apache-2.0
"""An export on the terminal, in at most a screen of 80 columns."""

import math
import re
from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

from neurodyn.interop.replays import total

if TYPE_CHECKING:
    from neurodyn.interop.formats import Exported
    from neurodyn.interop.replays import Replay

_WIDTH = 80
_MOST_ROWS = 8
_THOUSANDTHS = {"rad": "mrad", "m": "mm"}


def print_export(exported: "Exported") -> None:
    """Print the replay of an export, what it holds, what it lacks, and its files."""
    print_replay(exported.replay)
    for what, names in (("holds", exported.placed), ("left out", exported.left_out)):
        if names:
            _print(f"{what}: {', '.join(group_names(names))}")
    for remark in exported.remarks:
        _print(remark)
    _print(f"{', '.join(exported.files)}: {exported.folder}")


def print_replay(replay: "Replay") -> None:
    """Print the errors of a replay by joint, the joints with the largest error of the file first."""
    if replay.reason:
        _print(f"not replayed: {replay.reason}")
        return
    _print(
        f"replayed in {replay.simulator}: {replay.windows} stretches of {replay.horizon:g} s of the {replay.split} "
        "episodes; rms error at their end"
    )
    titles = {"original": "original", "exported": "exported", "model": "our model"}
    columns = [column for column in titles if getattr(replay, column)]
    errors = [getattr(replay, column) for column in columns]
    names = list(replay.units)
    if len(names) > _MOST_ROWS:
        size = {name: math.inf if error is None else error for name, error in replay.exported.items()}
        names = sorted(names, key=lambda name: -size[name])[: _MOST_ROWS - 1]
    rows = [(name, _THOUSANDTHS[replay.units[name]], [_number(each[name]) for each in errors]) for name in names]
    for unit in dict.fromkeys(replay.units.values()):
        rows.append(("all", _THOUSANDTHS[unit], [_number(total(replay, column)[unit]) for column in columns]))
    width = max(len(row[0]) for row in rows)
    print(f"{'':{width}}      " + "".join(f"{titles[column]:>11}" for column in columns))
    for name, unit, numbers in rows:
        print(f"{name:{width}} {unit:5}" + "".join(f"{number:>11}" for number in numbers))


def group_names(names: Iterable[str]) -> list[str]:
    """Return names with those that end alike as one: "*.damping (6)"."""
    groups: dict[str, list[str]] = {}
    for name in names:
        first, _, rest = re.sub(r"(\.(?:com|origin|axis|inertia))\.[xyz]+$", r"\1", name).partition(".")
        if first == "actuator" and "." in rest:
            groups.setdefault(f"actuator.*.{rest.partition('.')[2]}", []).append(name)
        else:
            groups.setdefault(f"*.{rest}" if rest else name, []).append(name)
    return [each[0] if len(each) == 1 else f"{pattern} ({len(each)})" for pattern, each in groups.items()]


def _number(error: float | None) -> str:
    return "diverges" if error is None or error == math.inf else f"{1e3 * error:.3g}"


def _print(text: str) -> None:
    lines = wrap(text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print("\n".join(lines))
