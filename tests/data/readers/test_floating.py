# SPDX-License-Identifier: Apache-2.0
"""Logs of floating bodies: every order and axes gives the same trajectory, and a wrong declaration is noticed."""

import re

import msgspec
import numpy as np
import pytest
from msgspec import UNSET
from scipy.spatial.transform import Rotation

from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import IDENTITY
from neurodyn.core.description.spec import JointSpec, StateSpec
from neurodyn.core.errors import InputError
from neurodyn.data.header import Split
from neurodyn.data.readers import ColumnMap, import_logs, read_column_map, read_logs
from neurodyn.data.readers.column_map import with_centers
from neurodyn.data.readers.floating import continuous_signs, rotate, rotation_between
from neurodyn.data.store import Store

DT = 0.01
SPEC = StateSpec(robot="body", joints=(JointSpec(name="root", kind="free"),), controls=(), dt=DT)
ARM = np.array([0.3, -0.1, 0.2])
"""Centre of mass in the body's frame [m]."""


def tumbling(count=60, seed=0):
    """A body that spins about a fixed axis while its centre of mass flies: poses and velocities at `count` times."""
    rng = np.random.default_rng(seed)
    axis = rng.normal(size=3)
    axis /= np.linalg.norm(axis)
    rate, start = 4.0, rng.normal(size=4)
    start /= np.linalg.norm(start)
    time = DT * np.arange(count)
    half = 0.5 * rate * time[:, None]
    spin = np.concatenate((axis * np.sin(half), np.cos(half)), axis=1)
    vector = spin[:, 3:] * start[:3] + start[3] * spin[:, :3] + np.cross(spin[:, :3], start[:3])
    quaternion = np.concatenate((vector, (spin[:, 3:] * start[3:] - spin[:, :3] @ start[:3, None])), axis=1)
    omega = np.tile(rate * axis, (count, 1))
    velocity = np.array([1.0, -0.5, 2.0]) + time[:, None] * np.array([0.0, 0.0, -9.81])
    center = time[:, None] * np.array([1.0, -0.5, 2.0]) + 0.5 * time[:, None] ** 2 * np.array([0.0, 0.0, -9.81])
    return {"center": center, "quaternion": quaternion, "v": velocity, "w": omega}


def recorded(motion, order, axes, of):
    """The arrays of a log in some convention."""
    quaternion, back = motion["quaternion"], motion["quaternion"] * [-1, -1, -1, 1]
    arm = rotate(quaternion, np.tile(ARM, (len(quaternion), 1)))
    linear = motion["v"] - (np.cross(motion["w"], arm) if of == "origin" else 0.0)
    angular = motion["w"]
    if axes == "body":
        linear, angular = rotate(back, linear), rotate(back, angular)
    quaternion = np.roll(quaternion, 1, axis=1) if order == "wxyz" else quaternion
    # The sign of a quaternion says nothing, and flips in many logs.
    quaternion = quaternion * np.where(np.arange(len(quaternion)) % 7 < 3, -1.0, 1.0)[:, None]
    return {"p": motion["center"] - arm, "o": quaternion, "v": linear, "w": angular}


def body_map(**changes):
    root = {"position": "p", "quaternion": "o", "linear_velocity": "v", "angular_velocity": "w", "order": "xyzw"}
    root |= {"angular_axes": "world", "linear_of": "origin", "center_of_mass": ARM.tolist(), **changes.pop("root", {})}
    fields = {"format": "npz", "period": DT, "episodes": "offsets", "split": "split", "floating": {"root": root}}
    return from_dict({**fields, **changes}, ColumnMap)


def save(path, arrays, **more):
    np.savez(path, **{**arrays, **more})
    return [path]


