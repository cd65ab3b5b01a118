# SPDX-License-Identifier: Apache-2.0
"""C files of a function with memory: header, source, and a timing program; or one header for C++."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Literal

from neurodyn.interop.texts import template
from neurodyn.multibody.trace import Graph, Scalar
from neurodyn.multibody.trace.source import statements


@dataclass(frozen=True)
class CArray:
    """An array that a C function takes, returns or keeps.

    Attributes:
        name: Name in C.
        width: Number of elements.
        about: Names or description of the elements.
        kind: Element type; integers are kept as `int`.
    """

    name: str
    width: int
    about: str = ""
    kind: Literal["real", "int"] = "real"


@dataclass(frozen=True)
class CFunction:
    """A C function of arrays.

    Attributes:
        name: Name, without the file's prefix.
        about: What it does.
        given: Input arrays.
        results: Output arrays; each may also be an input.
        body: Statements, in which the arrays and `state` are in scope.
        memory: Whether it reads or changes the memory; empty for neither.
    """

    name: str
    about: str
    given: tuple[CArray, ...]
    results: tuple[CArray, ...]
    body: str
    memory: Literal["", "reads", "changes"] = ""


@dataclass(frozen=True)
class CUnit:
    """Contents of a pair of C files.

    Attributes:
        title: First line of the header comment, such as "Policy ant-run of ant".
        about: Further comment lines.
        functions: The functions; the timing program calls the first.
        memory: Arrays kept between calls.
        numbers: Header constants by name, without prefix.
        helpers: Tables and static functions.
        begins: Initial values of the timed function's arguments, by name; a result NAME_next then replaces NAME.
        double: Whether the default precision is double.
    """

    title: str
    about: tuple[str, ...]
    functions: tuple[CFunction, ...]
    memory: tuple[CArray, ...] = ()
    numbers: dict[str, float | int] = field(default_factory=dict)
    helpers: str = ""
    begins: dict[str, tuple[float, ...]] = field(default_factory=dict)
    double: bool = False


def prelude(name: str) -> str:
    """Return the types and operations of compiled steps' code, for the types NAME_real and the constant NAME_DOUBLE."""
    return template("prelude.h", REAL=f"{name}_real", DOUBLE=f"{name.upper()}_DOUBLE")


_UNDEFINED = "".join(f"#undef {name}\n" for name in ("LANES", "SELECT", "ANY", "ALL", "NOT", "LANE", "MATH", "AFFINE"))

_FUNCTIONS = {"abs": "fabs", "min": "fmin", "max": "fmax"}

AFFINE = 32
"""Number of layer outputs summed at once; layers are padded to multiples."""


def math_calls(text: str) -> str:
    """Replace calls of Warp's math functions by C's."""
    return re.sub(r"::wp::(\w+)", lambda match: f"MATH({_FUNCTIONS.get(match[1], match[1])})", text)


def assignments(
    graph: Graph, results: Sequence[tuple[str, Sequence[Scalar]]], arrays: Sequence[str] | Mapping[str, str],
    hoisted: list[str] | None = None,
) -> str:  # fmt: skip
    """Return statements that compute the elements of arrays.

    `arrays` holds the arrays that contain the graph's inputs, or their C names. `hoisted` receives lines that may move
    out of a loop around the statements.
    """
    names = arrays if isinstance(arrays, Mapping) else {name: name for name in arrays}
    lefts = [(f"{name}[{i}] =", value) for name, values in results for i, value in enumerate(values)]
    text = statements(
        graph, lefts, {name: f"{text}[{{}}]" for name, text in names.items()}, in_rows=True, hoisted=hoisted
    )
    # Non-static tables in a function would be refilled at every call.
    return math_calls(re.sub(r"(?<!static )const int (\w+)\[\] =", r"static const int \1[] =", text))


def identifier(name: str) -> str:
    """Return a name as a valid C identifier."""
    text = re.sub(r"\W+", "_", name).strip("_").lower() or "model"
    return f"n_{text}" if text[0].isdigit() else text


