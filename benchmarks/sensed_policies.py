# SPDX-License-Identifier: Apache-2.0
"""Policies of sensors of a worn Go1, by the model in which they were trained, judged in the Go1 itself.

    python benchmarks/onboard.py adapt --robot go1 --asset go1.xml --seed 2 --folder runs/onboard
    python benchmarks/sensed_policies.py --asset go1.xml --seed 2 --folder runs/onboard

trains `velocity` by its defaults in the declared model, in the one that was adapted to the sensors of a log, and in the
Go1 itself (the stand-in's own MJCF, declared), each as `neurodyn policy train` does, and plays all in plain MuJoCo
(`walkers.py`). Policies that are there are not trained again.
"""

from pathlib import Path

import mujoco

import _sensed_robots as sensed
from _common import result_parser, single_thread, write_result
from neurodyn.cli.main import run as command
from neurodyn.sim.declaration.declare import declare
from walkers import judged


def train(robot: Path, dynamics: str, out: Path) -> Path:
    """Train a policy that sees sensors, as a user does."""
    words = ["policy", "train", f"velocity@{robot}", "--observe", "sensors", "--reference", "none", "--one-robot"]
    if not out.exists() and command([*words, "--dynamics", dynamics, "--out", str(out)]):
        raise SystemExit(f"{out}: the training failed")
    return out


def main() -> None:
    parser = result_parser(__doc__)
    parser.add_argument("--asset", type=Path, default=Path("go1.xml"), help="go1.xml of mjlab's asset zoo")
    parser.add_argument("--seed", type=int, default=2, help="of the stand-in")
    parser.add_argument("--folder", type=Path, required=True, help="that of onboard.py")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    single_thread()
    folder, text = args.folder / "go1", sensed.go1_text(args.asset, args.seed)
    declared, itself = folder / "declared", folder / f"itself_{args.seed}"
    if not itself.exists():
        path = folder / f"itself_{args.seed}.xml"
        path.write_text(text, encoding="utf-8")
        declare(path, itself, dt=0.02)
    places = {
        "declared": (declared, "hybrid"), "adapted": (declared, str(folder / f"sensors_{args.seed}")),
        "itself": (itself, "hybrid"),
    }  # fmt: skip
    model, figures = mujoco.MjModel.from_xml_string(text), dict[str, float]()
    print("| trained in | falls | error [m/s] | [rad/s] | right after pushes, too |\n|---|---|---|---|---|")
    for name, (robot, dynamics) in places.items():
        policy = train(robot, dynamics, folder / f"policy_{name}_{args.seed}")
        walk = judged(str(policy), episodes=args.episodes, seconds=args.seconds, robot=str(declared), model=model)
        print(f"| {name} | {walk.falls:.1%} | {walk.speed:.3f} | {walk.turning:.3f} | {walk.speed_always:.3f}, "
              f"{walk.turning_always:.3f} |", flush=True)  # fmt: skip
        figures |= {f"{name} falls": walk.falls, f"{name} [m/s]": walk.speed, f"{name} [rad/s]": walk.turning}
    if args.json:
        write_result(args.json, "sensed policies", figures, {})


if __name__ == "__main__":
    main()
