# SPDX-License-Identifier: Apache-2.0
"""Trackers: where a training is followed beside RUN/metrics.jsonl."""
