# SPDX-License-Identifier: Apache-2.0
from .ensemble import Ensemble as Ensemble, EnsembleConfig as EnsembleConfig
from .gru import GRU as GRU
from .members import MemberLinear as MemberLinear
from .mlp import MLP as MLP
from .networks import MEMBER_NETWORKS as MEMBER_NETWORKS, NETWORKS as NETWORKS, TRUNKS as TRUNKS, NetConfig as NetConfig
from .normaliser import Normaliser as Normaliser
from .predictor import Predictor as Predictor, build_net as build_net, build_predictor as build_predictor
from .sequence import SequenceNet as SequenceNet
from .transformer import Transformer as Transformer
