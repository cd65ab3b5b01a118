# SPDX-License-Identifier: Apache-2.0
"""Corners of a mesh's hull that touch a plane, by a search in the compiled program that has no derivative.

MuJoCo takes the lowest corner, and up to three more from the face at that corner that faces the plane most: those with
which the corner spans the largest area. These follow from face and corner and are tables in the code.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from neurodyn.core.description.shape_contacts import Hull
from neurodyn.multibody.trace import Expression, Graph, Loop, Scalar, apply_loop

CORNER_NUMBERS = 15
"""Numbers of a search result: the corner and three others in the frame of the mesh, and 1 for each that exists."""


@dataclass(frozen=True)
class HullOnPlane:
    """A mesh that can touch a plane.

    Attributes:
        blocks: Indices of the poses of plane and link among the blocks.
        rotation: Rotation from the frame of the mesh to that of the link, by rows.
        position: Position of the mesh in the frame of the link [m].
        reach: Radius of its bounding sphere [m].
        hull: Name of its hull.
    """

    blocks: tuple[int, int]
    rotation: Sequence[float]
    position: Sequence[float]
    reach: float
    hull: str


def lowest_corners(
    graph: Graph, hulls: dict[str, Hull], meshes: Sequence[HullOnPlane], blocks: Sequence[Sequence[Scalar]],
    margins: Sequence[Scalar],
) -> list[list[Expression]]:  # fmt: skip
    """Return the search result (`CORNER_NUMBERS`) of each mesh; zeros where its bounding sphere is above the plane.

    Args:
        graph: The graph of all values.
        hulls: Hulls by name.
        meshes: The meshes.
        blocks: Rotation (by rows) and position of each link or plane (normal along z), and further numbers.
        margins: Distance below which each mesh counts as touching [m].
    """
    used = list(dict.fromkeys(one.hull for one in meshes))
    given = [x for block in blocks for x in block]
    starts = list(accumulate((len(block) for block in blocks), initial=0))
    count = len(meshes)
    forward = f"""{hull_tables([hulls[name] for name in used])}
