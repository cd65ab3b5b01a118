# SPDX-License-Identifier: Apache-2.0
"""Source code of the kernels of a frame: from state to network inputs, the network, and from its outputs to the state.

They contain no number of any robot or network: sizes, indices, constants and weights are data behind the addresses in a
kernel's table. All models therefore share three kernels, which Warp compiles once per machine. `encode` and `decode`
follow `dynamics.neural.encoding` and `dynamics.coordinates` line by line, one world per thread; `network` follows
`nets.predictor`, `nets.gru` and `nets.mlp`.

The network uses a block of threads per world on a GPU, and one thread per group of worlds on a CPU, where a row of
weights is used for all worlds of the group before it leaves the cache.
"""

import torch

from neurodyn.core.activations import ACTIVATIONS, activations_with

BLOCK = 256
"""Threads per world of the network's kernel on a GPU: Warp's own block size."""

ENCODE_NUMBERS = (
    *("nq", "nv", "nu", "inputs", "free_base", "gained", "balls", "angles", "plain", "limits", "pairs"),
    *("state_stride", "start_stride"),
)
"""Numbers of the encoding, first in the table of `encode`."""

ENCODE_ARRAYS = ("state", "start", "torque", "gravity", "x", "constants")
"""Arrays of reals that follow: state, state where the prediction starts, torques, gravity, inputs, constants."""

DECODE_NUMBERS = ("nq", "nv", "free_base", "gained", "balls", "scalars", "start_stride", "starts")
"""Numbers of the encoding, first in the table of `decode`."""

DECODE_ARRAYS = ("start", "y", "after_q", "after_qd", "constants")
"""Arrays of reals that follow: where the prediction starts, network outputs, next state, constants."""

NETWORK_NUMBERS = (
    *("worlds", "group", "inputs", "outputs", "cells", "width", "layers", "activation", "clipped", "skip"),
    *("stride", "widest"),
)
"""Numbers of the network, first in the table of `network`."""

NETWORK_ARRAYS = ("x", "y", "hidden", "scratch", "limit", "mean", "gain", "y_mean", "y_std", "y_gain")
"""Arrays of reals that follow; after them the weights of linear skip, cells and layers, and the layers' widths."""

MEAN_NUMBERS = ("size", "members")
"""Numbers in the table of `mean`: values per member, and members."""

MEAN_ARRAYS = ("y", "mean")
"""Arrays of reals that follow: values of all members, and their mean."""

_ROTATION = """
auto matrix = [](const real* p, real* r) {
  const real x = p[0], y = p[1], z = p[2], w = p[3];
  r[0] = 1 - 2 * (y * y + z * z); r[1] = 2 * (x * y - z * w); r[2] = 2 * (x * z + y * w);
  r[3] = 2 * (x * y + z * w); r[4] = 1 - 2 * (x * x + z * z); r[5] = 2 * (y * z - x * w);
  r[6] = 2 * (x * z - y * w); r[7] = 2 * (y * z + x * w); r[8] = 1 - 2 * (x * x + y * y);
};
real base[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
// Into the axes of the base, R^T v, and back.
auto to_base = [&](const real* v, real* out) {
  for (int j = 0; j < 3; ++j) out[j] = v[0] * base[j] + v[1] * base[3 + j] + v[2] * base[6 + j];
};
auto from_base = [&](const real* v, real* out) {
  for (int j = 0; j < 3; ++j) out[j] = base[3 * j] * v[0] + base[3 * j + 1] * v[1] + base[3 * j + 2] * v[2];
};
"""

