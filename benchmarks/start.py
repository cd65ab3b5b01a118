# SPDX-License-Identifier: Apache-2.0
"""CPU time from a shell's prompt until a verb computes: Python, imports, arguments; caches are warm.

    python benchmarks/start.py --json benchmarks/results/start.json

A verb starts computing at its first report of progress, or its end. Each figure is the minimum of five starts,
interleaved with those of the other verbs. `simulated` also builds a simulator, which imports Newton. `policy train`
reports for the first time after an update.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import require, result_parser, write_result
from neurodyn.robots import asset_path, load

WATCHED = """
import atexit, os, sys, time
from neurodyn.cli.main import main
from neurodyn.cli.terminal.console import ProgressBar
def tell():
    print(f"computes after {time.process_time()}", flush=True)
def reached(bar, done, text):
    if sys.argv[1] in text:
        tell()
        os._exit(0)
ProgressBar.update = reached
atexit.register(tell)
main(sys.argv[2:])
"""
GO2 = Path(__file__).resolve().parent.parent / "examples" / "real_robots" / "go2"
SMALL = ("--rollouts", "2", "--horizon", "2")
VERBS: dict[str, tuple[str, ...]] = {
    "init": ("", "init", str(asset_path(load("planar-runner"))), "--out", "{new}"),
    "check": ("", "check", "{robot}"),
    "hybrid": ("", "hybrid", "{robot}", "--out", "{new}"),
    "evaluate": ("", "evaluate", "pretrained:cartpole", *SMALL),
    "evaluate_simulated": ("model", "evaluate", "pretrained:cartpole", *SMALL),
    "policy_play": ("", "policy", "play", "pretrained-policy:cartpole"),
    "adapt": ("", "adapt", str(GO2), "--data", "{log}", "--out", "{new}"),
    "policy_train": ("", "policy", "train", "cartpole-swingup", "--dynamics", "hybrid", "--out", "{new}"),
}


def start(verb: str, folder: Path, number: int) -> float:
    """Return the CPU time of one start [s]."""
    words = [
        word.format(robot=folder / "robot", log=folder / "log.h5", new=folder / f"{verb}{number}")
        for word in VERBS[verb]
    ]
    compiled = {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, **compiled, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    told = [line for line in done.stdout.splitlines() if line.startswith("computes after")]
    require(done.returncode == 0 and bool(told), f"{verb} did not start: {done.stderr}")
    return float(told[0].rpartition(" ")[2])


def main() -> None:
    """Start every verb, and write the times."""
    parser = result_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        read = ("import", str(GO2 / "log.npz"), "--reader", str(GO2 / "map.yaml"), "--out", str(folder / "log.h5"))
        for words in ((*VERBS["init"][1:-1], str(folder / "robot")), read):
            subprocess.run([sys.executable, "-m", "neurodyn", *words], check=True, capture_output=True)
        rounds = [{verb: start(verb, folder, number) for verb in VERBS} for number in range(given.rounds + 1)]
    least = {f"{verb}_cpu_s": min(one[verb] for one in rounds[1:]) for verb in VERBS}  # the first fills the caches
    write_result(given.json, "start", least, {})


if __name__ == "__main__":
    main()