static const int of[] = {{{list_of(starts[at] for one in meshes for at in one.blocks)}}};
static const int hull_of[] = {{{list_of(used.index(one.hull) for one in meshes)}}};
static const number own[] = {{{list_of(x for one in meshes for x in (*one.rotation, *one.position, one.reach))}}};
for (int k = 0; k < {count}; ++k) {{
const real* plane = in + of[2 * k]; const real* link = in + of[2 * k + 1]; const number* mine = own + 13 * k;
real* results = out + {CORNER_NUMBERS} * k; for (int i = 0; i < {CORNER_NUMBERS}; ++i) results[i] = (real)0;
real height = (real)0; real b[3]; real d[3];
for (int i = 0; i < 3; ++i) {{
const real centre = link[9 + i] + link[3 * i] * mine[9] + link[3 * i + 1] * mine[10] + link[3 * i + 2] * mine[11];
height += plane[3 * i + 2] * (centre - plane[9 + i]);
b[i] = link[i] * plane[2] + link[3 + i] * plane[5] + link[6 + i] * plane[8];
}}
for (int i = 0; i < 3; ++i) d[i] = -(mine[i] * b[0] + mine[3 + i] * b[1] + mine[6 + i] * b[2]);
if (ANY(height < mine[12] + in[{len(given)} + k])) for (int lane = 0; lane < LANES; ++lane) {{
const number x = LANE(d[0], lane); const number y = LANE(d[1], lane); const number z = LANE(d[2], lane);
const int first = corners_from[hull_of[k]]; const int last = corners_from[hull_of[k] + 1]; int best = first;
number most = x * corners[3 * first] + y * corners[3 * first + 1] + z * corners[3 * first + 2];
if (edges_from[first] == edges_from[last]) {{
for (int i = first + 1; i < last; ++i) {{
const number far = x * corners[3 * i] + y * corners[3 * i + 1] + z * corners[3 * i + 2];
if (far > most) {{ most = far; best = i; }}
}}
}} else for (int before = -1; before != best;) {{
before = best;
for (int e = edges_from[before]; e < edges_from[before + 1]; ++e) {{
const int i = edges[e]; const number far = x * corners[3 * i] + y * corners[3 * i + 1] + z * corners[3 * i + 2];
if (far > most) {{ most = far; best = i; }}
}}
}}
int face = -1; number least = (number)-2;
for (int f = faces_from[best]; f < faces_from[best + 1]; ++f) {{
const number down = x * normals[3 * f] + y * normals[3 * f + 1] + z * normals[3 * f + 2];
if (down > least) {{ least = down; face = f; }}
}}
for (int c = 0; c < 4; ++c) {{
const int at = c == 0 ? best : face < 0 ? -1 : others[3 * face + c - 1];
for (int i = 0; i < 3; ++i) LANE(results[3 * c + i], lane) = at < 0 ? (number)0 : corners[3 * at + i];
if (c) LANE(results[11 + c], lane) = at < 0 ? (number)0 : (number)1;
}}
}}
}}"""
    inputs, outputs = len(given) + count, CORNER_NUMBERS * count
    loop = Loop(
        name="corners of meshes on a plane", inputs=inputs, outputs=outputs, saved=0, forward=forward, adjoint="",
        sufficient=outputs, fixed=inputs,
    )  # fmt: skip
    results = apply_loop(graph, loop, [*given, *margins])
    return [results[CORNER_NUMBERS * k : CORNER_NUMBERS * (k + 1)] for k in range(count)]


def list_of(values: Iterable[float]) -> str:
    """Return numbers as text."""
    return ", ".join(map(repr, values)) or "0"


def hull_tables(hulls: Sequence[Hull]) -> str:
    """Return code with the hulls' corners, edges and faces, and three other corners for each face at a corner."""
    corners, edges, normals, others, face_of, polygon, normals_of = [], [], [], [], [], [], []
    corners_from, edges_from, faces_from, polygon_from = [0], [0], [0], [0]
    for hull in hulls:
        start = corners_from[-1]
        places = np.array(hull.vertices)
        outward = [_normal(places[list(face)]) for face in hull.faces]
        first = len(polygon_from) - 1
        for face, normal in zip(hull.faces, outward, strict=True):
            polygon += [start + i for i in face]
            polygon_from.append(len(polygon))
            normals_of += normal
        for index, vertex in enumerate(hull.vertices):
            corners += vertex
            edges += [start + i for i in (hull.neighbours[index] if hull.neighbours else ())]
            edges_from.append(len(edges))
            for number, (face, normal) in enumerate(zip(hull.faces, outward, strict=True)):
                if index in face:
                    normals += normal
                    face_of.append(first + number)
                    chosen = _largest(places, face, face.index(index))
                    others += [start + i if i >= 0 else -1 for i in chosen]
            faces_from.append(len(normals) // 3)
        corners_from.append(start + len(hull.vertices))
    tables = (
        ("int", "corners_from", corners_from), ("int", "edges_from", edges_from), ("int", "edges", edges),
        ("int", "faces_from", faces_from), ("int", "others", others), ("number", "corners", corners),
        ("number", "normals", normals), ("int", "face_of", face_of), ("int", "polygon_from", polygon_from),
        ("int", "polygon", polygon), ("number", "normals_of", normals_of),
    )  # fmt: skip
    return "\n".join(f"static const {kind} {name}[] = {{{list_of(row)}}};" for kind, name, row in tables)


def _normal(polygon: np.ndarray) -> list[float]:
    """Return the outward unit normal of a polygon, shape [corners, 3]."""
    around = np.cross(polygon - polygon[0], np.roll(polygon, -1, axis=0) - polygon[0]).sum(0)
    return (around / max(float(np.linalg.norm(around)), 1e-300)).tolist()


def _largest(places: np.ndarray, face: Sequence[int], first: int) -> list[int]:
    """Return three corners of a face that span a large area with its corner number `first`, -1 for none.

    MuJoCo moves the last one, then the third and the second, as long as the area of the quadrilateral grows.
    """
    count = len(face)
    if count <= 4:
        chosen = [face[(first + turn) % count] for turn in range(1, count)]
        return chosen + [-1] * (4 - count)
    turns = [1, 2, 3]

    def area(b: int, c: int, d: int) -> float:
        one, two, three, four = (places[face[(first + turn) % count]] for turn in (0, b, c, d))
        return 0.5 * float(np.linalg.norm(np.cross(one - three, two - four)))

    largest = area(*turns)

    def grow(which: int) -> bool:
        nonlocal turns, largest
        more = [turn + (place == which) for place, turn in enumerate(turns)]
        if (other := area(*more)) <= largest:
            return False
        turns, largest = more, other
        return True

    while grow(2):
        while grow(1):
            pass
        while grow(0):
            pass
    return [face[(first + turn) % count] for turn in turns]
