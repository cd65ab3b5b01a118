# SPDX-License-Identifier: Apache-2.0
"""Scenes in the simulator: bodies come to rest where the shapes are, in every world at its own pose."""

import msgspec
import numpy as np
import pytest
import torch

from neurodyn import sim
from neurodyn.core.config import from_dict
from neurodyn.core.description.scene import (
    Box,
    Capsule,
    Cylinder,
    Heightfield,
    Mesh,
    Plane,
    Scene,
    Shape,
    Sphere,
    Terrain,
)
from neurodyn.geometry.rotation import multiply, rotate
from neurodyn.geometry.solids import is_convex, needs_triangles
from neurodyn.robots import Robot
from neurodyn.sim.newton.scene import ScenePlacer
from neurodyn.sim.newton.simulator import ReferenceSimulator

G = 9.81
RADIUS = 0.1
GEOMS = {"ball": f'type="sphere" size="{RADIUS}"', "cube": f'type="box" size="{RADIUS} {RADIUS} {RADIUS}"'}


def turned(axis, angle: float) -> list[float]:
    axis = np.array(axis, dtype=float) / np.linalg.norm(axis)
    return [*(np.sin(angle / 2) * axis), float(np.cos(angle / 2))]


POSES = torch.tensor(
    [
        [0, 0, 0, 0, 0, 0, 1],
        [0.4, -0.2, 0.7, 0, 0, 0, 1],
        [0, 0.1, -0.3, *turned([1, 0, 0], 0.2)],
        [-1.0, 0.5, 0.2, *turned([1, -2, 0.5], 0.4)],
    ],
    dtype=torch.float32,
)
WORLDS = len(POSES)
UP = rotate(POSES[:, 3:], torch.tensor([0.0, 0.0, 1.0]).expand(WORLDS, 3))


@pytest.fixture(scope="module")
def free_body(tmp_path_factory):
    """Return a factory of robots of one free body, whose coordinates are those of its centre."""
    folder = tmp_path_factory.mktemp("body")

    def make(name: str) -> Robot:
        text = f"<mujoco><worldbody><body><freejoint name='base'/><geom {GEOMS[name]}/></body></worldbody></mujoco>"
        (folder / f"{name}.xml").write_text(text)
        data = {
            "name": name,
            "asset": f"{name}.xml",
            "joints": [{"name": "base", "kind": "free"}],
            "actuated": {},
            "dt": 1 / 60,
            "fixed_base": False,
            "teacher": {"solver": "mujoco", "substeps": 8},
            "material": {"friction": 0.8},
        }
        return from_dict(data, Robot).locate(folder)

    return make


def settle(simulator: ReferenceSimulator, top: float, frames: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Drop the body from 5 cm over `top` along each scene's z, pulled down along it; return height and speed."""
    simulator.set_ground(POSES)
    simulator.set_gravity(-G * UP)
    q = POSES.clone()
    q[:, :3] += (top + RADIUS + 0.05) * UP
    qd = torch.zeros(WORLDS, 6)
    for _ in range(frames):
        q, qd = simulator.step(q, qd, torch.zeros(WORLDS, 0))
    return ((q[:, :3] - POSES[:, :3]) * UP).sum(-1), qd.norm(dim=-1)


def quad(a: int, b: int, c: int, d: int) -> list[list[int]]:
    return [[a, b, c], [a, c, d]]


def write_channel(path) -> None:
    """Write a channel of 2 x 2 m whose floor is 0.3 m and whose walls are 1 m high: not convex, and closed."""
    profile = [(-1, 0), (1, 0), (1, 1), (0.5, 1), (0.5, 0.3), (-0.5, 0.3), (-0.5, 1), (-1, 1)]
    vertices = [(x, y, z) for y in (-1, 1) for x, z in profile]
    front = [*quad(0, 1, 4, 5), *quad(0, 5, 6, 7), *quad(1, 2, 3, 4)]
    back = [[8 + c, 8 + b, 8 + a] for a, b, c in front]
    sides = [face for i in range(8) for face in quad((i + 1) % 8, i, 8 + i, 8 + (i + 1) % 8)]
    write_obj(path, vertices, [*front, *back, *sides])


def write_block(path) -> None:
    """Write a block of 2 x 2 x 0.5 m that stands on z = 0: convex."""
    vertices = [(x, y, z) for z in (0, 0.5) for y in (-1, 1) for x in (-1, 1)]
    faces = [*quad(0, 2, 3, 1), *quad(4, 5, 7, 6), *quad(0, 1, 5, 4), *quad(2, 6, 7, 3), *quad(0, 4, 6, 2)]
    write_obj(path, vertices, [*faces, *quad(1, 3, 7, 5)])


def write_obj(path, vertices, faces) -> None:
    lines = [f"v {x} {y} {z}" for x, y, z in vertices] + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in faces]
    path.write_text("\n".join(lines))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    write_channel(folder / "channel.obj")
    write_block(folder / "block.obj")
    np.save(folder / "flat.npy", np.full((41, 31), 0.25, np.float32))
    ramp = np.tile(np.linspace(-0.4, 0.4, 41, dtype=np.float32)[None], (31, 1))
    np.save(folder / "ramp.npy", ramp)
    return folder


