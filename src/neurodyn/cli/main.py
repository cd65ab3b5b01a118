# SPDX-License-Identifier: Apache-2.0
"""The command `neurodyn`: one verb, one file; bad input ends in one line and exit code 2."""

import contextlib
import importlib
import io
import re
import sys
from collections.abc import Callable
from typing import Any

from neurodyn.core.errors import InputError, choices

VERBS = {
    "demo": "from nothing to a trained model beside its simulator, with a report",
    "robots": "list robots, and what is pretrained for each",
    "generate": "make a dataset from an analytic simulator",
    "import": "make a dataset from logs",
    "inspect": "show what a dataset holds",
    "train": "train a model on a dataset",
    "finetune": "adapt a trained model to other data",
    "identify": "identify parameters, and train networks in their equations, from a dataset",
    "evaluate": "measure a model beside its simulator, or beside logs",
    "discover": "find which augmentations of the dynamics a log asks for",
    "view": "record what a model does beside its simulator",
    "policy": "train, play and evaluate policies in any dynamics (policy train, policy play, policy evaluate)",
    "export": "write a model or a policy as an ONNX file",
}
_USAGE = "usage: neurodyn VERB [ARGUMENTS]    (neurodyn VERB --help for the arguments of a verb)"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; ends the process with 0 (done), 2 (bad input) or 1 (a fault of ours)."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        return _dispatch(arguments)
    except InputError as error:
        print(f"neurodyn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print(f"neurodyn: {str(stop) or 'interrupted; what was finished is kept'}", file=sys.stderr)
        return getattr(stop, "code", 130)  # a training that was stopped says by which signal
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def _dispatch(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else "--help"
    if verb in {"--help", "-h"}:
        print(_USAGE, *(f"  {name:<10}{text}" for name, text in VERBS.items()), sep="\n")
        return 0
    if verb == "--version":
        from importlib.metadata import version

        print(f"neurodyn {version('neurodyn')}")
        return 0
    if verb not in VERBS:
        raise InputError(f"unknown verb {verb!r}; valid: {choices(VERBS)}")
    if verb == "policy":
        return _act(arguments[1:])
    call = _parse(_function(verb), verb, arguments[1:])
    call()
    return 0


def _act(arguments: list[str]) -> int:
    """Do one of the things that can be done with policies."""
    from neurodyn.cli.policy import ACTIONS

    action = arguments[0] if arguments else "--help"
    if action in {"--help", "-h"}:
        print("usage: neurodyn policy ACTION [ARGUMENTS]")
        print(*(f"  {name:<10}{(f.__doc__ or '').splitlines()[0]}" for name, f in ACTIONS.items()), sep="\n")
        return 0
    if action not in ACTIONS:
        raise InputError(f"unknown action {action!r} of policy; valid: {choices(ACTIONS)}")
    call = _parse(ACTIONS[action], f"policy {action}", arguments[1:])
    call()
    return 0


def _function(verb: str) -> Callable[..., None]:
    module = importlib.import_module(f"neurodyn.cli.{verb}_" if verb == "import" else f"neurodyn.cli.{verb}")
    return getattr(module, f"{verb}_" if verb == "import" else verb)


def _parse(function: Callable[..., None], verb: str, arguments: list[str]) -> Callable[[], Any]:
    """Parse the arguments of a verb without running it.

    Raises:
        InputError: The arguments are wrong; the parser's page of explanation is folded into one line.
    """
    import functools
    import inspect

    import tyro

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    # The parser reads the signature; what it calls only binds, so that errors of the verb itself stay apart.
    bind.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(bind, args=arguments, prog=f"neurodyn {verb}", config=(tyro.conf.OmitArgPrefixes,))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(_one_line(complaint.getvalue(), verb)) from None


def _one_line(page: str, verb: str) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", page)
    plain = re.sub(r"[─-╿]+", " ", plain)
    words = re.sub(r"\s+", " ", plain).strip()
    words = re.sub(r"^Parsing error\s*|^Required options?\s*|^Unrecognized options?\s*", "", words)
    return f"{verb}: {words.split(' For full helptext')[0]} (see neurodyn {verb} --help)"


if __name__ == "__main__":
    main()
