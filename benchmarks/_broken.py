# SPDX-License-Identifier: Apache-2.0
"""Broken inputs: files of every kind, damaged in bytes or content, and the verb that reads each."""

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

from _faults import damaged
from neurodyn.core.artifacts import resolve_policy
from neurodyn.core.provenance import CHECKSUM
from neurodyn.robots import ROBOTS

ODD: tuple[Any, ...] = (
    -1, 0, 1, 1 << 31, (1 << 62) + 1, 1e308, -1e308, 1e-308, float("inf"), float("nan"), "", "x", "../../x", "x" * 5000,
    None, True, [], {}, [1, 2, 3], [[-1.0]], {"x": 1}, "2024-13-45", 1 << 70,
)  # fmt: skip
"""Odd values to substitute for others."""

WHOLE = (
    b"", b"null\n", b"- 1\n", b"2024-13-45\n", b"a: " * 200, b"[" * 5000, b"{" * 5000, b"\xff\xfea\0:\0 \0001\0",
    b"!!python/object/apply:os.abort []\n", b"a: &a [1, 1, 1, 1]\nb: &b [*a, *a, *a]\nc: [*b, *b, *b]\n", b"\0" * 4096,
    b"<robot/>", b"<a>" * 2000, b"\x89HDF\r\n\x1a\n", b"t,a\n", b"1e999: 1e999\n", b"9" * 10_000,
)  # fmt: skip
"""Odd contents to substitute for a whole file."""


SETTINGS = {
    "net": {"kind": "mlp", "width": 16, "depth": 1},
    "phases": [{"share": 1.0, "rate": 0.01, "batch": 32}],
    "minutes": 1.0, "validation_rollouts": 16, "validation_frames": 20,
}  # fmt: skip
"""Settings of a training that does little besides writing its files."""


