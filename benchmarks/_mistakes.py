# SPDX-License-Identifier: Apache-2.0
"""Typical user mistakes in declarations, logs, settings and commands."""

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import yaml

from _broken import SETTINGS
from _mistaken_files import mistaken_csv, mistaken_mjcf, mistaken_npz, mistaken_urdf
from _refusals import Mistake, misspelled
from neurodyn.robots import ROBOTS

FREE = {"name", "description", "title", "author"}
"""Keys whose value may be any text."""

BEYOND: dict[str, tuple[Any, ...]] = {
    "dt": (-0.01, 0), "substeps": (0, -4, 2.5), "frames": (0, -100), "passive_fraction": (1.5, -0.1),
    "friction": (-0.5,), "damping": (-0.1,), "armature": (-0.01,), "stiffness": (-1.0,), "kp": (-40.0,),
    "kd": (-1.0,), "effort_limit": (-9.0,), "delay": (-0.01,), "cell": (0.0, -0.1), "tilt": (-0.2,), "near": (-0.2,),
    "reach": (0.0,), "width": (0, -16, 1.5), "depth": (-1,), "batch": (0, -32), "share": (0, -1.0),
    "rate": (-0.01, 0), "minutes": (-1.0,), "steps": (0, -5), "members": (0, -1), "context": (-1,),
    "validation_frames": (0,), "warmup": (-0.1,), "clip": (-1.0,), "horizon": (0, -0.5), "windows": (0, -1),
    "smoothing": (-0.1,), "worlds": (0, -64), "iterations": (0, -3), "samples": (0, -8), "rounds": (0,),
    "height": ([0.5, 0.1],), "sign": (0, 2), "threads": (0,), "seed": (-1,), "gamma": (1.5, -0.1),
    "radius": (-0.1, 0), "half": ([0.1, -0.1, 0.1],), "half_length": (-0.2,),
}  # fmt: skip
"""Invalid numbers for settings of a given name."""

DECLARED = {"own_robot": "arm.urdf", "own_ground": "crawler.urdf", "pusher": "pusher.xml"}
"""Assets of declared robots, by their folder."""

UNREAD = {"tasks", "file"}
"""Keys whose values a declaration's verb does not read before they are needed."""

REQUIRED = {"name", "kind", "dt", "column", "format", "share", "batch", "quantities", "inputs", "train", "robot"}
"""Keys whose omission is a mistake."""


Place = tuple[str | int, ...]


