# SPDX-License-Identifier: Apache-2.0
"""The campaign: broken inputs, kills, disk faults, pairs of writers, low memory, poisoned worlds; what failed, by kind.

    OMP_NUM_THREADS=1 python benchmarks/campaign.py [--short] [--seed 0] [--markdown FILE] [--json FILE]

A run passes where the command ends with 0 or with 2 and one line, never a traceback, and where whatever stands under
the name of a target is whole. Every run is a fork of this process, which has imported all: it takes a fraction of a
second. Counts are those of the table in docs/guard.md; --short is the form for continuous integration.
"""

import argparse
import contextlib
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

import neurodyn
from _common import single_thread, write_result
from neurodyn.cli.main import run
from neurodyn.core.errors import InputError
from neurodyn.data.store import Store
from neurodyn.dynamics.guard import watching
from neurodyn.dynamics.interface import State

FULL = {"broken": 2000, "kills": 400, "disk": 60, "writers": 20, "memory": 40, "poisoned": 35}
SHORT = {"broken": 12, "kills": 10, "disk": 2, "writers": 1, "memory": 2, "poisoned": 35}
NAMES = {
    "broken": "broken inputs", "kills": "kills over ten verbs", "disk": "disk faults", "writers": "pairs of writers",
    "memory": "low-memory runs", "poisoned": "poisoned worlds",
}  # fmt: skip
LONGEST = 60.0
"""Seconds after which a run counts as hanging."""


@dataclass
class Tally:
    """Runs of one kind: how many, and what failed."""

    runs: int = 0
    failed: list[str] = field(default_factory=list)

    def count(self, what: str, failure: str | None) -> None:
        """Count a run."""
        self.runs += 1
        if failure:
            self.failed.append(f"{what}: {failure}")


def child(arguments: list[str], *, limit: Callable[[], None] | None = None, output: Path) -> int:
    """Start a command in a fork, after limits were set there; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        with output.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
            try:
                if limit is not None:
                    limit()
                code = run(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:  # whatever it is, it is a failure that the parent reads
                traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int, seconds: float = LONGEST) -> int | None:
    """Return the exit code of a child, negative for a signal; None where it hangs, and is ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def complaint(code: int | None, output: Path) -> str | None:
    """Return what is wrong with how a command ended; None where nothing is."""
    text = output.read_text(errors="replace")
    if code is None:
        return "hangs"
    if code not in (0, 2):
        return f"exit code {code}: {text.strip().splitlines()[-1:]}"
    if "Traceback" in text:
        return f"traceback: {text.strip().splitlines()[-1:]}"
    said = [line for line in text.splitlines() if line.startswith("neurodyn: ") and "note:" not in line]
    return None if code == 0 or len(said) == 1 else f"exit code 2 with {len(said)} lines"


def whole(target: Path) -> str | None:
    """Return what is wrong with what stands under the name of a target; None where it is whole or not there."""
    try:
        if target.suffix == ".h5" and target.exists():
            Store.open(target)
        if (target / "model" / "config.json").exists():
            neurodyn.load(target)
    except (InputError, OSError, ValueError) as error:
        return f"half written: {error}"
    return None


