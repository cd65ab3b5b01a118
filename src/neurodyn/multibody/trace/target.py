# SPDX-License-Identifier: Apache-2.0
"""What a program's text is compiled for: a processor with one or several worlds to a vector, or a GPU.

The text of a program is the same for all. What stands before it says what a `real` is, how its elements are read from
and written to arrays, and where a step's tape lies:

* On a processor a `real` holds one world, or as many as a vector register has room for, in its lanes. Blocks of worlds
  follow each other; in each, lanes lie side by side on the tape, so that it is read by whole vectors. Lanes beyond the
  last world repeat it; their gradients are zero.
* On a GPU every thread has a world, and neighbouring worlds lie side by side in all that the program allocates.
"""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

from neurodyn.multibody.trace.functions import functions_text

NUMBERS = ("frames", "substeps", "worlds", "group")
"""Numbers that come first in a kernel's table; `group` blocks share the sums of their weights' gradients."""

_MOST_BITS = {"AVX512": 512, "AVX2": 256}
"""Bits of a vector register by what torch found the processor to have; 128 elsewhere on 64-bit ARM, else none."""


@dataclass(frozen=True)
class Target:
    """What a text is compiled for.

    Attributes:
        device: "cpu" or "cuda".
        single: Whether numbers are of single precision.
        lanes: Worlds in a vector.
    """

    device: str
    single: bool
    lanes: int = 1

    def text(self, rows: Sequence[str], plain: Sequence[str], body: str) -> str:
        """Return a whole text.

        Args:
            rows: Arrays of one row for each world and frame, in the order of the kernel's table.
            plain: Other arrays, after them.
            body: What is computed.
        """
        head = _NAMES.format(number="float" if self.single else "double", lanes=self.lanes)
        if self.device == "cpu":
            head += _CPU + self._vectors() + functions_text(self.lanes, self.single) + self._of_one() + self._rows()
            body = body.replace("::wp::", "functions::").replace("::one::", "functions_of_one::")
        else:
            head += _GPU
        table = [f"const int {name} = (int)table[{i}]; (void){name};" for i, name in enumerate(NUMBERS)]
        place = len(NUMBERS)
        for name in rows:
            table.append(f"number* {name} = (number*)table[{place}];")
            table += [
                f"const long long {name}_{by} = (long long)table[{place + 1 + i}]; (void){name}_{by};"
                for i, by in enumerate(("world", "frame", "element"))
            ]
            place += 4
        table += [f"number* {name} = (number*)table[{place + i}]; (void){name};" for i, name in enumerate(plain)]
        return "\n".join([head, *table, body])

    def _vectors(self) -> str:
        if self.lanes == 1:
            return _ONE.format(whole="int" if self.single else "long long")
        return _SEVERAL.format(lanes=self.lanes, numbers=", ".join(map(str, range(self.lanes))))

    def _of_one(self) -> str:
        """Return the functions of one number, for what is the same in all lanes."""
        if self.lanes == 1:
            return "typedef functions functions_of_one;\n"
        kinds = f"typedef number real;\ntypedef bool mask;\ntypedef {'int' if self.single else 'long long'} whole;\n"
        return functions_text(1, self.single).replace("struct functions {", f"struct functions_of_one {{\n{kinds}", 1)

    def _rows(self) -> str:
        """Return the struct of the rows of a block's worlds.

        Written from the last lane to the first, so that lanes beyond the last world do not replace what that has.
        """
        lanes = range(self.lanes)
        get = "return at[0][i];" if self.lanes == 1 else f"return (real){{{', '.join(f'at[{n}][i]' for n in lanes)}}};"
        put = "at[0][i] = v;" if self.lanes == 1 else " ".join(f"at[{n}][i] = v[{n}];" for n in reversed(lanes))
        begin = " ".join(f"rows.at[{n}] = base + least(block * {self.lanes} + {n}, worlds - 1) * by;" for n in lanes)
        places = " ".join(
            f"rows.at[{n}] = base + (from + least(part * {self.lanes} + {n}, count - 1)) * by;" for n in lanes
        )
        return _ROWS.format(lanes=self.lanes, places=places, get=get, put=put, begin=begin, step=" ".join(
            f"at[{n}] += by;" for n in lanes
        ))  # fmt: skip


