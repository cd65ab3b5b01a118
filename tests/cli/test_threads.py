# SPDX-License-Identifier: Apache-2.0
"""`--threads` of every verb that computes: a wrong number is one line, before anything is read or written."""

import pytest

from neurodyn.cli.main import run

VERBS = {
    "generate": ("cartpole", "--transitions", "10", "--out", "{folder}/new.h5"),
    "identify": ("cartpole", "--data", "log.h5", "--out", "{folder}/new"),
    "discover": ("cartpole", "--data", "log.h5", "--out", "{folder}/new"),
    "evaluate": ("pretrained:cartpole",),
    "train": ("cartpole", "--data", "log.h5", "--out", "{folder}/new"),
    "finetune": ("pretrained:cartpole", "--data", "log.h5", "--out", "{folder}/new"),
    "check": ("cartpole",),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("given", ["0", "-2", "two", "1.5"])
def test_a_wrong_number_is_one_line(verb, given, tmp_path, capsys):
    words = [word.format(folder=tmp_path) for word in VERBS[verb]]
    assert run([verb, *words, "--threads", given]) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [f"neurodyn: --threads is {given!r}; valid: a whole number from 1 to 4,096"]
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []
