# SPDX-License-Identifier: Apache-2.0
"""Trackers: where a training is logged beside RUN/metrics.jsonl."""
