# SPDX-License-Identifier: Apache-2.0
"""Policy and model learning in alternation: train in the model, log in the reference, refit the model, repeat."""