_ENCODE = """
const int world = thread;
const real* q = start + (long long)world * start_stride;
const real* qd = q + nq;
const real* before = state + (long long)world * state_stride + nq;
const real* tau = torque + (long long)world * nu;
const int* angle = indices;
const int* single = angle + angles;
const int* limit_row = single + plain;
const int* limit_dof = limit_row + limits;
const int* one = limit_dof + limits;
const int* other = one + pairs;
const int* ball = other + pairs;
const real dt = constants[0];
const real* bound = constants + 1;
const real* side = bound + limits;
const real* margin = side + limits;
auto positive = [](real value) { return value < (real)0 ? (real)0 : value; };  // what is NaN stays NaN
real* out = x + (long long)world * inputs;
if (free_base) {
  matrix(q + 3, base);
  const real* g = gravity + 3 * (long long)world;
  const real down[3] = {g[0] / GRAVITY, g[1] / GRAVITY, g[2] / GRAVITY};
  to_base(down, out);
  out += 3;
}
for (int i = 0; i < balls; ++i) {
  real r[9];
  matrix(q + ball[i], r);
  for (int row = 0; row < 3; ++row) { out[2 * row] = r[3 * row]; out[2 * row + 1] = r[3 * row + 1]; }
  out += 6;
}
for (int i = 0; i < angles; ++i) {
  out[i] = ::wp::sin(q[angle[i]]);
  out[angles + i] = ::wp::cos(q[angle[i]]);
}
out += 2 * angles;
for (int i = 0; i < plain; ++i) out[i] = q[single[i]];
out += plain;
for (int i = 0; i < limits; ++i) {
  const real beyond = side[i] * (q[limit_row[i]] - bound[i]);
  const real ahead = beyond + side[i] * dt * qd[limit_dof[i]];
  out[i] = positive(beyond + margin[i]);
  out[limits + i] = positive(beyond);
  out[2 * limits + i] = positive(ahead);
}
out += 3 * limits;
real* velocity = out;
for (int i = 0; i < nv; ++i) velocity[i] = qd[i];
if (free_base) { to_base(qd, velocity); to_base(qd + 3, velocity + 3); }
out += nv;
for (int i = 0; i < pairs; ++i) out[i] = velocity[one[i]] * velocity[other[i]];
out += pairs;
for (int i = 0; i < nu; ++i) out[i] = tau[i];
out += nu;
if (gained) {
  for (int i = 0; i < nv; ++i) out[i] = qd[i] - before[i];
  if (free_base) {
    const real gain[6] = {out[0], out[1], out[2], out[3], out[4], out[5]};
    to_base(gain, out);
    to_base(gain + 3, out + 3);
  }
}
"""

_DECODE = """
const int world = thread;
const real* q = start + (long long)(world % starts) * start_stride;
const real* qd = q + nq;
const real* dqd = y + 2 * (long long)world * nv;
const real* residual = dqd + nv;
real* q_next = after_q + (long long)world * nq;
real* qd_next = after_qd + (long long)world * nv;
const int* row = indices;
const int* dof = row + scalars;
const int* ball = dof + scalars;
const int* ball_dof = ball + balls;
const real dt = constants[0];
const real* com = constants + 1;
const real* kappa = com + 3;
auto product = [](const real* a, const real* b, real* c) {
  c[0] = a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1];
  c[1] = a[3] * b[1] + a[1] * b[3] + a[2] * b[0] - a[0] * b[2];
  c[2] = a[3] * b[2] + a[2] * b[3] + a[0] * b[1] - a[1] * b[0];
  c[3] = a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2];
  const real size = ::wp::sqrt(c[0] * c[0] + c[1] * c[1] + c[2] * c[2] + c[3] * c[3]);
  for (int i = 0; i < 4; ++i) c[i] /= size;
};
auto exponential = [](const real* v, real* p) {
  const real half = (real)0.5 * ::wp::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  const real sinc = half > (real)1e-12 ? ::wp::sin(half) / half : (real)1;
  for (int i = 0; i < 3; ++i) p[i] = (real)0.5 * sinc * v[i];
  p[3] = ::wp::cos(half);
};
auto moved = [&](int i, real velocity) {
  return residual[i] + dt * ((gained ? (real)0 : velocity) + kappa[i] * dqd[i]);
};
real seen[6] = {0, 0, 0, 0, 0, 0};
if (free_base) { matrix(q + 3, base); to_base(qd, seen); to_base(qd + 3, seen + 3); }
for (int i = 0; i < scalars; ++i) q_next[row[i]] = q[row[i]] + moved(dof[i], qd[dof[i]]);
for (int i = 0; i < balls; ++i) {
  real turn[3], p[4];
  for (int j = 0; j < 3; ++j) turn[j] = moved(ball_dof[i] + j, qd[ball_dof[i] + j]);
  exponential(turn, p);
  product(p, q + ball[i], q_next + ball[i]);
}
for (int i = 6 * free_base; i < nv; ++i) qd_next[i] = qd[i] + dqd[i];
if (free_base) {
  real shift[3], turn[3], p[4], turned[4], place[3], change[6];
  for (int j = 0; j < 3; ++j) { shift[j] = moved(j, seen[j]) + com[j]; turn[j] = moved(3 + j, seen[3 + j]); }
  exponential(turn, p);
  product(q + 3, p, turned);
  from_base(shift, place);
  from_base(dqd, change);
  from_base(dqd + 3, change + 3);
  matrix(turned, base);
  real arm[3];
  from_base(com, arm);
  for (int j = 0; j < 3; ++j) q_next[j] = q[j] + place[j] - arm[j];
  for (int j = 0; j < 4; ++j) q_next[3 + j] = turned[j];
  for (int j = 0; j < 6; ++j) qd_next[j] = qd[j] + change[j];
}
"""

