# SPDX-License-Identifier: Apache-2.0
"""How each kind of dynamics is trained and fine-tuned: parts of the kinds' records.

"settings" is the type of the settings. "plan training" and "plan finetuning" return those that hold, but for budget and
seed, with the data, checked as far as can be done before a training begins; "train" and "finetune" do it.
"""

from neurodyn.dynamics.kinds import KINDS

KINDS["neural"].add("settings", "neurodyn.learn.neural.settings:Settings")
KINDS["neural"].add("plan training", "neurodyn.learn.planning:plan_neural_training")
KINDS["neural"].add("plan finetuning", "neurodyn.learn.planning:plan_neural_finetuning")
KINDS["neural"].add("train", "neurodyn.learn.neural.train:train")
KINDS["neural"].add("finetune", "neurodyn.learn.neural.train:finetune")
KINDS["world-model"].add("settings", "neurodyn.learn.world_model.settings:WorldSettings")
KINDS["world-model"].add("plan training", "neurodyn.learn.planning:plan_world_model_training")
KINDS["world-model"].add("plan finetuning", "neurodyn.learn.planning:plan_world_model_finetuning")
KINDS["world-model"].add("train", "neurodyn.learn.world_model.train:train_world_model")
KINDS["world-model"].add("finetune", "neurodyn.learn.world_model.train:finetune_world_model")
