# SPDX-License-Identifier: Apache-2.0
"""The campaign: broken inputs, kills, faults of disk and memory, poisoned worlds, mistakes, drawn robots and logs.

    OMP_NUM_THREADS=1 python benchmarks/campaign.py [--short] [--seed 0] [--log FILE.jsonl] [--json FILE]

A run passes if the command ends with 0, or with 2 and one line, never a traceback, and if the target is complete; a
mistake (_mistakes.py) is refused with a line that says where, what, and what would be valid (_refusals.py); a robot
drawn as MJCF or URDF (_generated_robots.py) moves as its file does in plain MuJoCo, or as without the parts that `init`
names, or is refused in a line (_same_motion.py); a log drawn in a format and conventions
(_generated_logs.py) comes back as the motion that it is of by its column map and by the drafted one, unless the output
doubts it, or is refused in a line (_same_log.py); a verb whose files are missing, half written or of other kinds
refuses them before any work (_mutated_commands.py). Other runs are forks of this process, with everything imported:
they take a fraction of a second. A run depends only on the seed, its kind and its number: --log keeps a line for each,
and runs in it are not repeated; --number 17 --only broken repeats one, --first 900 leaves those before out, and --keep
leaves the files.
Counts are those of the table in docs/reliability.md; --short is the form for continuous integration.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
import warp as wp
import yaml

import neurodyn
from _broken import SETTINGS, BrokenInputs
from _common import single_thread, write_result
from _faults import child, complaint, ended, files_end_at, memory_ends_after, whole
from _generated_robots import drawn
from _mistakes import Mistakes
from _mutated_commands import MutatedCommands
from _refusals import refused
from _same_log import check_log
from _same_motion import compare
from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.dynamics import BaseDynamics, State, Trajectory
from neurodyn.dynamics.guard import watching
from neurodyn.robots import ROBOTS

FULL = {
    "broken": 2000,
    "kills": 400,
    "disk": 60,
    "writers": 20,
    "memory": 40,
    "poisoned": 35,
    "mistakes": 500,
    "robots": 2000,
    "logs": 1000,
    "commands": 320,
}
SHORT = {
    "broken": 12, "kills": 5, "disk": 2, "writers": 1, "memory": 2, "poisoned": 15, "mistakes": 30, "robots": 24,
    "logs": 30, "commands": 16,
}  # fmt: skip
NAMES = {
    "broken": "broken inputs", "kills": "kills over ten verbs", "disk": "disk faults", "writers": "pairs of writers",
    "memory": "low-memory runs", "poisoned": "poisoned worlds",
    "mistakes": "mistakes of people", "robots": "drawn robots beside plain MuJoCo",
    "logs": "drawn logs of known motions", "commands": "commands with odd files",
}  # fmt: skip
ALONE = {"robots", "logs"}
"""Kinds that need no data and model of a robot."""
KEPT = {
    "robots": ((57, 1384), (57, 1644), (57, 1816)),
    "logs": ((57, 96), (57, 162)),
    "commands": ((58, 30), (58, 317)),
}
"""Seeds and numbers of runs that once failed, by kind: they are repeated in every campaign."""


WORLDS, FRAMES = 6, 30
"""Worlds and frames of a poisoned roll-out."""


def quick_cartpole(folder: Path) -> str:
    """Declare a cartpole in plain MuJoCo, which has no kernels to compile, in a folder; return its path."""
    shutil.copytree(ROBOTS["cartpole"].parent, folder)
    declaration = yaml.safe_load((folder / "robot.yaml").read_text())
    (folder / "robot.yaml").write_text(yaml.safe_dump(declaration | {"simulator": {"solver": "mujoco-c"}}))
    return str(folder)


class SoundRollout(NamedTuple):
    """A model, and its motion from rest without faults."""

    model: BaseDynamics
    begin: State
    path: Trajectory


def sound_rollout(name: str) -> SoundRollout:
    """Load a model and roll it out without any torque."""
    model = neurodyn.load(name)
    q = torch.zeros(WORLDS, model.spec.nq)
    for at, joint in zip(model.spec.places, model.spec.joints, strict=True):
        if not joint.scalar:
            q[:, at.quaternion][:, 3] = 1.0
            q[:, at.q.start + 2] = 1.0
    state = State(q, torch.zeros(WORLDS, model.spec.nv))
    return SoundRollout(model, state, model.rollout(state, torch.zeros(WORLDS, FRAMES, model.spec.nu)))


class Campaign:
    """Inputs, and one method for each kind of run: it performs a run by number and returns what failed."""

    def __init__(
        self, folder: Path, seed: int, keep: bool, log: Path | None, *, robot: str = "cartpole", verbs: int = 10,
        short: bool = False,
    ) -> None:  # fmt: skip
        """Take a folder for the runs; `verbs` is the number of verbs used.

        The engine, whose code a machine compiles for each robot, sees a quarter of the drawn robots in a `short` one.
        """
        self.short, self.verbs = short, verbs
        self.folder, self.seed, self.keep, self.log, self.robot = folder, seed, keep, log, robot
        self.data, self.model = folder / "data.h5", folder / "model-run"
        self.size = ["--size", str(folder / "settings.yaml"), "--steps", "60"]
        self._times: dict[str, float] = {}
        self._inputs: BrokenInputs | None = None
        self._sound_rollouts: dict[str, SoundRollout] = {}
        self._mistakes: Mistakes | None = None
        self._commands: MutatedCommands | None = None
        self.draw = random.Random()

    def prepare(self) -> None:
        """Generate data and a model of the robot, which all kinds but those in ALONE use."""
        (self.folder / "settings.yaml").write_text(yaml.safe_dump(SETTINGS))
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            make = ["generate", self.robot, "--transitions", "3000", "--threads", "1", "--out", str(self.data)]
            train = ["train", self.robot, "--data", str(self.data), *self.size, "--out", str(self.model)]
            codes = [run(make), run(train)]
            for number in range(self.verbs):  # imports the verbs' modules once instead of in every fork
                codes.append(run(self.verb(number, self.place(f"first{number}"))[1]))
        if any(codes):
            raise SystemExit(f"the campaign could not begin: exit codes {codes}\n{quiet.getvalue()}")

    def take(self, kind: str, seed: int, number: int, place: Path) -> tuple[str, str | None]:
        """Perform one run in its own folder; return its description, and what failed."""
        self.draw = random.Random(f"{seed} {kind} {number}")
        place.mkdir()
        return getattr(self, kind)(number, place)

    def verb(self, number: int, place: Path) -> tuple[str, list[str], Path]:
        """Return one of ten verbs with its arguments and target."""
        data, model, robot = str(self.data), str(self.model), self.robot
        name, arguments, suffix = (
            ("generate", [robot, "--transitions", "2000", "--threads", "1"], ".h5"),
            ("train", [robot, "--data", data, *self.size], ""),
            ("finetune", [model, "--data", data, "--steps", "60"], ""),
            ("identify", [robot, "--data", data, "--parameters", "slider.damping"], ""),
            ("hybrid", [robot], ""),
            ("evaluate", [model, "--horizon", "20", "--rollouts", "32", "--threads", "1"], ".json"),
            ("view", [model, "--seconds", "0.2"], ".html"),
            ("export", [model], ".onnx"),
            ("inspect", [data], ".json"),
            ("check", [robot, "--worlds", "4", "--frames", "20"], ".json"),
        )[number % 10]
        target = place / f"out{suffix}"
        return name, [name, *arguments, "--json" if suffix == ".json" else "--out", str(target)], target

    def broken(self, number: int, place: Path) -> tuple[str, str | None]:
        """Give a damaged file to the verb that reads it."""
        if self._inputs is None:
            self._inputs = BrokenInputs(self.folder / "inputs", self.data, self.model, self.robot)
        sound = self.place(f"input{number}")
        name, arguments, _ = self._inputs.sound(number, sound)
        self._time(f"{arguments[0]} {name}", arguments)
        shutil.rmtree(sound)
        name, arguments = self._inputs.damage(number, self.draw, place)
        return f"{arguments[0]} {name}", self._ends_well(arguments, place, memory_ends_after(4 << 30))

    def _ends_well(self, arguments: list[str], place: Path, limit: Callable[[], None] | None = None) -> str | None:
        output = place / "output.txt"
        return complaint(ended(child(arguments, limit=limit, output=output)).code, output)

    def place(self, name: str) -> Path:
        """Return a new folder."""
        (self.folder / name).mkdir()
        return self.folder / name

    def _time(self, what: str, arguments: list[str]) -> float:
        """Return the time of a command without faults [s]: a refused one would prove nothing."""
        if what not in self._times:
            begin, output = time.monotonic(), self.folder / "output.txt"
            code = ended(child(arguments, output=output)).code
            if code != 0:
                said = output.read_text(errors="replace").strip()[-300:]
                raise SystemExit(f"verbs fail without any fault:\n{what}: exit code {code}: {said}")
            self._times[what] = time.monotonic() - begin
        return self._times[what]

    def kills(self, number: int, place: Path) -> tuple[str, str | None]:
        """Kill a verb at a random moment: the target must be complete or absent."""
        name, arguments, target = self.verb(number, place)
        whole_time = self._time(name, self.verb(number, self.place(f"sound{number}"))[1])
        after = self.draw.uniform(0.0, whole_time)
        ended(child(arguments, output=place / "output.txt"), kill_after=after)
        return name, whole(target)

    def disk(self, number: int, place: Path) -> tuple[str, str | None]:
        """Limit the file size, as on a full disk."""
        name, arguments, target = self.verb(number, place)
        size = self.draw.choice((0, 100, 4096, 50_000, 400_000))
        output = Path(os.devnull)  # not to the full disk
        code = ended(child(arguments, limit=files_end_at(size), output=output)).code
        failure = "hangs" if code is None else None if code in (0, 2) else f"exit code {code}"
        return f"{name} at {size} bytes", failure or whole(target)

    def writers(self, number: int, place: Path) -> tuple[str, str | None]:
        """Let two processes write to one target: one is refused."""
        name = ("generate", "train")[number % 2]
        more = ["--transitions", "20000", "--threads", "1"] if name == "generate" else ["--steps", "200"]
        target = place / ("out.h5" if name == "generate" else "out")
        data = ["--data", str(self.data)] if name == "train" else []
        outputs = [place / f"output{i}.txt" for i in range(2)]
        pids = [child([name, self.robot, *data, *more, "--out", str(target)], output=output) for output in outputs]
        codes = [ended(pid).code for pid in pids]
        failure = next((x for c, o in zip(codes, outputs, strict=True) if (x := complaint(c, o))), None)
        if failure is None and sorted(codes, key=str) != [0, 2]:
            failure = f"exit codes {codes}"
        return name, failure or whole(target)

    def memory(self, number: int, place: Path) -> tuple[str, str | None]:
        """Give a verb little more memory than this process has."""
        name, arguments, target = self.verb(number, place)
        more = self.draw.choice((4, 16, 64, 256)) << 20
        return f"{name} with {more >> 20} MiB", self._ends_well(arguments, place, memory_ends_after(more)) or whole(
            target
        )

    def mistakes(self, number: int, place: Path) -> tuple[str, str | None]:
        """Make a mistake in a declaration, a log, settings or a command: the refusal is clear and leaves nothing."""
        if self._mistakes is None:
            self._mistakes = Mistakes(self.folder / "sound-inputs", self.data, self.model)
        mistake = self._mistakes.make(number, self.draw, place)
        return f"{mistake.arguments[0]}: {mistake.what}", refused(mistake, place)

    def robots(self, number: int, place: Path) -> tuple[str, str | None]:
        """Declare a robot that was drawn at random: it moves as its file does, or the output says what differs."""
        file = drawn(number, self.draw, place)
        if file is None:
            return "not for MuJoCo", None
        try:
            difference = compare(file, place / "declared", number, engine=not self.short or number % 4 == 0)
        except InputError as error:
            return f"{file.suffix[1:]}, refused: {error}", None if "\n" not in str(error) else "more than a line"
        except Exception as error:
            return file.suffix[1:], f"{type(error).__name__}: {error}"
        return file.suffix[1:], None if difference.named else difference.what

    def logs(self, number: int, place: Path) -> tuple[str, str | None]:
        """Import a log that was drawn at random: it is the motion that was logged, or the output doubts it."""
        return check_log(number, self.draw, place)

    def commands(self, number: int, place: Path) -> tuple[str, str | None]:
        """Give a verb a file that is missing, half written or of another kind: it is refused before any work."""
        if self._commands is None:
            self._commands = MutatedCommands(self.folder / "sound-files", self.data, self.model)
        return self._commands.check(number, self.draw, place)

    def poisoned(self, number: int, place: Path) -> tuple[str, str | None]:
        """Poison one world of a roll-out: it is named with its frame, and the others stay bitwise equal."""
        names = ("pretrained:cartpole", "pretrained:pendulum", "pretrained:ant", "pretrained:cube", str(self.model))
        name, value = names[number % len(names)], (math.nan, math.inf, -math.inf)[number % 3]
        if name not in self._sound_rollouts:
            self._sound_rollouts[name] = sound_rollout(name)
        model, begin, sound = self._sound_rollouts[name]
        state, torque = State(begin.q.clone(), begin.qd.clone()), torch.zeros(WORLDS, FRAMES, model.spec.nu)
        world = self.draw.randrange(WORLDS)
        frame = self.draw.randrange(FRAMES) if model.spec.nu else 0
        if model.spec.nu:
            torque[world, frame] = value
            frame += 1
        else:
            state.qd[world, -1] = value
        with watching() as watch:
            path = model.rollout(state, torque)
        others = [i for i in range(WORLDS) if i != world]
        found = [(fault.world, fault.frame) for fault in watch.faults]
        failure = None if found == [(world, frame)] else f"named {found} instead of {(world, frame)}"
        if not torch.equal(path.q[others], sound.q[others]):
            failure = "the other worlds were touched"
        return Path(name).name, failure


def runs(campaign: Campaign, kind: str, asked: list[tuple[int, int]], done: list[dict]) -> list[dict]:
    """Perform the runs of a kind that are not done yet, each by its seed and number, and return the lines of all."""
    lines = [line for line in done if line["kind"] == kind and (line["seed"], line["number"]) in asked]
    known = {(line["seed"], line["number"]) for line in lines}
    for seed, number in asked:
        if (seed, number) in known:
            continue
        begin, place = time.monotonic(), campaign.folder / f"{kind}{seed}-{number}"
        what, failure = campaign.take(kind, seed, number, place)
        line = {"kind": kind, "seed": seed, "number": number, "what": what, "failed": failure}
        line["seconds"] = round(time.monotonic() - begin, 2)
        lines.append(line)
        if failure:
            print(f"    {kind} {number} of seed {seed}: {what}: {failure}", flush=True)
        if campaign.log:
            with campaign.log.open("a") as file:
                file.write(json.dumps(line) + "\n")
        if not campaign.keep:
            shutil.rmtree(place, ignore_errors=True)
    return lines


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(FULL), default=list(FULL))
    parser.add_argument("--share", type=float, default=1.0, help="share of the counts")
    parser.add_argument("--number", type=int, help="this run alone")
    parser.add_argument("--first", type=int, default=0, help="begin at this run")
    parser.add_argument("--keep", action="store_true", help="leave the files of the runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    single_thread()
    if arguments.short:  # kernels run for a few frames and take seconds to compile
        wp.config.optimization_level = 0
    counts = SHORT if arguments.short else FULL
    log = arguments.log and arguments.log.resolve()
    done = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    rows, figures, failures = ["| what | runs | failed | seconds |", "|---|---|---|---|"], {}, {}
    folder = Path(tempfile.mkdtemp(prefix="campaign"))
    here = Path.cwd()
    try:
        verbs = min(10, max(counts[kind] for kind in ("kills", "disk", "memory")))
        robot = quick_cartpole(folder / "robot") if arguments.short else "cartpole"
        campaign = Campaign(
            folder, arguments.seed, arguments.keep, log, robot=robot, verbs=verbs, short=arguments.short
        )
        if not ALONE.issuperset(arguments.only):
            campaign.prepare()
        os.chdir(folder)
        for kind in arguments.only:
            numbers = range(arguments.first, max(1, round(arguments.share * counts[kind])))
            asked = [*KEPT.get(kind, ()), *((arguments.seed, number) for number in numbers)]
            if arguments.number is not None:
                asked = [(arguments.seed, arguments.number)]
            lines = runs(campaign, kind, list(dict.fromkeys(asked)), done)
            failures[kind] = [f"{line['number']}: {line['what']}: {line['failed']}" for line in lines if line["failed"]]
            seconds = sum(line["seconds"] for line in lines)
            rows.append(f"| {NAMES[kind]} | {len(lines)} | {len(failures[kind])} | {seconds:.0f} |")
            print(rows[-1], flush=True)
            figures |= {f"{kind}_runs": len(lines), f"{kind}_failed": len(failures[kind])}
    finally:
        os.chdir(here)
        if arguments.keep:
            print(f"files: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(rows) + "\n", encoding="utf-8")
    write_result(arguments.json, "campaign", figures, {})
    if any(failures.values()):
        print(json.dumps({kind: found[:5] for kind, found in failures.items() if found}, indent=2), file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
