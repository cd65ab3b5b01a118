# SPDX-License-Identifier: Apache-2.0
"""Commands of every verb whose files are not what they should be: missing, empty, half written, of other kinds.

Such a command ends with exit code 2 and one line that says what would be valid, before any work, and leaves all files
as they were; one whose files are odd but right (names with spaces, links) may begin.
"""

import contextlib
import hashlib
import io
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import yaml

from _broken import SETTINGS
from _faults import complaints, damaged, place_of
from _refusals import SAYS_VALID
from neurodyn import tasks
from neurodyn.cli.main import run
from neurodyn.core.artifacts import resolve_policy
from neurodyn.robots import ROBOTS

SOUND = (
    "init {urdf} --out {out}", "init {mjcf} --out {out}", "check {robot}",
    "generate {robot} --threads 1 --out {out}.h5",
    "import {csv} --reader {map} --out {out}.h5", "import {npz} --reader {npzmap} --out {out}.h5", "inspect {data}",
    "inspect {csv} --map {out}.yaml", "train {robot} --data {data} --size {settings} --steps 2 --out {out}",
    "finetune {run} --data {data} --steps 2 --out {out}", "adapt {robot} --data {data} --out {out}",
    "adapt {robot} --data {csv} --out {out}", "next-motion {run}",
    "identify {robot} --data {data} --parameters slider.damping --out {out}",
    "discover {robot} --data {data} --out {out}",
    "hybrid {robot} --out {out}", "evaluate {run} --data {data}", "compare {run}",
    "view {run} --out {out}.html", "view {run} --data {data} --out {out}.html", "export {run} --out {out}.onnx",
    "export {policy} --out {out}.onnx", "export {data} --to mcap --out {out}.mcap",
    "control cartpole-swingup --model {run} --out {out}",
    "policy train cartpole-swingup --dynamics {run} --iterations 1 --out {out}",
    "policy play {policy} --out {out}.html", "policy evaluate {policy} --dynamics {run}",
    "policy log {policy} --out {out}.h5", "policy import {actor} --task ant-run@nerd --out {out}",
    "policy distill {policy} --dynamics {run} --out {out}", "sweep {sweep} --out {out}",
)  # fmt: skip
"""A sound command for each kind of file that a verb reads."""

WORK = (
    "neurodyn.learn.loop.TrainingLoop.run", "neurodyn.sim.batches.BatchMaker.__call__",
    "neurodyn.dynamics.interface.Dynamics.rollout", "neurodyn.cluster.connection._join",
    "neurodyn.identify.stages.growing_windows.Fitting._search",
)  # fmt: skip
"""Functions that do the work of a verb."""

_LONGEST = 560
"""Characters of a refusal, without its paths."""


class Began(BaseException):
    """Work began; nothing catches it on its way."""


class Mutation(NamedTuple):
    """A change of a file: what it is called, and whether the command may begin all the same."""

    what: str
    may_begin: bool


