# SPDX-License-Identifier: Apache-2.0
"""What all verbs share on the terminal: flags, help, progress and messages."""
