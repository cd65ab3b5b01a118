# SPDX-License-Identifier: Apache-2.0
"""A two-joint arm with position servos in plain MuJoCo, and its log when something differs from its declaration."""

from collections.abc import Callable
from pathlib import Path

import mujoco
import numpy as np

from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.identify import AdaptationSettings
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.identify.settings import FitStage
from neurodyn.identify.stages.structure_choice import best_structure
from neurodyn.identify.stages.structure_search import StructureSearch
from neurodyn.robots import load
from neurodyn.sim import declare

ARM = """
<mujoco model="arm"><compiler angle="radian"/><option integrator="implicitfast" timestep=".002"/>
  <worldbody><body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" damping=".3" armature=".05"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.4" size=".03" mass="3" contype="0" conaffinity="0"/>
    <body name="lower" pos="0 0 -.4"><joint name="elbow" axis="0 1 0" damping=".2" armature=".03"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".025" mass="1.5" contype="0" conaffinity="0"/>
    </body></body></worldbody>
  <actuator><position name="shoulder" joint="shoulder" kp="200" kv="8"/>
    <position name="elbow" joint="elbow" kp="120" kv="4"/></actuator></mujoco>
"""
TURNING = (
    ARM.replace('"shoulder" axis="0 1 0"', '"shoulder" axis="0 0 1"')
    .replace("0 0 0 0 0 -.4", "0 0 0 .4 0 0").replace('pos="0 0 -.4"', 'pos=".4 0 0"')
)  # fmt: skip
"""The arm with a shoulder that turns about the vertical."""
ROTOR = """<body name="rotor" pos="0 0 -.4"><joint name="elbow" axis="0 1 0" damping=".2" armature=".03"/>
      <inertial pos="0 0 0" mass="1e-3" diaginertia="1e-6 1e-6 1e-6"/><body name="lower">"""
DT = 0.01
SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 60, 5), FitStage(0.15, 40, 4)), untouched=FitStage(0.4, 40, 5), screen=40, networks=False,
    proposals=0, rollouts_each=20, reference_steps=0, refits=0,
)  # fmt: skip

Step = Callable[[mujoco.MjModel, mujoco.MjData], None]
"""Changes a plant before a step."""


def nothing(model: mujoco.MjModel, data: mujoco.MjData) -> None:
    """Leave the plant as it is."""


def declared(folder: Path, xml: str = ARM) -> Path:
    """Write the declaration of the healthy arm."""
    (folder / "arm.xml").write_text(xml)
    declare(folder / "arm.xml", folder / "declared", name="arm", dt=DT)
    return folder / "declared"


def log(
    folder: Path, change: Callable[[mujoco.MjSpec], None] = lambda spec: None, step: Step = nothing,
    gains: tuple[float, ...] = (1.0,), xml: str = ARM, episodes: int = 6, frames: int = 300,
) -> Store:  # fmt: skip
    """Write the log of an arm that differs: by its model, by what happens before a step, by gains in turn by run."""
    robot = load(folder / "declared")
    spec = mujoco.MjSpec.from_string(xml)
    change(spec)
    rng = np.random.default_rng(0)
    q, qd = np.zeros((2, episodes, frames + 1, 2), np.float32)
    control = np.zeros((episodes, frames, 2), np.float32)
    for episode in range(episodes):
        model = spec.compile()
        model.actuator_gainprm[:, 0] *= gains[episode % len(gains)]
        model.actuator_biasprm[:, 1] *= gains[episode % len(gains)]
        data = mujoco.MjData(model)
        places = [int(model.joint(name).qposadr[0]) for name in ("shoulder", "elbow")]
        rates, phases = rng.uniform(0.3, 1.2, (3, 2)), rng.uniform(0, 6, (3, 2))
        for frame in range(frames + 1):
            q[episode, frame], qd[episode, frame] = data.qpos[places], data.qvel[places]
            if frame < frames:
                wave = 0.5 * np.sin(2 * np.pi * rates * frame * DT + phases).sum(0) * min(1.0, frame * DT / 0.5)
                control[episode, frame] = data.ctrl[:] = wave
                for _ in range(round(DT / model.opt.timestep)):
                    step(model, data)
                    mujoco.mj_step(model, data)
    q += rng.normal(0, 1e-4, q.shape).astype(np.float32)
    qd += rng.normal(0, 2e-3, qd.shape).astype(np.float32)
    split = np.array([Split.TRAIN] * (episodes - 2) + [Split.VALIDATION] * 2, np.int8)
    header = StoreHeader(spec=robot.spec, source="log", runs=tuple(f"run{k}" for k in range(episodes)))
    with StoreWriter(folder / "log.h5", header) as writer:
        writer.append(
            q, qd, control, lengths=np.full(episodes, frames), split=split, run=np.arange(episodes, dtype=np.int32)
        )
    return Store.open(folder / "log.h5")


def behind_a_joint(flex: str) -> str:
    """Return the arm with another joint between the motor of the elbow, which has the encoder, and its link."""
    before = ARM[ARM.index('<body name="lower"') : ARM.index('<geom type="capsule" fromto="0 0 0 0 0 -.3"')]
    geom = ARM[ARM.index('<geom type="capsule" fromto="0 0 0 0 0 -.3"') : ARM.index("</body></body>")]
    return ARM.replace(before, f'{ROTOR}<joint name="flex" axis="0 1 0" {flex}/>').replace(geom, f"{geom}</body>")


def fit_model(declaration: Path, store: Store, settings: AdaptationSettings = SETTINGS) -> FitModel:
    """Return the declared arm with its free quantities."""
    robot = with_motors(load(declaration), store)
    return structures(FitModel.declared(robot, str(declaration), settings), settings)[0]


def searched(declaration: Path, store: Store, settings: AdaptationSettings = SETTINGS) -> StructureSearch:
    """Return the search of structures after a fit."""
    fitting, _ = best_structure([fit_model(declaration, store, settings)], store, settings, 1)
    return StructureSearch(fitting).run(fitting.run().stages)
