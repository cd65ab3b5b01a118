# SPDX-License-Identifier: Apache-2.0
"""The command `neurodyn` and its verbs; bad input is answered in one line with exit code 2."""

import contextlib
import errno
import functools
import gc
import inspect
import io
import os
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neurodyn.cli import control, data, demo, evaluate, installation, policy, robots, train
from neurodyn.cli.terminal.arguments import completion_script, parse, require_usable_values
from neurodyn.core.artifacts import STANDARD_OUTPUT
from neurodyn.core.errors import InputError, Notice, suggestion
from neurodyn.core.interruption import Interrupted, stoppable
from neurodyn.core.provenance import __version__
from neurodyn.core.registry import Registry
from neurodyn.core.workers import FORWARD_ONLY


@dataclass(frozen=True)
class Verb:
    """One verb of the command line."""

    help: str
    """One-line summary."""
    call: "Callable[..., None] | Registry[Verb]"
    """Its function, whose signature and docstring define flags and help; or a registry of further verbs."""
    parallel: bool = False
    """Whether several processes can run it together (`learn.devices`)."""


POLICY_ACTIONS: Registry[Verb] = Registry(
    "policy action",
    train=Verb("train a policy in a simulator or in a model", policy.train, parallel=True),
    play=Verb("record a policy in several dynamics side by side", policy.play),
    evaluate=Verb("measure returns in several dynamics, and how much they differ", policy.evaluate),
    distill=Verb("train a student policy that observes less than its teacher", policy.distill),
    **{"import": Verb("import a policy from another library", policy.import_)},
    log=Verb("record policies in the simulator, as a dataset", policy.log),
    online=Verb("train policy and model in turns", policy.online),
)
"""Actions on policies, by the word after `neurodyn policy`."""


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that makes a shell complete verbs, flags and their values at TAB.

    Args:
        shell: bash, zsh or fish.

    Example:
        echo 'source <(neurodyn completion bash)' >> ~/.bashrc
        neurodyn completion zsh > ~/.zfunc/_neurodyn
        neurodyn completion fish > ~/.config/fish/completions/neurodyn.fish
    """
    print(completion_script(VERBS, shell), end="")


VERBS: Registry[Verb] = Registry(
    "verb",
    demo=Verb("start here: a worn robot, its model, and a policy that works", demo.demo),
    examples=Verb("write the documentation's examples into a folder", demo.examples),
    init=Verb("write a declaration of your own robot from its URDF, MJCF or USD", robots.init),
    robots=Verb("list robots and their pretrained models", robots.robots),
    check=Verb("check whether a model can be learned from a robot's simulator", robots.check),
    generate=Verb("make a dataset from an analytic simulator", data.generate),
    **{"import": Verb("make a dataset from logs", data.import_)},
    inspect=Verb("show the contents of a dataset or a log", data.inspect),
    train=Verb("train a model on a dataset", train.train, parallel=True),
    sweep=Verb("train with many settings and seeds, on many cores or machines", train.sweep),
    finetune=Verb("fine-tune a trained model on other data", train.finetune, parallel=True),
    adapt=Verb("adapt a robot's model to its logs, in one command", train.adapt),
    **{"next-motion": Verb("propose a safe motion to log next, or play it", train.next_motion)},
    identify=Verb("identify parameters from logs, and train networks in the model", train.identify),
    hybrid=Verb("write a declared robot as a hybrid model, without any data", robots.hybrid),
    evaluate=Verb("evaluate a model against its simulator or logs", evaluate.evaluate),
    compare=Verb("compare runs and policies, with seeds grouped", evaluate.compare),
    discover=Verb("find from a log where a model needs networks", train.discover),
    view=Verb("record a model and its simulator side by side", evaluate.view),
    control=Verb("plan in a model at every frame, and act on a plant", control.control),
    imitate=Verb("train a network that imitates convex MPC for walking", control.imitate),
    policy=Verb("train, play, evaluate and log policies in any dynamics", POLICY_ACTIONS),
    doctor=Verb("show what works on this machine, and what is missing", installation.doctor),
    export=Verb("export a model or policy as ONNX or C, or data for other tools", evaluate.export),
    completion=Verb("complete verbs, flags and values with TAB in your shell", completion),
)
"""All verbs."""


_GC_THRESHOLD = 50_000, 20, 100
"""Allocations before a collection, by generation: Python's 700 walk the objects of torch and Newton dozens of times."""