# The products of a group of worlds with the rows of a matrix: on a CPU four rows meet two worlds at a time in vector
# registers, and sums are taken in the order of the lanes.
_PRODUCTS = """
#if defined(__CUDA_ARCH__)
const int lane = (int)threadIdx.x, lanes_ = (int)blockDim.x;
#define JOIN __syncthreads();
auto linear = [&](const real* w, const real* b, int m, int n, const real* in, int in_stride, real* out, int out_stride,
                  bool add) {
  for (int i = lane; i < n; i += lanes_) {
    real sum = b[i];
    for (int j = 0; j < m; ++j) sum += w[(long long)i * m + j] * in[j];
    out[i] = add ? out[i] + sum : sum;
  }
};
#else
const int lane = 0, lanes_ = 1;
#define JOIN
enum { WIDE = 16 };
typedef real Lanes __attribute__((ext_vector_type(WIDE), aligned(sizeof(real))));
auto total = [](Lanes v) { auto a = v.lo + v.hi; auto b = a.lo + a.hi; auto c = b.lo + b.hi; return c.x + c.y; };
auto linear = [&](const real* w, const real* b, int m, int n, const real* in, int in_stride, real* out, int out_stride,
                  bool add) {
  const int whole = m - m % WIDE;
  for (int i = 0; i < n; i += 4) {
    const int rows = n - i < 4 ? n - i : 4;
    const real* r[4];
    for (int k = 0; k < 4; ++k) r[k] = w + (long long)(i + (k < rows ? k : 0)) * m;
    for (int g = 0; g < count; g += 2) {
      const real* u = in + (long long)g * in_stride;
      const real* v = g + 1 < count ? u + in_stride : u;
      Lanes a0 = (Lanes)0, a1 = (Lanes)0, a2 = (Lanes)0, a3 = (Lanes)0;
      Lanes c0 = (Lanes)0, c1 = (Lanes)0, c2 = (Lanes)0, c3 = (Lanes)0;
      if (g + 1 < count) {
        for (int j = 0; j < whole; j += WIDE) {
          const Lanes p = *(const Lanes*)(u + j), s = *(const Lanes*)(v + j);
          const Lanes w0 = *(const Lanes*)(r[0] + j), w1 = *(const Lanes*)(r[1] + j);
          const Lanes w2 = *(const Lanes*)(r[2] + j), w3 = *(const Lanes*)(r[3] + j);
          a0 += w0 * p; a1 += w1 * p; a2 += w2 * p; a3 += w3 * p;
          c0 += w0 * s; c1 += w1 * s; c2 += w2 * s; c3 += w3 * s;
        }
      } else {
        for (int j = 0; j < whole; j += WIDE) {
          const Lanes p = *(const Lanes*)(u + j);
          a0 += *(const Lanes*)(r[0] + j) * p; a1 += *(const Lanes*)(r[1] + j) * p;
          a2 += *(const Lanes*)(r[2] + j) * p; a3 += *(const Lanes*)(r[3] + j) * p;
        }
      }
      real sums[8] = {total(a0), total(a1), total(a2), total(a3), total(c0), total(c1), total(c2), total(c3)};
      for (int j = whole; j < m; ++j)
        for (int k = 0; k < 4; ++k) { sums[k] += r[k][j] * u[j]; sums[4 + k] += r[k][j] * v[j]; }
      for (int h = 0; h < (g + 1 < count ? 2 : 1); ++h) {
        real* o = out + (long long)(g + h) * out_stride + i;
        for (int k = 0; k < rows; ++k) o[k] = (add ? o[k] : (real)0) + sums[4 * h + k] + b[i + k];
      }
    }
  }
};
#endif
"""

