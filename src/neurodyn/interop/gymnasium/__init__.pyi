# SPDX-License-Identifier: Apache-2.0
from .environments import TaskEnv as TaskEnv, VectorTaskEnv as VectorTaskEnv
from .registration import ids as ids, register as register
