// SPDX-License-Identifier: Apache-2.0
/* The filter of neurodyn.estimate.causal. Errors: a rotation in world axes, velocity of the IMU, height, biases. */
enum { ERR = 13, NJ = $JOINTS, NV = 6 + NJ, NQ = 7 + NJ, NU = $CONTROLS, NP = $POINTS, MODEL = NV, BESIDE = $BESIDE,
       GROUPS = 3 + $MORE, MOST = 4 + $ROWS + MODEL, STEPPED = 10 };
static const real dt = $DT, mount[9] = {$MOUNT}, place[3] = {$PLACE}, to_centre[3] = {$CENTRE};
static const real gravity[3] = {$GRAVITY}, whitening[MODEL * MODEL] = {$WHITENING}, radii[NP] = {$RADII};
static const real steps[STEPPED] = {$STEPS}, doubt[ERR] = {$DOUBT};

typedef struct {
  real quaternion[4], velocity[3], height, gyroscope[3], accelerometer[3];
} Base;

typedef struct {
  real q[NJ ? NJ : 1], qd[NJ ? NJ : 1], qd_later[NJ ? NJ : 1], control[NU ? NU : 1];
  real spin[3], spin_later[3], turn[3], force[3], beside[BESIDE ? BESIDE : 1];
} Readings;

static void cross3(const real *a, const real *b, real *c) {
  const real x = a[1] * b[2] - a[2] * b[1], y = a[2] * b[0] - a[0] * b[2];
  c[2] = a[0] * b[1] - a[1] * b[0];
  c[0] = x;
  c[1] = y;
}

static real norm3(const real *a) { return MATH(sqrt)(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]); }

static void matrix_of(const real *q, real *m) {
  const real x = q[0], y = q[1], z = q[2], w = q[3];
  const real all[9] = {1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w),
                       2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w),
                       2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)};
  for (int i = 0; i < 9; ++i) m[i] = all[i];
}

static void turned(const real *m, const real *v, real *out) {
  const real a[3] = {v[0], v[1], v[2]};
  for (int i = 0; i < 3; ++i) out[i] = m[3 * i] * a[0] + m[3 * i + 1] * a[1] + m[3 * i + 2] * a[2];
}

static void product(const real *a, const real *b, real *c) {
  const real x = a[3] * b[0] + a[0] * b[3] + a[1] * b[2] - a[2] * b[1];
  const real y = a[3] * b[1] - a[0] * b[2] + a[1] * b[3] + a[2] * b[0];
  const real z = a[3] * b[2] + a[0] * b[1] - a[1] * b[0] + a[2] * b[3];
  c[3] = a[3] * b[3] - a[0] * b[0] - a[1] * b[1] - a[2] * b[2];
  c[0] = x;
  c[1] = y;
  c[2] = z;
}

static void exponential(const real *v, real *q) {
  const real half = 0.5 * norm3(v), factor = half > 0 ? 0.5 * MATH(sin)(half) / half : (real)0.5;
  for (int i = 0; i < 3; ++i) q[i] = factor * v[i];
  q[3] = MATH(cos)(half);
}

static void logarithm(const real *q, real *v) {
  const real sign = q[3] < 0 ? -1 : 1, w = sign * q[3], squared = q[0] * q[0] + q[1] * q[1] + q[2] * q[2];
  const real sine = MATH(sqrt)(squared), least = w > (real)0.5 ? w : (real)0.5;
  const real factor = squared < (real)1e-8 ? 2 / least * (1 - squared / 3) : 2 * MATH(atan2)(sine, w) / sine;
  for (int i = 0; i < 3; ++i) v[i] = sign * factor * q[i];
}

