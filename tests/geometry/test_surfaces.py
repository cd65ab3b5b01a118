# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pytest
import torch
from benchmarks._shapes import torus

from neurodyn.core.description.scene import Box, Capsule, Cylinder, Plane, Scene, Sphere, Terrain
from neurodyn.geometry.ground import Ground
from neurodyn.geometry.proximity import ProximityQuery
from neurodyn.geometry.solids import Solid, closed_mesh, terrain_heights
from tests.geometry.chains import at, contact_point_at

PROBER = ProximityQuery(contact_point_at())
IDENTITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
SHAPES = {
    "plane": Plane(position=(0.0, 0.0, 0.2), rotation=(0.0, 0.6, 0.0, 0.8)),
    "box": Box(half=(0.5, 0.3, 0.2), rotation=(0.5, 0.5, 0.5, 0.5)),
    "sphere": Sphere(radius=0.4),
    "capsule": Capsule(radius=0.2, half_length=0.3, position=(0.1, 0.0, 0.0)),
    "cylinder": Cylinder(radius=0.3, half_length=0.3),
}


def points(count, extent=1.0, seed=0):
    return np.random.default_rng(seed).uniform(-extent, extent, (count, 3))


def read(ground, places):
    return PROBER(ground, *at(places))


def nearest_on_triangles(place, corners):
    """Least distance from a point to triangles [n, 3, 3], by clamping to the plane, else to the edges."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    foot = place - ((place - a) * normal).sum(1, keepdims=True) * normal
    inside = np.ones(len(corners), bool)
    best = np.full(len(corners), np.inf)
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= (np.cross(end - start, foot - start) * normal).sum(1) >= 0
        edge = end - start
        share = np.clip(((place - start) * edge).sum(1) / (edge * edge).sum(1), 0, 1)
        best = np.minimum(best, np.linalg.norm(start + share[:, None] * edge - place, axis=1))
    return np.where(inside, np.linalg.norm(foot - place, axis=1), best).min()


def heightfield_triangles(heights, cell):
    rows, columns = heights.shape
    y, x = np.mgrid[0:rows, 0:columns]
    v = np.stack([(x - (columns - 1) / 2) * cell, (y - (rows - 1) / 2) * cell, heights], -1)
    a, b, c, d = v[:-1, :-1], v[:-1, 1:], v[1:, :-1], v[1:, 1:]
    return np.concatenate([np.stack([a, b, d], 2).reshape(-1, 3, 3), np.stack([a, d, c], 2).reshape(-1, 3, 3)])


@pytest.mark.parametrize("name", list(SHAPES))
def test_primitives_are_distances(name):
    """The nearest point is on the surface and the distance away, and the normal is the gradient of the distance."""
    ground = Ground(Scene(shapes=(SHAPES[name],)))
    places = points(500)
    readings = read(ground, places)
    away = (readings.position - readings.point)[:, 0].norm(dim=-1)
    torch.testing.assert_close(away, readings.distance[:, 0].abs())
    assert read(ground, readings.point[:, 0]).distance.abs().max() < 1e-12
    h = 1e-6
    gradient = torch.stack(
        [
            (read(ground, places + step).distance - read(ground, places - step).distance)[:, 0] / (2 * h)
            for step in h * np.eye(3)
        ],
        -1,
    )
    smooth = (gradient.norm(dim=-1) - 1).abs() < 1e-6  # all but the places where two faces are as near
    assert smooth.float().mean() > 0.98
    torch.testing.assert_close(gradient[smooth], readings.normal[smooth, 0], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("name", "volume"), [
    ("box", 8 * 0.5 * 0.3 * 0.2),
    ("sphere", 4 / 3 * math.pi * 0.4**3),
    ("capsule", math.pi * 0.2**2 * 0.6 + 4 / 3 * math.pi * 0.2**3),
    ("cylinder", math.pi * 0.3**2 * 0.6),
])  # fmt: skip
def test_inside_is_negative(name, volume):
    inside = read(Ground(Scene(shapes=(SHAPES[name],))), points(40_000, 0.7)).distance < 0
    assert inside.double().mean().item() * 1.4**3 == pytest.approx(volume, rel=0.06)


@pytest.mark.parametrize("style", ["rough", "steps", "stairs"])
def test_heightfield_is_the_nearest_of_all_triangles(style):
    terrain = Terrain(style=style, seed=2, size=(1.2, 0.9), cell=0.05, amplitude=0.15, feature=0.3)
    heights = terrain_heights(terrain)
    triangles = heightfield_triangles(heights, 0.05)
    places = points(300, 0.8, seed=3)
    places[:, 2] *= 0.6
    readings = read(Ground(Scene(shapes=(terrain,))), places)
    expected = np.array([nearest_on_triangles(place, triangles) for place in places])
    np.testing.assert_allclose(readings.distance[:, 0].abs(), expected, atol=1e-9)
    away = (readings.position - readings.point)[:, 0].norm(dim=-1)
    torch.testing.assert_close(away, readings.distance[:, 0].abs())


def test_below_a_heightfield_is_negative_and_beside_it_is_not():
    flat = Solid("heightfield", IDENTITY, (0.1, 0.1, 0.0), heights=np.zeros((11, 11)))
    distance = read(Ground(shared=(flat,)), [[0.2, 0.1, -0.3], [0.2, 0.1, 0.3], [1.0, 0.0, -0.2]]).distance[:, 0]
    torch.testing.assert_close(distance, torch.tensor([-0.3, 0.3, math.hypot(0.5, 0.2)], dtype=torch.float64))


def test_mesh_is_the_nearest_of_all_triangles_with_the_sign_of_the_solid():
    vertices, faces = torus()
    mesh = closed_mesh(vertices, faces, "ring")
    ring = Solid("mesh", IDENTITY, mesh=mesh)
    places = points(1000, 0.8, seed=4)
    readings = read(Ground(shared=(ring,)), places)
    corners = mesh.vertices[mesh.faces]
    expected = np.array([nearest_on_triangles(place, corners) for place in places])
    np.testing.assert_allclose(readings.distance[:, 0].abs(), expected, atol=1e-6)
    # Winding number: solid angles of all triangles sum to 4 pi inside (van Oosterom and Strackee 1983).
    a, b, c = (corners[None, :, k] - places[:, None] for k in range(3))
    la, lb, lc = (np.linalg.norm(x, axis=-1) for x in (a, b, c))
    above = (a * np.cross(b, c)).sum(-1)
    below = la * lb * lc + (a * b).sum(-1) * lc + (b * c).sum(-1) * la + (c * a).sum(-1) * lb
    inside = (2 * np.arctan2(above, below)).sum(1) > 2 * np.pi
    assert inside.sum() > 50
    np.testing.assert_array_equal(readings.distance[:, 0].numpy() < 0, inside)


def test_least_distance_counts_also_deep_inside_a_mesh():
    """A point a little above a sphere but deep in a mesh is in the mesh."""
    half = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])
    cube = Solid("mesh", IDENTITY, mesh=closed_mesh(half, faces, "cube"))
    ground = Ground(Scene(shapes=(Sphere(radius=0.1),)), shared=(cube,))
    assert read(ground, [[0.0, 0.0, 0.15]]).distance.item() == pytest.approx(-0.85)


def test_many_shapes_give_the_least():
    scene = Scene(shapes=tuple(SHAPES.values()))
    places = points(300)
    single = torch.stack([read(Ground(Scene(shapes=(shape,))), places).distance for shape in SHAPES.values()])
    torch.testing.assert_close(read(Ground(scene), places).distance, single.amin(0))
