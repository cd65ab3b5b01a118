# SPDX-License-Identifier: Apache-2.0
# Warp compiles these functions and infers types that neither checker knows.
# ruff: noqa: ANN201, ANN202, UP018, RUF046
# pyright: basic, reportOperatorIssue=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportReturnType=false
"""Penetration of a box in a prism as MuJoCo Warp computes it, which is not always the least penetration.

Its collision detection grows a simplex, then a polytope, in the Minkowski difference of prism and box around the
origin (Gilbert, Johnson and Keerthi 1988; van den Bergh, "Proximity queries and penetration depth computation on 3D
game objects", 2001). The face nearest to the origin is expanded until no point lies beyond it, or until a point would
be added twice. All top vertices of a prism count as one point there, and all bottom vertices as another, so that the
search often stops early, at a face inside the difference. Simulated boxes on rough ground move by these contacts, so a
prediction has to reproduce them.
"""

import warp as wp

from neurodyn.geometry.prisms.pair import Body, Pair, column, flat_pair, in_the_middle, point_at, straight_up

_ITERATIONS = wp.constant(35)  # MuJoCo's for both searches
_SMALL = wp.constant(wp.float64(1e-7))  # MuJoCo's tolerance of the depth of polyhedra [m]
_VISIBLE = wp.constant(wp.float64(1e-10))
_VERTICES = wp.constant(24)
_FACES = wp.constant(64)
_EDGES = wp.constant(24)
_BASE = wp.constant(wp.float64(1.0))  # depth of a heightfield below its lowest point, in the simulator's models [m]
_VALID = wp.constant(0)
_PASSED = wp.constant(1)
_GONE = wp.constant(2)

Points = wp.types.matrix(shape=(24, 3), dtype=wp.float64)
Marks = wp.types.vector(length=24, dtype=wp.int32)
Corners = wp.types.matrix(shape=(64, 3), dtype=wp.int32)
Feet = wp.types.matrix(shape=(64, 3), dtype=wp.float64)
Squares = wp.types.vector(length=64, dtype=wp.float64)
States = wp.types.vector(length=64, dtype=wp.int32)
Rim = wp.types.matrix(shape=(24, 2), dtype=wp.int32)
Simplex = wp.types.vector(length=4, dtype=wp.int32)


@wp.func
def _vertex(number: int, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, floor: wp.float64):
    """Return a vertex of a prism: 0 to 2 at the bottom, 3 to 5 at the top."""
    vertex = c
    if number % 3 == 0:
        vertex = a
    elif number % 3 == 1:
        vertex = b
    if number < 3:
        return wp.vec3d(vertex[0], vertex[1], floor)
    return vertex


@wp.func
def _corner(body: Body, number: int):
    """Return a corner of a box; the bits of its index are the signs along the axes."""
    point = body.centre
    for i in range(3):
        if (number >> i) & 1 == 1:
            point += body.half[i] * column(body.rotation, i)
        else:
            point -= body.half[i] * column(body.rotation, i)
    return point


@wp.func
def _extreme(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, floor: wp.float64, toward: wp.vec3d):
    """Return the support point of prism minus box in a direction, as 8 * vertex + corner."""
    number = int(0)
    most = wp.float64(-1e30)
    for i in range(6):
        size = wp.dot(_vertex(i, a, b, c, floor), toward)
        if size > most:
            most = size
            number = i
    corner = int(0)
    for i in range(3):
        if wp.dot(column(body.rotation, i), toward) < wp.float64(0.0):
            corner += 1 << i
    return 8 * number + corner


@wp.func
def _difference(mark: int, body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, floor: wp.float64):
    return _vertex(mark / 8, a, b, c, floor) - _corner(body, mark % 8)


@wp.func
def _foot(p: wp.vec3d, q: wp.vec3d, r: wp.vec3d, centre: wp.vec3d):
    """Return the point of a face's plane nearest to the origin, oriented outward; zero for a degenerate face."""
    normal = wp.cross(q - p, r - p)
    square = wp.dot(normal, normal)
    if square <= wp.float64(0.0):
        return wp.vec3d()
    foot = (wp.dot(normal, p) / square) * normal
    if wp.dot(foot, p - centre) < wp.float64(0.0):
        return -foot
    return foot


@wp.func
def _on_line(p: wp.vec3d, q: wp.vec3d):
    """Return the point of a segment nearest to the origin and its vertices as bits; past the end, the second vertex."""
    along = q - p
    share = -wp.dot(p, along)
    square = wp.dot(along, along)
    if share > wp.float64(0.0) and share < square:
        return p + (share / square) * along, 3
    return q, 2


