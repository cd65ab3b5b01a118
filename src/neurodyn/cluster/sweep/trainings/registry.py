# SPDX-License-Identifier: Apache-2.0
"""What a sweep can repeat, by its verb."""

from neurodyn.cluster.sweep.trainings.equations import Discover, Identify
from neurodyn.cluster.sweep.trainings.models import Finetune, Train
from neurodyn.cluster.sweep.trainings.policies import PolicyTrain
from neurodyn.cluster.sweep.trainings.training import Training
from neurodyn.core.registry import Registry

TRAININGS: Registry[Training] = Registry("training of a sweep")
"""What a sweep can repeat, by its verb."""
TRAININGS.add("train", Train())
TRAININGS.add("finetune", Finetune())
TRAININGS.add("identify", Identify())
TRAININGS.add("discover", Discover())
TRAININGS.add("policy train", PolicyTrain())