static void unit(real *q) {
  const real size = MATH(sqrt)(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  for (int i = 0; i < 4; ++i) q[i] /= size;
}

static void moved(const Base *base, const real *error, Base *out) {
  real turn[4];
  exponential(error, turn);
  *out = *base;
  product(turn, base->quaternion, out->quaternion);
  unit(out->quaternion);
  for (int i = 0; i < 3; ++i) {
    out->velocity[i] += error[3 + i];
    out->gyroscope[i] += error[7 + i];
    out->accelerometer[i] += error[10 + i];
  }
  out->height += error[6];
}

/* Angular velocity in world axes, and the world's view of the IMU's axes. */
static void spin_of(const Base *base, const real *read, real *spin) {
  real turn[9], body[3];
  for (int i = 0; i < 3; ++i) body[i] = read[i] - base->gyroscope[i];
  turned(mount, body, body);
  matrix_of(base->quaternion, turn);
  turned(turn, body, spin);
}

/* Where the IMU takes the base: quaternion, acceleration and specific force in world axes. */
static void strapdown(const Base *base, const Readings *read, real *quaternion, real *acceleration, real *force) {
  real half[3], step[4], middle[4], turn[9];
  for (int i = 0; i < 3; ++i) half[i] = read->turn[i] - base->gyroscope[i];
  turned(mount, half, half);
  for (int i = 0; i < 3; ++i) half[i] *= (real)0.5 * dt;
  exponential(half, step);
  product(base->quaternion, step, middle);
  for (int i = 0; i < 3; ++i) force[i] = read->force[i] - base->accelerometer[i];
  turned(mount, force, force);
  matrix_of(middle, turn);
  turned(turn, force, force);
  for (int i = 0; i < 3; ++i) acceleration[i] = force[i] + gravity[i];
  product(middle, step, quaternion);
}

/* The model's prediction minus the readings; the memory of its drives goes on. */
static void model_errors(const Base *base, const Readings *read, const real *memory, real *memory_later, real *error) {
  real q[NQ], qd[NV], q_next[NQ], qd_next[NV], spin[3], turn[9], arm[3], swing[3];
  real quaternion[4], acceleration[3], force[3], later[3];
  spin_of(base, read->spin, spin);
  matrix_of(base->quaternion, turn);
  turned(turn, to_centre, arm);
  cross3(spin, arm, swing);
  q[0] = q[1] = 0;
  q[2] = base->height;
  for (int i = 0; i < 4; ++i) q[3 + i] = base->quaternion[i];
  for (int i = 0; i < 3; ++i) {
    qd[i] = base->velocity[i] + swing[i];
    qd[3 + i] = spin[i];
  }
  for (int i = 0; i < NJ; ++i) {
    q[7 + i] = read->q[i];
    qd[6 + i] = read->qd[i];
  }
  model_frame(memory, memory_later, q, qd, read->control, q_next, qd_next);
  strapdown(base, read, quaternion, acceleration, force);
  for (int i = 0; i < 3; ++i) later[i] = read->spin_later[i] - base->gyroscope[i];
  turned(mount, later, later);
  matrix_of(quaternion, turn);
  turned(turn, later, later);
  turned(turn, to_centre, arm);
  cross3(later, arm, swing);
  for (int i = 0; i < 3; ++i) {
    error[i] = qd_next[i] - base->velocity[i] - dt * acceleration[i] - swing[i];
    error[3 + i] = qd_next[3 + i] - later[i];
  }
  for (int i = 0; i < NJ; ++i) error[6 + i] = qd_next[6 + i] - read->qd_later[i];
}

/* Cholesky factor in place, lower triangle. */
static void factorise(int n, real *a) {
  for (int j = 0; j < n; ++j) {
    for (int i = j; i < n; ++i) {
      real sum = a[i * n + j];
      for (int k = 0; k < j; ++k) sum -= a[i * n + k] * a[j * n + k];
      a[i * n + j] = i == j ? MATH(sqrt)(sum) : sum / a[j * n + j];
    }
  }
}

/* rows P rows' + 1 of m rows; `across` is rows P. */
static void expected(int m, const real *rows, const real *covariance, real *across, real *spread) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < ERR; ++j) {
      real sum = 0;
      for (int k = 0; k < ERR; ++k) sum += rows[i * ERR + k] * covariance[k * ERR + j];
      across[i * ERR + j] = sum;
    }
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < m; ++j) {
      real sum = i == j;
      for (int k = 0; k < ERR; ++k) sum += across[i * ERR + k] * rows[j * ERR + k];
      spread[i * m + j] = sum;
    }
}

