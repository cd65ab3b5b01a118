/* ant-run in C at a fixed rate: reads what was measured from a socket, answers with torques.
 *
 *     controller PORT RATE SECONDS SPIN
 *
 * Its memory stays in place, where that is permitted, and it is awake for SPIN microseconds before each tick. At every
 * tick it takes the state that the last torques led to, computes and sends. A tick is late if its torques leave after
 * the next tick, whether the state came late or the machine was busy. It prints a histogram of the times from tick to
 * torques. */
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

typedef struct {
  ant_run_real base_height[ANT_RUN_BASE_HEIGHT_SIZE];
  ant_run_real base_orientation[ANT_RUN_BASE_ORIENTATION_SIZE];
  ant_run_real base_linear_velocity[ANT_RUN_BASE_LINEAR_VELOCITY_SIZE];
  ant_run_real base_angular_velocity[ANT_RUN_BASE_ANGULAR_VELOCITY_SIZE];
  ant_run_real joint_position[ANT_RUN_JOINT_POSITION_SIZE];
  ant_run_real joint_velocity[ANT_RUN_JOINT_VELOCITY_SIZE];
} measured_packet;

enum { BUCKETS = 16 }; /* up to 1 us, 2 us, 4 us, ..., and beyond */

static double seconds_of(struct timespec at) { return at.tv_sec + at.tv_nsec * 1e-9; }

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return seconds_of(at);
}

int main(int count, char **arguments) {
  if (count != 5) return 2;
  const double period = 1.0 / atof(arguments[2]), spin = atof(arguments[4]) * 1e-6;
  if (mlockall(MCL_CURRENT | MCL_FUTURE)) fprintf(stderr, "memory may be moved out: mlockall is not permitted\n");
  const long ticks = (long)(atof(arguments[3]) / period);
  const int line = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in plant;
  memset(&plant, 0, sizeof plant);
  plant.sin_family = AF_INET;
  plant.sin_port = htons((unsigned short)atoi(arguments[1]));
  plant.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (line < 0 || connect(line, (struct sockaddr *)&plant, sizeof plant)) return 1;
  const struct timeval patience = {1, 0};
  setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  ant_run_state state;
  ant_run_reset(&state);
  measured_packet measured;
  ant_run_real observation[ANT_RUN_OBSERVATION_SIZE], action[ANT_RUN_ACTION_SIZE];
  ant_run_real scaled[ANT_RUN_SCALED_ACTION_SIZE], torque[ANT_RUN_CONTROL_SIZE];
  memset(torque, 0, sizeof torque);
  long histogram[BUCKETS] = {0}, late = 0;
  double worst = 0, sum = 0, computing = 0, most_computing = 0;

  if (send(line, torque, sizeof torque, 0) < 0) return 1;
  double tick = now() + period;
  for (long number = 0; number < ticks; ++number) {
    struct timespec at;
    at.tv_sec = (time_t)(tick - spin);
    at.tv_nsec = (long)((tick - spin - (double)at.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL)) {}
    while (now() < tick) {} /* a timer wakes late by tens of microseconds */
    if (recv(line, &measured, sizeof measured, 0) != (ssize_t)sizeof measured) return 1; /* the plant is gone */
    const double begun = now();
    ant_run_observe(measured.base_height, measured.base_orientation, measured.base_linear_velocity,
                    measured.base_angular_velocity, measured.joint_position, measured.joint_velocity, observation);
    ant_run_act(&state, observation, action, scaled);
    ant_run_control(action, torque);
    const double computed = now();
    if (send(line, torque, sizeof torque, 0) < 0) return 1;
    const double taken = now() - tick;
    int bucket = 0;
    while (bucket < BUCKETS - 1 && taken * 1e6 > (double)(1L << bucket)) ++bucket;
    ++histogram[bucket];
    late += taken > period;
    sum += taken;
    computing += computed - begun;
    if (taken > worst) worst = taken;
    if (computed - begun > most_computing) most_computing = computed - begun;
    tick += period;
    if (now() > tick + period) tick = now(); /* does not catch up */
  }
  for (int bucket = 0; bucket < BUCKETS; ++bucket)
    if (histogram[bucket]) printf("%s %6ld us: %ld\n", bucket < BUCKETS - 1 ? "<=" : "> ",
                                  1L << (bucket < BUCKETS - 1 ? bucket : bucket - 1), histogram[bucket]);
  printf("%ld ticks of %.0f us, %ld late; tick to torques: mean %.1f us, worst %.0f us; policy: mean %.1f us, worst %.0f us\n",
         ticks, period * 1e6, late, sum / ticks * 1e6, worst * 1e6, computing / ticks * 1e6, most_computing * 1e6);
  return 0;
}
