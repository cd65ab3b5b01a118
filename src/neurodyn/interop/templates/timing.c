// SPDX-License-Identifier: Apache-2.0
/* Mean and worst time of a step: $HOW
 * The worst one is that of a machine that does other things, too; the mean CPU time includes the loop. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 199309L
#endif
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
$INCLUDE

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1e6 + at.tv_nsec * 1e-3;
}

int main(int count, char **arguments) {
  const long steps = count > 1 ? atol(arguments[1]) : 10000;
  double sum = 0, worst = 0, total = 0;
$DECLARED
  const clock_t first = clock();
  for (long step = 0; step < steps; ++step) {
    if (step % 100 == 0) {
      $BEGAN
    }
$CHANGED
    const double begun = now();
    $CALL
    const double taken = now() - begun;
    sum += taken;
    if (taken > worst) worst = taken;
    total += (double)$LAST[0];
$CARRIED
  }
  const double cpu = (double)(clock() - first) / CLOCKS_PER_SEC * 1e6;
  printf("%ld steps: mean %.3f us (CPU time %.3f us), worst %.3f us; first result, summed: %g\n", steps, sum / steps,
         cpu / steps, worst, total);
  return 0;
}
