# SPDX-License-Identifier: Apache-2.0
"""Any verb ends in one line at the first Ctrl-C or SIGTERM, and at once at the second."""

import signal
import subprocess
import sys
import time

import pytest

VERB = """
import sys, time
from pathlib import Path
from neurodyn.cli.main import VERBS, Verb, main
from neurodyn.core.interruption import Interrupted, Interruption

class Finalised:
    def __del__(self) -> None:
        time.sleep(5)

def slow(json: Path | None = None) -> None:
    try:
        print("begun", flush=True)
        if "training" in sys.argv:
            with Interruption() as stop:
                while stop.signal is None:
                    time.sleep(0.01)
                print("saving", flush=True)
                time.sleep(60 if "twice" in sys.argv else 0)
                raise Interrupted(stop.code, "run: interrupted at step 3")
        if "finaliser" in sys.argv:  # whose exceptions Python drops
            Finalised()
        try:
            for _ in range(600):  # a signal just before a sleep is seen after it
                time.sleep(0.1)
        except KeyboardInterrupt:
            if "lost" in sys.argv:  # as in a callback, or in the import of a package that then is half there
                raise AttributeError("partially initialized module") from None
            raise
    finally:
        print("tidied", flush=True)
        time.sleep(60 if "twice" in sys.argv else 0)

VERBS.add("slow", Verb("slow", slow))
main(["slow"])
"""


def begun(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", VERB, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("kind", ["verb", "training", "lost", "finaliser"])
def test_the_first_signal_ends_a_verb_in_order(number: signal.Signals, code: int, kind: str):
    process = begun(kind)
    process.send_signal(number)
    out, error = process.communicate(timeout=30)
    assert (process.returncode, error.count("\n")) == (code, 1), error
    assert "interrupted" in error
    assert out.endswith("tidied\n")


@pytest.mark.parametrize("kind", ["verb", "training"])
def test_the_second_ends_it_at_once(kind: str):
    process = begun(kind, "twice")
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    assert process.stdout.readline() in {"tidied\n", "saving\n"}
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=30)
    assert time.monotonic() - start < 20
    assert "stopped at once" in error  # and not by one more interruption, which what is under way could hold up
    assert (process.returncode, error.count("\n")) == (143, 1), error
