# SPDX-License-Identifier: Apache-2.0
"""How each kind of dynamics is trained and fine-tuned: parts of the kinds' records.

"train" and "finetune" do it; "settings" is the type of the settings, and "plan training", "plan finetuning" return
those that hold, with the data, checked as far as can be done before a training begins.
"""

from neurodyn.dynamics.kinds import KINDS

KINDS["neural"].add("settings", "neurodyn.learn.neural.settings:Settings")
KINDS["neural"].add("train", "neurodyn.learn.neural.run:train_run")
KINDS["neural"].add("finetune", "neurodyn.learn.neural.run:finetune_run")
KINDS["neural"].add("plan training", "neurodyn.learn.neural.run:plan_training")
KINDS["neural"].add("plan finetuning", "neurodyn.learn.neural.run:plan_finetuning")
KINDS["world-model"].add("settings", "neurodyn.learn.world_model.settings:WorldSettings")
KINDS["world-model"].add("train", "neurodyn.learn.world_model.run:train_run")
KINDS["world-model"].add("finetune", "neurodyn.learn.world_model.run:finetune_run")
KINDS["world-model"].add("plan training", "neurodyn.learn.world_model.run:plan_training")
KINDS["world-model"].add("plan finetuning", "neurodyn.learn.world_model.run:plan_finetuning")