_NETWORK = """
#if defined(__CUDA_ARCH__)
const int unit = thread / BLOCK;
#else
const int unit = thread;
#endif
const int first = unit * group;
const int count = worlds - first < group ? worlds - first : group;
"""

_LAYERS = """
const wp::uint64* weights = table.data + WEIGHTS;
const wp::uint64* widths = weights + 2 + 4 * cells + 2 * layers;
// Of each world: normalised inputs, and two buffers as wide as the widest layer.
real* own = scratch + (long long)first * stride;
real* n = own;
real* buffer[2] = {n + inputs, n + inputs + widest};
auto sigmoid = [](real z) { return (real)1 / ((real)1 + ::wp::exp(-z)); };
for (int g = 0; g < count; ++g) {
  const real* given = x + (long long)(first + g) * inputs;
  for (int i = lane; i < inputs; i += lanes_) {
    const real value = (given[i] - mean[i]) * gain[i];
    const real most = clipped ? limit[0] : ::wp::abs(value);
    n[(long long)g * stride + i] = value < -most ? -most : value > most ? most : value;  // what is NaN stays NaN
  }
}
JOIN
const real* shortcut = (const real*)weights[0];
const real* offset = (const real*)weights[1];
weights += 2;
const real* in = n;
int in_stride = stride, size = inputs, current = 0;
for (int cell = 0; cell < cells; ++cell) {
  real* h = hidden + ((long long)cell * worlds + first) * width;
  real* gates = buffer[0];
  real* inner = buffer[1];
  linear((const real*)weights[0], (const real*)weights[2], size, 3 * width, in, in_stride, gates, stride, false);
  linear((const real*)weights[1], (const real*)weights[3], width, 3 * width, h, width, inner, stride, false);
  JOIN
  for (int g = 0; g < count; ++g) {
    const real* a = gates + (long long)g * stride;
    const real* b = inner + (long long)g * stride;
    for (int i = lane; i < width; i += lanes_) {
      const real r = sigmoid(a[i] + b[i]);
      const real z = sigmoid(a[width + i] + b[width + i]);
      const real v = ::wp::tanh(a[2 * width + i] + r * b[2 * width + i]);
      h[(long long)g * width + i] = v + z * (h[(long long)g * width + i] - v);
    }
  }
  JOIN
  in = h;
  in_stride = size = width;
  weights += 4;
}
for (int layer = 0; layer < layers; ++layer) {
  const int after = (int)widths[layer];
  const bool last = layer == layers - 1;
  real* out = last ? y + (long long)first * outputs : buffer[current];
  const int out_stride = last ? outputs : stride;
  linear((const real*)weights[0], (const real*)weights[1], size, after, in, in_stride, out, out_stride, false);
  JOIN
  for (int g = 0; g < count && !last; ++g) {
    real* v = out + (long long)g * stride;
    ACTIVATE
  }
  JOIN
  in = out;
  in_stride = out_stride;
  size = after;
  current = 1 - current;
  weights += 2;
}
if (skip) {
  linear(shortcut, offset, inputs, outputs, n, stride, y + (long long)first * outputs, outputs, true);
  JOIN
}
for (int g = 0; g < count; ++g) {
  real* v = y + (long long)(first + g) * outputs;
  for (int i = lane; i < outputs; i += lanes_) v[i] = y_mean[i] + v[i] * (y_gain[i] == (real)0 ? (real)0 : y_std[i]);
}
#undef JOIN
"""

