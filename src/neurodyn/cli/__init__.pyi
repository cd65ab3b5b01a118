# SPDX-License-Identifier: Apache-2.0
from .main import VERBS as VERBS, Verb as Verb
