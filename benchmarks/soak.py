# SPDX-License-Identifier: Apache-2.0
"""A soak: generate, train and evaluate in turns for hours, under kills, full disks and broken inputs; is memory flat?

    OMP_NUM_THREADS=1 python benchmarks/soak.py --minutes 120 [--log FILE.jsonl] [--share 0.3] [--json FILE]

One process generates data, trains on them and evaluates the model in each round; all results must be bitwise equal to
those of the robot's first round. Its forks meet faults in the same verbs, and must then continue with --resume to the
same bits. The log has one line per round; started again with the same log, the soak continues.

Memory is flat if the resident memory after each round, from the second quarter of a process's rounds on, grows by no
more than 2 % of its median over all of them (Theil-Sen slope times rounds), and the forks' peaks by no more than 4 %.
Open files and threads must not grow at all.
"""

import argparse
import contextlib
import gc
import hashlib
import io
import json
import os
import random
import resource
import shutil
import statistics
import tempfile
import time
from itertools import combinations
from pathlib import Path

import h5py
from safetensors.numpy import load_file

from _common import require, single_thread, write_result
from _faults import child, complaint, damaged, ended, files_end_at, whole
from neurodyn.cli.main import run

ROBOTS = {"cartpole": "40", "pendulum": "120"}
"""Robots, and enough steps for their training not to count as diverged."""
FLAT, FLAT_FORKS = 0.02, 0.04
"""Maximum growth of memory over the judged rounds, relative to its median."""


def resident() -> float:
    """Return the resident memory of this process [MiB]."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def cpu() -> float:
    """Return the CPU time of this process and of its ended children [s]."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def digest(target: Path) -> str:
    """Return the SHA-256 of all arrays of a store, or of all weights of a run."""
    found = hashlib.sha256()
    if target.is_dir():
        for name, weight in sorted(load_file(target / "model" / "model.safetensors").items()):
            found.update(name.encode() + weight.tobytes())
        return found.hexdigest()
    with h5py.File(target) as file:
        arrays: dict[str, h5py.Dataset] = {}
        file.visititems(lambda name, item: arrays.update({name: item}) if isinstance(item, h5py.Dataset) else None)
        for name, array in sorted(arrays.items()):
            if array.dtype.kind in "fiu":
                found.update(name.encode() + array[()].tobytes())
    return found.hexdigest()