class Campaign:
    """Material, and one method for each kind of run."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Make the data and the model that the runs take."""
        self.folder, self.random, self.number = folder, random.Random(seed), 0
        self.data, self.model = folder / "data.h5", folder / "model-run"
        quiet = io.StringIO()
        with contextlib.redirect_stdout(quiet):
            make = ["generate", "cartpole", "--transitions", "3000", "--threads", "1", "--out", str(self.data)]
            train = ["train", "cartpole", "--data", str(self.data), "--steps", "60", "--out", str(self.model)]
            codes = [run(make), run(train)]
        if codes != [0, 0]:
            raise SystemExit(f"the campaign could not begin: exit codes {codes}\n{quiet.getvalue()}")
        self.settings = folder / "settings.yaml"
        net, phases = "net: {kind: mlp, width: 16, depth: 1}", "phases: [{share: 1.0, rate: 0.01, batch: 32}]"
        self.settings.write_text(f"{net}\n{phases}\n")

    def place(self, suffix: str = "") -> Path:
        """Return a path that nothing has had."""
        self.number += 1
        return self.folder / f"out{self.number}{suffix}"

    def verbs(self) -> Iterator[tuple[str, list[str], Path]]:
        """Yield ten verbs with their arguments and targets, again and again."""
        data, model = str(self.data), str(self.model)
        while True:
            for name, arguments, suffix in (
                ("generate", ["cartpole", "--transitions", "2000", "--threads", "1"], ".h5"),
                ("train", ["cartpole", "--data", data, "--steps", "300"], ""),
                ("finetune", [model, "--data", data, "--steps", "300"], ""),
                ("identify", ["cartpole", "--data", data, "--parameters", "slider.damping"], ""),
                ("hybrid", ["cartpole"], ""),
                ("evaluate", [model, "--horizon", "20", "--rollouts", "32", "--threads", "1"], ".json"),
                ("view", [model, "--seconds", "0.2"], ".html"),
                ("export", [model], ".onnx"),
                ("inspect", [data], ".json"),
                ("check", ["cartpole", "--worlds", "4", "--frames", "20"], ".json"),
            ):
                target = self.place(suffix)
                flag = "--json" if suffix == ".json" else "--out"
                yield name, [name, *arguments, flag, str(target)], target

    def broken(self, count: int) -> Tally:
        """Give damaged files to verbs: cut, with flipped bits, with strange bytes in them."""
        tally, weights = Tally(), self.model / "model" / "model.safetensors"
        config = self.model / "model" / "config.json"
        for number in range(count):
            source = (self.data, weights, config, self.settings)[number % 4]
            spoilt = self.place()
            spoilt.mkdir()
            if source in (weights, config):
                shutil.copytree(self.model / "model", spoilt / "model")
                shutil.copy(self.model / "config.yaml", spoilt)
                file = spoilt / "model" / source.name
                arguments = ["export", str(spoilt), "--out", str(spoilt / "x.onnx")]
            elif source == self.data:
                file = spoilt / "x.h5"
                arguments = ["inspect", str(file)]
            else:
                file = spoilt / "x.yaml"
                arguments = ["train", "cartpole", "--data", str(self.data), "--size", str(file), "--steps", "1",
                             "--out", str(spoilt / "run")]  # fmt: skip
            file.write_bytes(self._damaged(source.read_bytes()))
            tally.count(f"{source.name} {number}", self._ends_well(arguments))
            shutil.rmtree(spoilt, ignore_errors=True)
        return tally

    def _damaged(self, content: bytes) -> bytes:
        draw, data = self.random, bytearray(content)
        kind = draw.randrange(4)
        if kind == 0:
            return bytes(data[: draw.randrange(len(data))])
        if kind == 1:
            for _ in range(draw.randint(1, 8)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            return bytes(data)
        begin = draw.randrange(len(data))
        strange = (b"\0" * 64, b"\xff\xfe" * 32, b"1e999", b"nan", b"[" * 500, b"-1", os.urandom(64))
        piece = draw.choice(strange)
        return bytes(data[:begin]) + piece + bytes(data[begin + (len(piece) if kind == 2 else 0) :])

    def _ends_well(self, arguments: list[str], limit: Callable[[], None] | None = None) -> str | None:
        output = self.place(".txt")
        found = complaint(wait(child(arguments, limit=limit, output=output)), output)
        output.unlink()
        return found

    def sound(self) -> dict[str, float]:
        """Run each verb without any fault, and return its time [s]: one that is refused would prove nothing."""
        times, wrong = {}, []
        for _, (name, arguments, _) in zip(range(10), self.verbs(), strict=False):
            output, begin = self.place(".txt"), time.monotonic()
            code = wait(child(arguments, output=output), 4 * LONGEST)
            times[name] = time.monotonic() - begin
            if code != 0:
                wrong.append(f"{name}: exit code {code}: {output.read_text(errors='replace').strip()[-300:]}")
        if wrong:
            raise SystemExit("verbs fail without any fault:\n" + "\n".join(wrong))
        return times

    def kills(self, count: int) -> Tally:
        """Kill verbs at any moment: what stands under the target's name is whole."""
        tally, output, times = Tally(), self.place(".txt"), self.sound()
        for _, (name, arguments, target) in zip(range(count), self.verbs(), strict=False):
            pid = child(arguments, output=output)
            time.sleep(self.random.uniform(0.0, times[name]))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            tally.count(name, whole(target))
        return tally

    def disk(self, count: int) -> Tally:
        """Let files grow no further than so many bytes, as a full disk does."""
        tally = Tally()
        for _, (name, arguments, target) in zip(range(count), self.verbs(), strict=False):
            size = self.random.choice((0, 100, 4096, 50_000, 400_000))

            def limit(size: int = size) -> None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

            code = wait(child(arguments, limit=limit, output=Path(os.devnull)))  # not to the disk that is full
            failure = "hangs" if code is None else None if code in (0, 2) else f"exit code {code}"
            tally.count(f"{name} at {size} bytes", failure or whole(target))
        return tally

    def writers(self, count: int) -> Tally:
        """Let two write to one target: one of them is refused, or they come one after the other."""
        tally = Tally()
        for number in range(count):
            name = ("generate", "train")[number % 2]
            target = self.place(".h5" if name == "generate" else "")
            arguments = {
                "generate": ["generate", "cartpole", "--transitions", "20000", "--threads", "1", "--out", str(target)],
                "train": ["train", "cartpole", "--data", str(self.data), "--steps", "200", "--out", str(target)],
            }[name]
            outputs = [self.place(".txt") for _ in range(2)]
            pids = [child(arguments, output=output) for output in outputs]
            codes = [wait(pid) for pid in pids]
            failure = next((x for c, o in zip(codes, outputs, strict=True) if (x := complaint(c, o))), None)
            if failure is None and sorted(codes, key=str) != [0, 2]:
                failure = f"exit codes {codes}"
            tally.count(name, failure or whole(target))
        return tally

    def memory(self, count: int) -> Tally:
        """Give verbs little more memory than this process has."""
        tally = Tally()
        for _, (name, arguments, target) in zip(range(count), self.verbs(), strict=False):
            more = self.random.choice((4, 16, 64, 256)) << 20

            def limit(more: int = more) -> None:
                now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))

            tally.count(f"{name} with {more >> 20} MiB", self._ends_well(arguments, limit) or whole(target))
        return tally

    def poisoned(self, count: int) -> Tally:
        """Poison one world of a roll-out: it is named with its frame, and the others stay bitwise alone."""
        tally = Tally()
        names = ("pretrained:cartpole", "pretrained:pendulum", "pretrained:ant", "pretrained:cube", str(self.model))
        values = (math.nan, math.inf, -math.inf)
        models = [neurodyn.load(name) for name in names]
        for number in range(count):
            model = models[number % len(models)]
            worlds, frames, world = 6, 30, self.random.randrange(6)
            frame = self.random.randrange(frames) if model.spec.nu else 0
            value = values[number % len(values)]
            q = torch.zeros(worlds, model.spec.nq)
            for place, joint in zip(model.spec.places, model.spec.joints, strict=True):
                if not joint.scalar:
                    q[:, place.quaternion][:, 3] = 1.0
                    q[:, place.q.start + 2] = 1.0
            state = State(q, torch.zeros(worlds, model.spec.nv))
            torque = torch.zeros(worlds, frames, model.spec.nu)
            sound = model.rollout(state, torque)
            if model.spec.nu:
                torque[world, frame] = value
                frame += 1
            else:
                state.qd[world, -1] = value
            with watching() as watch:
                path = model.rollout(state, torque)
            others = [i for i in range(worlds) if i != world]
            found = [(fault.world, fault.frame) for fault in watch.faults]
            failure = None if found == [(world, frame)] else f"named {found} instead of {(world, frame)}"
            if not torch.equal(path.q[others], sound.q[others]):
                failure = "the other worlds were touched"
            tally.count(names[number % len(names)], failure)
        return tally


