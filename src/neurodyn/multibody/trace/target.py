# SPDX-License-Identifier: Apache-2.0
"""Compilation targets of a program's code, CPU or GPU, and code for the elementary functions on a CPU."""

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

# Constants of each precision; coefficients of polynomials in ascending order. Adding `magic`, which is
# 1.5 * 2^(bits of the mantissa), rounds to an integer, held in the low bits of the sum.
_DOUBLE: dict[str, Any] = {
    "magic": "6755399441055744.0", "mantissa": 52, "bias": 1023, "limit": "140737488355328.0",
    "root_half": "0x3fe6a09e667f3bcdLL", "turn": ("1.5707963267948966", "6.123233995736766e-17"),
    "ln2_high": "0.6931471806019545", "ln2_low": "-4.2009150726810846e-11", "least": -746.0, "most": 710.0,
    "sine": (-0.16666666666666663, 0.00833333333333013, -0.00019841269835557402, 2.755731549825422e-06,
             -2.5051009657015125e-08, 1.5909586259665044e-10),
    "cosine": (0.041666666666666664, -0.0013888888888886886, 2.4801587298014246e-05, -2.7557316893681153e-07,
               2.0876069826994487e-09, -1.137728782340167e-11),
    "exponential": (0.5000000000000001, 0.16666666666666669, 0.041666666666616864, 0.008333333333329503,
                    0.0013888888920770123, 0.00019841269865788537, 2.4801515879478315e-05, 2.7557264294679126e-06,
                    2.762261407861969e-07, 2.5102327723609146e-08),
    "logarithm": (0.6666666666666666, 0.4000000000000116, 0.2857142857063252, 0.22222222429714564, 0.18181791661479374,
                  0.1538645176833365, 0.13263207033098087, 0.13143683088185512),
    "tanh_above": (-1614.6876844170845, -99.28772310019186, -0.9643991794250523),
    "tanh_below": (4844.063053251255, 2235.4883906010045, 112.81167849163293, 1.0),
}  # fmt: skip
_SINGLE: dict[str, Any] = {
    "magic": "12582912.0f", "mantissa": 23, "bias": 127, "limit": "2097152.0f", "root_half": "0x3f3504f3",
    "turn": ("1.5707963705062866f", "-4.371138828673793e-08f", "-1.7151245100058819e-15f"),
    "ln2_high": "0.693115234375f", "ln2_low": "3.194618329871446e-05f", "least": -104.0, "most": 90.0,
    "sine": (-0.16666666663107013, 0.00833333159248636, -0.00019839938821894978, 2.7231313338415453e-06),
    "cosine": (0.04166666666369673, -0.0013888887436470086, 2.4800476921798433e-05, -2.7285423943765487e-07),
    "exponential": (0.5, 0.16666569628115477, 0.04166654542109553, 0.00836438069329107, 0.0013927684616575004),
    "logarithm": (0.6666666653497173, 0.40000137489384224, 0.28549080703876956, 0.23376880371521097),
    "tanh_above": (-0.333332819422, 0.133314422036, -0.0537397155531, 0.0206390887954, -0.00570498872745),
    "tanh_below": (1.0,),
}  # fmt: skip
_VARIABLES = {"exponential": "r", **dict.fromkeys(("sine", "cosine", "logarithm", "tanh_above", "tanh_below"), "z")}

