# SPDX-License-Identifier: Apache-2.0
"""Whether a return that a model imagines is to be believed."""