@wp.func
def _on_triangle(p: wp.vec3d, q: wp.vec3d, r: wp.vec3d):
    """Return MuJoCo's nearest point of a triangle to the origin, and a bit mask of the vertices it depends on."""
    zero = wp.float64(0.0)
    normal = wp.cross(q - p, r - p)
    first = wp.dot(normal, wp.cross(q, r))
    second = wp.dot(normal, wp.cross(r, p))
    third = wp.dot(normal, wp.cross(p, q))
    if first > zero and second > zero and third > zero:
        return (wp.dot(normal, p) / wp.dot(normal, normal)) * normal, 7
    best = wp.float64(1e30)
    x = wp.vec3d()
    kept = int(0)
    if first <= zero:
        x, kept = _on_line(q, r)
        kept = 2 * kept
        best = wp.length(x)
    if second <= zero:
        other, bits = _on_line(p, r)
        if wp.length(other) < best:
            x = other
            kept = (bits & 1) + 2 * (bits & 2)
            best = wp.length(other)
    if third <= zero:
        other, bits = _on_line(p, q)
        if wp.length(other) < best:
            x = other
            kept = bits
    return x, kept


@wp.func
def _enclosing(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, floor: wp.float64):
    """Return a simplex of difference points around the origin; -1 in its first entry if there is none."""
    zero = wp.float64(0.0)
    apart = Simplex(-1, -1, -1, -1)
    marks = Simplex(0, 0, 0, 0)
    count = int(0)
    middle = (a + b + c) / wp.float64(3.0)
    middle[2] = wp.float64(0.5) * (middle[2] + floor)
    x = middle - body.centre
    before = zero
    for _iteration in range(_ITERATIONS):
        size = wp.length(x)
        if size < wp.float64(1e-15) or wp.abs(before - size) < wp.float64(1e-15):
            return apart
        mark = _extreme(body, a, b, c, floor, -x / size)
        point = _difference(mark, body, a, b, c, floor)
        if wp.dot(x, x - point) < zero or wp.dot(x, point) > zero:
            return apart
        marks[count] = mark
        count += 1
        # The simplex's point nearest to the origin and its feature: bit i of `kept` stands for vertex i.
        kept = int(1)
        p = _difference(marks[0], body, a, b, c, floor)
        q = _difference(marks[1], body, a, b, c, floor)
        r = _difference(marks[2], body, a, b, c, floor)
        if count == 1:
            x = p
        elif count == 2:
            x, kept = _on_line(p, q)
        elif count == 3:
            x, kept = _on_triangle(p, q, r)
        else:
            best = wp.float64(1e30)
            inside = bool(True)
            for face in range(4):
                i = wp.where(face == 0, 1, 0)
                j = wp.where(face < 2, 2, 1)
                k = wp.where(face < 3, 3, 2)
                one = _difference(marks[i], body, a, b, c, floor)
                two = _difference(marks[j], body, a, b, c, floor)
                three = _difference(marks[k], body, a, b, c, floor)
                if not _side_of_origin(one, two, three, _difference(marks[face], body, a, b, c, floor)):
                    inside = bool(False)
                    nearest, bits = _on_triangle(one, two, three)
                    if wp.length(nearest) < best:
                        best = wp.length(nearest)
                        x = nearest
                        kept = ((bits & 1) << i) + (((bits >> 1) & 1) << j) + (((bits >> 2) & 1) << k)
            if inside:
                return marks
        before = size
        left = int(0)
        for i in range(4):
            if (kept >> i) & 1 == 1:
                marks[left] = marks[i]
                left += 1
        count = left
    return apart


@wp.func
def _side_of_origin(p: wp.vec3d, q: wp.vec3d, r: wp.vec3d, other: wp.vec3d):
    """Return whether the origin and another point lie on the same side of a face."""
    normal = wp.cross(q - p, r - p)
    return -wp.dot(normal, p) * wp.dot(normal, other - p) > wp.float64(0.0)