@pytest.mark.parametrize("order", ["xyzw", "wxyz"])
@pytest.mark.parametrize("axes", ["world", "body"])
@pytest.mark.parametrize("of", ["origin", "center_of_mass"])
def test_every_convention_becomes_newtons(tmp_path, order, axes, of):
    motion = tumbling()
    files = save(tmp_path / "log.npz", recorded(motion, order, axes, of))
    declared = {"order": order, "angular_axes": axes, "linear_axes": axes, "linear_of": of}
    store = read_logs(files, body_map(root=declared, episodes=None), SPEC, split="test")
    q, qd, control = store.episode(0)
    arm = rotate(motion["quaternion"], np.tile(ARM, (60, 1)))
    assert np.allclose(q[:, :3], motion["center"] - arm, atol=1e-6)
    assert np.abs(rotation_between(q[:, 3:], motion["quaternion"])).max() < 1e-6
    assert np.allclose(qd, np.concatenate((motion["v"], motion["w"]), axis=1), atol=1e-5)
    assert control.shape == (59, 0)
    # Signs are continuous, so that a quaternion can be interpolated.
    assert ((q[1:, 3:] * q[:-1, 3:]).sum(axis=1) > 0).all()


@pytest.mark.parametrize("sequence", ["xyz", "XYZ", "ZYX", "zxy", "zyz"])
@pytest.mark.parametrize("axes", ["world", "body"])
def test_angles_become_quaternions(tmp_path, sequence, axes):
    motion = tumbling(count=9)
    arrays = recorded(motion, "xyzw", axes, "origin")
    angles = np.degrees(Rotation.from_quat(motion["quaternion"]).as_euler(sequence))
    written = {"quaternion": [], "order": None, "angles": "o", "sequence": sequence, "angles_unit": "deg"}
    columns = body_map(root={**written, "angular_axes": axes, "linear_axes": axes}, episodes=None)
    close_to(read_logs(save(tmp_path / "log.npz", arrays | {"o": angles}), columns, SPEC, split="test"), motion)


def test_the_other_axes_of_angles_are_noticed(tmp_path):
    motion = tumbling()
    angles = Rotation.from_quat(motion["quaternion"]).as_euler("ZYX")
    columns = body_map(root={"quaternion": [], "order": None, "angles": "o", "sequence": "zyx"}, episodes=None)
    files = save(tmp_path / "log.npz", recorded(motion, "xyzw", "world", "origin") | {"o": angles})
    with pytest.raises(InputError, match="'sequence: ZYX, angular_axes: world' would fit"):
        read_logs(files, columns, SPEC)


@pytest.mark.parametrize("axes", ["world", "body"])
@pytest.mark.parametrize("of", ["origin", "center_of_mass"])
def test_poses_of_a_marker_in_another_world_become_those_of_the_body(tmp_path, axes, of):
    motion = tumbling(count=40)
    body = recorded(motion, "xyzw", "world", of)
    turn, mount = Rotation.from_quat(motion["quaternion"]), Rotation.from_euler("xyz", [0.4, -1.0, 2.0])
    place, up, shift = np.array([0.2, 0.1, -0.3]), Rotation.from_euler("x", 90, degrees=True), np.array([1.0, 2.0, 3.0])
    marker = turn * mount
    velocity = body["v"] + (np.cross(motion["w"], turn.apply(place)) if of == "origin" else 0.0)
    spin = motion["w"]
    if axes == "body":
        velocity, spin = marker.inv().apply(velocity), marker.inv().apply(spin)
    else:
        velocity, spin = up.inv().apply(velocity), up.inv().apply(spin)
    arrays = {"p": up.inv().apply(body["p"] + turn.apply(place) - shift), "o": (up.inv() * marker).as_quat()}
    frames = {"frame": [*place.tolist(), *mount.as_quat().tolist()], "world": [*shift.tolist(), *up.as_quat().tolist()]}
    columns = body_map(root={**frames, "angular_axes": axes, "linear_axes": axes, "linear_of": of}, episodes=None)
    files = save(tmp_path / "log.npz", arrays | {"v": velocity, "w": spin})
    close_to(read_logs(files, columns, SPEC, split="test"), motion)
    alone = {**frames, "linear_velocity": [], "angular_velocity": [], "angular_axes": None}
    found = read_logs(files, body_map(qd="differentiate", root=alone, episodes=None), SPEC, split="test")
    files = save(tmp_path / "body.npz", recorded(motion, "xyzw", "world", of))
    plain = body_map(qd="differentiate", root=alone | {"frame": IDENTITY, "world": IDENTITY}, episodes=None)
    expected = read_logs(files, plain, SPEC, split="test")
    np.testing.assert_allclose(found.q[:, :3], expected.q[:, :3], atol=1e-5)
    np.testing.assert_allclose(found.qd, expected.qd, atol=1e-2)


