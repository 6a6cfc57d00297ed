"""Weights in files: GGUF, safetensors and PyTorch."""

from .format import WeightsFormat, weights_format
from .weights import GGUFWeights, SafetensorWeights, WeightData, Weights, load_weights

__all__ = [
    "GGUFWeights",
    "SafetensorWeights",
    "WeightData",
    "Weights",
    "WeightsFormat",
    "load_weights",
    "weights_format",
]