def main() -> None:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(FULL), default=list(FULL))
    parser.add_argument("--share", type=float, default=1.0, help="share of the counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    single_thread()
    counts = SHORT if arguments.short else FULL
    rows, figures, failures = ["| what | runs | failed | seconds |", "|---|---|---|---|"], {}, {}
    folder = Path(tempfile.mkdtemp(prefix="campaign"))
    here = Path.cwd()
    try:
        campaign = Campaign(folder, arguments.seed)
        os.chdir(folder)
        for kind in arguments.only:
            begin = time.perf_counter()
            tally: Tally = getattr(campaign, kind)(max(1, round(arguments.share * counts[kind])))
            seconds = time.perf_counter() - begin
            rows.append(f"| {NAMES[kind]} | {tally.runs} | {len(tally.failed)} | {seconds:.0f} |")
            print(rows[-1], *tally.failed[:20], sep="\n    ", flush=True)
            figures |= {f"{kind}_runs": tally.runs, f"{kind}_failed": len(tally.failed)}
            failures[kind] = tally.failed
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(rows) + "\n", encoding="utf-8")
    write_result(arguments.json, "campaign", figures, {})
    if any(failures.values()):
        print(json.dumps({kind: found[:5] for kind, found in failures.items() if found}, indent=2), file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