SHAPES: dict[str, tuple[Shape, float]] = {
    "plane": (Plane(position=(0, 0, 0.1)), 0.1),
    "box": (Box(half=(1.0, 0.8, 0.3), position=(0.1, 0, 0.2)), 0.5),
    "sphere": (Sphere(radius=0.6, position=(0, 0, 0.1)), 0.7),
    "capsule": (Capsule(radius=0.4, half_length=0.3, position=(0, 0, 0.1)), 0.8),
    "cylinder": (Cylinder(radius=0.7, half_length=0.3), 0.3),
    "convex mesh": (Mesh(file="block.obj"), 0.5),
    "channel": (Mesh(file="channel.obj"), 0.3),
    "heightfield": (Heightfield(file="flat.npy", cell=0.05, position=(0, 0, 0.1)), 0.35),
    "terrain": (Terrain(style="rough", amplitude=1e-5, size=(3.0, 3.0), cell=0.1, position=(0, 0, -0.2)), -0.2),
}


FLAT = ("plane", "box", "cylinder", "convex mesh", "heightfield")


@pytest.mark.slow
@pytest.mark.parametrize(("body", "name"), [*(("ball", name) for name in SHAPES), *(("cube", name) for name in FLAT)])
def test_a_body_comes_to_rest_on_every_shape_that_holds_it_at_every_pose(free_body, files, body, name):
    shape, top = SHAPES[name]
    scene = Scene(shapes=(shape,), folder=str(files))
    height, speed = settle(ReferenceSimulator(free_body(body), WORLDS, scene=scene), top)
    np.testing.assert_allclose(height, top + RADIUS, atol=1.5e-3)
    assert speed.max() < 0.02


def test_heights_lie_along_x_and_y_as_declared(free_body, files):
    """The ramp rises by 0.8 m over 2 m along x: a ball pushed onto it stays above its slope everywhere."""
    scene = Scene(shapes=(Heightfield(file="ramp.npy", cell=0.05),), folder=str(files))
    simulator = ReferenceSimulator(free_body("ball"), 3, scene=scene, gravity=[0, 0, -G])
    x = torch.tensor([-0.7, 0.0, 0.7])
    q = torch.tensor([[0, 0, 0, 0, 0, 0, 1.0]]).repeat(3, 1)
    slope = 0.4
    q[:, 0], q[:, 2] = x, slope * x + RADIUS * np.sqrt(1 + slope**2) + 0.002
    before = q.clone()
    qd = torch.zeros(3, 6)
    for _ in range(15):
        q, qd = simulator.step(q, qd, torch.zeros(3, 0))
    distance = (q[:, 2] - slope * q[:, 0]) / np.sqrt(1 + slope**2)
    np.testing.assert_allclose(distance, RADIUS, atol=2e-3)
    assert (before[:, 0] - q[:, 0] > 0.02).all()  # they roll down


