# SPDX-License-Identifier: Apache-2.0
"""`adapt` on robots without joints, without motors, with guessed bodies, and with episodes of a few frames."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from neurodyn.core.description.mechanism import INERTIA_ENTRIES
from neurodyn.data.header import Split, StoreHeader
from neurodyn.data.store import Store
from neurodyn.data.writer import StoreWriter
from neurodyn.dynamics.artifact import kind_of
from neurodyn.dynamics.artifact import load as load_run
from neurodyn.dynamics.rollout_errors import Judgement
from neurodyn.evaluate import evaluate
from neurodyn.evaluate.logged import beside_log
from neurodyn.evaluate.run import open_along_log
from neurodyn.identify import AdaptationSettings, Identification, adapt
from neurodyn.identify.ladder import network_choice
from neurodyn.identify.ladder.structures import FitModel, structures
from neurodyn.identify.motors import with_motors
from neurodyn.identify.settings import FitStage
from neurodyn.identify.unknowns.bodies import stretch
from neurodyn.identify.unknowns.quantities import body_coordinates
from neurodyn.report.sentences import sentences
from neurodyn.robots import Robot, load

SETTINGS = AdaptationSettings(
    stages=(FitStage(0.05, 100, 6), FitStage(0.15, 60, 6)), screen=40, network_steps=10, hidden=(4,), memory=1,
    rollouts_each=20, proposals=2, proposal_seconds=1.0, reference_steps=10, refits=0,
)  # fmt: skip
SIMULATOR = "simulator: {solver: mujoco-c, substeps: 2, integrator: implicitfast}"
ROTOR = '<motor name="r{k}" site="r{k}" gear="0 0 {gain} 0 0 {turn}" ctrlrange="0 1"/>'
ROTORS = ((1, 1, -0.01), (-1, 1, 0.01), (-1, -1, -0.01), (1, -1, 0.01))
FLYER = """<mujoco><option timestep="0.001" gravity="0 0 -9.81"/><worldbody><body name="body"><freejoint name="body"/>
<inertial pos="{com} 0 0" mass="{mass}" diaginertia="2e-4 2e-4 {zz}"/>{sites}</body></worldbody>
<actuator>{motors}</actuator></mujoco>"""
ARM = """<mujoco><option timestep="0.001"/><worldbody><body name="arm"><joint name="swing" type="hinge" axis="0 1 0"
damping="{damping}"/><inertial pos="0 0 {com}" mass="{mass}" diaginertia="{inertia} {inertia} 1e-5"/></body></worldbody>
</mujoco>"""


def flyer(*, gain: float = 1.0, mass: float = 0.1, com: float = 0.0, zz: float = 2.2e-4) -> str:
    """A body with four rotors at sites."""
    sites = "".join(f'<site name="r{k}" pos="{0.05 * x} {0.05 * y} 0"/>' for k, (x, y, _) in enumerate(ROTORS))
    motors = "".join(ROTOR.format(k=k, gain=gain, turn=turn * gain) for k, (*_, turn) in enumerate(ROTORS))
    return FLYER.format(sites=sites, motors=motors, mass=mass, com=com, zz=zz)


def arm(*, mass: float = 0.1, com: float = -0.2, inertia: float = 1e-3, damping: float = 1e-4) -> str:
    """A pendulum without motor."""
    return ARM.format(mass=mass, com=com, inertia=inertia, damping=damping)


def declared(folder: Path, asset: str, text: str) -> Robot:
    """Write a declaration of an asset, and load it."""
    folder.mkdir()
    (folder / "robot.xml").write_text(asset)
    (folder / "robot.yaml").write_text(f"name: odd\nasset: robot.xml\ndt: 0.01\n{SIMULATOR}\n{text}\n")
    return load(str(folder))


def record(path: Path, robot: Robot, truth: str, *, episodes: int, frames: int, seed: int = 0) -> Store:
    """Write a log of a truth in plain MuJoCo, under commands that hold it roughly in place, with noise."""
    model, rng = mujoco.MjModel.from_xml_string(truth), np.random.default_rng(seed)
    data, spec = mujoco.MjData(model), robot.spec
    q, qd = np.zeros((episodes, frames + 1, spec.nq)), np.zeros((episodes, frames + 1, spec.nv))
    control, substeps = np.zeros((episodes, frames, len(spec.controls))), round(robot.dt / model.opt.timestep)
    for episode in range(episodes):
        mujoco.mj_resetData(model, data)
        data.qvel[:] = rng.normal(0.0, 0.5, model.nv)
        if not spec.floating:
            data.qpos[:] = rng.uniform(-2.0, 2.0, model.nq)
        for frame in range(frames + 1):
            mujoco.mj_forward(model, data)
            q[episode, frame], qd[episode, frame] = data.qpos, data.qvel
            if spec.floating:  # quaternion scalar last; velocities of the centre of mass in world axes, linear first
                turn = data.xmat[1].reshape(3, 3)
                q[episode, frame, 3:] = np.roll(data.qpos[3:7], -1)
                spin = turn @ data.qvel[3:6]
                qd[episode, frame] = [*data.qvel[:3] + np.cross(spin, turn @ model.body_ipos[1]), *spin]
            if frame < frames and model.nu:
                data.ctrl[:] = control[episode, frame] = np.clip(0.25 + rng.normal(0.0, 0.02, model.nu), 0.0, 1.0)
            if frame < frames:
                mujoco.mj_step(model, data, substeps)
    q[..., : 3 if spec.floating else None] += rng.normal(0.0, 1e-4, q[..., : 3 if spec.floating else None].shape)
    qd += rng.normal(0.0, 1e-3, qd.shape)
    split = np.full(episodes, Split.TRAIN, np.int8)
    split[-episodes // 3 :], split[-episodes // 6 :] = Split.VALIDATION, Split.TEST
    with StoreWriter(path, StoreHeader(spec=spec, source="log")) as writer:
        parts = (part.astype(np.float32) for part in (q, qd, control))
        writer.append(*parts, lengths=np.full(episodes, frames), split=split)
    return Store.open(path)


def value(found: Identification, name: str) -> float:
    return next(one.value for one in found.figures.parameters if one.name == name)


ROTORS_DECLARED = "joints:\n  - {name: body, kind: free}\nfixed_base: false\n" + "".join(
    ["actuated: {r0: 1.0, r1: 1.0, r2: 1.0, r3: 1.0}\ndrives:\n"]
    + [
        f"  r{k}: {{kind: affine, per_command: 1.0, wrench: {{link: body, point: [{0.05 * x}, {0.05 * y}, 0.0], "
        f"force: [0.0, 0.0, 1.0], moment: [0.0, 0.0, {turn}]}}}}\n"
        for k, (x, y, turn) in enumerate(ROTORS)
    ]
)


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> Identification:
    folder = tmp_path_factory.mktemp("flyer")
    robot = declared(folder / "declared", flyer(), ROTORS_DECLARED)
    record(folder / "log.h5", robot, flyer(gain=0.9, com=0.004, zz=3.3e-4), episodes=12, frames=40)
    return adapt(str(folder / "declared"), folder / "log.h5", folder / "run", settings=SETTINGS, threads=1)


@pytest.mark.slow
def test_a_body_without_joints_is_a_robot(flown: Identification):
    assert flown.figures.chosen != "declared"
    errors = {one.name: one.test["base [m]"][-1] or 0.0 for one in flown.figures.rungs}
    assert errors["identified"] < 0.3 * errors["declared"]


@pytest.mark.slow
def test_an_evaluation_shows_a_flying_body_the_past_that_its_model_reads(flown: Identification, tmp_path: Path):
    folder = tmp_path / "again"
    robot = declared(folder, flyer(), ROTORS_DECLARED)
    store = record(tmp_path / "log.h5", robot, flyer(), episodes=6, frames=40)
    assert flown.dynamics.spec.context > 0
    found = beside_log(flown.dynamics, robot, store, split=None, horizon=10)
    assert found.context_frames == min(flown.dynamics.spec.context, 30)


@pytest.mark.slow
def test_centre_and_inertia_of_a_free_body_are_found(flown: Identification):
    gains = np.array([value(flown, f"actuator.r{k}.gain") for k in range(4)])
    arms = 0.05 * np.array([x for x, *_ in ROTORS]) - value(flown, "body.com.x")
    assert (gains * arms).sum() / gains.sum() == pytest.approx(-0.004, abs=5e-4)  # gains and centre trade
    thrust = gains.mean() / value(flown, "body.mass_scale")
    assert thrust == pytest.approx(0.9, rel=0.03)
    # Yaw: the moment of the rotors over the inertia about z, whose second moments are those about x and y.
    squares = [value(flown, f"body.extent.{axis}") ** 2 for axis in "xy"]
    assert thrust / np.mean(squares) == pytest.approx(0.9 / 1.5, rel=0.1)


def test_rotors_have_a_lag_and_air_a_drag(tmp_path: Path):
    robot = declared(tmp_path / "declared", flyer(), ROTORS_DECLARED)
    store = record(tmp_path / "log.h5", robot, flyer(), episodes=6, frames=10)
    model = FitModel.declared(with_motors(robot, store), "odd", SETTINGS)
    space = structures(model, SETTINGS)[0].space
    assert space is not None
    drag = {"element.air.x", "element.air.turn_y", "element.air.at_z"}
    assert drag | {"actuator.r0.lag", "body.extent.z"} <= set(space.names)
    assert "payload.mass" not in space.names


@pytest.mark.parametrize("frames", [2, 5, 40])
def test_episodes_of_a_few_frames_are_enough(tmp_path: Path, frames: int):
    """A passive pendulum whose place of the mass was guessed; it has no motors, and no motion to play next."""
    robot = declared(tmp_path / "declared", arm(), "joints:\n  - {name: swing, kind: revolute}\nactuated: {}")
    record(tmp_path / "log.h5", robot, arm(com=-0.15), episodes=240 // frames, frames=frames)
    found = adapt(str(tmp_path / "declared"), tmp_path / "log.h5", tmp_path / "run", settings=SETTINGS, threads=1)
    errors = {one.name: one.test["joints [rad or m]"][-1] or 1.0 for one in found.figures.rungs}
    if frames == 40:
        assert errors["identified"] < 0.2 * errors["declared"]
    else:  # a few frames tell next to nothing, and what they seem to tell is not kept
        assert errors[str(found.figures.chosen)] < 2.0 * errors["declared"]


def test_exported_numbers_are_trusted_more_than_guesses(tmp_path: Path):
    widths = []
    for name, mass in (("guessed", 0.1), ("exported", 0.10437)):
        text = "joints:\n  - {name: swing, kind: revolute}\nactuated: {}"
        mechanism = FitModel.declared(declared(tmp_path / name, arm(mass=mass), text), "odd", SETTINGS).mechanism
        widths.append([one.width for one in body_coordinates(mechanism, 0) if not one.name.endswith(".com.y")])
    guessed, exported = np.array(widths)
    assert (guessed > 1.5 * exported).all()


def test_lengths_of_a_robot_without_motors_are_free_within_what_one_measures(tmp_path: Path):
    """Between joints alone: where the first one is in the world shows nowhere."""
    folder = tmp_path / "arm"
    text = "joints:\n  - {name: swing, kind: revolute}\n  - {name: tip, kind: revolute}\nactuated: {}"
    second = '<body pos="0 0 -.4"><joint name="tip" axis="0 1 0"/><inertial pos="0 0 -.1" mass=".2" '
    second += 'diaginertia="1e-3 1e-3 1e-4"/></body>'
    robot = declared(folder, arm().replace("</body>", second + "</body>", 1), text)
    space = structures(FitModel.declared(robot, "odd", SETTINGS), SETTINGS)[0].space
    assert space is not None
    lengths = {one.name: one for one in space.coordinates if ".origin." in one.name}
    assert set(lengths) == {f"tip.origin.{axis}" for axis in "xyz"}
    assert lengths["tip.origin.z"].nominal == pytest.approx(-0.4)
    assert lengths["tip.origin.z"].width == pytest.approx(0.008)


def test_an_inertia_stays_that_of_a_body_however_it_is_stretched():
    entries = dict(zip(INERTIA_ENTRIES, torch.tensor([2.0, 3.0, 4.0, 0.1, -0.2, 0.3]), strict=True))
    long = stretch(entries, [torch.tensor(s) for s in (3.0, 0.2, 1.0)])
    xx, yy, zz, xy, xz, yz = (float(long[entry]) for entry in INERTIA_ENTRIES)
    inertia = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    second = 0.5 * np.trace(inertia) * np.eye(3) - inertia
    assert (np.linalg.eigvalsh(second) > 0.0).all()
    same = stretch(entries, [torch.tensor(1.0)] * 3)
    assert all(float(same[entry]) == pytest.approx(float(entries[entry])) for entry in INERTIA_ENTRIES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "network", "kind", "words"),
    [
        ((True, False), "gru", "neural", "The model is a plain recurrent network"),
        ((True, True), "world-model", "world-model", "The model is a world model"),
        ((False, False), "", "hybrid", "The model stays the identified mechanism"),
    ],
)
def test_any_kind_may_be_a_network(
    kept: tuple[bool, bool], network: str, kind: str, words: str, flown: Identification, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """A network that beats the mechanism on held-out windows becomes the run's model, and the mechanism is kept."""
    robot = declared(tmp_path / "declared", arm(), "joints:\n  - {name: swing, kind: revolute}\nactuated: {}")
    record(tmp_path / "log.h5", robot, arm(), episodes=8, frames=40)
    verdicts = iter(kept)
    monkeypatch.setattr(network_choice, "judge", lambda *_: Judgement(next(verdicts), 0.5, "half of the error"))
    folder, out = str(tmp_path / "declared"), tmp_path / "run"
    found = adapt(folder, tmp_path / "log.h5", out, settings=SETTINGS, threads=1, kind="any", mechanism=True)
    assert found.figures.network == found.figures.plain()["network"] == network
    assert kind_of(out) == kind
    assert load_run(out).spec.robot == "odd"
    assert sentences(found.figures)[0].startswith(words)
    assert "plain recurrent network beside identified, half of the error" in sentences(found.figures)[0]
    assert "world-model" in [one.name for one in found.figures.references]
    if not network:
        return
    assert kind_of(out / "mechanism") == "hybrid"
    assert flown.figures.network == ""
    assert evaluate(out, data=str(tmp_path / "log.h5"), threads=1) is not None


