# SPDX-License-Identifier: Apache-2.0
r"""Closest or deepest points of two convex shapes, by a search in the compiled program that has no derivative.

The Gilbert-Johnson-Keerthi algorithm finds the closest points of the shapes (of spheres and capsules without their
radii); where these overlap, the expanding polytope algorithm (van den Bergen) finds the least depth. The search returns
the normal and, for either shape, the point nearest to the other and how its points move as the normal turns: the matrix
L of radii of curvature, with $\delta x = L\,\delta n$, huge along flat faces and straight edges. From these
`colliders.convex` computes the contact and its derivative, and takes one step of Newton's method on the normal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from neurodyn.core.description.shape_contacts import Hull
from neurodyn.multibody.contacts.flat_sides import SIDE_NUMBERS, TEXT
from neurodyn.multibody.contacts.hull_corners import hull_tables, list_of
from neurodyn.multibody.trace import Expression, Graph, Loop, Scalar, apply_loop

PAIR_NUMBERS = 30
"""Numbers of a search result: normal from first to second; for either shape, in its frame, the normal, the nearest
point and the upper triangle of L; the radii still to be added; and 1 if the search converged."""

CONVEX_KINDS = ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
"""Kinds of shapes, in the order of their numbers in the code."""


@dataclass(frozen=True)
class ConvexPair:
    """Two shapes that can touch.

    Attributes:
        blocks: Indices of the poses of their links among the blocks.
        numbers: Position and rotation (by rows) in the frame of its link, and size, of either shape.
        kinds: Their kinds.
        hulls: Names of the hulls of meshes; empty for other shapes.
        reach: Sum of the radii of their bounding spheres [m].
    """

    blocks: tuple[int, int]
    numbers: tuple[Sequence[float], Sequence[float]]
    kinds: tuple[str, str]
    hulls: tuple[str, str]
    reach: float


def nearest_points(
    graph: Graph, hulls: dict[str, Hull], pairs: Sequence[ConvexPair], blocks: Sequence[Sequence[Scalar]],
    margins: Sequence[Scalar], *, flat: bool = False,
) -> list[list[Expression]]:  # fmt: skip
    """Return the search result (`PAIR_NUMBERS`) of each pair; zeros for pairs whose bounding spheres do not touch.

    Args:
        graph: The graph of all values.
        hulls: Hulls by name.
        pairs: The pairs.
        blocks: Rotation (by rows) and position of each link, and further numbers.
        margins: Distance below which each pair counts as touching [m].
        flat: Whether to append the result of `flat_sides` for each pair.
    """
    used = list(dict.fromkeys(name for one in pairs for name in one.hulls if name))
    given = [x for block in blocks for x in block]
    starts = list(accumulate((len(block) for block in blocks), initial=0))
    ends = [(one, end) for one in pairs for end in range(2)]
    count = PAIR_NUMBERS + (SIDE_NUMBERS if flat else 0)
    lying = "if (ends > 0) Convex::flat(shapes[0], shapes[1], ids, ends, result, margin, result + 30);" if flat else ""
    forward = f"""{hull_tables([hulls[name] for name in used])}