static real innovation(int m, const real *residual, const real *rows, const real *covariance) {
  real across[MOST * ERR], spread[MOST * MOST], white[MOST], total = 0;
  expected(m, rows, covariance, across, spread);
  factorise(m, spread);
  for (int i = 0; i < m; ++i) {
    real sum = residual[i];
    for (int k = 0; k < i; ++k) sum -= spread[i * m + k] * white[k];
    white[i] = sum / spread[i * m + i];
    total += white[i] * white[i];
  }
  return total;
}

static void gain_of(int m, const real *rows, const real *covariance, real *gain) {
  real across[MOST * ERR], spread[MOST * MOST], column[MOST];
  expected(m, rows, covariance, across, spread);
  factorise(m, spread);
  for (int j = 0; j < ERR; ++j) {
    for (int i = 0; i < m; ++i) {
      real sum = across[i * ERR + j];
      for (int k = 0; k < i; ++k) sum -= spread[i * m + k] * column[k];
      column[i] = sum / spread[i * m + i];
    }
    for (int i = m - 1; i >= 0; --i) {
      real sum = column[i];
      for (int k = i + 1; k < m; ++k) sum -= spread[k * m + i] * column[k];
      column[i] = sum / spread[i * m + i];
    }
    for (int i = 0; i < m; ++i) gain[j * m + i] = column[i];
  }
}

/* change P change' + noise noise' in place, of matrices with ERR rows and `width` columns of noise. */
static void carried(const real *change, int width, const real *noise, real *covariance) {
  real half[ERR * ERR];
  for (int i = 0; i < ERR; ++i)
    for (int j = 0; j < ERR; ++j) {
      real sum = 0;
      for (int k = 0; k < ERR; ++k) sum += change[i * ERR + k] * covariance[k * ERR + j];
      half[i * ERR + j] = sum;
    }
  for (int i = 0; i < ERR; ++i)
    for (int j = 0; j < ERR; ++j) {
      real sum = 0;
      for (int k = 0; k < ERR; ++k) sum += half[i * ERR + k] * change[j * ERR + k];
      for (int k = 0; k < width; ++k) sum += noise[i * width + k] * noise[j * width + k];
      covariance[i * ERR + j] = sum;
    }
}

static void reduce(int m, const real *gain, const real *rows, real *covariance) {
  real rest[ERR * ERR];
  for (int i = 0; i < ERR; ++i)
    for (int j = 0; j < ERR; ++j) {
      real sum = i == j;
      for (int k = 0; k < m; ++k) sum -= gain[i * m + k] * rows[k * ERR + j];
      rest[i * ERR + j] = sum;
    }
  carried(rest, m, gain, covariance);
}

static void cross_rows(const real *v, real sign, real *rows, int row, int column) {
  const real all[9] = {0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) rows[(row + i) * ERR + column + j] = sign * all[3 * i + j];
}