_TEXT = """
INLINE real fused(real a, real b, real c) {{ return __builtin_elementwise_fma(a, b, c); }}
INLINE whole bits(real x) {{ return __builtin_bit_cast(whole, x); }}
INLINE real from_bits(whole x) {{ return __builtin_bit_cast(real, x); }}
INLINE real power_of_two(whole x) {{ return from_bits((x + {bias}) << {mantissa}); }}
INLINE real quadrant(real x) {{
return fused(x, (real)0.6366197723675814, (real){magic});
}}
INLINE real reduced(real x) {{
const real whole_part = quadrant(x) - (real){magic};
const real k = SELECT(__builtin_elementwise_abs(x) < (real){limit}, whole_part, (real)__builtin_nan(""));
{reduce}
}}
INLINE real sine_of(real r) {{ const real z = r * r; return fused(r * z, {sine}, r); }}
INLINE real cosine_of(real r) {{
const real z = r * r, half = (real)0.5 * z, w = (real)1 - half;
return w + fused(z * z, {cosine}, ((real)1 - w) - half);
}}
INLINE real sin(real x) {{
const real r = reduced(x);
const whole q = bits(quadrant(x));
const real size = SELECT((q & 1) != 0, cosine_of(r), sine_of(r));
return SELECT((q & 2) != 0, -size, size);
}}
INLINE real cos(real x) {{
const real r = reduced(x);
const whole q = bits(quadrant(x));
const real size = SELECT((q & 1) != 0, sine_of(r), cosine_of(r));
return SELECT(((q + 1) & 2) != 0, -size, size);
}}
INLINE real exp(real x) {{
const real above = SELECT(x < (real){least}, (real){least}, x);
const real y = SELECT((real){most} < above, (real){most}, above);
const real t = fused(y, (real)1.4426950408889634, (real){magic});
const real k = t - (real){magic};
const real r = fused(k, (real)-({ln2_low}), fused(k, (real)-({ln2_high}), y));
const whole power = bits(t) - bits((real){magic});
const real size = (real)1 + fused(r * r, {exponential}, r);
return size * power_of_two(power >> 1) * power_of_two(power - (power >> 1));
}}
INLINE real log(real x) {{
const whole exponent = (bits(x) - (whole){root_half}) >> {mantissa};
const real f = from_bits(bits(x) - (exponent << {mantissa})) - (real)1;
const real k = from_bits(exponent + bits((real){magic})) - (real){magic};
const real s = f / ((real)2 + f), z = s * s, half = (real)0.5 * f * f;
const real found = k * (real)({ln2_high})
- ((half - fused(s, fused(z, {logarithm}, half), k * (real)({ln2_low}))) - f);
const real edge = SELECT(x == (real)0, (real)-__builtin_inf(), (real)__builtin_nan(""));
return SELECT(x == (real)__builtin_inf(), x, SELECT(x > (real)0, found, edge));
}}
INLINE real tanh(real x) {{
const real size = __builtin_elementwise_abs(x), z = x * x;
const mask small = size < (real)0.625;
const real share = SELECT(small, z * {tanh_above}, (real)2)
/ SELECT(small, {tanh_below}, exp((real)2 * size) + (real)1);
return SELECT(small, fused(x, share, x), __builtin_elementwise_copysign((real)1 - share, x));
}}
"""


_ALWAYS = """
INLINE real sqrt(real x) {{ return __builtin_elementwise_sqrt(x); }}
INLINE real abs(real x) {{ return __builtin_elementwise_abs(x); }}
INLINE real min(real a, real b) {{ return SELECT(b < a, b, a); }}
INLINE real max(real a, real b) {{ return SELECT(a < b, b, a); }}
INLINE real atan2(real y, real x) {{ {atan2} }}
INLINE real pow(real x, real y) {{ {pow} }}
"""


def functions_source(lanes: int, single: bool) -> str:
    """Return the struct `functions` with sqrt, sin, cos, exp, log, tanh, atan2, pow, abs, min and max of a `real`."""
    kind = _SINGLE if single else _DOUBLE
    angle = ["const real r0 = x;"]
    angle += [f"const real r{i + 1} = fused(k, (real)-({part}), r{i});" for i, part in enumerate(kind["turn"])]
    angle.append(f"return r{len(kind['turn'])};")
    polynomials = {name: _polynomial(kind[name], variable) for name, variable in _VARIABLES.items()}
    text = _TEXT.format(reduce="\n".join(angle), **(kind | polynomials))
    two = {name: _each(name, lanes, "y, x" if name == "atan2" else "x, y") for name in ("atan2", "pow")}
    plain = "".join(f"INLINE real {name}(real x) {{ {_each(name, lanes, 'x')} }}\n" for name in _PLAIN)
    return (
        "struct functions {\n#if defined(__FMA__) || defined(__aarch64__)"
        f"{text}#else\n{plain}#endif\n{_ALWAYS.format(**two)}}};\n"
    )


_PLAIN = ("sin", "cos", "exp", "log", "tanh")


def _each(name: str, lanes: int, arguments: str) -> str:
    """Return code that calls Warp's scalar function lane by lane."""
    if lanes == 1:
        return f"return ::wp::{name}({arguments});"
    names = arguments.split(", ")
    values = (f"::wp::{name}({', '.join(f'{x}[{lane}]' for x in names)})" for lane in range(lanes))
    return f"return (real){{{', '.join(values)}}};"


def _polynomial(coefficients: Sequence[float], variable: str) -> str:
    """Return c0 + c1 x + ... in independent pairs (Estrin's scheme)."""
    terms, power = [f"(real)({c!r})" for c in coefficients], variable
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [f"fused({power}, {pair[1]}, {pair[0]})" if len(pair) == 2 else pair[0] for pair in pairs]
        power = f"({power} * {power})"
    return terms[0]


PROGRAM_NUMBERS = ("frames", "substeps", "worlds", "group")
"""First numbers of a kernel's table; `group` blocks share a sum of weight gradients."""

_ARRAY = re.compile(r"\breal \w+\[(\d+)\]")

_MOST_BITS = {"AVX512": 512, "AVX2": 256}
"""Bits of a vector register by torch's CPU capability; otherwise 128 on 64-bit ARM, and none elsewhere."""