def close_to(store, motion, atol=1e-5):
    """Hold a store to the motion that it is of, whichever sign quaternions have."""
    arm = rotate(motion["quaternion"], np.tile(ARM, (len(motion["quaternion"]), 1)))
    sign = np.sign((store.q[:, 3:] * motion["quaternion"]).sum(1, keepdims=True))
    np.testing.assert_allclose(store.q[:, :3], motion["center"] - arm, atol=1e-6)
    np.testing.assert_allclose(sign * store.q[:, 3:], motion["quaternion"], atol=1e-6)
    np.testing.assert_allclose(store.qd, np.concatenate((motion["v"], motion["w"]), axis=1), atol=atol)


@pytest.mark.parametrize("true", ["xyzw world", "xyzw body", "wxyz world", "wxyz body"])
@pytest.mark.parametrize("declared", ["xyzw world", "xyzw body", "wxyz world", "wxyz body"])
def test_a_wrong_order_or_axes_is_noticed_and_the_right_one_named(tmp_path, true, declared):
    order, axes = true.split()
    files = save(tmp_path / "log.npz", recorded(tumbling(), order, axes, "center_of_mass"))
    told, told_axes = declared.split()
    root = {"order": told, "angular_axes": told_axes, "linear_axes": axes, "linear_of": "center_of_mass"}
    columns = body_map(root=root, episodes=None)
    if declared == true:
        assert read_logs(files, columns, SPEC, split="test").transitions == 59
        return
    with pytest.raises(InputError, match=f"'order: {order}, angular_axes: {axes}' would fit") as caught:
        read_logs(files, columns, SPEC, split="test")
    assert "\n" not in str(caught.value)


def test_velocities_that_fit_under_no_reading_are_refused(tmp_path):
    arrays = recorded(tumbling(), "xyzw", "world", "origin")
    arrays["w"] = np.rad2deg(arrays["w"])
    with pytest.raises(InputError, match="nor does another order, axes or point; check `angular_unit`"):
        read_logs(save(tmp_path / "log.npz", arrays), body_map(episodes=None), SPEC)
    columns = body_map(root={"angular_unit": "deg/s"}, episodes=None)
    assert read_logs([tmp_path / "log.npz"], columns, SPEC, split="test").transitions == 59


def test_linear_velocities_are_checked_too(tmp_path):
    arrays = recorded(tumbling(), "xyzw", "body", "center_of_mass")
    root = {"angular_axes": "body", "linear_of": "center_of_mass"}
    with pytest.raises(InputError, match="'linear_axes: body, linear_of: center_of_mass' would fit"):
        read_logs(save(tmp_path / "log.npz", arrays), body_map(root=root, episodes=None), SPEC)


def test_the_point_of_a_linear_velocity_is_checked(tmp_path):
    files = save(tmp_path / "log.npz", recorded(tumbling(), "xyzw", "world", "origin"))
    with pytest.raises(InputError, match="'linear_axes: world, linear_of: origin' would fit"):
        read_logs(files, body_map(root={"linear_of": "center_of_mass"}, episodes=None), SPEC)


def test_a_centre_of_mass_that_a_map_leaves_open_is_the_assets():
    given = body_map()
    root = msgspec.structs.replace(given.floating["root"], center_of_mass=UNSET)
    unset = msgspec.structs.replace(given, floating={"root": root})
    assert with_centers(unset, lambda: {"root": (1.0, 2.0, 3.0)}).floating["root"].center == (1.0, 2.0, 3.0)
    assert with_centers(given, lambda: pytest.fail("not needed")) == given


