"""Programs that call an exported unit for every row of a file of numbers."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from neurodyn.interop.c_code.source import CFunction, CUnit
from neurodyn.interop.formats import CODE

FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_DRIVER = """#include <stdio.h>
#include "unit.h"

int main(void) {{
{declared}
  while (1) {{
{read}
    {call};
{written}
  }}
}}
"""


def compiled(unit: CUnit, driver: str, folder: Path, *, double: bool = True) -> Path:
    """Write a unit and the source of its driver into a folder; return the program."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {**CODE["c"](unit, "unit"), "driver.c": driver}.items():
        (folder / name).write_text(text)
    precise = f"-DUNIT_DOUBLE={int(double)}"
    command = [compiler, *FLAGS, precise, "unit.c", "driver.c", "-o", "driver", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "driver"


class Program:
    """A compiled unit; rows of numbers go in and come out, in double precision."""

    def __init__(self, unit: CUnit, folder: Path, function: str | None = None, *, double: bool = True) -> None:
        self._one = unit.functions[0]
        if function is not None:
            self._one = next(one for one in unit.functions if one.name == function)
        one = self._one  # others take time to compile, and alone the first uses tables and networks
        used = tuple(other for other in unit.functions if other is one or f"@_{other.name}(" in one.body)
        unit = replace(unit, functions=used, helpers=unit.helpers if unit.functions[0] in used else "")
        self._path = compiled(unit, self._driver(unit, self._one), folder, double=double)

    def _driver(self, unit: CUnit, one: CFunction) -> str:
        arrays = [array for array in (*one.given, *one.results) if array.width]
        declared = [f"  unit_real {array.name}[{array.width}];" for array in arrays] + ["  double x;"]
        if unit.memory:
            declared += ["  unit_state state;", "  unit_reset(&state);"]
        read = "if (fread(&x, sizeof x, 1, stdin) != 1) return 0;"
        reading = [
            f"    for (int i = 0; i < {array.width}; ++i) {{ {read} {array.name}[i] = (unit_real)x; }}"
            for array in one.given
            if array.width
        ]
        writing = [
            f"    for (int i = 0; i < {array.width}; ++i) {{ x = {array.name}[i]; fwrite(&x, sizeof x, 1, stdout); }}"
            for array in one.results
        ]
        passed = [*(["&state"] if one.memory else []), *(array.name for array in arrays)]
        return _DRIVER.format(
            declared="\n".join(declared), read="\n".join(reading), written="\n".join(writing),
            call=f"unit_{one.name}({', '.join(passed)})",
        )  # fmt: skip

    def __call__(self, *given: np.ndarray) -> list[np.ndarray]:
        """Return the results, shape [rows, width] each, of arrays [rows, width]; the memory goes from row to row."""
        rows = np.concatenate([np.asarray(x, dtype=np.float64) for x in given], axis=1)
        found = subprocess.run([self._path], input=rows.tobytes(), capture_output=True, check=False)
        assert found.returncode == 0, found.stderr.decode()
        widths = [array.width for array in self._one.results]
        numbers = np.frombuffer(found.stdout).reshape(len(rows), sum(widths))
        return np.split(numbers, np.cumsum(widths)[:-1], axis=1)
