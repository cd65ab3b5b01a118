# SPDX-License-Identifier: Apache-2.0
"""How each kind of dynamics is trained and fine-tuned: parts of the kinds' records."""

from neurodyn.dynamics.kinds import KINDS

KINDS["neural"].add("train", "neurodyn.learn.neural.run:train_run")
KINDS["neural"].add("finetune", "neurodyn.learn.neural.run:finetune_run")
KINDS["world-model"].add("train", "neurodyn.learn.world_model.run:train_run")
KINDS["world-model"].add("finetune", "neurodyn.learn.world_model.run:finetune_run")
