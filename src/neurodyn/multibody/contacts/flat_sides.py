# SPDX-License-Identifier: Apache-2.0
r"""Contacts of flat sides and straight edges that lie on each other: up to four, as in MuJoCo's `multiccd`.

The normal from `convex_search` and the corners next to it give the sides of both shapes that face each other within 5
degrees; without such a pair, an edge that lies on a side within 5 degrees. Caps of cylinders are sides with 16 corners;
capsules and the curved sides of cylinders have one edge. The second of two sides is clipped by the prism over the
first, an edge by the prism over its side; points that do not touch are dropped. Of more than four, those are kept whose
quadrilateral cannot be enlarged by moving on its last corner, then the third and the second; that search starts once
from each point, as in MuJoCo.

The search has no derivative. With the corners $s$ and $o$, which move with the shape that owns the point and with the
other one (s on a round edge stays on the side that faces the other shape), and a matrix W that rotates with the shape
of the prism, a point is

$$x = s + W (o - s)$$
"""

from typing import Any

from neurodyn.multibody.contacts.shape_pairs import FAR_AWAY, PlacedShape, Touch, below, where
from neurodyn.multibody.trace import safe_sqrt
from neurodyn.multibody.vectors import Matrix, array, dot

MOST_CONTACTS = 4
_HEAD = 7
SIDE_NUMBERS = _HEAD + 16 * MOST_CONTACTS
"""Numbers of a search result: the normal in the frame of the shape that it belongs to; 1 if there are such contacts; 1
if the points are the second shape's and the normal the first's, else the reverse; 1 if the prism is the second's; 1 if
the edge is that of a capsule, 2 if that of a cylinder; and for each point its position in the frames of the first and
the second shape (on the axis where the edge is round), W by rows in the frame of the prism's shape, and 1 if it
exists."""

SIDED = ("capsule", "cylinder", "box", "mesh")
"""Kinds of shapes with flat sides or straight edges."""


def flat_touches(first: PlacedShape, second: PlacedShape, single: Touch, result: Any) -> list[Touch]:
    """Return the contacts found, or else the single one; `result` holds `SIDE_NUMBERS` numbers."""
    several, of_second, prism, rounding = result[3:_HEAD]
    normal = where(of_second, first.rotation @ array(result[:3]), second.rotation @ array(result[:3]))
    rotation = _either(prism, second.rotation, first.rotation)
    axis, outward = (
        where(of_second, second.rotation[:, 2], first.rotation[:, 2]),
        where(of_second, -1.0, 1.0) * single.normal,
    )
    across = outward - dot(outward, axis) * axis
    far = where(of_second, second.size[0], first.size[0]) * below(0.5, rounding)
    rim = far * where(below(1.5, rounding), 1.0 / safe_sqrt(dot(across, across)), 1.0) * across
    touches = []
    for k in range(MOST_CONTACTS):
        own = result[_HEAD + 16 * k : _HEAD + 16 * (k + 1)]
        mine, theirs = (
            shape.centre + shape.rotation @ array(own[at : at + 3]) for shape, at in ((first, 0), (second, 3))
        )
        start, other = where(of_second, theirs, mine) + rim, where(of_second, mine, theirs)
        position = start + rotation @ (array(own[6:15]).reshape(3, 3) @ (rotation.T @ (other - start)))
        sign = where(of_second, -1.0, 1.0)
        depth = sign * dot(position - other, normal)
        middle, distance = position - 0.5 * sign * depth * normal, where(own[15], -depth, FAR_AWAY)
        if k:
            touches.append(Touch(middle, normal, where(several, distance, FAR_AWAY)))
            continue
        touches.append(
            Touch(
                where(several, middle, single.position), where(several, normal, single.normal),
                where(several, distance, single.distance),
            )
        )  # fmt: skip
    return touches


