# SPDX-License-Identifier: Apache-2.0
"""From logs to a better policy: identify a cartpole that differs from its declaration, and train through the model.

The shipped policy was trained on the declared cartpole. The cartpole here has a heavier cart, wheel friction and a
damped hinge: the policy logs a few noisy episodes, the log identifies the parameters, and gradients through the
identified model adapt the policy. Only that log depends on the true parameters. Every step is a command that the script
prints.

    python examples/logs_to_policy.py --out logs-to-policy --seeds 0 1 2
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

POLICY, SETTINGS = "pretrained-policy:cartpole", Path(__file__).with_suffix(".yaml")
TRUE = ("slider.mass=70", "slider.damping=100", "hinge.damping=1.5")
"""Hidden true parameters [kg, N s/m, N m s/rad]; the declared ones are 50, 0 and 0."""
# A quantity declared as 0 needs a range, because its nominal value gives no scale.
FREE = ("slider.mass", "slider.damping=0:500", "hinge.damping=0:10", "hinge.com.z")


def spent() -> float:
    """Return the CPU time of all commands so far [s]."""
    times = os.times()
    return times.children_user + times.children_system


def command(text: str) -> None:
    """Print and run a neurodyn command."""
    print(f"\n$ neurodyn {text}", flush=True)
    if subprocess.run([sys.executable, "-m", "neurodyn.cli.main", *shlex.split(text)], check=False).returncode:
        raise SystemExit(f"failed: neurodyn {text}")


def played(policy: str, dynamics: list[str], out: Path, episodes: int) -> dict[str, float]:
    """Return the mean return of a policy in each dynamics."""
    given = " ".join(f"--dynamics {name}" for name in dynamics)
    command(f"policy evaluate {policy} {given} --episodes {episodes} --json {out}")
    return {one["dynamics"]: one["return"] for one in json.loads(out.read_text())["results"]}


def improved(real: str, folder: Path, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Log the policy on the real cartpole, identify it, train the policy through the model; return the results."""
    folder.mkdir(parents=True, exist_ok=True)
    log, model, better = folder / "log.h5", folder / "identified", folder / "policy"
    command(
        f"policy log {POLICY} --dynamics {real} --transitions {options.transitions} --worlds {options.worlds} "
        f"--noise 1 --position-noise 0.002 --velocity-noise 0.02 --seed {seed} --out {log}"
    )
    begin = spent()
    command(f"identify cartpole --data {log} --parameters {' '.join(FREE)} --seed {seed} --threads 1 --out {model}")
    between = spent()
    command(
        f"policy train cartpole-swingup --algorithm shac --policy {POLICY} --settings {options.settings} "
        f"--dynamics {model} --iterations {options.iterations} --reference none --seed {seed} --out {better}"
    )
    end = spent()
    found = played(str(better), [str(model), real], folder / "after.json", options.episodes)
    return {
        "imagined": found[str(model)], "after": found[real],
        "identify_cpu_s": between - begin, "train_cpu_s": end - between,
    }  # fmt: skip


def main() -> None:
    """Evaluate the old policy and, for each seed, the one trained from its log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("logs-to-policy"), help="folder of logs, models and policies")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--transitions", type=int, default=6000, help="of a log, 1/60 s each")
    parser.add_argument("--worlds", type=int, default=24, help="of a log, each with whole episodes")
    parser.add_argument("--iterations", type=int, default=600, help="updates of a training")
    parser.add_argument("--settings", type=Path, default=SETTINGS, help="of the training")
    parser.add_argument("--episodes", type=int, default=256, help="of an evaluation")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    real = str(options.out / "real")
    command(f"hybrid cartpole --parameters {' '.join(TRUE)} --out {real}")
    before = played(POLICY, [real], options.out / "before.json", options.episodes)[real]
    figures: dict[str, float] = {"before": before}
    for seed in options.seeds:
        found = improved(real, options.out / f"seed-{seed}", seed, options)
        figures |= {f"{name}_{seed}": value for name, value in found.items()}
    for seed in options.seeds:
        print(f"seed {seed}: {before:.0f} before, {figures[f'after_{seed}']:.0f} after")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