$SENSORS/* Residuals and derivatives of the lowest point (rows 0 to 3) and of the model, in units of their noise. */
static void residuals(const Base *base, const Readings *read, const real *memory, real *memory_later,
                      const real *points, const real *rates, real *residual, real *rows) {
  real error[MODEL], other[MODEL], unused[$MEMORY + 1], slope[MODEL * ERR], change[ERR];
  real turn[9], spin[3], swing[3], arm[3];
  Base near;
  memset(rows, 0, MOST * ERR * sizeof *rows);
  memset(slope, 0, sizeof slope);
  model_errors(base, read, memory, memory_later, error);
  for (int k = 0; k < STEPPED; ++k) {
    real ahead[MODEL];
    memset(change, 0, sizeof change);
    change[k] = steps[k];
    moved(base, change, &near);
    model_errors(&near, read, memory, unused, ahead);
    change[k] = -steps[k];
    moved(base, change, &near);
    model_errors(&near, read, memory, unused, other);
    for (int i = 0; i < MODEL; ++i) slope[i * ERR + k] = (ahead[i] - other[i]) / (2 * steps[k]);
  }
  near = *base;
  near.height += $LIFT;
  model_errors(&near, read, memory, unused, other);
  const real pushed = norm3(other) / dt;
  matrix_of(base->quaternion, turn);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      real sum = 0;
      for (int k = 0; k < 3; ++k) sum += turn[3 * i + k] * mount[3 * k + j];
      slope[i * ERR + 10 + j] = dt * sum;
    }
  const real share = 1 / (1 + norm3(read->force) / $FORCE);
  for (int i = 0; i < MODEL; ++i) {
    real sum = 0;
    for (int k = 0; k <= i; ++k) sum += whitening[i * MODEL + k] * error[k];
    residual[MOST - MODEL + i] = share * sum;
    for (int j = 0; j < ERR; ++j) {
      sum = 0;
      for (int k = 0; k <= i; ++k) sum += whitening[i * MODEL + k] * slope[k * ERR + j];
      rows[(MOST - MODEL + i) * ERR + j] = share * sum;
    }
  }
  int lowest = 0;
  real least = 0;
  for (int p = 0; p < NP; ++p) {
    const real *at = points + 3 * p;
    const real height = base->height + turn[6] * at[0] + turn[7] * at[1] + turn[8] * at[2] - radii[p];
    if (p == 0 || height < least) {
      least = height;
      lowest = p;
    }
  }
  real world[3], moving[3];
  turned(turn, points + 3 * lowest, world);
  turned(turn, rates + 3 * lowest, moving);
  for (int i = 0; i < 3; ++i) arm[i] = points[3 * lowest + i] - place[i];
  turned(turn, arm, arm);
  spin_of(base, read->spin, spin);
  cross3(spin, arm, swing);
  for (int i = 0; i < 3; ++i) swing[i] += moving[i];
  const real on = pushed > $FELT || (pushed < $FLYING && least < 0) ? 1 / (real)$STANDING_HEIGHT : 0;
  const real held = pushed > $HELD ? 1 / (real)$STANDING_SPEED : 0;
  residual[0] = on * least;
  rows[0] = on * world[1];
  rows[1] = -on * world[0];
  rows[6] = on;
  cross_rows(swing, -held, rows, 1, 0);
  for (int i = 0; i < 3; ++i) {
    residual[1 + i] = held * (base->velocity[i] + swing[i]);
    rows[(1 + i) * ERR + 3 + i] = held;
  }
$MEASUREMENTS}