def test_a_pose_of_a_marker_is_noticed(tmp_path):
    arrays = recorded(tumbling(), "xyzw", "world", "origin")
    arrays["p"] = arrays["p"] + rotate(tumbling()["quaternion"], np.tile([0.25, 0.1, 0.0], (60, 1)))
    with pytest.warns(match="fits the differences of its pose only roughly .*not of a marker"):
        read_logs(save(tmp_path / "log.npz", arrays), body_map(episodes=None), SPEC, split="test")


def test_a_body_at_rest_passes_under_any_reading(tmp_path):
    noise = 1e-4 * np.random.default_rng(0).normal(size=(50, 3))
    rest = {"p": noise, "o": np.tile([0.0, 0.0, 0.0, 1.0], (50, 1)), "v": np.zeros((50, 3)), "w": np.zeros((50, 3))}
    files = save(tmp_path / "log.npz", rest)
    for order in ("xyzw", "wxyz"):
        assert read_logs(files, body_map(root={"order": order}, episodes=None), SPEC, split="test").transitions == 49


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"o": 1.1}, r"quaternion of 'root' in row 0 has norm 1\.1 \(60 such rows\)"),
        ({"o": 0.0}, "has norm 0 .*where tracking was lost, leave its values empty, with `missing: gap`"),
        ({"w": np.nan}, r"column 'w\[0\]' holds nan in row 0"),
        ({"o": np.zeros((60, 3))}, r"array 'o' has shape \[60, 3\]; expected \[rows, 4\]"),
        ({"p": np.zeros((60, 4))}, r"array 'p' has shape \[60, 4\]; expected \[rows, 3\]"),
        ({"v": np.zeros((59, 3))}, r"array 'v' has shape \[59, 3\]; expected \[60\]|array 'v' has shape"),
    ],
)
def test_bad_values_are_one_line(tmp_path, change, message):
    arrays = recorded(tumbling(), "xyzw", "world", "origin")
    for name, value in change.items():
        arrays[name] = value if isinstance(value, np.ndarray) else arrays[name] * value
    with pytest.raises(InputError, match=message) as caught:
        read_logs(save(tmp_path / "log.npz", arrays), body_map(episodes=None), SPEC)
    assert "\n" not in str(caught.value)


def test_seams_between_runs_are_no_motion(tmp_path):
    parts = [recorded(tumbling(12, seed), "xyzw", "world", "origin") for seed in range(10)]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    files = save(tmp_path / "log.npz", arrays, offsets=12 * np.arange(11), split=[0] * 6 + [1] * 2 + [2] * 2)
    store = import_logs(files, body_map(), SPEC, tmp_path / "log.h5")
    assert store.lengths.tolist() == [11] * 10
    assert store.split.tolist() == [0] * 6 + [1] * 2 + [2] * 2
    assert np.array_equal(Store.open(tmp_path / "log.h5").frames, store.frames)


def test_runs_of_one_event_stay_together_in_a_random_split(tmp_path):
    parts = [recorded(tumbling(8, seed), "xyzw", "world", "origin") for seed in range(20)]
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    event = np.arange(20) % 10
    files = save(tmp_path / "log.npz", arrays, offsets=8 * np.arange(21), event=event)
    for seed in range(5):
        split = read_logs(files, body_map(together="event"), SPEC, seed=seed).split
        assert np.array_equal(split[:10], split[10:])
        assert set(split) == set(Split)


def test_the_period_may_be_in_the_file(tmp_path):
    files = save(tmp_path / "log.npz", recorded(tumbling(), "xyzw", "world", "origin"), dt=DT)
    assert read_logs(files, body_map(period="dt", episodes=None), SPEC, split="test").transitions == 59
    save(tmp_path / "log.npz", recorded(tumbling(), "xyzw", "world", "origin"), dt=[DT, DT])
    with pytest.raises(InputError, match="array 'dt' is no time step"):
        read_logs(files, body_map(period="dt", episodes=None), SPEC)


