# SPDX-License-Identifier: Apache-2.0
"""The motion that `adapt` proposes, played in stand-in robots: is it safe, and does its log tell what was promised?

For each stand-in (`stand_ins.py`) `adapt` runs on its log, the proposed motion is played in the robot's own MuJoCo,
with all its shapes and a floor, and `adapt` runs on both logs.

    python benchmarks/next_motion.py --kind arm air --seeds 0-9 --folder runs/stand_ins --json next_motion.json

tells how often there is a contact, or a limit is exceeded; how often a motion promises to halve an interval, and how
often that of the quantity that it is designed for became at most half as wide; the same of the widest interval of the
quantities that were told, or that the motion was said to tell, whether or not any motion was said to halve it; and how
many intervals became as narrow as promised (within a quarter). Runs are kept in the folder.
"""

import argparse
import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from _stand_in_logs import run
from _stand_in_robots import ARM, ARM_FAULTS, LEG_FAULTS, Plant, arm_xml, leg_joints, plant_of, quadruped_xml
from stand_ins import KINDS, StandIn, command, stand_ins

SETTINGS = "reference_steps: 0\nrefits: 0\nnetworks: false\n"
"""What has no influence on intervals is left out."""
_TOLD = 2.5
"""Width of an interval, in standard deviations of the prior, above which nothing is told (3.3: the prior's own)."""
_NEARLY = 1.25
"""Most width, relative to the promised one, of a promise that counts as kept."""
_AVERAGED = 0.05
"""Time over which speeds and accelerations are averaged, as the limits are from logs [s]."""


@dataclass
class Watch:
    """What a robot does in a motion, in each simulation step."""

    shapes: mujoco.MjModel
    rows: list[int]
    dofs: list[int]
    motors: list[int]
    q: list[np.ndarray] = field(default_factory=list)
    qd: list[np.ndarray] = field(default_factory=list)
    torque: list[np.ndarray] = field(default_factory=list)
    touching: set[tuple[str, str]] = field(default_factory=set)
    first: set[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        self._data = mujoco.MjData(self.shapes)

    def __call__(self, data: mujoco.MjData) -> None:
        """Record a step; look for contacts in every tenth."""
        self.q.append(data.qpos[self.rows].copy())
        self.qd.append(data.qvel[self.dofs].copy())
        self.torque.append(data.actuator_force[self.motors].copy())
        if len(self.q) % 10 != 1:
            return
        for joint in range(self.shapes.njnt):
            name, at = self.shapes.joint(joint).name, self.shapes.jnt_qposadr[joint]
            width = 7 if self.shapes.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE else 1
            there = self.own.joint(name).qposadr[0] if name else self.own.jnt_qposadr[0]
            self._data.qpos[at : at + width] = data.qpos[there : there + width]
        mujoco.mj_fwdPosition(self.shapes, self._data)
        near = {
            tuple(sorted(self.shapes.body(self.shapes.geom(int(g)).bodyid[0]).name for g in one.geom))
            for one in self._data.contact[: self._data.ncon]
            if one.dist < 0.0
        }
        if self.first is None:
            self.first = near
        self.touching |= near - self.first

    own: Any = None


def plant_again(one: StandIn) -> Plant:
    """Return the robot of a stand-in, as `stand_ins` makes it.

    Raises:
        RuntimeError: That in the folder was made otherwise: its log would be of another robot.
    """
    kind, seed = one.kind, one.seed
    rng = np.random.default_rng([{"arm": 1, "air": 2, "ground": 3}[kind], seed])
    targets = kind != "air" or seed % 4 < 2
    joints, faults = (ARM, ARM_FAULTS) if kind == "arm" else (leg_joints(), LEG_FAULTS)
    xml = arm_xml(rng) if kind == "arm" else quadruped_xml(rng, hung=kind == "air", targets=targets)
    plant = plant_of(xml, joints, rng, faults=faults, faulty=seed % 2 == 1, targets=targets)
    if plant.truth != one.truth:
        raise RuntimeError(f"{one.folder}: holds another robot than {kind} {seed} is now; make it again")
    return plant


def shapes_of(one: StandIn, floor: bool) -> mujoco.MjModel:
    """Return the declared robot with contacts of all its shapes, and a floor at the height of its mounting."""
    spec = mujoco.MjSpec.from_file(str(one.folder / "robot.xml"))
    for geom in spec.geoms:
        geom.contype = geom.conaffinity = 1
    if floor:
        spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1])
    return spec.compile()


