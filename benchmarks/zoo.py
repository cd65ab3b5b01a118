# SPDX-License-Identifier: Apache-2.0
"""Third-party robots: which files open, and how closely the hybrid engine matches plain MuJoCo.

Takes folders, for example of unpacked wheels (`python -m zipfile -e WHEEL FOLDER`), and downloads nothing. Every MJCF
and URDF with moving bodies goes through `neurodyn init` without its check; then 100 frames of random control from
random states are rolled out in the declared simulator and in the hybrid engine, both in float64. The error is a median
over worlds that stay finite in the simulator; it is listed with the simulator's difference to itself after a
perturbation of 1e-6 rad or m at the start: if that is large, as with contacts that tip over, no engine could match it.

    OMP_NUM_THREADS=1 python benchmarks/zoo.py FOLDER... [--every 3] [--rows rows.jsonl] [--json results.json]

A file with a row in `--rows` is not measured again, so that a long run can be stopped and continued.
"""

import argparse
import json
import multiprocessing
import resource
import signal
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

FRAMES, WORLDS = 100, 16
NUDGE = 1e-6  # [rad or m]
_COLUMNS = (("init", ".1f"), ("hybrid", ".1f"), ("error", ".1e"), ("itself", ".1e"))
EXACT = 1e-3  # [rad or m]


def main() -> None:
    """Print a line per file, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every so many files, in their order")
    parser.add_argument("--limit", type=int, default=120, help="CPU-seconds for a file")
    parser.add_argument("--rows", type=Path, help="file to which rows are added, and from which they are taken")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    files = robots(arguments.folders)[:: arguments.every]
    known = measured(arguments.rows)
    rows = []
    heads = " ".join(f"{name:>8}" for name, _ in _COLUMNS)
    print(f"{'file':<64} {'dof':>4} {heads}  what is not modelled, or why not")
    for file in files:
        row = known.get(label(file)) or tried(file, arguments.limit)
        rows.append(row)
        if arguments.rows is not None and label(file) not in known:
            with arguments.rows.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
        said = row.get("refused") or row.get("failed") or "; ".join(row.get("unmodelled", ()))
        if "unstable" in row:
            said = f"MuJoCo itself becomes unstable in {row['unstable']} of {WORLDS} worlds; {said}"
        numbers = (show(row.get(key), form) for key, form in _COLUMNS)
        name, columns = "/".join(file.parts[-4:])[-64:], " ".join(f"{number:>8}" for number in numbers)
        print(f"{name:<64} {row.get('nv', ''):>4} {columns}  {said}", flush=True)
    summary = summarised(rows)
    print("\n".join(f"{name}: {value}" for name, value in summary.items()))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"summary": summary, "files": rows}, indent=1) + "\n")


def label(file: Path) -> str:
    """Return the name of a file in rows."""
    return "/".join(file.parts[-5:])


def measured(rows: Path | None) -> dict[str, dict[str, Any]]:
    """Return the rows of files measured before, by label."""
    lines = rows.read_text().splitlines() if rows is not None and rows.is_file() else []
    return {row["file"]: row for row in map(json.loads, lines)}


def show(value: float | None, form: str) -> str:
    """Return a number as text, or a dash."""
    return "-" if value is None else format(value, form)


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of opened and of exact files, and the slowest."""
    opened = [row for row in rows if "init" in row]
    compared = [row for row in opened if "error" in row]
    return {
        "files": len(rows),
        "opened": len(opened),
        "refused in one line": sum("refused" in row and "init" not in row for row in rows),
        "not taken by the hybrid engine, in one line": sum("refused" in row for row in opened),
        "failed, or took too long": sum("failed" in row for row in rows),
        "unstable in MuJoCo itself": sum("unstable" in row for row in opened),
        "compared": len(compared),
        f"within {EXACT:g} after {FRAMES} frames": sum(row["error"] <= EXACT for row in compared),
        f"beyond, where the simulator parts from itself by more than {EXACT:g}": sum(
            row["error"] > EXACT and row["itself"] > EXACT for row in compared
        ),
        "slowest init up to 35 degrees [CPU-s]": max((r["init"] for r in opened if r["nv"] <= 35), default=None),
        "slowest hybrid up to 35 degrees [CPU-s]": max(
            (r["hybrid"] for r in opened if "hybrid" in r and r["nv"] <= 35), default=None
        ),
    }


