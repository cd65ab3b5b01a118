// SPDX-License-Identifier: Apache-2.0
static void gru_cell(int width, const real *given, const real *kept, real *hidden) {
  for (int i = 0; i < width; ++i) {
    const real reset = 1 / (1 + MATH(exp)(-(given[i] + kept[i])));
    const real update = 1 / (1 + MATH(exp)(-(given[width + i] + kept[width + i])));
    const real fresh = MATH(tanh)(given[2 * width + i] + reset * kept[2 * width + i]);
    hidden[i] = fresh + update * (hidden[i] - fresh);
  }
}
