# SPDX-License-Identifier: Apache-2.0
"""Make the pictures of README and pages: `python docs/make_images.py RUN...`, or with one of the flags below.

Each RUN is a run (or pretrained:NAME) of a robot with a simulator. Writes docs/images/ROBOT.gif for each: the neural
model beside the analytic solver from the first start of seed 500, passive, on the robot's default ground.

Each POLICY is one that was trained in imagination and watched in the simulator. Writes docs/images/imagined.png: both
returns as training went on.

--played POLICY DYNAMICS writes docs/images/TASK.gif: a policy in those dynamics beside the simulator, from the first
start of seed 500. With --played pretrained-policy:NAME DYNAMICS TASK, NAME.gif: another task that the policy fits.

--walking NETWORK writes docs/images/a1-mpc.gif: an A1 on blocks, by convex MPC beside the network of `neurodyn imitate`
in NETWORK, from the same start under the same commands.

--log RUN writes docs/images/ROBOT-log.png: a held-out second of an adaptation's log beside its models, and their
errors.

--certainty writes docs/images/horizons.png: the cost of a pendulum's roll-outs over its gravity, by horizon; and
docs/images/profiles.png: profile likelihoods of contact parameters, beside the parabolas of their intervals.
"""

import sys
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
SECONDS = {"cartpole": 6.0, "pendulum": 4.0, "ant": 4.0, "anymal-c": 4.0, "cube": 1.2}
MOST_BYTES = {"cartpole": 1_500_000}
"""Greatest size of a picture; 500 kB where nothing is said."""
PLAYED = 5.0
"""Length of the film of a policy [s]."""
WALKED = 4.0
"""Length of the film of a quadruped [s]."""


def main(runs: list[str]) -> None:
    """Write the pictures."""
    import neurodyn
    from neurodyn.report import readme_gif, record_run

    for run in runs:
        robot = neurodyn.load(run).spec.robot
        recording = record_run(run, seconds=SECONDS.get(robot, 4.0))
        path = IMAGES / f"{robot}.gif"
        size = readme_gif(recording, path, most_bytes=MOST_BYTES.get(robot, 500_000))
        print(f"{path}: {size / 1e6:.2f} MB")


def imagined(policies: list[str]) -> None:
    """Draw the returns of policies in imagination and in the simulator."""
    from matplotlib.figure import Figure

    from neurodyn.learn import read_metrics

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for number, policy in enumerate(policies):
        lines = [line for line in read_metrics(Path(policy)) if "return_reference" in line]
        frames = [line["frames"] / 1e6 for line in lines]
        for key, colour, label in (
            ("return_training", "#ff922b", "in imagination"),
            ("return_reference", "#4dabf7", "in the simulator"),
        ):
            returns = [line[key] for line in lines]
            axes.plot(frames, returns, "o-", color=colour, markersize=4, label=None if number else label)
    axes.set_xlabel("imagined frames [million]")
    axes.set_ylabel("return of an episode")
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "imagined.png", dpi=110)


def played(policy: str, dynamics: str, task: str | None = None) -> None:
    """Film a policy in some dynamics beside the simulator."""
    from neurodyn.policy import load_policy, record_policy
    from neurodyn.report import readme_gif

    name = load_policy(policy)[0].task if task is None else policy.rpartition(":")[2]
    path = IMAGES / f"{name}.gif"
    size = readme_gif(record_policy(policy, dynamics, seconds=PLAYED, task=task), path, most_bytes=1_500_000)
    print(f"{path}: {size / 1e6:.2f} MB")


