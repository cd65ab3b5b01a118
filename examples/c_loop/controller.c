/* A policy in C at a fixed rate: reads what was measured from a socket, answers with torques.
 *
 *     controller PORT RATE SECONDS SPIN BARE
 *
 * Its memory stays in place, where that is permitted, and it is awake for SPIN microseconds before each tick. At every
 * tick it takes the state that the last torques led to, computes and sends. A tick is late if its torques leave after
 * the next tick, whether the state came late or the machine was busy. It prints a histogram of the times from tick to
 * torques. For BARE seconds before, it only waits for ticks, to show how late the machine alone is. */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "ant_run.h"

typedef ant_run_real real;
enum { TORQUES = ANT_RUN_CONTROL_SIZE };

typedef struct {
  real base_height[ANT_RUN_BASE_HEIGHT_SIZE];
  real base_orientation[ANT_RUN_BASE_ORIENTATION_SIZE];
  real base_linear_velocity[ANT_RUN_BASE_LINEAR_VELOCITY_SIZE];
  real base_angular_velocity[ANT_RUN_BASE_ANGULAR_VELOCITY_SIZE];
  real joint_position[ANT_RUN_JOINT_POSITION_SIZE];
  real joint_velocity[ANT_RUN_JOINT_VELOCITY_SIZE];
} measured_packet;

static ant_run_state state;

static void begin(void) { ant_run_reset(&state); }

static void act(const measured_packet *measured, real *torque) {
  real observation[ANT_RUN_OBSERVATION_SIZE], action[ANT_RUN_ACTION_SIZE], scaled[ANT_RUN_SCALED_ACTION_SIZE];
  ant_run_observe(measured->base_height, measured->base_orientation, measured->base_linear_velocity,
                  measured->base_angular_velocity, measured->joint_position, measured->joint_velocity, observation);
  ant_run_act(&state, observation, action, scaled);
  ant_run_control(action, torque);
}
enum { BUCKETS = 16 }; /* up to 1 us, 2 us, 4 us, ..., and beyond */

static double seconds_of(struct timespec at) { return at.tv_sec + at.tv_nsec * 1e-9; }

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return seconds_of(at);
}

typedef struct {
  long histogram[BUCKETS], ticks, late;
  double worst, sum;
} record;

static void add(record *times, double taken, double period) {
  int bucket = 0;
  while (bucket < BUCKETS - 1 && taken * 1e6 > (double)(1L << bucket)) ++bucket;
  ++times->histogram[bucket];
  ++times->ticks;
  times->late += taken > period;
  times->sum += taken;
  if (taken > times->worst) times->worst = taken;
}

static void print(const record *times, const char *what, double period) {
  for (int bucket = 0; bucket < BUCKETS; ++bucket)
    if (times->histogram[bucket]) printf("%s %6ld us: %ld\n", bucket < BUCKETS - 1 ? "<=" : "> ",
                                         1L << (bucket < BUCKETS - 1 ? bucket : bucket - 1), times->histogram[bucket]);
  printf("%ld ticks of %.0f us, %ld late; %s: mean %.1f us, worst %.0f us\n", times->ticks, period * 1e6, times->late,
         what, times->sum / (double)times->ticks * 1e6, times->worst * 1e6);
}

/* Waits for a tick: asleep, and awake at the end, because a timer wakes late by tens of microseconds. */
static void await(double tick, double spin) {
  struct timespec at;
  at.tv_sec = (time_t)(tick - spin);
  at.tv_nsec = (long)((tick - spin - (double)at.tv_sec) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
  while (now() < tick) {}
}

/* The tick after a late one; it does not catch up. */
static double following(double tick, double period) {
  return now() > tick + 2 * period ? now() : tick + period;
}

int main(int count, char **arguments) {
  if (count != 6) return 2;
  const double period = 1.0 / atof(arguments[2]), spin = atof(arguments[4]) * 1e-6;
  real torque[TORQUES] = {0};
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) fprintf(stderr, "memory may be moved out: mlockall is not permitted\n");
  const long ticks = (long)(atof(arguments[3]) / period), bare_ticks = (long)(atof(arguments[5]) / period);
  const int line = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in plant;
  memset(&plant, 0, sizeof plant);
  plant.sin_family = AF_INET;
  plant.sin_port = htons((unsigned short)atoi(arguments[1]));
  plant.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (line < 0 || connect(line, (struct sockaddr *)&plant, sizeof plant)) return 1;
  const struct timeval patience = {1, 0};
  setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  record bare = {{0}, 0, 0, 0, 0}, times = bare, awake = bare;
  double computing = 0, most_computing = 0;
  for (double tick = now() + period; bare.ticks < bare_ticks; tick = following(tick, period)) {
    await(tick, spin);
    add(&bare, now() - tick, period);
  }

  measured_packet measured;
  begin();
  if (send(line, torque, sizeof torque, 0) < 0) return 1;
  for (double tick = now() + period; times.ticks < ticks; tick = following(tick, period)) {
    await(tick, spin);
    add(&awake, now() - tick, period);
    if (recv(line, &measured, sizeof measured, 0) != (ssize_t)sizeof measured) return 1; /* the plant is gone */
    const double begun = now();
    act(&measured, torque);
    const double computed = now();
    if (send(line, torque, sizeof torque, 0) < 0) return 1;
    add(&times, now() - tick, period);
    computing += computed - begun;
    if (computed - begun > most_computing) most_computing = computed - begun;
  }
  if (bare.ticks) print(&bare, "the machine alone, tick to awake", period);
  print(&times, "tick to torques", period);
  printf("of which %ld awoke late; policy: mean %.1f us, worst %.0f us\n", awake.late,
         computing / (double)times.ticks * 1e6, most_computing * 1e6);
  return 0;
}