def robots(folders: list[Path]) -> list[Path]:
    """Return the MJCF and URDF files with moving bodies that MuJoCo itself opens."""
    import mujoco

    mujoco.set_mju_user_warning(lambda text: None)
    found = []
    for folder in folders:
        for file in sorted([*folder.rglob("*.xml"), *folder.rglob("*.urdf")]):
            text = file.read_text(errors="ignore")
            if "<mujoco" not in text and "<robot" not in text:
                continue
            try:
                moves = mujoco.MjModel.from_xml_path(str(file)).nv > 0
            except ValueError:
                continue
            if moves:
                found.append(file)
    return found


def tried(file: Path, limit: int) -> dict[str, Any]:
    """Measure a file in its own process."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_try, args=(file, limit, sender))
    process.start()
    sender.close()
    row: dict[str, Any] = {"file": label(file)}
    end = time.monotonic() + 20 * limit  # normally exits at once
    while time.monotonic() < end and receiver.poll(max(0.0, end - time.monotonic())):
        try:
            row |= receiver.recv()
        except EOFError:
            process.join()
            if process.exitcode == -signal.SIGXCPU:
                return row | {"failed": f"took more than {limit} CPU-s"}
            return row | ({"failed": f"ended with {process.exitcode}"} if process.exitcode else {})
    process.kill()
    return row | {"failed": f"took more than {20 * limit} s"}


def _try(file: Path, limit: int, sender: Any) -> None:
    import torch

    from neurodyn.core.errors import InputError

    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _measure(file, Path(folder) / "robot", sender)
    except InputError as error:
        sender.send({"refused": str(error)})
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        sender.send({"failed": f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"})
    sender.close()


def _measure(file: Path, folder: Path, sender: Any) -> None:
    import torch

    from neurodyn.core import generator
    from neurodyn.dynamics import Environment, State, declared_hybrid
    from neurodyn.geometry import Ground
    from neurodyn.sim import declare, sample_states, sample_torques, simulator

    start = time.process_time()
    declaration = declare(file, folder, name="robot")
    robot = declaration.robot
    notes = [one.value for one in declaration.decisions if one.what == "note"]
    sender.send({"init": time.process_time() - start, "nv": robot.spec.nv, "unmodelled": notes})
    scene = robot.named_ground()
    ground = None if scene is None else Ground(scene)
    rng = generator(0, "zoo")
    q, qd = sample_states(robot, WORLDS, rng, ground)
    control = sample_torques(robot, WORLDS, FRAMES, rng)
    worlds = simulator(robot, WORLDS, scene=scene)
    truth, _ = worlds.rollout(q, qd, control)
    columns = [column for place in robot.spec.places for column in range(place.q.start, place.q.stop)]
    nudged = q.clone()
    nudged[:, [place.q.start for place in robot.spec.places]] += NUDGE
    other, _ = worlds.rollout(nudged, qd, control)
    start = time.process_time()
    dynamics = declared_hybrid(robot).double()
    environment = None if ground is None else Environment(ground=ground)
    path = dynamics.rollout(State(q.double(), qd.double()), control.double(), environment=environment)
    taken = time.process_time() - start

    stable = truth.isfinite().all(-1).all(-1) & other.isfinite().all(-1).all(-1)
    if 2 * int(stable.sum()) < WORLDS:
        sender.send({"hybrid": taken, "unstable": int(WORLDS - stable.sum())})
        return

    def apart(path: torch.Tensor) -> float:
        difference = (path[stable, -1].double() - truth[stable, -1].double()).abs()[:, columns].amax(1)
        return float(difference.nan_to_num(nan=1e9).median())

    sender.send({"hybrid": taken, "error": apart(path.q), "itself": apart(other)})


if __name__ == "__main__":
    main()