/* Corrects the state at the begin of a frame by what came of it; `surprise` holds that and the model's wrongness. */
static void correct(Base *base, real *covariance, const Readings *read, real *memory, real *surprise,
                    const real *points, const real *rates) {
  static const int first[GROUPS + 1] = {0, 1, 4, $FIRST MOST};
  real residual[MOST], rows[MOST * ERR], gain[ERR * MOST], weights[GROUPS], change[ERR], later[$MEMORY + 1];
  const Base begun = *base;
  Base at = *base;
  const real trust = 1 / MATH(sqrt)(surprise[1]);
  memset(change, 0, sizeof change);
  if (surprise[0] > 2)
    for (int i = 0; i < ERR; ++i) covariance[i * (ERR + 1)] += (surprise[0] - 2) * doubt[i] * doubt[i];
  for (int iteration = 0; iteration < $ITERATIONS; ++iteration) {
    residuals(&at, read, memory, later, points, rates, residual, rows);
    for (int i = MOST - MODEL; i < MOST; ++i) {
      residual[i] *= trust;
      for (int j = 0; j < ERR; ++j) rows[i * ERR + j] *= trust;
    }
    for (int g = 0; g < GROUPS; ++g) {
      const int count = first[g + 1] - first[g];
      if (iteration == 0) {
        const real squared = innovation(count, residual + first[g], rows + first[g] * ERR, covariance);
        weights[g] = MATH(sqrt)(($TAIL + count) / ($TAIL + squared));
        if (g == GROUPS - 1) {
          const real share = squared / count;
          const real counted = share < $JUMP ? share : (real)$JUMP;
          surprise[0] *= 1 - (real)$REMEMBERED;
          surprise[0] += (real)$REMEMBERED * (share < $MOST ? share : (real)$MOST);
          surprise[1] *= 1 + (real)$LEARNT * (counted - (real)$USUAL);
          if (surprise[1] < 1) surprise[1] = 1;
        }
      }
      for (int i = first[g]; i < first[g + 1]; ++i) {
        residual[i] *= weights[g];
        for (int j = 0; j < ERR; ++j) rows[i * ERR + j] *= weights[g];
      }
    }
    gain_of(MOST, rows, covariance, gain);
    for (int i = 0; i < MOST; ++i) {
      real sum = -residual[i];
      for (int j = 0; j < ERR; ++j) sum += rows[i * ERR + j] * change[j];
      residual[i] = sum;
    }
    for (int j = 0; j < ERR; ++j) {
      real sum = 0;
      for (int i = 0; i < MOST; ++i) sum += gain[j * MOST + i] * residual[i];
      change[j] = sum;
    }
    moved(&begun, change, &at);
  }
  *base = at;
  reduce(MOST, gain, rows, covariance);
  for (int i = 0; i < $MEMORY; ++i) memory[i] = later[i];
}

/* Vertical velocity of the base's origin. */
static real rise_of(const Base *base, const real *read) {
  real spin[3], turn[9], arm[3], swing[3];
  spin_of(base, read, spin);
  matrix_of(base->quaternion, turn);
  turned(turn, place, arm);
  cross3(spin, arm, swing);
  return base->velocity[2] - swing[2];
}

/* Moves the state on by the IMU; noises are those of rotation and velocity over the frame. */
static void move_on(Base *base, real *covariance, const Readings *read, real turn_noise, real velocity_noise) {
  real quaternion[4], acceleration[3], force[3], change[ERR * ERR], noise[ERR * ERR], turn[9], world[9];
  strapdown(base, read, quaternion, acceleration, force);
  matrix_of(base->quaternion, turn);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      real sum = 0;
      for (int k = 0; k < 3; ++k) sum += turn[3 * i + k] * mount[3 * k + j];
      world[3 * i + j] = dt * sum;
    }
  const real rise = rise_of(base, read->spin);
  for (int i = 0; i < 4; ++i) base->quaternion[i] = quaternion[i];
  unit(base->quaternion);
  for (int i = 0; i < 3; ++i) base->velocity[i] += dt * acceleration[i];
  base->height += (real)0.5 * dt * (rise + rise_of(base, read->spin_later));
  memset(change, 0, sizeof change);
  memset(noise, 0, sizeof noise);
  for (int i = 0; i < ERR; ++i) change[i * (ERR + 1)] = 1;
  for (int i = 0; i < 3; ++i) {
    force[i] *= dt;
    for (int j = 0; j < 3; ++j) {
      change[i * ERR + 7 + j] = -world[3 * i + j];
      change[(3 + i) * ERR + 10 + j] = -world[3 * i + j];
    }
    noise[i * (ERR + 1)] = turn_noise;
    noise[(3 + i) * (ERR + 1)] = velocity_noise;
    noise[(7 + i) * (ERR + 1)] = (real)$GYROSCOPE_DRIFT;
    noise[(10 + i) * (ERR + 1)] = (real)$ACCELEROMETER_DRIFT;
  }
  cross_rows(force, -1, change, 3, 0);
  for (int j = 0; j < ERR; ++j) change[6 * ERR + j] += (real)0.5 * dt * change[5 * ERR + j];
  change[6 * ERR + 5] += (real)0.5 * dt;
  noise[6 * (ERR + 1)] = (real)$GROUND_NOISE;
  noise[6 * ERR + 5] = (real)0.5 * dt * velocity_noise;
  carried(change, ERR, noise, covariance);
}

