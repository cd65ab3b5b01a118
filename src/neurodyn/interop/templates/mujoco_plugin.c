// SPDX-License-Identifier: Apache-2.0
/* $TITLE
 *
 * A passive plugin of MuJoCo, for ${ROBOT}_plugin.xml, which includes ${ROBOT}.xml. Compile and load it before the
 * model, with the folder that `python -c "import mujoco; print(mujoco.__path__[0])"` prints:
 *
 *   gcc -O2 -shared -fPIC -I$$FOLDER/include $NAME.c -o lib$NAME.so -L$$FOLDER -l:libmujoco.so.VERSION -lm
 *   mujoco.mj_loadPluginLibrary("./lib$NAME.so"); model = mujoco.MjModel.from_xml_path("${ROBOT}_plugin.xml")
 *
 * What networks remember is state of the plugin: copies of mjData go on by themselves, and resets begin anew. */
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <mujoco/mujoco.h>

$PRELUDE
enum { JOINTS = $JOINTS, COMMANDS = $COMMANDS, POSITIONS = $NQ, VELOCITIES = $NV, MEMORY = $MEMORY };
enum { SCALAR, BALL, FREE };

/* Joints, and for a free joint the reference point of its velocity. */
static const struct { const char *name; int kind; double reference[3]; } joints[] = {
$JOINT_TABLE
};

/* Joints with a command, and whether it is `ctrl` itself or the force of the joint's actuators. */
static const struct { const char *name; int direct; } commands[COMMANDS + 1] = {
$COMMAND_TABLE
  {NULL, 0}
};

$STEP

static double clipped(double value, const mjtNum *range) {
  return value < range[0] ? range[0] : value > range[1] ? range[1] : value;
}

static double command(const mjModel *m, const mjData *d, int joint, int direct) {
  double sum = 0;
  for (int i = 0; i < m->nu; ++i) {
    if (m->actuator_trntype[i] != mjTRN_JOINT || m->actuator_trnid[2 * i] != joint) continue;
    double value = d->ctrl[i];
    if (!direct) {
      if (m->actuator_ctrllimited[i]) value = clipped(value, m->actuator_ctrlrange + 2 * i);
      const mjtNum *bias = m->actuator_biasprm + mjNBIAS * i;
      const double gear = m->actuator_gear[6 * i];
      value = m->actuator_gainprm[mjNGAIN * i] * value + bias[0] +
              gear * (bias[1] * d->qpos[m->jnt_qposadr[joint]] + bias[2] * d->qvel[m->jnt_dofadr[joint]]);
      if (m->actuator_forcelimited[i]) value = clipped(value, m->actuator_forcerange + 2 * i);
      value *= gear;
    }
    sum += value;
  }
  return sum;
}

static int joint_number(const mjModel *m, const char *name) { return mj_name2id(m, mjOBJ_JOINT, name); }

static int nstate(const mjModel *m, int instance) {
  (void)m, (void)instance;
  return 2 * MEMORY;
}

static int init(const mjModel *m, mjData *d, int instance) {
  (void)d, (void)instance;
  for (int i = 0; i < JOINTS; ++i) {
    if (joint_number(m, joints[i].name) >= 0) continue;
    mju_warning("$NAME: the model has no joint of the networks; valid: ${ROBOT}_plugin.xml");
    return -1;
  }
  if (MEMORY && fabs(m->opt.timestep - $DT) > 1e-9 * $DT) {
    mju_warning("$NAME: the time step is not that of the networks");
    return -1;
  }
  return 0;
}

static void reset(const mjModel *m, mjtNum *state, void *data, int instance) {
  (void)m, (void)data, (void)instance;
  if (MEMORY) memset(state, 0, 2 * MEMORY * sizeof *state);
}

static void compute(const mjModel *m, mjData *d, int instance, int capability) {
  /* With room for the branches of joints that the robot lacks. */
  double q[POSITIONS + 7], qd[VELOCITIES + 6], u[COMMANDS + 1], forces[VELOCITIES + 6], own[3];
  mjtNum *memory = d->plugin_state + m->plugin_stateadr[instance];
  (void)capability;
  int row = 0, dof = 0;
  for (int i = 0; i < JOINTS; ++i) {
    const int joint = joint_number(m, joints[i].name), kind = joints[i].kind;
    const mjtNum *position = d->qpos + m->jnt_qposadr[joint], *rate = d->qvel + m->jnt_dofadr[joint];
    if (kind == SCALAR) {
      q[row++] = position[0];
      qd[dof++] = rate[0];
      continue;
    }
    const mjtNum *turn = kind == FREE ? position + 3 : position;
    mjtNum unit[4] = {turn[0], turn[1], turn[2], turn[3]}, spin[3], arm[3];
    mju_normalize4(unit);
    mju_rotVecQuat(spin, kind == FREE ? rate + 3 : rate, unit);
    if (kind == FREE) {
      mju_rotVecQuat(arm, joints[i].reference, unit);
      mju_cross(own, spin, arm);
      for (int k = 0; k < 3; ++k) q[row++] = position[k];
      for (int k = 0; k < 3; ++k) qd[dof++] = rate[k] + own[k];
    }
    for (int k = 1; k < 5; ++k) q[row++] = turn[k % 4];
    for (int k = 0; k < 3; ++k) qd[dof++] = spin[k];
  }
  for (int i = 0; i < COMMANDS; ++i) u[i] = command(m, d, joint_number(m, commands[i].name), commands[i].direct);
  step(q, qd, u, memory, forces, memory + MEMORY);
  dof = 0;
  for (int i = 0; i < JOINTS; ++i) {
    const int joint = joint_number(m, joints[i].name), kind = joints[i].kind;
    mjtNum *force = d->qfrc_passive + m->jnt_dofadr[joint];
    if (kind == SCALAR) {
      force[0] += forces[dof++];
      continue;
    }
    const mjtNum *turn = d->qpos + m->jnt_qposadr[joint] + (kind == FREE ? 3 : 0);
    mjtNum unit[4] = {turn[0], turn[1], turn[2], turn[3]}, back[4], arm[3], moment[3] = {0, 0, 0};
    mju_normalize4(unit);
    mju_negQuat(back, unit);
    if (kind == FREE) {
      mju_rotVecQuat(arm, joints[i].reference, unit);
      mju_cross(moment, arm, forces + dof);
      for (int k = 0; k < 3; ++k) *force++ += forces[dof++];
    }
    for (int k = 0; k < 3; ++k) moment[k] += forces[dof++];
    mju_rotVecQuat(own, moment, back);
    for (int k = 0; k < 3; ++k) force[k] += own[k];
  }
}

static void advance(const mjModel *m, mjData *d, int instance) {
  mjtNum *memory = d->plugin_state + m->plugin_stateadr[instance];
  if (MEMORY) memcpy(memory, memory + MEMORY, MEMORY * sizeof *memory);
}

mjPLUGIN_LIB_INIT($NAME) {
  mjpPlugin plugin;
  mjp_defaultPlugin(&plugin);
  plugin.name = "neurodyn.$NAME";
  plugin.capabilityflags = mjPLUGIN_PASSIVE;
  plugin.nstate = nstate;
  plugin.init = init;
  plugin.reset = reset;
  plugin.compute = compute;
  plugin.advance = advance;
  mjp_registerPlugin(&plugin);
}
