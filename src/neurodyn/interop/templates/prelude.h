// SPDX-License-Identifier: Apache-2.0
/* Types and operations of the compiled steps' code, for one number at a time. */
typedef $REAL real;
typedef $REAL number;
typedef bool mask;
#define LANES 1
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define ANY(condition) (condition)
#define ALL(condition) (condition)
#define NOT(condition) (!(condition))
#define LANE(x, n) (x)
#if $DOUBLE
#define MATH(name) name
#else
#define MATH(name) name##f
#endif
