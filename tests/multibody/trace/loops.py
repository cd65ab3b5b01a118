# SPDX-License-Identifier: Apache-2.0
"""Loops for tests: a layer of weights, and the root of a number by Newton's iteration."""

from neurodyn.multibody.trace import Loop


def dense(inputs, outputs, first_weight=0):
    """Return the layer out_i = tanh(sum_j w_ij in_j + w_i,inputs), row after row."""
    return Loop(
        name="dense",
        inputs=inputs,
        outputs=outputs,
        saved=0,
        weights=outputs * (inputs + 1),
        first_weight=first_weight,
        forward=f"""
for (int i = 0; i < {outputs}; ++i) {{
  real sum = weight[i * {inputs + 1} + {inputs}];
  for (int j = 0; j < {inputs}; ++j) sum += weight[i * {inputs + 1} + j] * in[j];
  out[i] = ::wp::tanh(sum);
}}""",
        adjoint=f"""
for (int i = 0; i < {outputs}; ++i) {{
  const real d = seed[i] * ((real)1 - out[i] * out[i]);
  for (int j = 0; j < {inputs}; ++j) {{
    adj[j] += d * weight[i * {inputs + 1} + j];
    weight_adj[i * {inputs + 1} + j] += d * in[j];
  }}
  weight_adj[i * {inputs + 1} + {inputs}] += d;
}}""",
    )


def root(sweeps=6):
    """Return the iteration y <- (y + x / y) / 2 from y = in[1] with x = in[0]; its iterates are saved."""
    return Loop(
        name="root",
        inputs=2,
        outputs=1,
        saved=sweeps,
        forward=f"""
real y = in[1];
for (int i = 0; i < {sweeps}; ++i) {{ saved[i] = y; y = (real)0.5 * (y + in[0] / y); }}
out[0] = y;""",
        adjoint=f"""
real d = seed[0];
for (int i = {sweeps - 1}; i >= 0; --i) {{
  const real y = saved[i];
  adj[0] += d * (real)0.5 / y;
  d *= (real)0.5 * ((real)1 - in[0] / (y * y));
}}
adj[1] += d;""",
    )
