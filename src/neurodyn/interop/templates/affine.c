// SPDX-License-Identifier: Apache-2.0
/* Weights are stored in blocks of $BLOCK outputs, so that their sums are kept in registers. */
static void affine(int inputs, int outputs, const float *weight, const float *bias, const real *x, real *y) {
  for (int i = 0; i < outputs; i += $BLOCK) {
    real sum[$BLOCK];
    for (int k = 0; k < $BLOCK; ++k) sum[k] = bias[i + k];
    for (int j = 0; j < inputs; ++j, weight += $BLOCK) {
      const real value = x[j];
      for (int k = 0; k < $BLOCK; ++k) sum[k] += weight[k] * value;
    }
    for (int k = 0; k < $BLOCK; ++k) y[i + k] = sum[k];
  }
}