def table_length(rows: Sequence[str], plain: Sequence[str]) -> int:
    """Return the number of words in a kernel's table."""
    return len(NUMBERS) + 4 * len(rows) + len(plain)


@cache
def vector_lanes(single: bool) -> int:
    """Return how many numbers of a precision the processor's vector registers hold; 1 where there are none."""
    bits = _MOST_BITS.get(torch.backends.cpu.get_cpu_capability(), 0)
    if not bits and platform.machine().lower() in ("arm64", "aarch64"):
        bits = 128
    return max(bits // (32 if single else 64), 1)


_NAMES = """
typedef {number} number;
#undef LANES
#undef INLINE
#undef SELECT
#undef ANY
#undef ALL
#undef NOT
#undef LIVE
#undef ROWS
#undef KEEP
#undef KEPT
#undef STRIDE
#undef FUSE
#undef SUMS
#undef UNROLL
#undef FIRST
#undef LANE_IS
#undef OPAQUE
#define LANES {lanes}
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define NOT(condition) (!(condition))
"""

_ONE = """
typedef number real;
typedef bool mask;
typedef {whole} whole;
#define ANY(condition) (condition)
#define ALL(condition) (condition)
#define LIVE(count) true
#define FIRST(x) (x)
#define LANE_IS(n) ((n) == 0)
"""

_SEVERAL = """
typedef number real __attribute__((ext_vector_type({lanes})));
typedef decltype(real() < real()) mask;
typedef mask whole;
#define ANY(condition) (__builtin_reduce_or(condition) != 0)
#define ALL(condition) (__builtin_reduce_and(condition) != 0)
#define FIRST(x) ((x)[0])
#define LANE_IS(n) ((real){{{numbers}}} == (real)(number)(n))
#define LIVE(count) ((real){{{numbers}}} < (real)(number)(count))
"""

_CPU = """
#define INLINE static inline __attribute__((always_inline))
#define ROWS(name) Rows::of(name, name##_world, block, worlds)
#define KEEP(i, value) tape[i] = value
#define KEPT(i) tape[i]
#define STRIDE 1
#define FUSE _Pragma("clang fp contract(fast)")
#define UNROLL _Pragma("unroll")
#define SUMS(base, from) ((real*)base + (from))
#define OPAQUE(pointer) asm volatile("" : "+r"(pointer) : : "memory");
#define TAPE_OF(t, size) (t ? (real*)t + (long long)block * frames * substeps * (size) : none)
"""

_ROWS = """
typedef real* Sums;
struct Rows {{
number* at[{lanes}];
INLINE long long least(long long a, long long b) {{ return b < a ? b : a; }}
INLINE Rows of(number* base, long long by, int block, int worlds) {{ Rows rows; {begin} return rows; }}
INLINE Rows of(number* base, long long by, long long from, int part, int count) {{
Rows rows; {places} return rows;
}}
__attribute__((always_inline)) real get(int i) const {{ {get} }}
__attribute__((always_inline)) void put(int i, real v) const {{ {put} }}
__attribute__((always_inline)) void step(long long by) {{ {step} }}
}};
"""

_GPU = """
typedef number real;
typedef bool mask;
#define ANY(condition) (condition)
#define ALL(condition) (condition)
#define LIVE(count) true
#define ROWS(name) Rows::of(name + block * name##_world, name##_element)
#define KEEP(i, value) if (t) tape[(long long)(i) * worlds] = value
#define KEPT(i) tape[(long long)(i) * worlds]
#define STRIDE worlds
#define FUSE
#define TAPE_OF(t, size) (t + block)
#define SUMS(base, from) Sums{base + (from)}
struct Sum { number* at; void operator+=(number x) const { atomicAdd(at, x); } };
struct Sums {
number* at;
Sums operator+(long long i) const { return Sums{at + i}; }
Sum operator[](long long i) const { return Sum{at + i}; }
};
struct Rows {
number* at; long long by;
static Rows of(number* at, long long by) { Rows rows; rows.at = at; rows.by = by; return rows; }
real get(int i) const { return at[i * by]; }
void put(int i, real v) const { at[i * by] = v; }
void step(long long by_frame) { at += by_frame; }
};
"""