def test_forecasts_of_a_log_of_positions_begin_at_estimated_states(tmp_path: Path):
    """Velocities that are differences of noisy positions are no states to begin with, in the ladder and afterwards."""
    text = "joints:\n  - {name: swing, kind: revolute}\nactuated: {}\nlog: map.yaml"
    (tmp_path / "declared").mkdir()
    (tmp_path / "declared" / "map.yaml").write_text(
        "format: npz\nperiod: 0.01\nepisodes: offsets\nsplit: split\nq: {swing: {column: q}}\n"
        "qd: differentiate\ncontrol: {}\n"
    )
    (tmp_path / "declared" / "robot.xml").write_text(arm())
    (tmp_path / "declared" / "robot.yaml").write_text(f"name: odd\nasset: robot.xml\ndt: 0.01\n{SIMULATOR}\n{text}\n")
    robot = load(str(tmp_path / "declared"))
    store = record(tmp_path / "all.h5", robot, arm(), episodes=9, frames=60)
    q = np.concatenate([store.episode(k)[0][:, 0] for k in range(9)])
    noise = np.random.default_rng(1).normal(0.0, 1e-3, len(q))
    split = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    np.savez(tmp_path / "log.npz", q=q + noise, offsets=61 * np.arange(10), split=split)
    found = adapt(
        str(tmp_path / "declared"), tmp_path / "log.npz", tmp_path / "run", settings=SETTINGS, threads=1, mechanism=True
    )
    assert found.figures.start == "past"
    model, how, *_ = open_along_log(tmp_path / "run", str(tmp_path / "log.npz"))
    assert how == "past"
    errors = {one.name: one.test["joints [rad or m]"][0] or 1.0 for one in found.figures.rungs}
    assert errors["declared"] < 0.004  # 50 ms from a difference of these positions would be off by 3.5 mrad and more
    assert model.spec.context >= 10
    assert evaluate(tmp_path / "run", data=str(tmp_path / "log.npz"), threads=1) is not None
