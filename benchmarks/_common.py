# SPDX-License-Identifier: Apache-2.0
"""Shared code of the benchmarks: one thread, CPU time, medians of interleaved rounds, kept rows, and results."""

import argparse
import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path


def single_thread() -> None:
    """Make torch use one thread, so that process CPU time is the time of the work."""
    import torch

    torch.set_num_threads(1)
    keep_memory()


def keep_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system, if there is glibc.

    Otherwise the kernel maps and zeroes each large temporary again. That cost depends on the system and on the size of
    temporaries, not on the methods compared.
    """
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2  # names in malloc.h: M_MMAP_THRESHOLD, ...
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(mmap_threshold, 32 << 20)
    mallopt(trim_threshold, 1 << 30)
    mallopt(top_pad, 128 << 20)


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    """Return the CPU seconds of one call of `work`, averaged over `repeat` calls."""
    start = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - start) / repeat


def compare(works: dict[str, Callable[[], object]], *, seconds: float = 1.0, rounds: int = 5) -> dict[str, float]:
    """Time several pieces of work in interleaved rounds.

    The pieces take turns, round by round, so that other load on the machine affects all equally.

    Args:
        works: Work to time, by name; called once beforehand to warm up.
        seconds: CPU seconds to spend on each piece in each round.
        rounds: Number of rounds.

    Returns:
        CPU seconds of one call, the median of the rounds, by name.
    """
    repeats = {}
    for name, work in works.items():
        work()
        repeats[name] = max(1, round(seconds / max(cpu_seconds(work, 2), 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            times[name].append(cpu_seconds(work, repeats[name]))
    return {name: statistics.median(found) for name, found in times.items()}


def machine() -> dict[str, object]:
    """Describe the machine, its GPU if used, and the versions that the figures depend on."""
    import numpy
    import torch

    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_initialized() else {}
    return {
        "cpu": model,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        **gpu,
    }


def commit() -> str:
    """Return the measured commit, with a plus appended if files differ from it; empty if there is none."""
    try:
        words = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        done = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def result_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of arguments with the file for the result, `--json`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the result")
    return parser


def board_parser(description: str | None, names: Sequence[str], data: Path, keep: Path) -> argparse.ArgumentParser:
    """Return a parser of the arguments of a table whose rows are measured once and kept; see `kept_rows`."""
    parser = result_parser(description)
    parser.add_argument("--only", nargs="+", default=list(names), choices=names, metavar="NAME")
    parser.add_argument("--data", type=Path, default=data, help="folder of the logs")
    parser.add_argument("--keep", type=Path, default=keep, help="folder of logs, runs and rows")
    parser.add_argument("--again", action="store_true", help="measure the rows again; trained models are kept")
    parser.add_argument("--page", type=Path, help="write the table there")
    return parser


def kept_rows(
    asked: argparse.Namespace,
    file: str,
    measure: Callable[[str], dict | None],
    summary: Callable[[dict], str] = str,
) -> dict[str, dict]:
    """Return the rows of a table, measuring those that are not kept.

    Args:
        asked: Arguments of a `board_parser`.
        file: File of a row in its folder within `asked.keep`.
        measure: Measures a row by name; None if that cannot be done.
        summary: A row in a line, to print.
    """
    from neurodyn.core import read_json, write_json

    rows: dict[str, dict] = {}
    for name in asked.only:
        kept = asked.keep / name / file
        if (asked.again or not kept.is_file()) and (row := measure(name)) is not None:
            write_json(kept, row)
        if kept.is_file():
            rows[name] = read_json(kept)
            print(name, summary(rows[name]), flush=True)
    return rows


def write_result(path: Path | None, name: str, figures: dict[str, float], ratios: dict[str, float]) -> None:
    """Print the figures and write them in the format shared by all benchmarks.

    Args:
        path: JSON file; None to print only.
        name: Name of the benchmark.
        figures: Measured figures; keys include units.
        ratios: Our time over the peer's, keyed WORK_vs_PEER_bN (N: batch or worlds); below 1 is faster.
    """
    command = " ".join(["python", *map(str, sys.argv)])
    result = {
        "name": name,
        "machine": machine(),
        "commit": commit(),
        "command": command,
        "checked": True,
        "figures": figures,
        "ratios": ratios,
    }
    for key, value in {**figures, **ratios}.items():
        print(f"{key:60s} {value:14.4g}")
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def require(condition: bool, what: str) -> None:
    """Stop the benchmark if a result is wrong: a wrong result has no speed."""
    if not condition:
        raise SystemExit(f"not timed, the check failed: {what}")