def columns(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of a CSV."""
    with path.open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    values = np.array(rows, float)
    return {name: values[:, k] for k, name in enumerate(head)}


def adapted(one: StandIn, out: Path, logs: list[str]) -> dict[str, Any]:
    """Return the figures of `adapt` on logs of a stand-in; made once."""
    file = out / "told.json"
    if not file.exists():
        (out / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
        name = out.relative_to(one.folder)
        data = " ".join(logs)
        try:
            command(
                one.folder,
                f"adapt declared --data {data} --threads 1 --settings {name}/settings.yaml --out {name}/run --json "
                f"{name}/told.json",
            )
        except RuntimeError:  # a verdict that fails ends a command, too
            if not file.exists():
                raise
    return json.loads(file.read_text(encoding="utf-8"))


def row(kind: str, one: StandIn, name: str) -> dict[str, Any]:
    """Return what came of the motion of one robot."""
    folder = one.folder
    first, second = folder / name, folder / f"{name}-second"
    for out in (first, second):
        out.mkdir(exist_ok=True)
    if not (folder / "declared" / "robot.yaml").exists():
        command(folder, f"init robot.xml --dt 0.01 --out declared --name {one.kind}_{one.seed}")
    if not (folder / "log.npz.map.yaml").exists():
        command(folder, "inspect log.npz --robot declared")
    if not (first / "log.h5").exists():
        command(folder, f"import log.npz --reader log.npz.map.yaml --out {name}/log.h5")
    before = adapted(one, first, [f"{name}/log.h5"])
    motion = before["next"]
    found: dict[str, Any] = {"robot": f"{kind}-{one.seed}", "fault": one.fault, "file": motion["file"]}
    if not motion["file"]:
        return found | {"why_not": motion["why_not"]}
    found |= played(kind, one, first / "run", motion, second)
    if not (second / "second.h5").exists():
        command(folder, f"import {second.name}/second.npz --reader log.npz.map.yaml --out {second.name}/second.h5")
    after = adapted(one, second, [f"{name}/log.h5", f"{second.name}/second.h5"])
    return found | narrowed(before, after) | {"verdicts": [before["verdict"], after["verdict"]]}


def played(kind: str, one: StandIn, out: Path, motion: dict[str, Any], second: Path) -> dict[str, Any]:
    """Play the motion in the robot; return what touched, and the largest shares of limits."""
    commands, expected = columns(out / motion["file"]), columns(out / motion["expected"])
    plant, facts = plant_again(one), json.loads((one.folder / "truth.json").read_text(encoding="utf-8"))
    names, dt = list(plant.joints), float(commands["time"][1])
    table = np.stack([commands[name] for name in names], 1)
    model = plant.model
    watch = Watch(
        shapes_of(one, kind == "arm"), [int(model.joint(n).qposadr[0]) for n in names],
        [int(model.joint(n).dofadr[0]) for n in names], [int(model.actuator(n).id) for n in names],
    )  # fmt: skip
    watch.own = model
    start = np.array([expected[f"q.{name}"][0] for name in names])
    log = run(
        plant, lambda t: table[min(int(t / dt + 1e-6), len(table) - 1)], len(table) * dt, one.rate,
        np.random.default_rng(one.seed), speeds=facts["speeds"], watch=watch,
        start=start if plant.targets else None,  # a controller follows
    )  # fmt: skip
    np.savez(second / "second.npz", allow_pickle=False, **log)
    q, qd, torque = np.array(watch.q) + plant.bias, np.array(watch.qd), np.array(watch.torque)
    frames = max(1, round(_AVERAGED / model.opt.timestep))
    rate = (q[frames:] - q[:-frames]) / _AVERAGED
    bend = np.abs(rate[frames:] - rate[:-frames]) / _AVERAGED
    limits = [motion["limits"][name] for name in names]

    def most(kind: str) -> np.ndarray:
        return np.array([one[kind] for one in limits])

    middle, half = 0.5 * (most("upper") + most("lower")), 0.5 * (most("upper") - most("lower"))
    shares = {
        "position": (np.abs(q - middle) / half).max(), "speed": (np.abs(rate) / most("speed")).max(),
        "acceleration": (bend / most("acceleration")).max(), "torque": (np.abs(torque) / most("torque")).max(),
    }  # fmt: skip
    declared = np.array([mujoco.MjModel.from_xml_path(str(one.folder / "robot.xml")).joint(n).range for n in names])
    return {
        "contacts": sorted("-".join(pair) for pair in watch.touching),
        "shares": {name: float(value) for name, value in shares.items()},
        "beyond_joint_limits": bool(((q < declared[:, 0]) | (q > declared[:, 1])).any()),
        "beyond_torque_limits": bool((np.abs(torque) >= plant.limits).any()),
        "end": float(np.abs(q[-1] - q[0]).max()), "end_speed": float(np.abs(qd[-1]).max()),
        "seconds": motion["seconds"],
    }  # fmt: skip


def narrowed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the widest interval before, among quantities that are told or were said to be told, and after."""
    deviations = {one["name"]: one["in_prior"]["deviation"] for one in before["parameters"]}

    def widths(figures: dict[str, Any]) -> dict[str, float]:
        """Return widths of intervals in the first fit's deviations of priors: a log may widen a prior."""
        found: dict[str, float] = {}
        for one in figures["parameters"]:
            scaled, name = one["in_prior"], one["name"]
            low, high = scaled["interval"]
            found[name] = (high - low) * scaled["deviation"] / deviations.get(name, scaled["deviation"])
        return found

    said = {one["name"] for one in before["parameters"] if one.get("said", True) and not one.get("bound")}
    told = {name for name in said if widths(before)[name] < _TOLD}
    promised = before["next"]["deviations"]
    known = told | {name for name, (_, then) in promised.items() if then < 0.7}
    old, new = widths(before), widths(after)
    widest = max(known & set(new), key=old.__getitem__)
    target = before["next"]["target"]
    now, then = promised[target]
    return {
        "target": target, "target_promised": then / now,
        "target_ratio": new[target] / old[target] if target in new and old[target] > 0.0 else 1.0,
        "widest": widest, "ratio": new[widest] / old[widest],
        "promised": promised[widest][1] / promised[widest][0] if widest in promised else None,
        "told": [len(told), sum(one.get("said", True) for one in after["parameters"])],
        "promises": {
            name: [then / now, new[name] / old[name]] for name, (now, then) in promised.items()
            if name in new and old[name] > 0.0
        },
    }  # fmt: skip


def main() -> None:
    """Play the motions, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=["arm", "air"])
    parser.add_argument("--seeds", default="0-9", help="first-last, or a list with commas")
    parser.add_argument("--folder", type=Path, required=True, help="folder of robots, logs and runs")
    parser.add_argument("--run", default="next", help="folder of the runs in each robot's folder")
    parser.add_argument("--json", type=Path, help="file for the result")
    options = parser.parse_args()
    rows = []
    for one in stand_ins(options.kind, options.seeds, options.folder):
        try:
            rows.append(row(one.kind, one, options.run))
        except RuntimeError as error:
            print(error, flush=True)
            continue
        print({name: value for name, value in rows[-1].items() if name not in ("promises", "verdicts")}, flush=True)
    moved = [one for one in rows if one["file"]]
    figures = {
        "robots": len(rows), "motions": len(moved), "with_contact": sum(bool(one["contacts"]) for one in moved),
        "beyond_a_limit": sum(max(one["shares"].values()) > 1.0 for one in moved),
        "beyond_joint_or_torque_limits": sum(
            one["beyond_joint_limits"] or one["beyond_torque_limits"] for one in moved
        ),
        "halves_promised": sum(one["target_promised"] <= 0.5 for one in moved),
        "promised_and_halved": sum(one["target_promised"] <= 0.5 and one["target_ratio"] <= 0.5 for one in moved),
        "widest_halves": sum(one["ratio"] <= 0.5 for one in moved),
        "promises": sum(len(one["promises"]) for one in moved),
        "promises_kept": sum(a <= _NEARLY * p for one in moved for p, a in one["promises"].values()),
    }  # fmt: skip
    print(figures)
    if options.json is not None:
        options.json.write_text(json.dumps({"figures": figures, "robots": rows}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
