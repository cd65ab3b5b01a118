# SPDX-License-Identifier: Apache-2.0
"""What evaluation does with each kind of dynamics.

Parts: "evaluate" measures the model of a run as a `Question` asks; "begin along a log" loads a model whose roll-outs
along a log start otherwise than in the logged state, and says how.
"""

from neurodyn.dynamics.kinds import KINDS

KINDS["neural"].add("evaluate", "neurodyn.evaluate.run:evaluate_simulating")
KINDS["hybrid"].add("evaluate", "neurodyn.evaluate.run:evaluate_simulating")
KINDS["hybrid"].add("begin along a log", "neurodyn.identify.starts:as_identified")
KINDS["world-model"].add("evaluate", "neurodyn.evaluate.run:evaluate_forecasting")
