# SPDX-License-Identifier: Apache-2.0
import struct

import numpy as np
import pytest

from neurodyn.core.errors import InputError
from neurodyn.geometry.solids import closed_mesh, read_mesh

CORNERS = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
FACES = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])


def volume(mesh):
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    return (a * np.cross(b, c)).sum() / 6


def write_obj(path, vertices=CORNERS, faces=FACES):
    lines = [f"v {x} {y} {z}" for x, y, z in vertices] + [f"f {a + 1}//1 {b + 1}//1 {c + 1}//1" for a, b, c in faces]
    path.write_text("\n".join(["# comment", *lines]))
    return path


def test_obj_with_scale(tmp_path):
    mesh = read_mesh(write_obj(tmp_path / "m.obj"), 2.0)
    assert volume(mesh) == pytest.approx(8 / 6)


def test_polygons_and_indices_from_the_end(tmp_path):
    path = tmp_path / "pyramid.obj"
    path.write_text("v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv .5 .5 1\nf 4 3 2 1\nf -5 -4 -1\nf 2 3 5\nf 3 4 5\nf 4 1 5\n")
    assert volume(read_mesh(path)) == pytest.approx(1 / 3)


def test_binary_and_text_stl(tmp_path):
    binary, text = tmp_path / "b.stl", tmp_path / "t.stl"
    corners = CORNERS[FACES]
    body = b"".join(struct.pack("<12fH", 0, 0, 0, *triangle.ravel(), 0) for triangle in corners)
    binary.write_bytes(bytes(80) + struct.pack("<I", len(corners)) + body)
    rows = [f"vertex {x} {y} {z}" for triangle in corners for x, y, z in triangle]
    text.write_text("solid t\n" + "\n".join(rows) + "\nendsolid")
    for path in (binary, text):
        mesh = read_mesh(path)
        assert len(mesh.vertices) == 4
        assert volume(mesh) == pytest.approx(1 / 6)


def test_triangles_that_all_face_inward_are_turned():
    assert volume(closed_mesh(CORNERS, FACES[:, ::-1], "m")) == pytest.approx(1 / 6)


def test_hole_is_refused():
    with pytest.raises(InputError, match=r"m: the mesh has a hole: 3 edges .* between \[.*\]; valid: a closed surface"):
        closed_mesh(CORNERS, FACES[:-1], "m")


def test_edge_with_four_triangles_is_refused():
    other = CORNERS * [-1, -1, 1]  # shares the edge from 0 to 3
    with pytest.raises(InputError, match="more than two triangles"):
        closed_mesh(np.concatenate([CORNERS, other]), np.concatenate([FACES, FACES + 4]), "m")


def test_disagreeing_triangles_are_refused():
    faces = FACES.copy()
    faces[0] = faces[0, ::-1]
    with pytest.raises(InputError, match="disagree on which side is outside at 3 edges"):
        closed_mesh(CORNERS, faces, "m")


def test_number_that_is_not_finite_is_refused(tmp_path):
    vertices = CORNERS.copy()
    vertices[2, 1] = np.nan
    with pytest.raises(InputError, match=r"m.obj: 1 of 4 vertices of the mesh are not finite, the first is number 2"):
        read_mesh(write_obj(tmp_path / "m.obj", vertices))


@pytest.mark.parametrize(("name", "content", "message"), [
    ("none.obj", None, "no such file"),
    ("m.step", "x", "cannot be read; valid: .obj, .stl"),
    ("m.obj", "v 0 0\n", "line 1: 'v 0 0'"),
    ("m.obj", "v 0 0 0\nf 1 2 3\n", "a face names vertex 2 of 1"),
    ("m.obj", "", "no triangles"),
    ("m.stl", "x" * 100, "do not hold"),
])  # fmt: skip
def test_bad_files_are_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_mesh(tmp_path / name)