def test_lengths_can_be_scaled(tmp_path):
    motion = recorded(tumbling(), "xyzw", "world", "center_of_mass")
    files = save(tmp_path / "log.npz", motion)
    root = {"linear_of": "center_of_mass"}
    plain, scaled = (
        read_logs(files, body_map(root=root, episodes=None, length_scale=scale), SPEC, split="test")
        for scale in (1.0, 1.02)
    )
    factor = np.array([1.02] * 3 + [1.0] * 4 + [1.02] * 3 + [1.0] * 3, np.float32)
    assert np.allclose(scaled.frames, plain.frames * factor, atol=1e-6)


def test_a_map_names_its_scene_and_a_file_of_contact_points(tmp_path):
    (tmp_path / "contact_points.yaml").write_text(
        "joints: [{name: root, kind: free, parent: -1, parent_frame: [0, 0, 0, 0, 0, 0, 1], "
        "child_frame: [0, 0, 0, 0, 0, 0, 1], axis: [0, 0, 0]}]\n"
        "probes: [{name: corner, joint: 0, point: [1, 1, 1], radius: 0}]\n"
    )
    (tmp_path / "map.yaml").write_text(
        "format: npz\nperiod: 0.01\nprobes: contact_points.yaml\nscene: {shapes: [{kind: plane}]}\n"
        "floating: {root: {position: p, quaternion: o, order: xyzw, linear_velocity: v, "
        "angular_velocity: w, angular_axes: world}}\n"
    )
    arrays = recorded(tumbling(), "xyzw", "world", "center_of_mass")
    store = read_logs(save(tmp_path / "log.npz", arrays), read_column_map(tmp_path / "map.yaml"), SPEC, split="test")
    assert store.header.contact_points is not None
    assert store.header.contact_points.contact_points[0].name == "corner"
    assert store.header.scene is not None
    assert np.array_equal(store.ground, [[0, 0, 0, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({"position": []}, "give both position and linear_velocity"),
        ({"quaternion": ["a", "b"]}, "quaternion lists 2 columns; valid: 4"),
        ({"quaternion": ["r", "p", "y"]}, r"lists 3 columns; valid: 4 \(roll, pitch, yaw are `angles`\)"),
        ({"order": "zyxw"}, "order"),
        ({"quaternion": []}, "either quaternion and its order, or angles and their sequence"),
        ({"angles": "a"}, "either quaternion and its order, or angles and their sequence"),
        ({"quaternion": [], "angles": "a"}, "angles and nothing else needs a sequence"),
        ({"quaternion": [], "angles": "a", "order": None, "sequence": "xyx "}, "sequence is 'xyx '; valid: three axes"),
        ({"quaternion": [], "angles": "a", "order": None, "sequence": "xxz"}, "sequence is 'xxz'; valid: three axes"),
        ({"frame": [0, 0, 0, 1, 1, 0, 0]}, "frame has a quaternion of norm 1.414"),
    ],
)
def test_malformed_declarations(root, message):
    with pytest.raises(InputError, match=message):
        body_map(root=root)


def test_a_free_joint_needs_its_columns(tmp_path):
    columns = from_dict({"format": "npz", "period": DT, "q": {"root.x": {"column": "p[0]"}}}, ColumnMap)
    files = save(tmp_path / "log.npz", recorded(tumbling(), "xyzw", "world", "origin"))
    with pytest.raises(InputError, match=re.escape("has no columns for the free joint 'root'")):
        read_logs(files, columns, SPEC)


def test_signs_become_continuous():
    q = np.zeros((6, 7))
    q[:, 6] = [1, -1, -1, 1, 1, -1]
    continuous_signs(SPEC, q)
    assert q[:, 6].tolist() == [1.0] * 6


@pytest.mark.parametrize("past", [True, False])
def test_velocities_of_a_body_are_differentiated_from_its_poses(tmp_path, past):
    motion = tumbling(count=120)
    arrays = recorded(motion, "wxyz", "world", "origin")
    root = {"position": "p", "quaternion": "o", "order": "wxyz", "center_of_mass": ARM.tolist()}
    fields = {"format": "npz", "period": DT, "floating": {"root": root}, "qd": "differentiate"}
    columns = from_dict({**fields, "velocity": "past" if past else "sampled"}, ColumnMap)
    store = read_logs(save(tmp_path / "log.npz", arrays), columns, SPEC, split="test")
    first = 2 if past else 1
    rows = slice(first, len(store.qd) - 1)
    want = np.concatenate((motion["v"], motion["w"]), axis=1)[(0 if past else 1) :][rows]
    assert np.allclose(store.qd[rows], want[: len(store.qd[rows])], atol=0.05)
    twice = {**root, "angular_velocity": "w", "angular_axes": "world", "linear_velocity": "v"}
    with pytest.raises(InputError, match="'root' has velocities, but `qd: differentiate` computes them"):
        read_logs([tmp_path / "log.npz"], from_dict({**fields, "floating": {"root": twice}}, ColumnMap), SPEC)


def test_a_gyroscope_beside_a_noisy_pose_is_used_as_declared(tmp_path):
    motion = tumbling(400)
    arrays = recorded(motion, "xyzw", "body", "origin")
    noisy = arrays["o"] + np.random.default_rng(0).normal(0.0, 0.02, arrays["o"].shape)
    arrays["o"] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    declared = {"angular_axes": "body", "linear_axes": "body"}
    files = save(tmp_path / "log.npz", arrays)
    store = read_logs(files, body_map(root=declared, episodes=None), SPEC, split="test")
    assert np.median(np.linalg.norm(store.episode(0)[1][:, 3:] - motion["w"][: len(store.episode(0)[1])], axis=1)) < 0.2
    with pytest.raises(InputError, match="angular velocity"):
        read_logs(files, body_map(root=declared | {"angular_axes": "world"}, episodes=None), SPEC, split="test")


def test_a_pose_is_differentiated_beside_logged_velocities_of_joints_and_may_have_constants(tmp_path):
    time = DT * np.arange(200)
    place = np.stack([np.sin(time), 0.5 * time], 1)
    arrays = {"p": place, "yaw": 0.7 * time, "wheel": 9.0 * time, "rate": 9.0 + 0.0 * time}
    root = {"position": ["p[0]", "p[1]", 0.3], "angles": [0.0, 0.1, "yaw"], "sequence": "xyz"}
    fields = {
        "format": "npz", "period": DT, "floating": {"root": root}, "q": {"wheel": {"column": "wheel"}},
        "qd": {"wheel": {"column": "rate"}},
    }  # fmt: skip
    joints = (JointSpec(name="root", kind="free"), JointSpec(name="wheel", kind="revolute"))
    store = read_logs(
        save(tmp_path / "log.npz", arrays), from_dict(fields, ColumnMap),
        StateSpec(robot="rover", joints=joints, controls=(), dt=DT), split="test",
    )  # fmt: skip
    rows = slice(2, 190)
    assert np.allclose(store.q[rows, 2], 0.3)
    turns = Rotation.from_quat(store.q[rows, 3:7])
    assert np.allclose(
        (
            turns.inv() * Rotation.from_euler("xyz", np.stack([0 * time, 0.1 + 0 * time, 0.7 * time], 1)[rows])
        ).magnitude(),
        0.0,
        atol=1e-4,
    )
    want = np.stack([np.cos(time), 0.5 + 0 * time, *(0 * time for _ in range(3)), 0.7 + 0 * time, 9.0 + 0 * time], 1)
    assert np.allclose(store.qd[rows], want[rows], atol=1e-3)
    with pytest.raises(InputError, match="position lists numbers alone; valid: at least one column"):
        body_map(root={**root, "position": [0.0, 0.0, 0.3]})