def test_cells_too_fine_for_a_shape_are_reported(free_body, files):
    for cell, truncated in ((0.1, False), (0.01, True)):
        simulator = ReferenceSimulator(
            free_body("cube"),
            1,
            scene=Scene(shapes=(Terrain(style="rough", amplitude=1e-5, size=(0.6, 0.6), cell=cell),)),
        )
        q = torch.tensor([[0, 0, RADIUS - 0.005, 0, 0, 0, 1.0]])
        simulator.step(q, torch.zeros(1, 6), torch.zeros(1, 0))
        assert bool(simulator.truncated[0]) is truncated


def test_a_scene_may_hold_many_shapes_and_a_pose_moves_them_together(free_body):
    step = Box(half=(0.5, 0.5, 0.1), position=(0, 0, 0.1))
    scene = Scene(shapes=(Plane(), step, Sphere(radius=0.2, position=(3, 0, 0))))
    height, _ = settle(ReferenceSimulator(free_body("cube"), WORLDS, scene=scene), 0.2)
    np.testing.assert_allclose(height, 0.2 + RADIUS, atol=1.5e-3)


def test_placing_twice_is_placing_once(cartpole):
    scene = Scene(shapes=(Plane(), Box(half=(1, 1, 1), position=(1, 2, 3), rotation=tuple(turned([1, 1, 0], 0.7)))))
    model = sim.build(cartpole, WORLDS, scene=scene)
    placer = ScenePlacer(model)
    placer.set_pose(torch.randn(WORLDS, 7))
    placer.set_pose(POSES)
    found = torch.from_numpy(model.shape_transform.numpy()).view(WORLDS, -1, 7)[:, -1]
    local = torch.tensor([1.0, 2.0, 3.0, *turned([1, 1, 0], 0.7)], dtype=torch.float32).expand(WORLDS, 7)
    np.testing.assert_allclose(found[:, :3], POSES[:, :3] + rotate(POSES[:, 3:], local[:, :3]), atol=1e-5)
    np.testing.assert_allclose(found[:, 3:], multiply(POSES[:, 3:], local[:, 3:]), atol=1e-6)


def test_only_meshes_with_hollows_need_triangles(files):
    channel, block = (Scene(shapes=(Mesh(file=name),), folder=str(files)) for name in ("channel.obj", "block.obj"))
    assert needs_triangles(channel)
    assert not needs_triangles(block)
    assert not needs_triangles(Scene(shapes=(Plane(),)))
    vertices = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    assert is_convex(vertices, faces)


def test_contact_material_is_the_declared_one(free_body):
    """On a slope of 0.4 rad a cube sticks with friction 0.8, and slides with 0.2: a = g (sin - mu cos)."""
    angle = 0.4
    pose = torch.tensor([[0, 0, 0, *turned([0, 1, 0], angle)]], dtype=torch.float32)
    distances = {}
    for friction in (0.2, 0.8):
        robot = msgspec.structs.replace(
            free_body("cube"), material=msgspec.structs.replace(free_body("cube").material, friction=friction)
        )
        simulator = ReferenceSimulator(robot, 1, scene=Scene(shapes=(Plane(),)))
        simulator.set_ground(pose)
        q = pose.clone()
        q[:, :3] += RADIUS * rotate(pose[:, 3:], torch.tensor([[0.0, 0.0, 1.0]]))
        start, qd = q.clone(), torch.zeros(1, 6)
        for _ in range(30):
            q, qd = simulator.step(q, qd, torch.zeros(1, 0))
        distances[friction] = float((q - start)[0, :3].norm())
    assert distances[0.8] < 0.01
    expected = 0.5 * G * (np.sin(angle) - 0.2 * np.cos(angle)) * 0.5**2
    assert distances[0.2] == pytest.approx(expected, rel=0.05)