def logged(run: str) -> None:
    """Draw the joint that the declaration predicts worst in a typical held-out second, and errors over the horizon."""
    from matplotlib.figure import Figure

    from neurodyn.core import read_json

    found, told = read_json(Path(run) / "forecasts.json"), read_json(Path(run) / "adaptation.json")
    window = next(one for one in found["windows"] if one["which"] == "typical")
    paths, model = window["paths"], found["chosen"]
    gaps = [
        max(abs(a - b) for a, b in zip(path, log, strict=True))
        for path, log in zip(paths["declared"], window["logged"], strict=True)
    ]
    k, seconds = gaps.index(max(gaps)), found["seconds"]
    lines = (
        ("declared", "declared", "#f76707"), (model, "adapted", "#1c7ed6"), ("gru", "plain network (GRU)", "#adb5bd"),
        ("hold-last", "persistence", "#ced4da"),
    )  # fmt: skip
    figure = Figure(figsize=(8.0, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(seconds, window["logged"][k], color="black", linewidth=3.0, label="log")
    growth = next(iter(found["growth"].values()))
    for name, label, colour in lines:
        if name in ("declared", model):
            left.plot(seconds, paths[name][k], color=colour, linestyle="--" if name == model else "-", label=label)
        if name in growth:
            right.plot(found["horizons"], [1e3 * x for x in growth[name]], color=colour, label=label)
    left.set_xlabel("seconds without the log")
    left.set_ylabel(f"{found['names'][k]} [{found['units'][k]}]")
    right.set_yscale("log")
    right.set_xlabel("horizon [s]")
    right.set_ylabel("mean error of all joints [mrad]")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc=(0.55, 0.52))
    path = IMAGES / f"{told['robot']}-log.png"
    figure.savefig(path, dpi=110)
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def walking(network: str) -> None:
    """Film an A1 that walks by convex MPC and by a network that imitates it."""
    from dataclasses import replace

    from neurodyn import robots
    from neurodyn.report import readme_gif
    from neurodyn.walking import Commands, walk, walk_film, walker, walking_plant

    plant, films = walking_plant(robots.load("a1"), "hybrid", "steps"), []
    for imitation in (None, network):
        controller, law, gait = walker(plant, imitation=imitation)
        result, path = walk(
            plant, controller, Commands.drawn(1, WALKED, 500), seconds=WALKED, seed=500, names=(law, gait)
        )
        films.append(walk_film(plant, result, path))
    film = replace(
        films[0], truth=films[1].predicted, predicted_label="convex MPC", truth_label="network", title="trot on blocks"
    )
    path = IMAGES / "a1-mpc.gif"
    print(f"{path}: {readme_gif(film, path, most_bytes=900_000) / 1e6:.2f} MB")


def horizons() -> None:
    """Draw the cost of a swinging pendulum's roll-outs over its gravity, for several horizons."""
    from dataclasses import replace

    import msgspec
    import torch
    from matplotlib.figure import Figure

    from _studies import STUDIES
    from neurodyn.core import select_parameters
    from neurodyn.dynamics import HybridDynamics
    from neurodyn.identify import ResidualOptions, Residuals, estimate_noise, levenberg_marquardt
    from neurodyn.multibody import EngineConfig, nominal

    study = STUDIES["pendulum"]()
    links = tuple(msgspec.structs.replace(link, damping=0.0) for link in study.model.mechanism.links)
    mechanism = msgspec.structs.replace(study.model.mechanism, links=links)
    free = select_parameters(nominal(mechanism, None), ("gravity.z",))
    model = HybridDynamics(study.model.spec, mechanism, EngineConfig(substeps=2), free)
    windows = replace(study, model=model, robot=model, torque=0.0, windows=1, frames=200).draw(4, seed=3)
    noise = estimate_noise(model.spec, windows)
    residuals = Residuals(model, windows, noise, ResidualOptions(velocities=False, initial=False))
    gravity = torch.linspace(-30.0, -2.0, 281, dtype=torch.float64)
    x = gravity[:, None] / 9.81  # in units of its size, 9.81 m/s^2
    at_once = grown = torch.tensor([[-25.0 / 9.81]], dtype=torch.float64)
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for frames, colour in ((10, "#adb5bd"), (30, "#74c0fc"), (75, "#339af0"), (200, "#f76707")):
        short = residuals.within(frames)
        grown = levenberg_marquardt(short, short.start(grown), 60).point.x
        cost = short.cost(short.start(x)) / frames
        axes.plot(-gravity, cost / cost.max(), color=colour, label=f"{frames * model.spec.dt:g} s")
    at_once = levenberg_marquardt(residuals, residuals.start(at_once), 60).point.x
    print(f"from 25 m/s^2 over 4 s: {-9.81 * float(at_once):.2f}; with growing horizons: {-9.81 * float(grown):.2f}")
    axes.axvline(9.81, color="0.6", linestyle=":")
    axes.set_xlabel("gravity of the model [m/s$^2$]")
    axes.set_ylabel("cost, over its highest")
    axes.legend(title="horizon")
    axes.grid(alpha=0.3)
    figure.savefig(IMAGES / "horizons.png", dpi=110)


def profile_pictures() -> None:
    """Draw the profile likelihoods of the contact parameters of a block that is thrown onto the ground."""
    from matplotlib.figure import Figure

    from _studies import STUDIES
    from neurodyn.identify import ResidualOptions, Residuals, estimate_noise, fitted, identifiability, profiles

    study = STUDIES["slider"]()
    windows = study.draw(16, seed=0)
    residuals = Residuals(study.model, windows, estimate_noise(study.model.spec, windows), ResidualOptions(huber=3.0))
    residuals, solution = fitted(residuals, residuals.start(residuals.space.nominal[None]), 60)
    found = profiles(residuals, solution.point, identifiability(residuals, solution.point), 13)
    figure = Figure(figsize=(7.6, 2.8), layout="constrained")
    for axes, (name, curve) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        middle = curve.values[len(curve.values) // 2]
        half = (curve.values[-1] - middle) / 1.5
        parabola = [curve.bound * ((value - middle) / half) ** 2 for value in curve.values]
        axes.plot(curve.values, curve.rise, "o-", color="#4dabf7", markersize=3, label="profile")
        axes.plot(curve.values, parabola, ":", color="#f76707", label="parabola")
        axes.axhline(curve.bound, color="0.6", linewidth=0.8, label="end of the interval")
        axes.set_xlabel(name)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=7)
    figure.savefig(IMAGES / "profiles.png", dpi=110)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--policies":
        imagined(sys.argv[2:])
    elif sys.argv[1] == "--certainty":
        sys.path.insert(0, str(IMAGES.parents[1] / "benchmarks"))
        horizons()
        profile_pictures()
    elif sys.argv[1] == "--played" and len(sys.argv) in (4, 5):
        played(*sys.argv[2:])
    elif sys.argv[1] == "--log" and len(sys.argv) == 3:
        logged(sys.argv[2])
    elif sys.argv[1] == "--walking" and len(sys.argv) == 3:
        walking(sys.argv[2])
    else:
        main(sys.argv[1:])