_OF_PATHS = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR})
"""Errors of a path that was given, which no verb looks for everywhere."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits the process with 0 (done), 2 (bad input) or 1 (internal error)."""
    os.environ.setdefault(FORWARD_ONLY, "1")
    gc.set_threshold(*_GC_THRESHOLD)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every locale has a micro sign
    code = run(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
    except OSError as error:
        code = _report_lost_output(error)
    gc.freeze()  # the collection at Python's exit is a quarter of `evaluate pretrained:cartpole`: 11.4 CPU-s, now 8.1
    sys.exit(code)


def _report_lost_output(error: OSError) -> int:
    """Report that results could not be printed; discard remaining output."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    print(
        f"neurodyn: standard output: cannot be written ({error.strerror}); valid: a place with space", file=sys.stderr
    )
    return 2


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = functools.partial(_show_warning, warnings.showwarning)
            with stoppable(), _joined_group():
                return _dispatch(arguments)
    except InputError as error:
        _complain(f"neurodyn: {error}{_examples(arguments)}")
        return 2
    except (RuntimeError, MemoryError) as error:
        from neurodyn.cli.terminal.flags import out_of_memory

        short = out_of_memory(error)
        if short is None:
            raise
        _complain(f"neurodyn: {short}")
        return 2
    except KeyboardInterrupt as stop:
        stop = stop if isinstance(stop, Interrupted) else Interrupted(130)
        print(f"neurodyn: {stop}", file=sys.stderr)
        return stop.code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        if error.errno in _OF_PATHS and error.filename is not None:
            _complain(f"neurodyn: {error.filename}: cannot be used ({error.strerror}); give another path")
            return 2
        if error.errno != errno.ENOSPC or error.filename is not None:  # only for a full terminal or output file
            raise
        return _report_lost_output(error)


def _examples(arguments: list[str]) -> str:
    """Return how to get the documentation's files, if arguments name some and the folder is missing."""
    named = any(word.startswith(("examples/", "./examples/")) for word in arguments)
    return "; `neurodyn examples` writes examples/" if named and not Path("examples").exists() else ""


def _complain(text: str) -> None:
    """Print an error: one line for programs, word-wrapped in a terminal, at most 80 columns."""
    if sys.stderr.isatty():
        columns = min(80, shutil.get_terminal_size().columns)
        text = textwrap.fill(text, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr)


def _is_distributed() -> bool:
    """Return whether this is one of several processes, without importing torch, which takes a second."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return False
    from neurodyn.learn.devices import several

    return several()


def _joined_group() -> contextlib.AbstractContextManager[Any]:
    """Join the processes that torchrun has started beside this one, if any."""
    if not _is_distributed():
        return contextlib.nullcontext()
    from neurodyn.learn.devices import joined

    return joined()


def _show_warning(show: Callable[..., None], message: Warning | str, category: type[Warning], *where: Any) -> None:
    """Print a notice as one line, and other warnings as Python does."""
    if issubclass(category, Notice):
        print(f"neurodyn: note: {message}", file=sys.stderr)
    else:
        show(message, category, *where)


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"neurodyn {__version__}")
        return 0
    return _call(VERBS, "neurodyn", arguments)


def every_verb(verbs: Registry[Verb] = VERBS, before: str = "") -> dict[str, Verb]:
    """Return all verbs by name, including those of groups, such as "policy train"."""
    every: dict[str, Verb] = {}
    for name, verb in verbs.items():
        group = verb.call
        every |= every_verb(group, f"{before}{name} ") if isinstance(group, Registry) else {before + name: verb}
    return every


def _call(verbs: Registry[Verb], command: str, arguments: list[str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in {"--help", "-h"}:
        _list(verbs, command)
        return 0
    if name.startswith("-"):
        raise InputError(f"unknown flag {name}{suggestion(name, ('--help', '--version'))} (see {command} --help)")
    if os.environ.get("NO_COLOR"):
        os.environ.setdefault("PYTHON_TYRO_ANSI_CODES", "False")  # read when tyro is imported
    called, command = verbs[name].call, f"{command} {name}"
    if isinstance(called, Registry):
        return _call(called, command, arguments[1:])
    bound = parse(called, command, arguments[1:])
    if bound is None:
        return 0
    if _is_distributed() and not verbs[name].parallel:
        raise InputError(f"{command.partition(' ')[2]} runs in one process; valid: neurodyn without torchrun")
    require_usable_values(bound)
    if len(bound.keywords.get("gpu_ids", ())) > 1 and not _is_distributed():
        from neurodyn.learn.devices import launch

        command_line = [sys.executable, "-m", "neurodyn", *command.split()[1:], *arguments[1:]]
        return launch(len(bound.keywords["gpu_ids"]), command_line)
    with _tables_to_stderr(bound), _working(command, bound):
        try:
            bound()
        except KeyboardInterrupt as stop:
            resumable = "resume" in inspect.signature(called).parameters
            raise _stop_error(stop, _resuming(command, arguments[1:]) if resumable else "") from None
    return 0


def _working(command: str, bound: "functools.partial[Any]") -> contextlib.AbstractContextManager[Any]:
    """Show on a terminal that a verb is working while it shows nothing itself; not for live views."""
    if not sys.stderr.isatty() or bound.keywords.get("live"):
        return contextlib.nullcontext()
    from neurodyn.cli.terminal.console import ProgressBar

    return ProgressBar(command.partition(" ")[2])


def _resuming(command: str, arguments: Sequence[str]) -> str:
    """Say which command goes on with the work of one that stops; torchrun has started all of its processes or none."""
    words = [*command.split(), *arguments, *([] if "--resume" in arguments else ["--resume"])]
    if _is_distributed():
        from neurodyn.learn.devices import launched

        if os.environ.get("LOCAL_WORLD_SIZE") != os.environ["WORLD_SIZE"]:  # how they find each other is unknown
            return "the same command on each machine goes on with --resume"
        if not launched():
            words = ["torchrun", "--nproc-per-node", os.environ["WORLD_SIZE"], "-m", *words]
    return f"`{shlex.join(words)}` goes on"


def _stop_error(stop: KeyboardInterrupt, resuming: str) -> Interrupted:
    """Return the exception that ends a stopped verb, with the command that resumes it, if there is one."""
    known = stop if isinstance(stop, Interrupted) else Interrupted(130)
    if resuming:
        return Interrupted(known.code, f"{known.what or known}; {resuming}")
    return Interrupted(known.code, known.what or "interrupted; nothing unfinished is left")


def _list(verbs: Registry[Verb], command: str) -> None:
    what = verbs.what.rpartition(" ")[2].upper()
    print(f"usage: {command} {what} ...    ({command} {what} --help for details)")
    widest = max(map(len, verbs))
    print(*(f"  {name:<{widest}}  {verb.help}" for name, verb in verbs.items()), sep="\n")


@contextlib.contextmanager
def _tables_to_stderr(bound: "functools.partial[Any]") -> Iterator[None]:
    """If a result goes to standard output (--json -), print everything else to standard error."""
    if STANDARD_OUTPUT not in bound.keywords.values():
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


if __name__ == "__main__":
    main()
