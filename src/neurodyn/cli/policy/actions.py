# SPDX-License-Identifier: Apache-2.0
"""`neurodyn policy`: its actions."""

from neurodyn.cli.main import Verb
from neurodyn.core.registry import Registry

ACTIONS: Registry[Verb] = Registry(
    "policy action",
    train=Verb("train a policy in a simulator or in a model", "neurodyn.cli.policy.train:train", parallel=True),
    play=Verb("record what a policy does, beside other dynamics", "neurodyn.cli.policy.play:play"),
    evaluate=Verb("measure returns in dynamics, and how far these are apart", "neurodyn.cli.policy.evaluate:evaluate"),
    **{"import": Verb("take over a policy that somebody else trained", "neurodyn.cli.policy.import_:import_")},
    log=Verb("record what policies do in the simulator, as a dataset", "neurodyn.cli.policy.log:log"),
    online=Verb("train policy and model in turns", "neurodyn.cli.policy.online:online"),
)
"""What can be done with policies, by the word behind `neurodyn policy`."""