class Soak:
    """The rounds, each in its own temporary folder."""

    def __init__(self, seed: int) -> None:
        """Start without earlier results of any robot."""
        self.draw, self.known = random.Random(seed), {}
        self.seconds: dict[str, float] = {}
        self.failures: list[str] = []
        self.peak = 0.0

    def turn(self, number: int) -> dict[str, object]:
        """Perform one round; return its line for the log."""
        begin, spent = time.monotonic(), cpu()
        self.failures, self.peak = [], 0.0
        robot, folder = list(ROBOTS)[number % len(ROBOTS)], Path(tempfile.mkdtemp(prefix="soak"))
        try:
            self.sound(robot, folder)
            fault = (self.killed, self.full, self.broken)[number // len(ROBOTS) % 3]
            fault(robot, folder)
            left = [path.name for path in folder.rglob(".*.lock")]
            if left:
                self.failures.append(f"left behind: {left}")
        finally:
            shutil.rmtree(folder)
        gc.collect()
        return {
            "turn": number, "process": os.getpid(), "robot": robot, "fault": fault.__name__, "time": round(time.time()),
            "seconds": round(time.monotonic() - begin, 2), "cpu": round(cpu() - spent, 2),
            "resident": round(resident(), 2), "peak": round(self.peak, 2),
            "files": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
            "failures": self.failures,
        }  # fmt: skip

    def verbs(self, robot: str, folder: Path) -> dict[str, tuple[list[str], Path]]:
        """Return the verbs of a round with their arguments and targets."""
        data, model, found = folder / "data.h5", folder / "run", folder / "found.json"
        generate = ["generate", robot, "--transitions", "4000", "--threads", "1", "--out", str(data)]
        train = ["train", robot, "--data", str(data), "--steps", ROBOTS[robot], "--out", str(model)]
        evaluate = ["evaluate", str(model), "--horizon", "50", "--rollouts", "32", "--threads", "1"]
        evaluate += ["--json", str(found)]
        return {"generate": (generate, data), "train": (train, model), "evaluate": (evaluate, found)}

    def sound(self, robot: str, folder: Path) -> None:
        """Run the verbs in this process: the same bits in every round."""
        for verb, (arguments, target) in self.verbs(robot, folder).items():
            text, begin = io.StringIO(), time.monotonic()
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                code = run(arguments)
            self.seconds[verb] = time.monotonic() - begin
            if code != 0:
                self.failures.append(f"{verb} {robot}: exit code {code}: {text.getvalue().strip()[-200:]}")
            elif verb != "evaluate":
                self.same(verb, robot, target)
            else:
                self.compared(f"{verb} {robot}", errors(target))

    def same(self, verb: str, robot: str, target: Path) -> None:
        """Compare a verb's output with that of the first round."""
        self.compared(f"{verb} {robot}", digest(target))

    def compared(self, what: str, found: str) -> None:
        """Compare a digest with the first of its kind."""
        if self.known.setdefault(what, found) != found:
            self.failures.append(f"{what}: other bits than in the first turn")

    def fork(
        self, what: str, arguments: list[str], folder: Path, *, may: tuple[int, ...] = (0, 2), **how
    ) -> int | None:
        """Run a command in a fork; record what is wrong with how it ended, and return its exit code."""
        output, kill_after = folder / "output.txt", how.pop("kill_after", None)
        done = ended(child(arguments, output=output, **how), kill_after=kill_after)
        self.peak = max(self.peak, done.peak)
        wrong = None if done.code in may and done.code != 2 else complaint(done.code, output)
        if wrong or done.code not in may:
            self.failures.append(f"{what}: {wrong or f'exit code {done.code}'}")
        return done.code

    def again(self, verb: str, robot: str, arguments: list[str], target: Path, folder: Path) -> None:
        """Resume an interrupted verb: the same bits as without a fault."""
        if wrong := whole(target):
            self.failures.append(f"{verb} {robot}: {wrong}")
        if verb == "generate" and target.exists():  # it had finished
            return self.same(verb, robot, target)
        if self.fork(f"{verb} {robot} --resume", [*arguments, "--resume"], folder, may=(0,)) == 0:
            self.same(verb, robot, target)
        return None

    def afresh(self, robot: str, folder: Path) -> dict[str, tuple[list[str], Path]]:
        """Return generate and train, with train's data in place and no output of train."""
        verbs = self.verbs(robot, folder / "faults")
        (folder / "faults").mkdir(exist_ok=True)
        return {verb: verbs[verb] for verb in ("generate", "train")}

    def killed(self, robot: str, folder: Path) -> None:
        """Kill generate and train at random moments, then resume."""
        for verb, (arguments, target) in self.afresh(robot, folder).items():
            after = self.draw.uniform(0.0, self.seconds[verb])
            self.fork(f"{verb} {robot} killed", arguments, folder, may=(0, -9), kill_after=after)
            self.again(verb, robot, arguments, target, folder)

    def full(self, robot: str, folder: Path) -> None:
        """Limit the file size, then resume without the limit."""
        for verb, (arguments, target) in self.afresh(robot, folder).items():
            size = self.draw.choice((0, 100, 4096, 50_000, 400_000))
            output = Path(os.devnull)  # not to the full disk
            done = ended(child(arguments, limit=files_end_at(size), output=output))
            self.peak = max(self.peak, done.peak)
            if done.code not in (0, 2):
                self.failures.append(f"{verb} {robot} at {size} bytes: exit code {done.code}")
            self.again(verb, robot, arguments, target, folder)

    def broken(self, robot: str, folder: Path) -> None:
        """Give damaged data to train, and a damaged model to evaluate."""
        verbs = self.verbs(robot, folder)
        (train, _), (evaluate, _) = verbs["train"], verbs["evaluate"]
        data, weights = folder / "data.h5", folder / "run" / "model" / "model.safetensors"
        for file, arguments in ((data, [*train[:-1], str(folder / "other")]), (weights, evaluate)):
            file.write_bytes(damaged(file.read_bytes(), self.draw))
            self.fork(f"{arguments[0]} {robot} of a damaged {file.name}", arguments, folder)


def errors(result: Path) -> str:
    """Return the figures of an evaluation, without times."""
    found = json.loads(result.read_text())
    return json.dumps([found[key] for key in ("by_horizon", "finite_fraction", "verdict")])


def growth(values: list[float]) -> float:
    """Return the relative growth of values: Theil-Sen slope times their number, over their median."""
    if len(values) < 2:
        return 0.0
    slopes = [(b - a) / (j - i) for (i, a), (j, b) in combinations(enumerate(values), 2)]
    return statistics.median(slopes) * len(values) / statistics.median(values)


def judged(lines: list[dict]) -> tuple[dict[str, float], list[str]]:
    """Return the figures of a log, and any failures."""
    figures: dict[str, float] = {
        "turns": len(lines), "hours": sum(line["elapsed"] for line in lines) / 3600,
        "cpu_hours": sum(line["cpu"] for line in lines) / 3600,
        "failures": sum(len(line["failures"]) for line in lines),
    }  # fmt: skip
    wrong = [f"turn {line['turn']}: {failure}" for line in lines for failure in line["failures"]]
    processes = {line["process"] for line in lines}
    longest = max(processes, key=lambda process: sum(line["process"] == process for line in lines))
    turns = [line for line in lines if line["process"] == longest]
    turns = turns[len(turns) // 4 :]
    for key, most in (("resident", FLAT), ("peak", FLAT_FORKS), ("files", 0.0), ("threads", 0.0)):
        values = [line[key] for line in turns]
        figures |= {f"{key}_first": values[0], f"{key}_last": values[-1], f"{key}_most": max(values)}
        figures[f"{key}_growth"] = growth(values)
        if figures[f"{key}_growth"] > most:
            wrong.append(f"{key} grew by {figures[f'{key}_growth']:.1%} over {len(values)} turns; at most {most:.0%}")
    return figures, wrong


def main() -> None:
    """Perform rounds until the time is up, then judge the log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--share", type=float, default=0.3, help="most of one core to use")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    single_thread()
    log = arguments.log
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log and log.exists() else []
    past = sum(line["elapsed"] for line in lines)
    soak = Soak(arguments.seed + len(lines))
    while past < 60 * arguments.minutes:
        begin = time.monotonic()
        line = soak.turn(len(lines))
        time.sleep(max(0.0, line["cpu"] / arguments.share - (time.monotonic() - begin)))
        line["elapsed"] = round(time.monotonic() - begin, 2)
        past += line["elapsed"]
        lines.append(line)
        print(json.dumps(line), flush=True)
        if log:
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
    figures, wrong = judged(lines)
    write_result(arguments.json, "soak", figures, {})
    require(not wrong, "\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