_WIDTH = 120

_MEAN = """
real sum = 0;
for (int member = 0; member < members; ++member) sum += y[(long long)member * size + thread];
mean[thread] = sum / members;
"""


def encode_source(dtype: torch.dtype, gravity: float) -> str:
    """Return the code that computes network inputs without contact features; `gravity` is standard gravity [m/s^2]."""
    head = _head(dtype, ENCODE_NUMBERS, ENCODE_ARRAYS, indices=True)
    return head + _ROTATION + _ENCODE.replace("GRAVITY", f"(real){gravity!r}")


def decode_source(dtype: torch.dtype) -> str:
    """Return the code that turns network outputs into the next state."""
    return _head(dtype, DECODE_NUMBERS, DECODE_ARRAYS, indices=True) + _ROTATION + _DECODE


def network_source(dtype: torch.dtype) -> str:
    """Return the code of normalisation, network and linear skip."""
    head = _head(dtype, NETWORK_NUMBERS, NETWORK_ARRAYS, indices=False)
    weights = str(len(NETWORK_NUMBERS) + len(NETWORK_ARRAYS))
    layers = _LAYERS.replace("WEIGHTS", weights).replace("ACTIVATE", _activate(compiled_activations()))
    return head + _NETWORK.replace("BLOCK", str(BLOCK)) + _PRODUCTS + layers


def compiled_activations() -> tuple[str, ...]:
    """Return the activations in the order of their numbers in the table of `network`."""
    return activations_with("kernel")


def _activate(names: tuple[str, ...]) -> str:
    """Return the code that applies the activation to the values of a layer."""
    loop, lines = "for (int i = lane; i < after; i += lanes_)", []
    for number, name in enumerate(names):
        case = "" if number == len(names) - 1 else f"if (activation == {number})"
        case = " ".join(word for word in ("else" if number else "", case) if word)
        value = f"v[i] = {ACTIVATIONS[name].kernel};"
        line = f"    {case} {loop} {value}".rstrip()
        lines.append(line if len(line) <= _WIDTH else f"    {case}\n      {loop}\n        {value}")
    return "\n".join(lines).lstrip()


def mean_source(dtype: torch.dtype) -> str:
    """Return the code that takes the mean over members."""
    return _head(dtype, MEAN_NUMBERS, MEAN_ARRAYS, indices=False) + _MEAN


def _head(dtype: torch.dtype, numbers: tuple[str, ...], arrays: tuple[str, ...], *, indices: bool) -> str:
    """Return the code that names the entries of a table: numbers, arrays of reals, and indices."""
    lines = [f"typedef {'double' if dtype == torch.float64 else 'float'} real;"]
    lines += [f"const int {name} = (int)table.data[{i}]; (void){name};" for i, name in enumerate(numbers)]
    start = len(numbers)
    lines += [f"real* {name} = (real*)table.data[{i}]; (void){name};" for i, name in enumerate(arrays, start)]
    if indices:
        lines.append(f"const int* indices = (const int*)table.data[{start + len(arrays)}]; (void)indices;")
    return "\n".join(lines) + "\n"
