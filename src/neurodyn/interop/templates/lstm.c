// SPDX-License-Identifier: Apache-2.0
static void lstm_cell(int width, const real *given, const real *kept, real *hidden, real *cell) {
  for (int i = 0; i < width; ++i) {
    const real enter = 1 / (1 + MATH(exp)(-(given[i] + kept[i])));
    const real stay = 1 / (1 + MATH(exp)(-(given[width + i] + kept[width + i])));
    const real fresh = MATH(tanh)(given[2 * width + i] + kept[2 * width + i]);
    const real leave = 1 / (1 + MATH(exp)(-(given[3 * width + i] + kept[3 * width + i])));
    cell[i] = stay * cell[i] + enter * fresh;
    hidden[i] = leave * MATH(tanh)(cell[i]);
  }
}
