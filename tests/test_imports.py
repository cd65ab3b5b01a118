# SPDX-License-Identifier: Apache-2.0
"""What is imported when: a quick command line, and learning from logs where there is no simulator."""

import graphlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import grimp
import pytest

from neurodyn.robots import load
from neurodyn.sim import generate
from tests import plant

NO_SIMULATOR = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"newton", "mujoco", "mujoco_warp"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""
# Another checkout may be the one that is installed.
HERE = os.pathsep.join([str(plant.repository() / "src"), str(plant.repository())])
HEAVY = ("torch", "newton", "warp", "mujoco", "matplotlib", "tensorboard", "h5py", "imageio", "viser", "wandb")


def python(script: str, *arguments: str | Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=plant.repository(),
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": HERE, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(script: str, **environment: str) -> set[str]:
    shown = python(f"{script}\nimport sys\nprint('|'.join(sys.modules))", **environment)
    return set(shown.splitlines()[-1].split("|"))


def require_light(scripts: Sequence[str], heavy: Sequence[str]) -> None:
    """Run scripts one after the other in a fresh process: none imports a heavy module."""
    check = f"\nimport sys\nassert not (heavy := set({heavy!r}) & set(sys.modules)), ({{script!r}}, heavy)"
    python("\n".join(script + check.format(script=script) for script in scripts))


def test_nothing_heavy_is_imported_before_it_is_needed():
    scripts = (
        "import neurodyn",
        "import neurodyn.cli.main",
        "from neurodyn.cli.main import run; run(['--help'])",
        "from neurodyn.cli.main import run; run(['--version'])",
        "from neurodyn.cli.main import run; run(['trian'])",
        "import neurodyn.core.artifacts, neurodyn.core.config",
        "import neurodyn.core.description.mechanism, neurodyn.core.description.spec",
        "import neurodyn; neurodyn.robots.load('cartpole')",
    )
    require_light(scripts, HEAVY)


def test_the_help_of_a_verb_imports_no_learning_and_no_simulator():
    verbs = (
        "train", "finetune", "evaluate", "generate", "import", "inspect", "demo", "view", "identify", "discover",
        "sweep", "control", "imitate", "init", "check", "hybrid", "adapt", "policy train", "policy play",
        "policy evaluate", "policy log", "policy online",
    )  # fmt: skip
    script = """
from neurodyn.cli.main import run
try:
    run("{verb} --help".split())
except SystemExit as stop:
    assert not stop.code
"""
    heavy = ("newton", "warp", "mujoco", "matplotlib", "h5py", "torch", "neurodyn.learn.loop")
    require_light([script.format(verb=verb) for verb in verbs], heavy)


def test_importing_the_package_changes_nothing_of_pythons():
    python("""
import builtins, gc, sys, types
before = builtins.__import__, list(sys.meta_path), gc.isenabled(), gc.get_freeze_count()
import neurodyn, neurodyn.cli.main
rooms = [getattr(neurodyn, room) for room in neurodyn.__all__ if isinstance(getattr(neurodyn, room), types.ModuleType)]
assert before == (builtins.__import__, list(sys.meta_path), gc.isenabled(), gc.get_freeze_count())
assert all(type(room) is types.ModuleType for room in (neurodyn, *rooms)) and len(rooms) > 15
""")


def test_heavy_imports_are_detected():
    with pytest.raises(AssertionError, match=r"'import numpy', \{'numpy'\}"):
        require_light(["import sys", "import numpy"], ["numpy"])


@pytest.mark.slow
def test_every_module_but_the_solvers_is_imported_without_a_simulator_and_without_git(tmp_path: Path):
    """A solver is a subclass of Newton's; everything else imports Newton inside functions. rsl_rl imports GitPython."""
    script = """
import importlib, os, pkgutil, neurodyn
os.environ.pop("GIT_PYTHON_REFRESH", None)
for info in pkgutil.walk_packages(neurodyn.__path__, "neurodyn.", onerror=lambda name: None):
    if not info.name.startswith("neurodyn.solvers."):
        importlib.import_module(info.name)
"""
    modules = loaded(NO_SIMULATOR + script, PATH=str(tmp_path))
    assert [name for name in ("newton", "mujoco", "mujoco_warp") if name in modules] == []
    assert "neurodyn.evaluate.simulated" in modules


LEARN_FROM_LOGS = (
    NO_SIMULATOR
    + """
import json
from pathlib import Path
from neurodyn.cli.main import run

data, folder = sys.argv[1], Path(sys.argv[2])
settings = folder / "settings.yaml"
settings.write_text('''
net: {kind: gru, width: 8, depth: 1, head: 8}
steps: 20
phases: [{share: 1, rate: 1.0e-2, batch: 16, frames: 12}]
validations: 2
validation_rollouts: 8
''')
def call(*words):
    assert run([str(w) for w in words]) == 0, words

call("robots")
call("inspect", data, "--plot", folder / "plot.png")
call("train", "cartpole", "--data", data, "--out", folder / "run", "--size", settings)
call("finetune", folder / "run", "--data", data, "--out", folder / "tuned", "--size", settings)

import neurodyn
from neurodyn.data.store import Store
from neurodyn.evaluate import beside_log
model = neurodyn.load(folder / "tuned")
report = beside_log(model, neurodyn.robots.load("cartpole"), Store.open(data), split=None, horizon=10).plain()
assert report["finite_fraction"] == 1.0 and report["joint_rad"] > 0

try:
    neurodyn.sim.build(neurodyn.robots.load("cartpole"))
except neurodyn.InputError as error:
    assert "pip install 'neurodyn[newton]'" in str(error) and len(str(error).splitlines()) == 1
assert run(["generate", "cartpole", "--transitions", "10", "--out", str(folder / "g.h5")]) == 2
assert not [name for name in ("newton", "mujoco") if name in sys.modules]
print("learned")
"""
)


@pytest.mark.slow
def test_learning_from_logs_works_where_newton_cannot_be_imported(plant_file: Path, tmp_path: Path):
    assert python(LEARN_FROM_LOGS, plant_file, tmp_path).splitlines()[-1] == "learned"


def test_rooms_import_one_way():
    """The order of the rooms is a contract, written in pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([linter], capture_output=True, text=True, check=False, cwd=plant.repository())
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("name", "unneeded"), [("cartpole", ("newton", "warp", "scipy")), ("ant", ("newton", "scipy"))]
)
def test_loading_a_shipped_model_imports_what_it_needs(name: str, unneeded: tuple[str, ...]):
    """The first `load` is mostly imports; a model without contact points needs no kernels."""
    modules = loaded(f"import neurodyn; neurodyn.load('pretrained:{name}')")
    assert [package for package in unneeded if package in modules] == []


def test_a_robot_of_ones_own_is_declared_checked_and_compiled_without_warp(tmp_path: Path):
    """Warp is a fifth of a start, Newton more than half; plain MuJoCo needs neither, and no page is drawn."""
    pytest.importorskip("mujoco", reason="the extra `sim` is not installed")
    script = f"""
from neurodyn.cli.main import run
from neurodyn.evaluate.checks import run as checks
from neurodyn.robots import asset_path, load
checks.CHECKS.remove("engine_agreement")  # which compiles the engine
robot, run_folder = {str(tmp_path / "robot")!r}, {str(tmp_path / "run")!r}
assert run(["init", str(asset_path(load("planar-runner"))), "--out", robot]) == 0
assert run(["hybrid", robot, "--out", run_folder]) == 0
run(["check", robot])
"""
    unneeded = ("newton", "warp", "scipy", "matplotlib", "imageio", "sympy", "torch._dynamo", "tensordict")
    require_light([script], unneeded)


def test_training_on_data_of_an_unchanged_robot_imports_no_simulator(tmp_path: Path):
    pytest.importorskip("newton", reason="the extra `sim` is not installed")
    generate(load("cartpole"), transitions=400, worlds=4, out=tmp_path / "data.h5")
    script = '''
import sys
from pathlib import Path
from neurodyn.learn import train
folder = Path(sys.argv[1])
(folder / "small.yaml").write_text("""
net: {kind: mlp, width: 8, depth: 1}
optimiser: adam
steps: 1
phases: [{share: 1, rate: 1.0e-2, batch: 16, frames: 1}]
validations: 1
validation_rollouts: 2
validation_frames: 4
""")
train("cartpole", folder / "data.h5", folder / "run", size=str(folder / "small.yaml"))
print("|".join(name for name in ("newton", "mujoco") if name in sys.modules))
'''
    assert python(script, tmp_path).splitlines()[-1] == ""


def test_no_import_hides_in_a_string():
    """Gymnasium's registry takes strings; rsl_rl's settings, which a docstring shows, do too."""
    known = {"interop/gymnasium/registration.py", "policy/learners/ppo.py"}
    package = plant.repository() / "src/neurodyn"
    hidden = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if re.search(r"""["']neurodyn\.[\w.]+:\w+["']""", file.read_text())
    }
    assert hidden <= known


def test_no_two_files_import_each_other_not_even_for_types():
    """Registries may name the types of files that read them."""
    named = ("dynamics.kinds", "interop.formats", "nets.networks")
    assert_no_circle({f"neurodyn.{name}" for name in named}, grimp.build_graph("neurodyn", cache_dir=None))


def test_no_two_files_import_each_other_not_even_inside_functions():
    assert_no_circle(set(), grimp.build_graph("neurodyn", cache_dir=None, exclude_type_checking_imports=True))


def assert_no_circle(left_out, graph):
    """Fail if imports among the package's files, those inside functions included, form a circle."""
    files = graph.modules - left_out
    assert len(files) > 300
    imports = {file: graph.find_modules_directly_imported_by(file) & files for file in files}
    graphlib.TopologicalSorter(imports).prepare()