@dataclass(frozen=True)
class Target:
    """A compilation target."""

    device: str  # "cpu" or "cuda"
    single: bool  # float32 instead of float64
    lanes: int = 1  # worlds in a vector

    def source(self, rows: Sequence[str], plain: Sequence[str], body: str) -> str:
        """Return the complete code of a kernel; `rows` and `plain` are the arrays of its table in order.

        `rows` arrays have one row per world and frame.
        """
        undefined = "\n".join(f"#undef {name}" for name in _MACROS)
        head = _NAMES.format(number="float" if self.single else "double", lanes=self.lanes, undefined=undefined)
        if self.device == "cpu":
            head += _CPU + self._vectors() + functions_source(self.lanes, self.single) + self._of_one() + self._rows()
            body = body.replace("::wp::", "functions::").replace("::one::", "functions_of_one::")
        else:
            head += _GPU
        table = [f"const int {name} = (int)table[{i}]; (void){name};" for i, name in enumerate(PROGRAM_NUMBERS)]
        place = len(PROGRAM_NUMBERS)
        for name in rows:
            table.append(f"number* {name} = (number*)table[{place}];")
            table += [
                f"const long long {name}_{by} = (long long)table[{place + 1 + i}]; (void){name}_{by};"
                for i, by in enumerate(("world", "frame", "element"))
            ]
            place += 4
        table += [f"number* {name} = (number*)table[{place + i}]; (void){name};" for i, name in enumerate(plain)]
        return "\n".join([head, *table, body])

    def stack(self, body: str) -> int:
        """Return how many bytes the arrays and values of a program may take on a stack."""
        numbers = sum(map(int, _ARRAY.findall(body))) + body.count("const real v")
        return (4 if self.single else 8) * self.lanes * numbers

    def _vectors(self) -> str:
        if self.lanes == 1:
            return _ONE.format(whole="int" if self.single else "long long")
        return _SEVERAL.format(lanes=self.lanes, numbers=", ".join(map(str, range(self.lanes))))

    def _of_one(self) -> str:
        """Return the scalar functions, for values equal in all lanes."""
        if self.lanes == 1:
            return "typedef functions functions_of_one;\n"
        kinds = f"typedef number real;\ntypedef bool mask;\ntypedef {'int' if self.single else 'long long'} whole;\n"
        return functions_source(1, self.single).replace("struct functions {", f"struct functions_of_one {{\n{kinds}", 1)

    def _rows(self) -> str:
        """Return the struct of the rows of a block's worlds.

        It writes from the last lane to the first, so that the lanes past the last world do not overwrite it.
        """
        lanes = range(self.lanes)
        get = "return at[0][i];" if self.lanes == 1 else f"return (real){{{', '.join(f'at[{n}][i]' for n in lanes)}}};"
        put = "at[0][i] = v;" if self.lanes == 1 else " ".join(f"at[{n}][i] = v[{n}];" for n in reversed(lanes))
        begin = " ".join(f"rows.at[{n}] = base + least(block * {self.lanes} + {n}, worlds - 1) * by;" for n in lanes)
        places = " ".join(
            f"rows.at[{n}] = base + (from + least(part * {self.lanes} + {n}, count - 1)) * by;" for n in lanes
        )
        step = " ".join(f"at[{n}] += by;" for n in lanes)
        return _ROWS.format(lanes=self.lanes, places=places, get=get, put=put, begin=begin, step=step)


def table_length(rows: Sequence[str], plain: Sequence[str]) -> int:
    """Return the number of words in a kernel's table."""
    return len(PROGRAM_NUMBERS) + 4 * len(rows) + len(plain)


@cache
def vector_lanes(single: bool) -> int:
    """Return how many numbers of a precision the CPU's vector registers hold; 1 without vector registers."""
    bits = _MOST_BITS.get(torch.backends.cpu.get_cpu_capability(), 0)
    if not bits and platform.machine().lower() in ("arm64", "aarch64"):
        bits = 128
    return max(bits // (32 if single else 64), 1)


_MACROS = (
    "LANES", "INLINE", "SELECT", "ANY", "ALL", "NOT", "LIVE", "ROWS", "KEEP", "KEPT", "STRIDE", "FUSE", "SUMS",
    "UNROLL", "FIRST", "LANE", "LANE_IS", "OPAQUE",
)  # fmt: skip
_NAMES = """
typedef {number} number;
{undefined}
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
#define LANE(x, n) (x)
#define LANE_IS(n) ((n) == 0)
"""

_SEVERAL = """
typedef number real __attribute__((ext_vector_type({lanes})));
typedef decltype(real() < real()) mask;
typedef mask whole;
#define ANY(condition) (__builtin_reduce_or(condition) != 0)
#define ALL(condition) (__builtin_reduce_and(condition) != 0)
#define FIRST(x) ((x)[0])
#define LANE(x, n) ((x)[n])
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
#define LANE(x, n) (x)
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