def places(data: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield all values of plain data with their paths."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*at, key), value
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def named_key(at: Place) -> str:
    """Return the last name in a path."""
    return next(str(key) for key in reversed(at) if isinstance(key, str))


def holder(data: Any, at: Place) -> Any:
    """Return the table or list that contains a path."""
    for key in at[:-1]:
        data = data[key]
    return data


class Mistakes:
    """Sound inputs of many kinds, and mistakes in them."""

    def __init__(self, folder: Path, data: Path, model: Path) -> None:
        """Collect sound inputs in a folder, with data and a model of a cartpole."""
        self.folder, self.data, self.model = folder, data, model
        folder.mkdir()
        examples = Path(__file__).resolve().parent.parent / "examples"
        for name in ("own_robot", "own_ground", "own_drive", "own_logs"):
            shutil.copytree(examples / name, folder / name)
        shutil.copytree(examples / "objects" / "pusher", folder / "pusher")
        shutil.copytree(ROBOTS["cartpole"].parent, folder / "cartpole")
        self._write_logs()
        self._write_settings()
        self.families: tuple[Callable[[random.Random, Path], Mistake], ...] = (
            self.declaration, self.asset, self.log, self.settings, self.command,
        )  # fmt: skip

    def make(self, number: int, draw: random.Random, place: Path) -> Mistake:
        """Return a mistake of the family with this number, made in its own folder."""
        return self.families[number % len(self.families)](draw, place)

    def _write_logs(self) -> None:
        """Write a CSV and an npz log of the pendulum in own_logs, with column maps."""
        logs = self.folder / "own_logs"
        t = np.arange(400) * 0.004
        angle, speed, current = 20 * np.sin(3 * t) + 35, -10 * np.cos(3 * t), 900 * np.sign(np.sin(8 * t))
        table = np.stack([1e3 * t, angle, speed, current], 1)
        header = "t_ms,angle_deg,speed_rpm,current_mA"
        np.savetxt(logs / "run.csv", table, delimiter=",", header=header, comments="", fmt="%.4f")
        np.savez(logs / "run.npz", t_ms=1e3 * t, state=np.stack([angle, speed], 1), current_mA=current)
        columns = yaml.safe_load((logs / "map.yaml").read_text())
        columns["alignment"] = 0.0
        (logs / "map.yaml").write_text(yaml.safe_dump(columns, sort_keys=False))
        columns |= {"format": "npz"}
        columns["q"]["joint"]["column"], columns["qd"]["joint"]["column"] = "state[0]", "state[1]"
        (logs / "arrays.yaml").write_text(yaml.safe_dump(columns, sort_keys=False))

    def _write_settings(self) -> None:
        """Write settings of every kind that a verb reads, at sizes that take no time."""
        place = self.folder / "settings"
        place.mkdir()
        phase = {"share": 1.0, "rate": 0.01, "batch": 32}
        world = {**SETTINGS, "net": {"kind": "gru", "members": 2, "width": 8, "depth": 1, "head": 8, "trunk": "own"}}
        world |= {"phases": [{**phase, "context": 4, "forecast": 2, "loss": "likelihood", "teach": 0.5}], "context": 4}
        identify = {
            "parameters": ["slider.damping", "hinge.damping"], "method": "roll-outs", "horizon": 0.2, "windows": 8,
            "smoothing": 0.1, "positions": True, "noise_q": [0.01, 0.01], "start": "logged", "substeps": 2,
            "network": {"rate": 0.005, "batch": 64, "patience": 100},
        }  # fmt: skip
        blueprint = {
            "augmentations": [{"quantities": ["torque.slider"], "inputs": ["qd.slider", "sin(q.hinge)"], "hidden": [8]}]
        }
        policy = {
            "iterations": 1, "worlds": 8, "horizon": 4, "gamma": 0.99, "rate": 0.001, "entropy": 0.001,
            "network": {"hidden": [8, 8], "activation": "elu"},
        }  # fmt: skip
        planner = {"horizon": 5, "samples": 8, "rounds": 1, "seed": 0}
        sweep = {
            "train": {"robot": "cartpole", "data": [str(self.data)], "steps": 2, "size": "small"},
            "space": {"clip": [1.0, 2.0]}, "seeds": [0],
        }  # fmt: skip
        kinds = {
            "neural": {**SETTINGS, "optimiser": "adam", "clip": 1.0, "velocity_products": True, "members": 1},
            "world": world, "identify": identify, "blueprint": blueprint, "policy": policy, "planner": planner,
            "sweep": sweep, "adapt": {"seed": 1},
        }  # fmt: skip
        for name, content in kinds.items():
            (place / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    def copied(self, name: str, place: Path) -> Path:
        """Copy a folder of inputs to a place."""
        shutil.copytree(self.folder / name, place / name)
        return place / name

    def declaration(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in the declaration of a robot, or in a ground."""
        name = draw.choice((*DECLARED, "own_drive"))
        file = self.copied(name, place) / "robot.yaml"
        return self._yaml(file, draw, ["hybrid", str(file), "--out", str(place / "out")])

    def settings(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in a settings file."""
        folder, commands = self.copied("settings", place), self._readers_of_settings(place / "out")
        name = draw.choice(tuple(commands))
        file = folder / f"{name}.yaml"
        return self._yaml(file, draw, [*commands[name], str(file)])

    def _readers_of_settings(self, target: Path) -> dict[str, list[str]]:
        """Return the command that reads each settings file; the file's name is appended."""
        out, data = ["--out", str(target)], ["cartpole", "--data", str(self.data)]
        return {
            "neural": ["train", *data, "--steps", "1", *out, "--size"],
            "world": ["train", *data, "--kind", "world-model", "--steps", "1", *out, "--size"],
            "identify": ["identify", *data, *out, "--settings"],
            "blueprint": ["identify", *data, "--parameters", "slider.damping", "--minutes", ".01", *out, "--blueprint"],
            "policy": ["policy", "train", "cartpole-swingup", "--dynamics", "analytic", *out, "--settings"],
            "planner": ["control", "cartpole-swingup", "--model", "analytic", "--frames", "2", *out, "--settings"],
            "sweep": ["sweep", *out],
            "adapt": ["adapt", *data, *out, "--settings"],
        }

    def sound(self, place: Path) -> Iterator[list[str]]:
        """Yield the commands that mistakes are made in, except the slow `adapt`: without a mistake they succeed."""
        for name, file in (*DECLARED.items(), ("own_drive", "joint.urdf")):
            yield ["hybrid", str(self.folder / name / "robot.yaml"), "--out", str(place / name)]
            yield ["init", str(self.folder / name / file), "--dt", "0.02", "--out", str(place / f"{name}-declared")]
        logs = self.folder / "own_logs"
        for map_, log in (("map.yaml", "run.csv"), ("arrays.yaml", "run.npz")):
            yield ["import", str(logs / log), "--reader", str(logs / map_), "--out", str(place / f"{log}.h5")]
        for name in self._readers_of_settings(place):
            if name != "adapt":
                command = self._readers_of_settings(place / f"{name}-out")[name]
                yield [*command, str(self.folder / "settings" / f"{name}.yaml")]

    def _yaml(self, file: Path, draw: random.Random, arguments: list[str]) -> Mistake:
        """Make a mistake in a YAML file."""
        text = file.read_text()
        data, kind = (
            yaml.safe_load(text),
            draw.choice(("key", "key", "key", "type", "type", "value", "beyond", "miss", "form")),
        )
        found = [(at, value) for at, value in places(data) if not set(at) & UNREAD and at[-2:-1] != ("grounds",)]
        if kind == "form":
            lines = [i for i, line in enumerate(text.splitlines()) if re.match(r"[a-z_]+: *\S", line)]
            if lines:
                return self._form(file, text, draw.choice(lines), draw, arguments)
            kind = "type"
        if kind == "beyond":
            able = [at for at, _ in found if at[-1] in BEYOND]
            if able:
                at = draw.choice(able)
                value = draw.choice(BEYOND[str(at[-1])])
                holder(data, at)[at[-1]] = value
                file.write_text(yaml.safe_dump(data, sort_keys=False))
                return Mistake(f"{file.name}: {named_key(at)} is {value}", arguments, (file.name, named_key(at)))
            kind = "type"
        if kind == "miss":
            able = [at for at, _ in found if at[-1] in REQUIRED and self._needed(data, at)]
            if able:
                at = draw.choice(able)
                del holder(data, at)[at[-1]]
                file.write_text(yaml.safe_dump(data, sort_keys=False))
                return Mistake(f"{file.name}: without {at[-1]}", arguments, (file.name, str(at[-1])))
            kind = "key"
        if kind == "value":
            able = [
                at
                for at, value in found
                if isinstance(value, str) and _is_name(value) and not FREE & set(at) and "contact_points" not in at
            ]
            if able:
                at = draw.choice(able)
                right = holder(data, at)[at[-1]]
                stem, dot, suffix = right.rpartition(".") if at[-1] == "asset" else ("", "", right)
                wrong = misspelled(stem, draw) + dot + suffix if dot else misspelled(right, draw)
                holder(data, at)[at[-1]] = wrong
                file.write_text(yaml.safe_dump(data, sort_keys=False))
                meant = right[4:-1] if right.startswith("sin(") else right
                return Mistake(f"{file.name}: {named_key(at)}: {wrong}", arguments, (wrong,), meant)
            kind = "key"
        if kind == "type":
            able = [(at, value) for at, value in found if value is not None]
            at, value = draw.choice(able)
            wrong = _of_another_kind(value, draw)
            holder(data, at)[at[-1]] = wrong
            file.write_text(yaml.safe_dump(data, sort_keys=False))
            key = "" if "*" in named_key(at) else named_key(at)  # patterns stand for the names they match
            return Mistake(f"{file.name}: {named_key(at)} is {wrong!r}", arguments, (file.name, key))
        at = draw.choice([at for at, _ in found if isinstance(at[-1], str) and _is_name(at[-1])])
        table, wrong = holder(data, at), misspelled(str(at[-1]), draw)
        entries = [(wrong if key == at[-1] else key, value) for key, value in table.items()]
        table.clear()
        table.update(entries)
        file.write_text(yaml.safe_dump(data, sort_keys=False))
        where = "column map" if at[:-1] in {("q",), ("qd",), ("control",)} else file.name
        return Mistake(f"{file.name}: {wrong} for {at[-1]}", arguments, (where, wrong), str(at[-1]))

    @staticmethod
    def _needed(data: Any, at: Place) -> bool:
        """Return whether a key that is often required is required here."""
        if at[-1] == "robot":
            return "train" in at
        return not (at[-1] == "dt" and len(at) > 1) and not (at[-1] in {"kind", "name"} and {"net", "drives"} & set(at))

    @staticmethod
    def _form(file: Path, text: str, at: int, draw: random.Random, arguments: list[str]) -> Mistake:
        """Make a file invalid as YAML with a typical mistake in one line."""
        lines = text.splitlines()
        key, kind = lines[at].partition(":")[0], draw.randrange(5)
        if kind == 0:
            lines[at] = lines[at].replace(": ", ":", 1)
            what = "no space behind a colon"
        elif kind == 1:
            lines.insert(at + 1, lines[at])
            what = "a key twice"
        elif kind == 2:
            lines[at] = f"{key}: [1, 2"
            what = "an open bracket"
        elif kind == 3:
            lines[at] = f"\t{lines[at]}"
            what = "a tab"
        else:
            lines[at] = f"{key}: *all"
            what = "an unquoted star"
        file.write_text("\n".join(lines) + "\n")
        return Mistake(f"{file.name}: {what} at {key}", arguments, (file.name,))

    def asset(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in a URDF or MJCF."""
        name, file = draw.choice(tuple(DECLARED.items()))
        path = self.copied(name, place) / file
        declared = draw.random() < 0.5
        command = ["hybrid", str(path.parent / "robot.yaml")] if declared else ["init", str(path), "--dt", "0.02"]
        arguments = [*command, "--out", str(place / "out")]
        return (mistaken_urdf if file.endswith("urdf") else mistaken_mjcf)(path, draw, arguments)

    def log(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in a log, its column map, or a dataset."""
        kind = draw.choice(("map", "map", "csv", "csv", "csv", "npz", "npz", "store", "store"))
        if kind == "store":
            return self._store(draw, place)
        folder = self.copied("own_logs", place)
        map_, log = ("arrays.yaml", "run.npz") if kind == "npz" or draw.random() < 0.3 else ("map.yaml", "run.csv")
        arguments = ["import", str(folder / log), "--reader", str(folder / map_), "--out", str(place / "new.h5")]
        if kind == "map":
            return self._yaml(folder / map_, draw, arguments)
        if kind == "npz":
            return mistaken_npz(folder / log, draw, arguments)
        return mistaken_csv(
            folder / "run.csv",
            draw,
            [*arguments[:1], str(folder / "run.csv"), "--reader", str(folder / "map.yaml"), *arguments[4:]],
        )

    def _store(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in a dataset, or in its use."""
        file = place / "data.h5"
        out = ["--out", str(place / "out")]
        verb = draw.choice((["inspect"], ["train", "cartpole", "--steps", "1", *out, "--data"]))
        kind = draw.randrange(6)
        if kind == 0:
            wrong = misspelled("data", draw) + ".h5"
            shutil.copy(self.data, file)
            return Mistake("a dataset that is not there", [*verb, str(place / wrong)], (wrong,), "data.h5")
        if kind == 1:
            robot = draw.choice(("pendulum", "ant", "dfki-c1", "swimmer"))
            arguments = ["train", robot, "--data", str(self.data), "--steps", "1", *out]
            return Mistake("data of another robot", arguments, (self.data.name, robot))
        if kind == 2:
            file.write_bytes(self.data.read_bytes()[: draw.randrange(20, 5000)])
            return Mistake("a dataset cut short", [*verb, str(file)], (file.name,))
        if kind == 3:
            file.write_text("t,x,a\n0,0,0\n")
            return Mistake("text named .h5", ["train", "cartpole", "--data", str(file), *out], (file.name,))
        shutil.copy(self.data, file)
        with h5py.File(file, "r+") as store:
            name = draw.choice(("q", "qd", "control", "episodes", "header"))
            if kind == 4:
                store.move(name, misspelled(name, draw) if len(name) > 2 else f"{name}_")
                return Mistake(f"dataset {name} misspelled", [*verb, str(file)], (file.name, name))
            name = draw.choice(("q", "qd", "control"))
            values = store[name][()]
            del store[name]
            store[name] = values[: draw.randrange(1, len(values))] if draw.random() < 0.5 else values[:, :0]
        return Mistake(f"dataset {name} of another shape", [*verb, str(file)], (file.name, name))

    def command(self, draw: random.Random, place: Path) -> Mistake:
        """Make a mistake in a command."""
        fill = {
            "data": self.data,
            "run": self.model,
            "out": place / "out",
            "map": self.folder / "own_logs" / "map.yaml",
        }
        fill |= {"csv": self.folder / "own_logs" / "run.csv", "urdf": self.folder / "own_robot" / "arm.urdf"}
        words = draw.choice(COMMANDS).format(**fill).split()
        verbs = 2 if words[0] == "policy" else 1
        flags = [i for i, word in enumerate(words) if word.startswith("--")]
        names = [i for i, word in enumerate(words) if _is_name(word.partition(":")[2] or word) and "/" not in word]
        kind = draw.choice(
            ("verb", "flag", "flag", "name", "name", "name", "number", "value", "flags", "extra", "path")
        )
        if kind == "verb":
            right, at = words[verbs - 1], verbs - 1
            words[at] = misspelled(right, draw)
            return Mistake(f"verb {words[at]}", words, (words[at],), right)
        if kind == "flag" and flags:
            at = draw.choice(flags)
            right, words[at] = words[at], "--" + misspelled(words[at][2:], draw)
            return Mistake(f"{words[0]} {words[at]}", words, (words[at],), right)
        names = [i for i in names if i >= verbs and words[i - 1] not in {"--out"}]
        if kind == "name" and names:
            at = draw.choice(names)
            before, colon, right = words[at].rpartition(":")
            wrong = misspelled(right, draw)
            meant, words[at] = words[at] if colon else right, before + colon + wrong
            return Mistake(f"{' '.join(words[:verbs])} {words[at]}", words, (wrong,), meant)
        numbers = [i for i, word in enumerate(words) if re.fullmatch(r"[\d.]+", word)]
        if kind == "number" and numbers:
            at = draw.choice(numbers)
            words[at] = draw.choice(("-5", "many", "1e", "nan", "10k", "0x10", "1,000"))
            return Mistake(
                f"{' '.join(words[:verbs])} {words[at - 1]} {words[at]}", words, (words[at - 1].removeprefix("--"),)
            )
        if kind == "value" and flags:
            at = flags[-1]
            return Mistake(f"{words[at]} without a value", words[: at + 1], (words[at],))
        if kind == "flags":
            at = next((i for i, word in enumerate(words) if word == "--out"), None)
            if at is not None and words[0] not in {"demo", "examples"}:
                del words[at : at + 2]
                if " ".join(words[:verbs]) in MUST_OUT:
                    return Mistake(f"{' '.join(words[:verbs])} without --out", words, ("--out",))
        if kind == "path":
            files = [i for i, word in enumerate(words) if "/" in word and Path(word).exists()]
            if files:
                at = draw.choice(files)
                path = Path(words[at])
                wrong = misspelled(path.stem, draw) + path.suffix
                words[at] = str(path.with_name(wrong))
                return Mistake(f"{words[0]}: no file {wrong}", words, (wrong,), path.name)
        words += ["--no-such-flag", "1"] if draw.random() < 0.5 else ["--verbos"]
        return Mistake(
            f"{' '.join(words[:verbs])} {words[-1]}", words, ("--no-such-flag" if words[-1] == "1" else "--verbos",)
        )


COMMANDS = (
    "generate cartpole --transitions 500 --threads 1 --worlds 16 --out {out}.h5",
    "generate cartpole --transitions 500 --threads 1 --dynamics analytic --out {out}.h5",
    "train cartpole --data {data} --steps 2 --kind neural --net transformer --size small --out {out}",
    "train cartpole --data {data} --steps 2 --seed 1 --device cpu --out {out}",
    "finetune {run} --data {data} --steps 2 --out {out}",
    "adapt cartpole --data {data} --threads 1 --out {out}",
    "identify cartpole --data {data} --parameters slider.damping hinge.friction --out {out}",
    "identify cartpole --data {data} --parameters slider.damping --optimiser l-bfgs --start logged --out {out}",
    "discover cartpole --data {data} --out {out}",
    "hybrid cartpole --out {out}",
    "hybrid cartpole --parameters slider.damping --substeps 4 --out {out}",
    "evaluate pretrained:cartpole --horizon 20 --rollouts 8",
    "evaluate {run} --split validation --data {data}",
    "compare pretrained:pendulum pretrained:ant-learned --report {out}.html",
    "examples --out {out}",
    "view pretrained:cartpole --seconds 0.2 --format html --out {out}.html",
    "check cartpole --worlds 4 --frames 20",
    "check anymal-c --ground steps --worlds 4",
    "inspect {data}",
    "robots cartpole",
    "robots planar-runner",
    "export {run} --to cpp-header --out {out}",
    "init {urdf} --dt 0.01 --lock shoulder --out {out}",
    "import {csv} --reader {map} --split declared --out {out}.h5",
    "import {csv} --reader {map} --alignment 0.01 --out {out}.h5",
    "control cartpole-swingup --model analytic --planner annealed --episodes 1 --out {out}",
    "policy train cartpole-swingup --dynamics analytic --iterations 1 --worlds 8 --out {out}",
    "policy train ant-run --dynamics pretrained:ant --algorithm shac --iterations 1 --out {out}",
    "policy distill pretrained-policy:cartpole --dynamics hybrid --recurrent lstm --out {out}",
    "policy play pretrained-policy:cartpole --seconds 1 --out {out}.html",
    "policy evaluate pretrained-policy:ant-run --dynamics analytic --episodes 4",
    "policy log pretrained-policy:cartpole --transitions 500 --out {out}.h5",
    "policy online cartpole-swingup --rounds 1 --out {out}",
    "imitate a1 --transitions 20 --rounds 1 --out {out}",
    "completion bash",
    "doctor",
)
"""Sound commands."""

MUST_OUT = {
    "generate", "train", "finetune", "adapt", "identify", "discover", "hybrid", "import", "policy train",
    "policy distill", "policy log", "policy online", "imitate",
}  # fmt: skip
"""Verbs that have to be told where their result goes."""


def _is_name(text: str) -> bool:
    """Return whether a text is a name long enough to be recognised with one wrong letter."""
    return bool(re.fullmatch(r"[A-Za-z][\w.()@/-]*", text)) and sum(map(str.isalpha, text)) > 2


def _of_another_kind(value: Any, draw: random.Random) -> Any:
    """Return plain data of a type that is invalid in place of a value."""
    if isinstance(value, bool):
        return draw.choice(("maybe", [True, False], {"on": 1}))
    if isinstance(value, int | float):
        return draw.choice(("fast", [[]], {"x": 1}))
    if isinstance(value, str):
        return draw.choice(({"x": 1}, [[1]]))
    if isinstance(value, list):
        return draw.choice((7.5, "none", {"x": {"y": 1}}))
    return draw.choice((7.5, [1.5, []], "none"))