@wp.func
def box_in_prism(body: Body, a: wp.vec3d, b: wp.vec3d, c: wp.vec3d, lowest: wp.float64):
    """Return the contact of a box with the prism below a triangle of a heightfield with this lowest height."""
    zero = wp.float64(0.0)
    floor = lowest - _BASE
    simplex = _enclosing(body, a, b, c, floor)
    if simplex[0] < 0:
        return Pair()
    points = Points()
    marks = Marks()
    corners = Corners()
    feet = Feet()
    squares = Squares()
    states = States()
    rim = Rim()
    centre = wp.vec3d()
    for i in range(4):
        point = _difference(simplex[i], body, a, b, c, floor)
        marks[i] = simplex[i]
        centre += wp.float64(0.25) * point
        for axis in range(3):
            points[i, axis] = point[axis]
    for face in range(4):
        for i in range(3):
            corners[face, i] = (face + 1 + i) % 4
        foot = _foot(
            point_at(points, corners[face, 0]),
            point_at(points, corners[face, 1]),
            point_at(points, corners[face, 2]),
            centre,
        )
        squares[face] = wp.dot(foot, foot)
        for axis in range(3):
            feet[face, axis] = foot[axis]
    vertices = int(4)
    faces = int(4)
    valid = int(4)
    upper = wp.float64(1e30)
    chosen = int(-1)
    running = bool(True)
    for _iteration in range(_ITERATIONS):
        if running:
            previous = chosen
            chosen = int(-1)
            lower = wp.float64(1e30)
            for i in range(faces):
                if states[i] == _VALID and squares[i] < lower:
                    chosen = i
                    lower = squares[i]
            if chosen < 0 or (upper < wp.float64(1e15) and lower > upper * upper):
                chosen = previous
                running = bool(False)
            elif lower <= zero or vertices >= _VERTICES:
                running = bool(False)
        if running:
            foot = wp.vec3d(feet[chosen, 0], feet[chosen, 1], feet[chosen, 2])
            distance = wp.sqrt(lower)
            toward = foot / distance
            mark = _extreme(body, a, b, c, floor, toward)
            point = _difference(mark, body, a, b, c, floor)
            marks[vertices] = mark
            for axis in range(3):
                points[vertices, axis] = point[axis]
            upper = wp.min(upper, wp.dot(toward, point))
            if upper - distance < _SMALL:
                running = bool(False)
            for i in range(vertices):
                if marks[i] / 24 == mark / 24 and marks[i] % 8 == mark % 8:
                    running = bool(False)
            vertices += 1
        if running:
            valid -= 1
            edges = int(0)
            for i in range(faces):
                gone = i == chosen
                if states[i] != _GONE and not gone:
                    seen = feet[i, 0] * point[0] + feet[i, 1] * point[1] + feet[i, 2] * point[2]
                    if seen - squares[i] > _VISIBLE:
                        gone = bool(True)
                        if states[i] == _VALID:
                            valid -= 1
                if gone:
                    states[i] = _GONE
                    for side in range(3):
                        start = wp.min(corners[i, side], corners[i, (side + 1) % 3])
                        end = wp.max(corners[i, side], corners[i, (side + 1) % 3])
                        met = int(-1)
                        for k in range(edges):
                            if rim[k, 0] == start and rim[k, 1] == end:
                                met = k
                        if met >= 0:
                            edges -= 1
                            rim[met, 0] = rim[edges, 0]
                            rim[met, 1] = rim[edges, 1]
                        elif edges < _EDGES:
                            rim[edges, 0] = start
                            rim[edges, 1] = end
                            edges += 1
            for k in range(edges):
                if faces < _FACES:
                    corners[faces, 0] = vertices - 1
                    corners[faces, 1] = rim[k, 0]
                    corners[faces, 2] = rim[k, 1]
                    foot = _foot(point, point_at(points, rim[k, 0]), point_at(points, rim[k, 1]), centre)
                    squares[faces] = wp.dot(foot, foot)
                    for axis in range(3):
                        feet[faces, axis] = foot[axis]
                    states[faces] = _PASSED
                    if squares[faces] >= lower and (upper > wp.float64(1e15) or squares[faces] <= upper * upper):
                        states[faces] = _VALID
                        valid += 1
                    faces += 1
            if valid == 0:
                running = bool(False)
    if chosen < 0 or squares[chosen] <= zero:
        return Pair()
    one = marks[corners[chosen, 0]]
    two = marks[corners[chosen, 1]]
    three = marks[corners[chosen, 2]]
    pair = Pair()
    pair.normal = wp.vec3d(feet[chosen, 0], feet[chosen, 1], feet[chosen, 2]) / wp.sqrt(squares[chosen])
    pair.core = _corner(body, one % 8)
    pair.ground = _vertex(one / 8, a, b, c, floor)
    along = _corner(body, two % 8) - pair.core
    along_too = _corner(body, three % 8) - pair.core
    across = _vertex(two / 8, a, b, c, floor) - pair.ground
    across_too = _vertex(three / 8, a, b, c, floor) - pair.ground
    pair.distance = -wp.sqrt(squares[chosen])
    pair = in_the_middle(flat_pair(pair, along, along_too, across, across_too), zero)
    if one / 24 == two / 24 and one / 24 == three / 24:
        return pair
    # MuJoCo uses the corner furthest from the heightfield's origin at its lowest height.
    witness = pair.position + wp.float64(0.5) * pair.distance * pair.normal - wp.vec3d(zero, zero, lowest)
    far = body.centre
    for i in range(3):
        edge = body.half[i] * column(body.rotation, i)
        far += wp.sign(wp.dot(edge, witness)) * edge
    return straight_up(far, zero, a, b, c)
