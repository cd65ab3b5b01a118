# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

import neurodyn.solvers


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_importing_the_room_imports_no_newton():
    result = python("import sys, neurodyn.solvers; assert not {'newton', 'warp', 'torch'} & set(sys.modules)")
    assert result.returncode == 0, result.stderr


def test_without_newton_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['newton'] = None\n"
        "from neurodyn.core.errors import InputError\n"
        "try:\n    from neurodyn.solvers import SolverNeural\n"
        "except InputError as error:\n    print(error)"
    )
    result = python(code)
    assert "neurodyn[newton]" in result.stdout, result.stderr
    assert len(result.stdout.splitlines()) == 1


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="SolverUnknown"):
        _ = neurodyn.solvers.SolverUnknown
