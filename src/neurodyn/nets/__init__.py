# SPDX-License-Identifier: Apache-2.0
"""Networks that know no physics: normaliser, MLP, recurrent net, cached transformer, and the predictor around them."""
