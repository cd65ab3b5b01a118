# SPDX-License-Identifier: Apache-2.0
from .budget import TrainState as TrainState
from .devices import joined as joined
from .hybrid import split_weights as split_weights
from .loop import Callback as Callback
from .manifest import RunRecord as RunRecord
from .metrics import read_metrics as read_metrics, show_results as show_results
from .neural.settings import Settings as Settings, load_settings as load_settings
from .optimiser import OPTIMISERS as OPTIMISERS, Method as Method
from .plan import with_budget as with_budget
from .tracking import TRACKERS as TRACKERS, Opening as Opening, Tracker as Tracker
from .training import finetune as finetune, train as train