class BrokenInputs:
    """Sound inputs of every kind, from which damaged ones are made."""

    def __init__(self, folder: Path, data: Path, model: Path, robot: str) -> None:
        """Collect inputs in a folder, from data and a model of a cartpole, by name or path."""
        self.folder, self.data, self.robot = folder, data, robot
        folder.mkdir()
        shutil.copytree(model, folder / "run")
        shutil.copytree(resolve_policy("pretrained-policy:cartpole"), folder / "policy")
        shutil.copytree(ROBOTS["cartpole"].parent, folder / "robot")
        shutil.copy(data, folder / "data.h5")
        (folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
        self._write_log()
        self.sources: list[tuple[str, Callable[[Path], list[str]], bool]] = [
            ("data.h5", self._inspect, True),
            ("data.h5", self._train, True),
            ("run/model/model.safetensors", self._export, False),
            ("run/model/config.json", self._export, True),
            ("run/model/spec.json", self._export, True),
            ("run/config.yaml", self._resume, True),
            ("run/metrics.jsonl", self._resume, True),
            (self._state("json"), self._resume, True),
            (self._state("safetensors"), self._resume, False),
            ("settings.yaml", self._train, True),
            ("settings.yaml", self._train, True),
            ("robot/robot.yaml", self._hybrid, True),
            ("robot/robot.yaml", self._hybrid, True),
            ("robot/cartpole.urdf", self._hybrid, True),
            ("robot/cartpole.urdf", self._hybrid, True),
            ("policy/config.json", self._export_policy, True),
            ("policy/policy.safetensors", self._export_policy, False),
            ("log.csv", self._import, True),
            ("map.yaml", self._import, True),
        ]

    def _state(self, suffix: str) -> str:
        """Return the newest state, from which a training resumes."""
        states = (self.folder / "run" / "state").glob(f"*-*.{suffix}")
        return str(max(states, key=lambda path: int(path.stem.rpartition("-")[2])).relative_to(self.folder))

    def _write_log(self) -> None:
        time = np.arange(200) / 60
        table = np.stack([time, np.sin(time), np.cos(time), np.cos(time), -np.sin(time), 10 * np.sin(3 * time)], 1)
        np.savetxt(self.folder / "log.csv", table, delimiter=",", header="t,x,a,dx,da,u", comments="")
        columns = {
            "robot": "cartpole", "format": "csv", "time": "t", "control": {"slider": {"column": "u"}},
            "q": {"slider": {"column": "x"}, "hinge": {"column": "a"}},
            "qd": {"slider": {"column": "dx"}, "hinge": {"column": "da"}},
        }  # fmt: skip
        (self.folder / "map.yaml").write_text(yaml.safe_dump(columns))

    def damage(self, number: int, draw: random.Random, place: Path) -> tuple[str, list[str]]:
        """Copy an input to a place and damage it; return its name and the command that reads it."""
        name, arguments, structured = self.sound(number, place)
        file, kind = place / name, draw.randrange(8)
        if kind == 0:
            file.write_bytes(draw.choice(WHOLE))
        elif kind < 4 or not structured:
            file.write_bytes(damaged(file.read_bytes(), draw))
        else:
            _CHANGES[file.suffix](file, draw)
        return name, arguments

    def sound(self, number: int, place: Path) -> tuple[str, list[str], bool]:
        """Copy an input; return its name, the command that reads it, and whether its content can be changed."""
        name, verb, structured = self.sources[number % len(self.sources)]
        for part in {name.partition("/")[0], *(("log.csv", "map.yaml") if verb == self._import else ())}:
            source = self.folder / part
            (shutil.copytree if source.is_dir() else shutil.copy)(source, place / part)
        return name, verb(place), structured

    def _inspect(self, place: Path) -> list[str]:
        return ["inspect", str(place / "data.h5")]

    def _train(self, place: Path) -> list[str]:
        data, settings = (
            place / name if (place / name).exists() else self.folder / name for name in ("data.h5", "settings.yaml")
        )
        size = ["--size", str(settings), "--steps", "1"]
        return ["train", self.robot, "--data", str(data), *size, "--out", str(place / "new")]

    def _resume(self, place: Path) -> list[str]:
        size = ["--size", str(self.folder / "settings.yaml"), "--steps", "60"]
        return ["train", self.robot, "--data", str(self.data), *size, "--resume", "--out", str(place / "run")]

    def _export(self, place: Path) -> list[str]:
        return ["export", str(place / "run"), "--out", str(place / "x.onnx")]

    def _export_policy(self, place: Path) -> list[str]:
        return ["export", str(place / "policy"), "--out", str(place / "x.onnx")]

    def _hybrid(self, place: Path) -> list[str]:
        return ["hybrid", str(place / "robot" / "robot.yaml"), "--out", str(place / "new")]

    def _import(self, place: Path) -> list[str]:
        return ["import", str(place / "log.csv"), "--reader", str(place / "map.yaml"), "--out", str(place / "new.h5")]


def _change_json(file: Path, draw: random.Random) -> None:
    data = json.loads(file.read_text())
    data.pop(CHECKSUM, None)  # as after an edit by hand; otherwise the change would never be read
    file.write_text(json.dumps(_changed(data, draw)))


def _change_lines(file: Path, draw: random.Random) -> None:
    lines = file.read_text().splitlines()
    at = draw.randrange(len(lines))
    lines[at] = json.dumps(_changed(json.loads(lines[at]), draw))
    file.write_text("\n".join(lines) + "\n")


def _change_yaml(file: Path, draw: random.Random) -> None:
    file.write_text(yaml.safe_dump(_changed(yaml.safe_load(file.read_text()), draw)))


def _changed(data: Any, draw: random.Random) -> Any:
    """Return plain data in which one entry has an odd value, another's name, is missing or is duplicated."""
    places: list[tuple[Any, Any]] = []

    def walk(part: Any) -> None:
        for key, value in part.items() if isinstance(part, dict) else enumerate(part):
            places.append((part, key))
            if isinstance(value, dict | list):
                walk(value)

    walk(data)
    if not places:
        return draw.choice(ODD)
    (part, key), kind = draw.choice(places), draw.randrange(6)
    if kind == 0:
        del part[key]
    elif kind == 1 and isinstance(part, list):
        part.append(part[key])
    elif kind == 1:
        part[f"{key}_"] = part.pop(key)
    else:
        part[key] = draw.choice(ODD)
    return data


def _change_csv(file: Path, draw: random.Random) -> None:
    rows = list(csv.reader(io.StringIO(file.read_text())))
    row, column = draw.randrange(len(rows)), draw.randrange(len(rows[0]))
    kind = draw.randrange(5)
    if kind == 0:
        rows = [[cell for i, cell in enumerate(cells) if i != column] for cells in rows]
    elif kind == 1:
        rows.insert(row, rows[row])
    elif kind == 2:
        rows = [rows[0], *([*cells[:column], rows[-1][column], *cells[column + 1 :]] for cells in rows[1:])]
    else:
        rows[row][column] = str(draw.choice(ODD))
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    file.write_text(text.getvalue())


def _change_xml(file: Path, draw: random.Random) -> None:
    text = file.read_text()
    if draw.randrange(3) == 0:  # one element more or less
        element = draw.choice(list(re.finditer(r"<(\w+)[^>]*/>|<(link|joint)\b.*?</\2>", text, re.DOTALL)))
        copies = draw.choice((0, 2))
        file.write_text(text[: element.start()] + element[0] * copies + text[element.end() :])
        return
    value = draw.choice(list(re.finditer(r'"([^"]*)"', text)))
    words = value[1].split() or [""]
    words[draw.randrange(len(words))] = str(draw.choice(ODD))
    file.write_text(text[: value.start()] + f'"{" ".join(words)}"'.replace("&", "") + text[value.end() :])


def _change_store(file: Path, draw: random.Random) -> None:
    """Change an array or attribute of a store without damaging the HDF5 structure."""
    with h5py.File(file, "r+") as store:
        found: list[tuple[Any, str]] = [(store.attrs, name) for name in store.attrs]
        store.visititems(lambda name, item: found.extend([(store, name), *((item.attrs, key) for key in item.attrs)]))
        holder, name = draw.choice(found)
        old, kind = holder[name], draw.randrange(4)
        if kind == 0 or isinstance(old, h5py.Group):
            del holder[name]
        elif isinstance(old, h5py.Dataset):
            values = old[()]
            del holder[name]
            if kind == 1:
                store[name] = values[: len(values) // 2] if values.ndim else 0
            elif kind == 2:
                store[name] = draw.choice(["x", 0, np.full(values.shape, np.nan), values[..., None]])
            else:
                store[name] = _poisoned(values, draw)
        else:
            holder[name] = draw.choice(["", "x", -1, 0, 1 << 62, float("nan"), [], "null", "[]", "{}", b"\xff\xfe"])


def _poisoned(values: np.ndarray, draw: random.Random) -> np.ndarray:
    values = np.array(values)
    if values.size and values.dtype.kind in "fiu":
        odd = (float("nan"), float("inf"), 1e30) if values.dtype.kind == "f" else (0, 1, np.iinfo(values.dtype).max)
        values.reshape(-1)[draw.randrange(values.size)] = draw.choice(odd)
    return values


_CHANGES: dict[str, Callable[[Path, random.Random], None]] = {
    ".json": _change_json, ".jsonl": _change_lines, ".yaml": _change_yaml, ".csv": _change_csv, ".urdf": _change_xml,
    ".h5": _change_store,
}  # fmt: skip
