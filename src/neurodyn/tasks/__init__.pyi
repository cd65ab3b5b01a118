# SPDX-License-Identifier: Apache-2.0
from .listing import TASKS as TASKS, TASKS_OF_ROBOTS as TASKS_OF_ROBOTS, is_file as is_file, load as load
from .listing import names as names, of_robot as of_robot
from .observations import Memory as Memory, ObservationTerm as ObservationTerm
from .task import Task as Task
