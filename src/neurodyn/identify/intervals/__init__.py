# SPDX-License-Identifier: Apache-2.0
"""How sure parameters are: convergence, what data see, and resamples."""