def _either(flag: Any, one: Matrix, other: Matrix) -> Matrix:
    return array([[where(flag, a, b) for a, b in zip(*rows, strict=True)] for rows in zip(one, other, strict=True)])


TEXT = """
struct Point { double x[3], e[3], m[3]; int kind, label; };
static void outwards(const Shape& s, const double* y, double* x) {
for (int i = 0; i < 3; ++i) x[i] = s.centre[i] + dot(s.rotation + 3 * i, y);
}
static void turned(const Shape& s, const double* y, double* x) { for (int i = 0; i < 3; ++i) x[i] = dot(s.rotation + 3
* i, y); }
static void seen_from(const Shape& s, const double* n, double* d) {
for (int i = 0; i < 3; ++i) d[i] = s.rotation[i] * n[0] + s.rotation[3 + i] * n[1] + s.rotation[6 + i] * n[2];
}
static bool meets(int corner, int side) {
for (int f = faces_from[corner]; f < faces_from[corner + 1]; ++f) if (face_of[f] == side) return true;
return false;
}
static int different(const int* ids, int count, int* v) {
int dim = 0;
for (int i = 0; i < count; ++i) {
bool known = false; for (int j = 0; j < dim; ++j) known |= v[j] == ids[i];
if (!known && dim < 3) v[dim++] = ids[i];
}
return dim;
}
static int sides(const Shape& s, const int* v, int dim, const double* n, double (*normals)[3], int* which) {
double d[3], y[3]; seen_from(s, n, d); int count = 0;
if (s.kind == 3 && d[2] * d[2] > 0.996 * 0.996) {
y[0] = y[1] = 0; y[2] = d[2] < 0 ? -1 : 1; turned(s, y, normals[0]); which[0] = d[2] < 0; return 1;
}
if (s.kind == 4) {
for (int i = 0; i < 3; ++i) {
bool all = true, none = true; for (int k = 0; k < dim; ++k) { all &= v[k] >> i & 1; none &= !(v[k] >> i & 1); }
if (!all && !none) continue;
for (int l = 0; l < 3; ++l) y[l] = l != i ? 0 : all ? 1 : -1;
turned(s, y, normals[count]); which[count++] = 2 * i + none;
}
if (count == 4 - dim) return count;
for (int i = 0; i < 6; ++i) if ((i & 1 ? -d[i / 2] : d[i / 2]) > 0.996) {
for (int l = 0; l < 3; ++l) y[l] = l != i / 2 ? 0 : i & 1 ? -1 : 1;
turned(s, y, normals[0]); which[0] = i; return 1;
}
return 0;
}
if (s.kind == 5) for (int f = faces_from[v[0]]; f < faces_from[v[0] + 1] && count < 32; ++f) {
bool shared = true; for (int k = 1; k < dim; ++k) shared &= meets(v[k], face_of[f]);
if (!shared || (dim > 1 && count == 4 - dim)) continue;
for (int l = 0; l < 3; ++l) y[l] = normals_of[3 * face_of[f] + l];
turned(s, y, normals[count]); which[count++] = face_of[f];
}
return count;
}
static void corner_of(const Shape& s, int id, double* x) {
double y[3]; for (int i = 0; i < 3; ++i) y[i] = s.kind == 5 ? (double)corners[3 * id + i] : id >> i & 1 ? s.size[i]
: -s.size[i];
outwards(s, y, x);
}
static int around(const Shape& s, int side, double (*x)[3]) {
if (s.kind == 3) {
for (int k = 0; k < 16; ++k) {
const double angle = (side ? 1 : -1) * 0.39269908169872414 * k;
const double y[3] = {s.size[0] * ::cos(angle), s.size[0] * ::sin(angle), side ? -s.size[1] : s.size[1]};
outwards(s, y, x[k]);
}
return 16;
}
if (s.kind == 4) {
const int a = side / 2, b = (a + 1) % 3, c = (a + 2) % 3; const double up = side & 1 ? -1 : 1;
for (int k = 0; k < 4; ++k) {
double y[3]; y[a] = up * s.size[a]; y[b] = (k == 0 || k == 3 ? 1 : -1) * s.size[b]; y[c] = up * (k < 2 ? 1 : -1) *
s.size[c];
y[c] = -y[c]; outwards(s, y, x[k]);
}
return 4;
}
const int from = polygon_from[side], count = polygon_from[side + 1] - from;
if (count > 48) return 0;
for (int k = 0; k < count; ++k) corner_of(s, polygon[from + count - 1 - k], x[k]);
return count;
}
static int straight(const Shape& s, const int* v, int dim, const double* n, double (*a)[3], double (*b)[3]) {
double d[3]; seen_from(s, n, d);
if (s.kind == 1 || s.kind == 3) {
const double rho = s.kind == 1 ? 1 : root(d[0] * d[0] + d[1] * d[1]); if (rho < 1e-6) return 0;
double y[3] = {s.size[0] * d[0] / rho, s.size[0] * d[1] / rho, -s.size[1]};
outwards(s, y, a[0]); y[2] = s.size[1]; outwards(s, y, b[0]); return 1;
}
if (dim > 2 || s.kind < 4) return 0;
if (dim == 2) { corner_of(s, v[0], a[0]); corner_of(s, v[1], b[0]); return 1; }
if (s.kind == 4) { for (int i = 0; i < 3; ++i) { corner_of(s, v[0], a[i]); corner_of(s, v[0] ^ (1 << i), b[i]); }
return 3; }
int count = 0;
for (int f = faces_from[v[0]]; f < faces_from[v[0] + 1] && count < 32; ++f) {
const int from = polygon_from[face_of[f]], size = polygon_from[face_of[f] + 1] - from;
for (int k = 0; k < size; ++k) if (polygon[from + k] == v[0]) {
corner_of(s, v[0], a[count]); corner_of(s, polygon[from + (k ? k - 1 : size - 1)], b[count++]); break;
}
}
return count;
}
static void beside(double (*x)[3], int count, int k, const double* n, double* m) {
double e[3]; const double* next = x[(k + 1) % count]; for (int l = 0; l < 3; ++l) e[l] = next[l] - x[k][l];
cross(e, n, m); const double size = root(dot(m, m)); for (int l = 0; l < 3; ++l) m[l] /= size > 0 ? size : 1;
}
static double height(const double* x, const double* from, const double* n) {
double d[3]; for (int l = 0; l < 3; ++l) d[l] = x[l] - from[l]; return dot(d, n);
}
static bool met(const Point& p, const Point& q, const double* from, const double* m, Point& x) {
double e[3]; for (int l = 0; l < 3; ++l) e[l] = q.x[l] - p.x[l];
const double rise = dot(m, e); if (rise == 0) return false;
const double t = -height(p.x, from, m) / rise; if (!(t >= 0 && t <= 1)) return false;
for (int l = 0; l < 3; ++l) { x.x[l] = p.x[l] + t * e[l]; x.e[l] = e[l]; x.m[l] = m[l]; }
x.kind = p.label < 0 ? 2 : 1; return true;
}
static int clipped(Point* p, Point* q, int count, double (*x)[3], int corners_of_side, const double* n) {
for (int k = 0; k < corners_of_side; ++k) {
double m[3]; beside(x, corners_of_side, k, n, m); int left = 0;
for (int i = 0; i < count; ++i) {
if (left > 93) return 0;
const Point& one = p[i]; const Point& next = p[(i + 1) % count];
const bool inside = height(one.x, x[k], m) > -1e-15, then = height(next.x, x[k], m) > -1e-15;
if (!inside && !then) continue;
if (inside != then) { Point& made = q[left]; if (met(one, next, x[k], m, made)) { made.label = inside ? -1 :
one.label; ++left; } }
if (then) q[left++] = next;
}
count = left; for (int i = 0; i < count; ++i) p[i] = q[i];
if (!count) return 0;
}
return count;
}
static double spanned(const Point* p, const int* v) {
double d[3], e[3], c[3]; for (int l = 0; l < 3; ++l) { d[l] = p[v[2]].x[l] - p[v[0]].x[l]; e[l] = p[v[3]].x[l] -
p[v[1]].x[l]; }
cross(d, e, c); return root(dot(c, c));
}
static bool wider(const Point* p, int count, int* v, int which, double& most, int* kept) {
const int before = v[which]; v[which] = (before + 1) % count; const double area = spanned(p, v);
if (!(area > most)) { v[which] = before; return false; }
most = area; for (int k = 0; k < 4; ++k) kept[k] = v[k];
return true;
}
static void spread(const Point* p, int count, int* kept) {
int v[4] = {0, 1, 2, 3}; double most = spanned(p, v);
for (v[0] = 0; v[0] < count; ++v[0]) {
while (wider(p, count, v, 3, most, kept)) {
while (wider(p, count, v, 2, most, kept)) {}
while (wider(p, count, v, 1, most, kept)) {}
}
for (int k = 1; k < 4 && v[k] == v[k - 1]; ++k) v[k] = (v[k] + 1) % count;
}
}
static void flat(const Shape& one, const Shape& other, const int* ids, int count, const double* normal, double
margin, double* out) {
int v1[3], v2[3], w1[32], w2[32]; double n1[32][3], n2[32][3], back[3]; for (int l = 0; l < 3; ++l) back[l] =
-normal[l];
const int dim1 = different(ids, count, v1), dim2 = different(ids + 4, count, v2);
const int c1 = sides(one, v1, dim1, normal, n1, w1), c2 = sides(other, v2, dim2, back, n2, w2);
int mode = -1, f1 = 0, f2 = 0; double a[32][3], b[32][3]; int edge = 0;
for (int i = 0; i < c1 && mode < 0; ++i) for (int j = 0; j < c2 && mode < 0; ++j) if (dot(n1[i], n2[j]) < -0.996) {
mode = 0; f1 = i; f2 = j;
}
if (mode < 0) {
const bool round1 = !c1 && one.kind < 4, round2 = !c2 && other.kind < 4;
const bool first = round1 || (!round2 && dim1 < 3 && dim1 <= dim2);
if (!first && !round2 && dim2 > 2) return;
const int edges_found = first ? straight(one, v1, dim1, normal, a, b) : straight(other, v2, dim2, back, a, b);
for (int i = 0; i < (first ? c2 : c1) && mode < 0; ++i) for (int j = 0; j < edges_found && mode < 0; ++j) {
double e[3]; for (int l = 0; l < 3; ++l) e[l] = b[j][l] - a[j][l];
const double lean = dot(e, first ? n2[i] : n1[i]);
if (lean * lean < 0.0888 * 0.0888 * dot(e, e)) { mode = first ? 1 : 2; edge = j; (first ? f2 : f1) = i; }
}
if (mode < 0) return;
}
double x1[48][3], x2[48][3]; Point p[96], q[96]; int left = 0;
const int m1 = mode == 1 ? 0 : around(one, w1[f1], x1), m2 = mode == 2 ? 0 : around(other, w2[f2], x2);
if (mode == 0) {
if (m1 < 3 || m2 < 3) return;
for (int k = 0; k < m2; ++k) { for (int l = 0; l < 3; ++l) p[k].x[l] = x2[k][l]; p[k].kind = 0; p[k].label = k; }
left = clipped(p, q, m2, x1, m1, n1[f1]);
} else {
const int m = mode == 1 ? m2 : m1; double (*x)[3] = mode == 1 ? x2 : x1; const double* n = mode == 1 ? n2[f2] :
n1[f1];
if (m < 3) return;
double from = 0, to = 1; int at[2] = {-1, -1}; double e[3]; for (int l = 0; l < 3; ++l) e[l] = b[edge][l] -
a[edge][l];
for (int k = 0; k < m; ++k) {
double side[3]; beside(x, m, k, n, side); const double h = height(a[edge], x[k], side), rise = dot(side, e);
if (rise == 0) { if (h < -1e-15) return; continue; }
const double t = -h / rise; if (rise > 0 && t > from) { from = t; at[0] = k; } if (rise < 0 && t < to) { to = t;
at[1] = k; }
}
if (from > to) return;
for (int k = 0; k < 2; ++k) {
Point& made = p[left++]; made.kind = at[k] < 0 ? 2 : 1; made.label = 0;
for (int l = 0; l < 3; ++l) { made.x[l] = a[edge][l] + (k ? to : from) * e[l]; made.e[l] = e[l]; }
if (at[k] >= 0) beside(x, m, at[k], n, made.m);
}
}
const double* owned = mode == 2 ? n1[f1] : n2[f2]; double along[3]; for (int l = 0; l < 3; ++l) along[l] = mode ==
2 ? owned[l] : -owned[l];
if (mode && (mode == 1 ? one : other).kind < 4) {
out[6] = (mode == 1 ? one : other).kind == 1 ? 1 : 2;
}
int touching = 0; double partner[96][3];
for (int k = 0; k < left; ++k) {
Point& r = p[k]; double start[3], other_end[3], depth;
if (mode == 0) {
const double h = height(r.x, x1[0], n1[f1]); for (int l = 0; l < 3; ++l) { other_end[l] = r.x[l]; start[l] = r.x[l]
- h * n1[f1][l]; }
depth = height(start, other_end, along);
} else {
const double h = height(r.x, mode == 1 ? x2[0] : x1[0], owned);
for (int l = 0; l < 3; ++l) { start[l] = r.x[l]; other_end[l] = r.x[l] - h * owned[l]; }
depth = -h;
}
if (!(-depth < margin)) continue;
Point& kept = p[touching]; if (touching != k) kept = r;
for (int l = 0; l < 3; ++l) { kept.x[l] = start[l]; partner[touching][l] = other_end[l]; }
++touching;
}
if (!touching) return;
int kept[4] = {0, 1, 2, 3}; if (touching > 4) spread(p, touching, kept);
seen_from(mode == 2 ? one : other, along, out); out[3] = 1; out[4] = mode == 2; out[5] = mode == 1;
const Shape& prism = mode == 1 ? other : one; const double* across = mode == 0 ? n1[f1] : owned;
for (int k = 0; k < 4 && k < touching; ++k) {
const Point& r = p[kept[k]]; double* own = out + 7 + 16 * k; double W[3][3], d[3], c[3], g[3];
for (int l = 0; l < 3; ++l) d[l] = (mode == 2 ? partner[kept[k]][l] : r.x[l]) - one.centre[l];
seen_from(one, d, own);
for (int l = 0; l < 3; ++l) d[l] = (mode == 2 ? r.x[l] : partner[kept[k]][l]) - other.centre[l];
seen_from(other, d, own + 3);
if (out[6] > 0) own[mode == 1 ? 0 : 3] = own[mode == 1 ? 1 : 4] = 0;
if (mode == 0) { cross(r.m, across, c); cross(r.e, across, g); }
else for (int l = 0; l < 3; ++l) { c[l] = r.e[l]; g[l] = r.m[l]; }
const double size = r.kind == 1 ? dot(c, g) : 1;
for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j)
W[i][j] = r.kind == 0 ? (i == j) - across[i] * across[j] : r.kind == 1 ? c[i] * g[j] / size : 0;
for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) {
double sum = 0; for (int l = 0; l < 3; ++l) for (int h = 0; h < 3; ++h) sum += prism.rotation[3 * l + i] * W[l][h] *
prism.rotation[3 * h + j];
own[6 + 3 * i + j] = sum;
}
own[15] = 1;
}
}
"""