class MutatedCommands:
    """Sound files of every kind, and commands whose files are mutated."""

    def __init__(self, folder: Path, data: Path, model: Path) -> None:
        """Collect sound files in a folder, with data and a model of a cartpole."""
        folder.mkdir()
        self.sound: dict[str, Path] = {"data": folder / "data.h5", "run": folder / "run", "policy": folder / "policy"}
        shutil.copy(data, self.sound["data"])
        shutil.copytree(model, self.sound["run"])
        shutil.copytree(resolve_policy("pretrained-policy:cartpole"), self.sound["policy"])
        shutil.copytree(ROBOTS["cartpole"].parent, folder / "robot")
        shutil.copy(ROBOTS["cube"].parent / "cube.xml", folder / "cube.xml")
        self.sound |= {"robot": folder / "robot" / "robot.yaml", "mjcf": folder / "cube.xml"}
        shutil.copy(ROBOTS["cartpole"].parent / "cartpole.urdf", folder / "cartpole.urdf")
        self.sound["urdf"] = folder / "cartpole.urdf"
        self._write_logs(folder)
        ant = tasks.load("ant-run@nerd")
        sizes = (len(ant.observations), 4, len(ant.actions))
        layers = {
            f"mlp.{2 * k}.{what}": np.zeros(shape)
            for k in range(2)
            for what, shape in (("weight", (sizes[k + 1], sizes[k])), ("bias", (sizes[k + 1],)))
        }
        np.savez(folder / "actor.npz", **layers)  # pyright: ignore[reportArgumentType]
        self.sound["actor"] = folder / "actor.npz"
        for name, tree in (
            ("settings", SETTINGS),
            ("sweep", {"train": {"robot": "cartpole", "data": str(data), "steps": 2}, "space": {"clip": [1, 2]}}),
        ):
            self.sound[name] = folder / f"{name}.yaml"
            self.sound[name].write_text(yaml.safe_dump(tree))

    def _write_logs(self, folder: Path) -> None:
        time = np.arange(200) / 60
        names = ("t", "x", "a", "dx", "da", "u")
        table = np.stack([time, np.sin(time), np.cos(time), np.cos(time), -np.sin(time), 10 * np.sin(3 * time)], 1)
        np.savetxt(folder / "log.csv", table, delimiter=",", header=",".join(names), comments="")
        np.savez(folder / "log.npz", **dict(zip(names, table.T, strict=True)))
        columns: dict[str, Any] = {
            "robot": "cartpole", "format": "csv", "time": "t", "control": {"slider": {"column": "u"}},
            "q": {"slider": {"column": "x"}, "hinge": {"column": "a"}},
            "qd": {"slider": {"column": "dx"}, "hinge": {"column": "da"}},
        }  # fmt: skip
        for name, form in (("map", "csv"), ("npzmap", "npz")):
            self.sound[name] = folder / f"{name}.yaml"
            self.sound[name].write_text(yaml.safe_dump(columns | {"format": form}))
        self.sound |= {"csv": folder / "log.csv", "npz": folder / "log.npz"}

    def check(self, number: int, draw: random.Random, place: Path) -> tuple[str, str | None]:
        """Run a command with one mutated file; return what it was, and what went wrong, or None."""
        text = SOUND[number % len(SOUND)]
        kinds = [kind for kind in self.sound if f"{{{kind}}}" in text]
        fill = {kind: self._copied(kind, place) for kind in kinds} | {"out": place / "out"}
        if "{out}" in text and draw.random() < 0.25:
            mutation, fill["out"] = _odd_target(draw, place, fill[draw.choice(kinds)])
            kind, text = "out", re.sub(r"\{out\}\.\w+", "{out}", text)
        else:
            kind = draw.choice(kinds)
            fill[kind], mutation = self._mutated(kind, fill[kind], draw, place)
        words = [word.format(**fill) for word in text.split(" ")]
        what = f"{' '.join(text.split()[:2])}: {kind}: {mutation.what}"
        return what, _run(words, place, mutation, [str(path) for path in fill.values()])

    def _copied(self, kind: str, place: Path) -> Path:
        """Copy a sound file, or the folder that it needs, to a place."""
        source = self.sound[kind]
        if kind == "robot":
            shutil.copytree(source.parent, place / "robot")
            return place / "robot" / source.name
        target = place / source.name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
        return target

    def _mutated(self, kind: str, path: Path, draw: random.Random, place: Path) -> tuple[Path, Mutation]:
        """Mutate a file or folder in place; return its path and what was done."""
        ways: list[Callable[[Path, random.Random], tuple[Path, Mutation]]] = [
            _missing, _empty, _of_the_other_sort, _junk, _linked_to_nothing, _linked_to_itself, _odd_name, _cut,
        ]  # fmt: skip
        if path.is_dir():
            ways += [_half_written] * 4
        if draw.random() < 0.25:
            other = draw.choice([name for name in self.sound if name != kind])
            return self._copied_beside(other, place), Mutation(f"a {other}", True)
        return draw.choice(ways)(path, draw)

    def _copied_beside(self, kind: str, place: Path) -> Path:
        (place / "other").mkdir()
        return self._copied(kind, place / "other")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _missing(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    _remove(path)
    return path, Mutation("missing", False)


def _empty(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    folder = path.is_dir()
    _remove(path)
    path.mkdir() if folder else path.touch()
    return path, Mutation("empty", False)


def _of_the_other_sort(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    folder = path.is_dir()
    _remove(path)
    if folder:
        path.write_text("notes\n")
        return path, Mutation("a file for a folder", False)
    path.mkdir()
    if draw.random() < 0.5:
        (path / "notes.txt").write_text("notes\n")
    return path, Mutation("a folder for a file", False)


def _junk(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    file = draw.choice([one for one in path.rglob("*") if one.is_file()]) if path.is_dir() else path
    content = draw.choice((b"\0" * 300, draw.randbytes(500), b"{" * 3000, b"%PDF-1.4\n", b"PK\3\4", b"\xff\xfe\0x"))
    file.write_bytes(content)
    return path, Mutation(f"junk in {file.name}", path.is_dir())


def _cut(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    file = draw.choice([one for one in path.rglob("*") if one.is_file()]) if path.is_dir() else path
    content = file.read_bytes()
    file.write_bytes(content[: draw.randrange(max(1, len(content)))] if draw.random() < 0.5 else damaged(content, draw))
    return path, Mutation(f"damage in {file.name}", True)


def _linked_to_nothing(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    _remove(path)
    path.symlink_to(path.parent / "gone")
    return path, Mutation("a link to nothing", False)


def _linked_to_itself(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    _remove(path)
    path.symlink_to(path)
    return path, Mutation("a link to itself", False)


def _odd_name(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    new = path.with_name(draw.choice(("two words", "ünï", "a#b", "a'b", "[x]", "a%20b", "-dash")) + path.suffix)
    path.rename(new)
    return new, Mutation(f"called {new.name}", True)


def _half_written(path: Path, draw: random.Random) -> tuple[Path, Mutation]:
    """Leave what a killed writer, or a person who cleans up, leaves of a folder."""
    files = sorted(one for one in path.rglob("*") if one.is_file())
    gone = draw.sample(files, draw.choice((1, 1, 2, len(files) // 2, len(files) - 1)))
    for file in gone:
        if draw.random() < 0.7:
            file.unlink()
        else:
            file.write_bytes(b"")
    return path, Mutation(f"without {', '.join(sorted(file.name for file in gone)[:4])}", True)


def _odd_target(draw: random.Random, place: Path, source: Path) -> tuple[Mutation, Path]:
    (place / "file").write_text("mine\n")
    (place / "mine").mkdir()
    (place / "mine" / "work.txt").write_text("mine\n")
    (place / "loop").symlink_to(place / "loop")
    return draw.choice((
        (Mutation("below a file", False), place / "file" / "out"),
        (Mutation("a folder of others", True), place / "mine"),
        (Mutation("a link to itself", True), place / "loop"),
        (Mutation("a name of 300 characters", False), place / ("x" * 300)),
        (Mutation("the input", True), source),
        (Mutation("a place that nobody writes", False), Path("/proc/out")),
        (Mutation("a device", False), Path("/dev/null")),
        (Mutation("in new folders", True), place / "new" / "deep" / "out"),
    ))  # fmt: skip


def _run(words: list[str], place: Path, mutation: Mutation, paths: list[str]) -> str | None:
    before, errors, said = dict(_contents(place)), io.StringIO(), io.StringIO()
    here = Path.cwd()
    os.chdir(place)
    try:
        with contextlib.ExitStack() as stack:
            for work in WORK:
                stack.enter_context(mock.patch(work, _begin))
            stack.enter_context(contextlib.redirect_stdout(said))
            stack.enter_context(contextlib.redirect_stderr(errors))
            code = run(words)
    except Began:
        code = 0
    except BaseException as error:
        return f"{type(error).__name__} at {place_of(error)}: {str(error)[:200]}"
    finally:
        os.chdir(here)
    lines = complaints(errors.getvalue())
    after = dict(_contents(place))
    lost = [name for name, content in before.items() if after.get(name) != content]
    if lost:
        return f"exit code {code}, and {lost[0]} is another"
    if code == 0:
        return None if mutation.may_begin else "work begins"
    new = sorted(set(after) - set(before))
    if new and not all(Path(name).parts[0].startswith("out") for name in new):
        return f"leaves {new[0]}"
    return _unclear(code, lines, paths)


def _unclear(code: int, lines: list[str], paths: list[str]) -> str | None:
    if code != 2 or len(lines) != 1:
        return f"exit code {code}, {len(lines)} lines: {' | '.join(lines)[:300]}"
    text = lines[0]
    for path in paths:
        text = text.replace(path, "PATH")
    if len(text) > _LONGEST:
        return f"has {len(text)} characters: {text[:700]}"
    return None if SAYS_VALID.search(text) else f"does not say what is valid: {text}"


def _begin(*_: object, **__: object) -> None:
    raise Began


def _contents(place: Path) -> Iterator[tuple[str, str]]:
    """Yield the files below a place with what identifies their contents."""
    for path in sorted(place.rglob("*")):
        name = str(path.relative_to(place))
        if path.is_symlink():
            yield name, str(path.readlink())
        elif path.is_file():
            yield name, hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