def c_files(unit: CUnit, name: str) -> dict[str, str]:
    """Return the texts of NAME.h, NAME.c and main.c."""
    guard = f"{name.upper()}_H"
    header = [*_comment(unit), f"#ifndef {guard}", f"#define {guard}", "", _declarations(unit, name), ""]
    header += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    header += [f"{_about(one)}\n{_signature(one, name)};\n" for one in unit.functions]
    header += [f"{_RESET}\nvoid {name}_reset({name}_state *state);\n" if unit.memory else ""]
    header += ["#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    source = [f"/* {unit.title}: see {name}.h. */", f'#include "{name}.h"', "", *_includes(), _bodies(unit, name, "")]
    return {
        f"{name}.h": _join(header), f"{name}.c": _join(source), "main.c": _bench(unit, name, f'#include "{name}.h"')
    }  # fmt: skip


def cpp_files(unit: CUnit, name: str) -> dict[str, str]:
    """Return the texts of NAME.hpp, with a class over the same functions, and main.cpp."""
    upper = name.upper()
    text = [*_comment(unit), "#pragma once", "", *_includes(), f"#ifdef {upper}_EIGEN", "#include <Eigen/Core>"]
    text += ["#endif", "", f"namespace {name} {{", "", _declarations(unit, name), _bodies(unit, name, "inline ")]
    text += [*(_class(unit, name)), "", f"}}  // namespace {name}", "", _UNDEFINED]
    first = f'#include "{name}.hpp"\nusing namespace {name};'
    return {f"{name}.hpp": _join(text), "main.cpp": _bench(unit, name, first)}


_RESET = "/* Begins anew, with an empty memory. */"


def _join(parts: Sequence[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _includes() -> list[str]:
    return [*(f"#include <{file}.h>" for file in ("math", "stdbool", "string")), ""]


def _comment(unit: CUnit) -> list[str]:
    paragraphs = [unit.title + ", written by neurodyn.", *unit.about]
    paragraphs.append(
        "Functions are reentrant: what is kept between calls is in the state, which the caller holds and resets. "
        "Results may be written over what is given. Nothing is allocated; link with -lm."
    )
    lines = [line for text in paragraphs for line in (*wrap(text.replace("*/", "* /"), 110), "")]
    return ["/*", *(f" * {line}".rstrip() for line in lines[:-1]), " */"]


def _declarations(unit: CUnit, name: str) -> str:
    upper = name.upper()
    lines = [f"#ifndef {upper}_DOUBLE", f"#define {upper}_DOUBLE {int(unit.double)} /* precision of all numbers */"]
    lines += ["#endif", f"#if {upper}_DOUBLE", f"typedef double {name}_real;", "#else", f"typedef float {name}_real;"]
    lines += ["#endif", ""]
    known = {array.name: array.width for one in unit.functions for array in (*one.given, *one.results)}
    numbers = {**{f"{key}_size": width for key, width in known.items()}, **unit.numbers}
    lines += [f"#define {upper}_{key.upper()} {value!r}" for key, value in numbers.items()]
    if unit.memory:
        lines += ["", "typedef struct {"]
        kinds = {"real": f"{name}_real", "int": "int"}
        for array in unit.memory:
            remark = f" /* {array.about} */" if array.about else ""
            lines.append(f"  {kinds[array.kind]} {array.name}[{array.width}];{remark}")
        lines += [f"}} {name}_state;"]
    return "\n".join([*lines, ""])


def _bodies(unit: CUnit, name: str, inline: str) -> str:
    parts = [prelude(name), math_calls(unit.helpers)]
    for one in unit.functions:
        parts.append(f"{inline}{_signature(one, name)} {{\n{one.body}\n}}\n")
    if unit.memory:
        parts.append(f"{inline}void {name}_reset({name}_state *state) {{\nmemset(state, 0, sizeof *state);\n}}\n")
    return "\n".join(parts).replace("@UPPER", name.upper()).replace("@", name)


def _arrays(one: CFunction) -> list[tuple[CArray, bool]]:
    arrays = [*((array, False) for array in one.given), *((array, True) for array in one.results)]
    return [(array, writes) for array, writes in arrays if array.width]


def _signature(one: CFunction, name: str) -> str:
    state = {"": [], "reads": [f"const {name}_state *state"], "changes": [f"{name}_state *state"]}[one.memory]
    arrays = [f"{'' if writes else 'const '}{name}_real *{array.name}" for array, writes in _arrays(one)]
    return f"void {name}_{one.name}({', '.join([*state, *arrays])})"


def _about(one: CFunction) -> str:
    lines = wrap(one.about, 110)
    for array, writes in _arrays(one):
        text = f"{array.name}[{array.width}]{' (result)' if writes else ''}"
        lines += wrap(f"{text}: {array.about}" if array.about else text, 110, subsequent_indent="    ")
    return "/* " + "\n * ".join(lines) + " */"


def _class(unit: CUnit, name: str) -> list[str]:
    lines = ["class Model {", " public:"]
    if unit.memory:
        lines += ["  Model() { reset(); }", f"  void reset() {{ {name}_reset(&state_); }}"]
    for one in unit.functions:
        arrays = _arrays(one)
        state = ["&state_"] if one.memory else []
        const = "" if one.memory == "changes" else " const"
        for eigen in (False, True):
            types = [_cpp_type(array, writes, name, eigen) for array, writes in arrays]
            given = ", ".join(f"{kind}{array.name}" for kind, (array, _) in zip(types, arrays, strict=True))
            passed = ", ".join([*state, *(array.name + (".data()" if eigen else "") for array, _ in arrays)])
            method = f"  void {one.name}({given}){const} {{ {name}_{one.name}({passed}); }}"
            lines += [f"#ifdef {name.upper()}_EIGEN", method, "#endif"] if eigen else [method]
    lines += [*(["", " private:", f"  {name}_state state_;"] if unit.memory else []), "};"]
    return lines


def _cpp_type(array: CArray, writes: bool, name: str, eigen: bool) -> str:
    if not eigen:
        return f"{'' if writes else 'const '}{name}_real *"
    vector = f"Eigen::Matrix<{name}_real, {array.width}, 1>"
    return f"Eigen::Ref<{vector}> " if writes else f"const Eigen::Ref<const {vector}> &"


def _bench(unit: CUnit, name: str, include: str) -> str:
    """Return a program that calls the first function repeatedly."""
    one, arrays, cpp = unit.functions[0], _arrays(unit.functions[0]), ".hpp" in include
    how = "g++ -std=c++11" if cpp else "gcc -std=c99"
    how += f" -O2 -march=native -ffp-contract=fast -fno-math-errno main.{'cpp' if cpp else 'c'}"
    how += f"{'' if cpp else f' {name}.c'} -o bench -lm && ./bench [steps]"
    declared = [f"  {name}_real {array.name}[{array.width}];" for array, _ in arrays]
    began: list[str] = []
    if unit.memory:
        declared.append(f"  {name}_state memory;")
        began.append(f"{name}_reset(&memory);")
    changed, carried = [], []
    for array in (array for array, writes in arrays if not writes):
        each = f"for (int i = 0; i < {array.width}; ++i) {array.name}[i] ="
        if array.name not in unit.begins:
            changed.append(f"    {each} ({name}_real)((step * 7 + i * 3) % 13 - 6) / 8;")
            continue
        values = ", ".join(f"{value!r}" for value in unit.begins[array.name])
        declared.append(f"  static const double first_{array.name}[] = {{{values}}};")
        began.append(f"{each} ({name}_real)first_{array.name}[i];")
        if any(result.name == f"{array.name}_next" for result in one.results):
            carried.append(f"    {each} {array.name}_next[i];")
    passed = [*(["&memory"] if one.memory else []), *(array.name for array, _ in arrays)]
    return template(
        "timing.c", HOW=how, INCLUDE=include, DECLARED="\n".join(declared), BEGAN="\n      ".join(began),
        CHANGED="\n".join(changed), CALL=f"{name}_{one.name}({', '.join(passed)});", LAST=one.results[0].name,
        CARRIED="\n".join(carried),
    )  # fmt: skip