static const int of[] = {{{list_of(starts[one.blocks[end]] for one, end in ends)}}};
static const int kind_of[] = {{{list_of(CONVEX_KINDS.index(one.kinds[end]) for one, end in ends)}}};
static const int hull_of[] = {{{list_of(used.index(one.hulls[end]) if one.hulls[end] else 0 for one, end in ends)}}};
static const number own[] = {{{list_of(x for one, end in ends for x in one.numbers[end])}}};
static const number reach[] = {{{list_of(one.reach for one in pairs)}}};
{_SEARCH}{TEXT if flat else ""}}};
for (int k = 0; k < {len(pairs)}; ++k) {{
real* results = out + {count} * k; for (int i = 0; i < {count}; ++i) results[i] = (real)0;
real square = (real)0;
for (int i = 0; i < 3; ++i) {{
real apart = (real)0;
for (int end = 0; end < 2; ++end) {{
const real* link = in + of[2 * k + end]; const number* mine = own + 15 * (2 * k + end);
const real centre = link[9 + i] + link[3 * i] * mine[0] + link[3 * i + 1] * mine[1] + link[3 * i + 2] * mine[2];
apart = end ? centre - apart : centre;
}}
square += apart * apart;
}}
const real far = in[{len(given)} + k] + reach[k];
const mask near = square < far * far;
if (ANY(near)) for (int lane = 0; lane < LANES; ++lane) {{
Convex::Shape shapes[2];
for (int end = 0; end < 2; ++end) {{
const int at = 2 * k + end; const real* link = in + of[at]; const number* mine = own + 15 * at;
Convex::Shape& one = shapes[end];
one.kind = kind_of[at]; one.first = corners_from[hull_of[at]]; one.last = corners_from[hull_of[at] + 1];
one.start = one.first; one.whole = 0;
for (int i = 0; i < 3; ++i) {{
one.size[i] = mine[12 + i]; one.centre[i] = LANE(link[9 + i], lane);
for (int j = 0; j < 3; ++j) {{
one.centre[i] += LANE(link[3 * i + j], lane) * mine[j]; one.rotation[3 * i + j] = 0;
for (int l = 0; l < 3; ++l) one.rotation[3 * i + j] += LANE(link[3 * i + l], lane) * mine[3 + 3 * l + j];
}}
}}
}}
double result[{count}]; for (int i = 0; i < {count}; ++i) result[i] = 0;
int ids[8]; const double margin = LANE(in[{len(given)} + k], lane); (void)margin;
const int ends = Convex::find(shapes[0], shapes[1], sizeof(number) == 8 ? 1e6 : 1e2, result, ids); (void)ends;
{lying}
for (int i = 0; i < {count}; ++i) LANE(results[i], lane) = (number)result[i];
}}
}}"""
    inputs, outputs = len(given) + len(pairs), count * len(pairs)
    loop = Loop(
        name="nearest points of convex shapes", inputs=inputs, outputs=outputs, saved=0, forward=forward, adjoint="",
        sufficient=outputs, fixed=inputs,
    )  # fmt: skip
    results = apply_loop(graph, loop, [*given, *margins])
    return [results[count * k : count * (k + 1)] for k in range(len(pairs))]


_SEARCH = """
struct Convex {
struct Shape { int kind, first, last, start, whole; double size[3], centre[3], rotation[9]; };
struct Corner { double w[3], a[3], b[3], pa[3], pb[3]; int ia, ib; };
struct Face { int v[3]; double n[3], d; };
static double dot(const double* a, const double* b) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }
static void cross(const double* a, const double* b, double* c) {
c[0] = a[1] * b[2] - a[2] * b[1]; c[1] = a[2] * b[0] - a[0] * b[2]; c[2] = a[0] * b[1] - a[1] * b[0];
}
static double root(double x) { return x > 0 ? ::sqrt(x) : 0; }
static double far_of(const double* d, int i) {
return d[0] * corners[3 * i] + d[1] * corners[3 * i + 1] + d[2] * corners[3 * i + 2];
}
static int lowest(Shape& s, const double* d) {
int best = s.start; double most = far_of(d, best);
if (edges_from[s.first] == edges_from[s.last]) {
for (int i = s.first; i < s.last; ++i) { const double far = far_of(d, i); if (far > most) { most = far; best = i; } }
} else for (int before = -1; before != best;) {
before = best;
for (int e = edges_from[before]; e < edges_from[before + 1]; ++e) {
const double far = far_of(d, edges[e]); if (far > most) { most = far; best = edges[e]; }
}
}
s.start = best; return best;
}
static int support(Shape& s, const double* n, double* x, double* p) {
double d[3], y[3] = {0, 0, 0}; int id = 0;
for (int i = 0; i < 3; ++i) d[i] = s.rotation[i] * n[0] + s.rotation[3 + i] * n[1] + s.rotation[6 + i] * n[2];
if (s.kind == 1 || s.kind == 3) { id = d[2] >= 0; y[2] = d[2] >= 0 ? s.size[1] : -s.size[1]; }
if (s.kind == 4) for (int i = 0; i < 3; ++i) {
id |= (d[i] >= 0) << i; y[i] = d[i] >= 0 ? s.size[i] : -s.size[i];
}
if (s.kind == 5) { id = lowest(s, d); for (int i = 0; i < 3; ++i) y[i] = corners[3 * id + i]; }
for (int i = 0; i < 3; ++i) p[i] = y[i];
if (s.kind == 3) {
const double rho = root(d[0] * d[0] + d[1] * d[1]);
if (rho > 1e-15) { y[0] = s.size[0] * d[0] / rho; y[1] = s.size[0] * d[1] / rho; }
}
if (s.kind == 2) {
double square = 0; for (int i = 0; i < 3; ++i) { y[i] = s.size[i] * d[i]; square += y[i] * y[i]; }
for (int i = 0; i < 3; ++i) y[i] *= s.size[i] / root(square);
}
if (s.kind < 2 && s.whole) for (int i = 0; i < 3; ++i) y[i] += s.size[0] * d[i] / root(dot(d, d));
for (int i = 0; i < 3; ++i) x[i] = s.centre[i] + dot(s.rotation + 3 * i, y);
return id;
}
static void pushed(Shape& one, Shape& other, const double* n, Corner& c) {
double back[3]; for (int i = 0; i < 3; ++i) back[i] = -n[i];
c.ia = support(one, n, c.a, c.pa); c.ib = support(other, back, c.b, c.pb);
for (int i = 0; i < 3; ++i) c.w[i] = c.a[i] - c.b[i];
}
static int closest(Corner* c, int n, double* lambda, double* v) {
double best = 1e300; int kept = 0; double weights[4] = {0, 0, 0, 0};
for (int set = 1; set < 1 << n; ++set) {
int of[4], m = 0; for (int i = 0; i < n; ++i) if (set >> i & 1) of[m++] = i;
double e[3][3], g[3][4]; bool fine = true;
for (int i = 1; i < m; ++i) for (int l = 0; l < 3; ++l) e[i - 1][l] = c[of[i]].w[l] - c[of[0]].w[l];
for (int i = 0; i < m - 1; ++i) {
for (int j = 0; j < m - 1; ++j) g[i][j] = dot(e[i], e[j]);
g[i][3] = -dot(e[i], c[of[0]].w);
}
double t[4] = {1, 0, 0, 0};
for (int i = 0; i < m - 1 && fine; ++i) {
const double pivot = g[i][i]; if (!(pivot > 1e-13 * dot(e[i], e[i]))) { fine = false; break; }
for (int r = 0; r < m - 1; ++r) if (r != i) {
const double f = g[r][i] / pivot; for (int j = 0; j < 4; ++j) g[r][j] -= f * g[i][j];
}
}
if (!fine) continue;
for (int i = 0; i < m - 1; ++i) { t[i + 1] = g[i][3] / g[i][i]; t[0] -= t[i + 1]; }
for (int i = 0; i < m; ++i) if (!(t[i] > 0)) fine = false;
if (!fine) continue;
double x[3] = {0, 0, 0}; for (int i = 0; i < m; ++i) for (int l = 0; l < 3; ++l) x[l] += t[i] * c[of[i]].w[l];
const double square = dot(x, x);
if (square < best * (1 - 1e-12)) {
best = square; kept = set; for (int l = 0; l < 3; ++l) v[l] = x[l];
for (int i = 0; i < m; ++i) weights[of[i]] = t[i];
}
}
int m = 0;
for (int i = 0; i < n; ++i) if (kept >> i & 1) { lambda[m] = weights[i]; if (m != i) c[m] = c[i]; ++m; }
return m;
}
static bool face(const Corner* c, int i, int j, int k, Face& f) {
double a[3], b[3]; f.v[0] = i; f.v[1] = j; f.v[2] = k;
for (int l = 0; l < 3; ++l) { a[l] = c[j].w[l] - c[i].w[l]; b[l] = c[k].w[l] - c[i].w[l]; }
cross(a, b, f.n); const double size = root(dot(f.n, f.n));
if (!(size > 1e-14 * (dot(a, a) + dot(b, b)))) { f.d = 1e300; return false; }
for (int l = 0; l < 3; ++l) f.n[l] /= size;
f.d = dot(f.n, c[i].w); return true;
}
static int extended(Shape& one, Shape& other, Corner* c, int n) {
for (; n < 4; ++n) {
double most = 0; Corner best = c[0];
for (int turn = 0; turn < 8; ++turn) {
double d[3] = {0, 0, 0};
if (turn < 6) d[turn / 2] = turn % 2 ? -1 : 1;
else {
if (n < 3) break;
Face f; if (!face(c, 0, 1, 2, f)) break;
for (int l = 0; l < 3; ++l) d[l] = turn == 6 ? f.n[l] : -f.n[l];
}
Corner next; pushed(one, other, d, next);
double e[3][3]; for (int i = 1; i < n; ++i) for (int l = 0; l < 3; ++l) e[i - 1][l] = c[i].w[l] - c[0].w[l];
double x[3]; for (int l = 0; l < 3; ++l) x[l] = next.w[l] - c[0].w[l];
double size = root(dot(x, x)), y[3];
if (n == 2) { cross(e[0], x, y); size = root(dot(y, y)); }
if (n == 3) { cross(e[0], e[1], y); size = dot(y, x); size = size < 0 ? -size : size; }
if (size > most) { most = size; best = next; }
}
if (!(most > 1e-15)) return n;
c[n] = best;
}
return n;
}
static int deepest(
Shape& one, Shape& other, Corner* c, double* n, double flat, double& depth, int* ids, double* lambda
) {
const int opposite[4][3] = {{0, 1, 2}, {0, 3, 1}, {0, 2, 3}, {1, 3, 2}};
Face faces[160]; int count = 0, size = 4;
Face first; if (!face(c, 0, 1, 2, first)) return 0;
const bool swapped = dot(first.n, c[3].w) > first.d;
for (int i = 0; i < 4; ++i) {
const int* v = opposite[i]; Face f;
if (!(swapped ? face(c, v[0], v[2], v[1], f) : face(c, v[0], v[1], v[2], f))) return 0;
faces[count++] = f;
}
int best = 0;
for (int turn = 0; turn < 90; ++turn) {
best = 0; for (int f = 1; f < count; ++f) if (faces[f].d < faces[best].d) best = f;
if (size == 96) break;
Corner& next = c[size]; pushed(one, other, faces[best].n, next);
if (dot(faces[best].n, next.w) - faces[best].d < flat) break;
int from[96], to[96], edges_seen = 0, left = 0;
for (int f = 0; f < count; ++f) {
if (!(dot(faces[f].n, next.w) - faces[f].d > 1e-13)) { faces[left++] = faces[f]; continue; }
for (int e = 0; e < 3; ++e) {
const int i = faces[f].v[e], j = faces[f].v[(e + 1) % 3]; bool met = false;
for (int s = 0; s < edges_seen; ++s) if (from[s] == j && to[s] == i) {
from[s] = from[--edges_seen]; to[s] = to[edges_seen]; met = true; break;
}
if (!met && edges_seen < 96) { from[edges_seen] = i; to[edges_seen++] = j; }
}
}
count = left;
if (count + edges_seen > 160) return 0;
for (int s = 0; s < edges_seen; ++s) if (face(c, from[s], to[s], size, faces[count])) ++count;
++size;
if (!count) return 0;
}
const Face& f = faces[best];
double e[2][3], p[3], q[3]; const Corner* v[3] = {c + f.v[0], c + f.v[1], c + f.v[2]};
for (int l = 0; l < 3; ++l) {
n[l] = f.n[l]; e[0][l] = v[1]->w[l] - v[0]->w[l]; e[1][l] = v[2]->w[l] - v[0]->w[l]; p[l] = f.d * f.n[l] - v[0]->w[l];
}
double area[3]; cross(e[0], e[1], area); const double square = dot(area, area);
cross(p, e[1], q); lambda[1] = dot(q, area) / square; cross(e[0], p, q); lambda[2] = dot(q, area) / square;
lambda[0] = 1 - lambda[1] - lambda[2]; double sum = 0;
for (int i = 0; i < 3; ++i) { ids[i] = f.v[i]; lambda[i] = lambda[i] > 0 ? lambda[i] : 0; sum += lambda[i]; }
for (int i = 0; i < 3; ++i) lambda[i] /= sum;
depth = f.d; return 3;
}
static void outermost(const Shape& s, const double* n, double* x) {
const double rho = root(n[0] * n[0] + n[1] * n[1]); double square = 0;
if (s.kind == 3 && rho >= 1e-3) for (int i = 0; i < 2; ++i) x[i] = s.size[0] * n[i] / rho;
if (s.kind != 2) return;
for (int i = 0; i < 3; ++i) { x[i] = s.size[i] * n[i]; square += x[i] * x[i]; }
for (int i = 0; i < 3; ++i) x[i] *= s.size[i] / root(square);
}
static void curved(
const Shape& s, const double* n, const double (*p)[3], const int* ids, int count, double huge, double* L, double* along
) {
double e[2][3]; int others = 0, seen[2] = {-1, -1};
for (int i = 1; i < count; ++i) if (ids[i] != ids[0] && ids[i] != seen[0] && others < 2) {
for (int l = 0; l < 3; ++l) e[others][l] = p[i][l] - p[0][l];
seen[others++] = ids[i];
}
const double rho = root(n[0] * n[0] + n[1] * n[1]); double full = 0, straight = 0, round = 0;
along[0] = along[1] = along[2] = 0;
if (s.kind < 2 && s.whole) full = s.size[0];
if (s.kind >= 4 && others == 2) full = huge;
if (s.kind == 3 && rho < 1e-3) full = huge;
if ((s.kind == 1 || s.kind == 3 || s.kind >= 4) && others == 1 && full < huge) {
const double size = root(dot(e[0], e[0])); straight = huge; for (int l = 0; l < 3; ++l) along[l] = e[0][l] / size;
}
if (s.kind == 3 && full < huge) round = s.size[0] / rho;
double g[3], norm = 0; for (int i = 0; i < 3; ++i) { g[i] = s.size[i] * s.size[i] * n[i]; norm += g[i] * n[i]; }
int at = 0;
for (int i = 0; i < 3; ++i) for (int j = i; j < 3; ++j) {
double x = full * ((i == j) - n[i] * n[j]) + straight * along[i] * along[j];
if (round > 0 && i < 2 && j < 2) x += round * (i ? n[0] : -n[1]) * (j ? n[0] : -n[1]) / (rho * rho);
if (s.kind == 2) x = ((i == j) * s.size[i] * s.size[i] - g[i] * g[j] / norm) / root(norm);
L[at++] = x;
}
}
static int find(Shape& one, Shape& other, double huge, double* out, int* seen) {
Corner c[97]; int n = 0, ids[4] = {0, 1, 2, 3}; double v[3], lambda[4] = {1, 0, 0, 0}, normal[3], depth = 0;
const double flat = one.kind > 3 && other.kind > 3 ? 1e-13 : 1e-9;
bool overlap = false; const bool round = one.kind < 2 || other.kind < 2;
for (int pass = 0; pass < 2; ++pass) {
bool apart = false; overlap = false; n = 0;
for (int l = 0; l < 3; ++l) v[l] = one.centre[l] - other.centre[l];
if (dot(v, v) < 1e-20) v[0] = 1e-5;
for (int turn = 0; turn < 80; ++turn) {
const double square = dot(v, v); double d[3];
if (n && square < 1e-14) { overlap = true; break; }
for (int l = 0; l < 3; ++l) d[l] = -v[l] / root(square);
pushed(one, other, d, c[n]);
if (n && square - dot(v, c[n].w) < flat * square) break;
bool known = false;
for (int i = 0; i < n; ++i) {
double x[3]; for (int l = 0; l < 3; ++l) x[l] = c[i].w[l] - c[n].w[l]; known |= dot(x, x) < 1e-24;
}
if (known) break;
n = closest(c, n + 1, lambda, v); apart = true;
if (n == 4) { overlap = true; break; }
}
if (!apart || !n) return 0;
if (dot(v, v) < 1e-12) overlap = true;
if (!overlap || !round) break;
one.whole = other.whole = 1;
}
if (!overlap && one.whole && round) return 0;
if (!overlap) {
const double size = root(dot(v, v)); depth = -size; for (int l = 0; l < 3; ++l) normal[l] = -v[l] / size;
out[27] = one.kind < 2 ? one.size[0] : 0; out[28] = other.kind < 2 ? other.size[0] : 0;
} else {
if (n < 4) n = extended(one, other, c, n);
if (n < 4) return 0;
n = deepest(one, other, c, normal, flat, depth, ids, lambda);
if (!n) return 0;
}
const int turns = one.kind > 3 && other.kind > 3 ? 1 : 4;
for (int turn = 0; turn < turns; ++turn) {
double M[3][3], D[3] = {0, 0, 0};
for (int i = 0; i < 3; ++i) for (int j = 0; j < 3; ++j) M[i][j] = 0;
for (int end = 0; end < 2; ++end) {
const Shape& s = end ? other : one; double p[4][3], own[3], along[3]; int corner[4]; double* at = out + 3 + 12 * end;
for (int i = 0; i < n; ++i) {
corner[i] = end ? c[ids[i]].ib : c[ids[i]].ia;
for (int l = 0; l < 3; ++l) p[i][l] = end ? c[ids[i]].pb[l] : c[ids[i]].pa[l];
}
for (int i = 0; i < 3; ++i) {
at[i] = s.rotation[i] * normal[0] + s.rotation[3 + i] * normal[1] + s.rotation[6 + i] * normal[2];
own[i] = end ? -at[i] : at[i];
if (turn) continue;
double x[3] = {0, 0, 0};
for (int k = 0; k < n; ++k) for (int l = 0; l < 3; ++l) x[l] += lambda[k] * (end ? c[ids[k]].b[l] : c[ids[k]].a[l]);
for (int l = 0; l < 3; ++l) x[l] -= s.centre[l];
at[3 + i] = s.rotation[i] * x[0] + s.rotation[3 + i] * x[1] + s.rotation[6 + i] * x[2];
}
outermost(s, own, at + 3);
curved(s, own, p, corner, n, huge, at + 6, along);
const double* L = at + 6; const double whole[9] = {L[0], L[1], L[2], L[1], L[3], L[4], L[2], L[4], L[5]};
const double tilt = huge * dot(along, at);
for (int i = 0; i < 3; ++i) {
const double x = s.centre[i] + dot(s.rotation + 3 * i, at + 3);
D[i] += (end ? -x : x) + tilt * dot(s.rotation + 3 * i, along);
for (int j = 0; j < 3; ++j) for (int k = 0; k < 3; ++k) for (int l = 0; l < 3; ++l)
M[i][j] += s.rotation[3 * i + k] * whole[3 * k + l] * s.rotation[3 * j + l];
}
}
if (turn == turns - 1) break;
const double h = dot(normal, D);
for (int i = 0; i < 3; ++i) {
D[i] -= h * normal[i];
for (int j = 0; j < 3; ++j) M[i][j] += (1 + h) * normal[i] * normal[j] - (i == j) * h;
}
double y[3][3]; for (int i = 0; i < 3; ++i) cross(M[(i + 1) % 3], M[(i + 2) % 3], y[i]);
const double det = dot(M[0], y[0]); double step[3], size = 0;
for (int l = 0; l < 3; ++l) {
step[l] = -(y[0][l] * D[0] + y[1][l] * D[1] + y[2][l] * D[2]) / det; size += step[l] * step[l];
}
if (!(size < 1e-2)) continue;
for (int l = 0; l < 3; ++l) step[l] += normal[l];
size = root(dot(step, step)); for (int l = 0; l < 3; ++l) normal[l] = step[l] / size;
}
for (int l = 0; l < 3; ++l) out[l] = normal[l];
for (int i = 0; i < n; ++i) { seen[i] = c[ids[i]].ia; seen[4 + i] = c[ids[i]].ib; }
out[29] = 1;
return n;
}
"""
