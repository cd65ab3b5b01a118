# SPDX-License-Identifier: Apache-2.0
"""Policy and model in turns: train in the model, log in the reference, fit the model, again."""
