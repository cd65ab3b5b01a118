# SPDX-License-Identifier: Apache-2.0
"""Version of the installed package."""

from importlib.metadata import version

__version__ = version("neurodyn")
