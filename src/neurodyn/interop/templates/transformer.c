// SPDX-License-Identifier: Apache-2.0
static void layer_norm(int width, const float *gain, const real *x, real *y) {
  real mean = 0, variance = 0;
  for (int i = 0; i < width; ++i) mean += x[i];
  mean /= width;
  for (int i = 0; i < width; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const real scale = 1 / MATH(sqrt)(variance / width + (real)1e-5);
  for (int i = 0; i < width; ++i) y[i] = (x[i] - mean) * scale * gain[i];
}

static void rotate(int heads, int half, const double *cosine, const double *sine, real *x) {
  for (int head = 0; head < heads; ++head, x += 2 * half) {
    for (int i = 0; i < half; ++i) {
      const real a = x[i], b = x[half + i], c = (real)cosine[i], s = (real)sine[i];
      x[i] = a * c - b * s;
      x[half + i] = a * s + b * c;
    }
  }
}

/* Attention to the frames in a ring of keys and values; qkv is that of the present frame. */
static void attend(int heads, int channels, int window, int slot, int seen, const double *cosine, const double *sine,
                   real *qkv, real *ring, real *mixed) {
  const int width = heads * channels;
  real *keys = ring, *values = ring + window * width;
  rotate(heads, channels / 2, cosine, sine, qkv);
  rotate(heads, channels / 2, cosine, sine, qkv + width);
  for (int i = 0; i < width; ++i) {
    keys[slot * width + i] = qkv[width + i];
    values[slot * width + i] = qkv[2 * width + i];
    mixed[i] = 0;
  }
  const real scale = 1 / MATH(sqrt)((real)channels);
  for (int head = 0; head < heads; ++head) {
    real most = -INFINITY, whole = 0;
    real score[$WINDOW];
    for (int age = 0; age < seen; ++age) {
      const real *key = keys + (slot + window - age) % window * width + head * channels;
      real sum = 0;
      for (int i = 0; i < channels; ++i) sum += qkv[head * channels + i] * key[i];
      score[age] = sum * scale;
      most = SELECT(score[age] > most, score[age], most);
    }
    for (int age = 0; age < seen; ++age) {
      score[age] = MATH(exp)(score[age] - most);
      whole += score[age];
    }
    for (int age = 0; age < seen; ++age) {
      const real *value = values + (slot + window - age) % window * width + head * channels;
      const real share = score[age] / whole;
      for (int i = 0; i < channels; ++i) mixed[head * channels + i] += share * value[i];
    }
  }
}