/* Corrects roll and pitch by the IMU's own attitude, from the IMU to the world. */
static void level(Base *base, real *covariance, const real *attitude) {
  static const real to_imu[4] = {$TO_IMU}, noise[3] = {$ATTITUDE_NOISE, $ATTITUDE_NOISE, $HEADING_NOISE};
  real read[4], off[4], residual[3], rows[3 * ERR], gain[ERR * 3], change[ERR];
  product(attitude, to_imu, read);
  for (int i = 0; i < 3; ++i) read[i] = -read[i];
  product(base->quaternion, read, off);
  logarithm(off, residual);
  memset(rows, 0, sizeof rows);
  for (int i = 0; i < 3; ++i) {
    residual[i] /= noise[i];
    rows[i * ERR + i] = 1 / noise[i];
  }
  const real weight = MATH(sqrt)(($TAIL + 3) / ($TAIL + innovation(3, residual, rows, covariance)));
  for (int i = 0; i < 3; ++i) {
    residual[i] *= weight;
    rows[i * ERR + i] *= weight;
  }
  gain_of(3, rows, covariance, gain);
  for (int j = 0; j < ERR; ++j) {
    change[j] = 0;
    for (int i = 0; i < 3; ++i) change[j] -= gain[j * 3 + i] * residual[i];
  }
  const Base before = *base;
  moved(&before, change, base);
  reduce(3, gain, rows, covariance);
}

/* Upright by a specific force in axes of the base, with heading 0. */
static void upright(const real *felt, real *quaternion) {
  const real length = norm3(felt), axis[3] = {felt[1] / length, -felt[0] / length, 0}, size = norm3(axis);
  const real angle = MATH(atan2)(size, felt[2] / length), least = size > (real)1e-9 ? size : (real)1e-9;
  const real turn[3] = {axis[0] / least * angle, axis[1] / least * angle, 0};
  exponential(turn, quaternion);
}

/* Contact points in the base's frame, and their velocities by the joints. */
static void legs(const real *q, const real *qd, real *points, real *rates) {
  real near[NJ ? NJ : 1], behind[3 * NP];
  const real step = (real)1e-4;
  for (int i = 0; i < NJ; ++i) near[i] = q[i] - step * qd[i];
  points_of(near, behind);
  for (int i = 0; i < NJ; ++i) near[i] = q[i] + step * qd[i];
  points_of(near, rates);
  for (int i = 0; i < 3 * NP; ++i) rates[i] = (rates[i] - behind[i]) / (2 * step);
  points_of(q, points);
}

static void begin(Base *base, real *covariance, const real *q, const real *qd, const real *force,
                  const real *attitude) {
  static const real known[ERR] = {$START}, blind[ERR] = {$BLIND}, to_imu[4] = {$TO_IMU};
  const real *noise = attitude ? known : blind;
  real points[3 * NP], rates[3 * NP], turn[9], felt[3];
  memset(base, 0, sizeof *base);
  if (attitude) {
    product(attitude, to_imu, base->quaternion);
  } else {
    turned(mount, force, felt);
    upright(felt, base->quaternion);
  }
  memset(covariance, 0, ERR * ERR * sizeof *covariance);
  for (int i = 0; i < ERR; ++i) covariance[i * (ERR + 1)] = noise[i] * noise[i];
  legs(q, qd, points, rates);
  matrix_of(base->quaternion, turn);
  for (int p = 0; p < NP; ++p) {
    const real *at = points + 3 * p;
    const real below = radii[p] - (turn[6] * at[0] + turn[7] * at[1] + turn[8] * at[2]);
    if (p == 0 || below > base->height) base->height = below;
  }
  base->height -= (real)$SUNK;
}
