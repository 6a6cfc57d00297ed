"""How quantized weights are stored."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from perihelion import _perihelion

__all__ = ["BlockParameters", "QuantizationConfig", "QuantizationEncoding"]


@dataclass(frozen=True)
class BlockParameters:
    """The size of a block of weights, which share a scale."""

    elements_per_block: int
    """The number of weights."""
    block_size: int
    """The number of bytes."""


@dataclass
class QuantizationConfig:
    """The settings with which a checkpoint was quantized."""

    quant_method: str
    """The method, such as "gptq"."""
    bits: int
    """Bits of one weight."""
    group_size: int
    """How many weights share a scale; -1 is all of a row."""
    desc_act: bool = False
    """Whether the columns were quantized in the order of their importance."""
    sym: bool = False
    """Whether all zero points are the same."""


class QuantizationEncoding(str, Enum):
    """A format of quantized weights.

    >>> QuantizationEncoding.Q4_0.block_parameters
    BlockParameters(elements_per_block=32, block_size=18)
    """

    Q4_0 = "Q4_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"
    GPTQ = "GPTQ"

    @property
    def block_parameters(self) -> BlockParameters:
        """The size of a block.

        Raises:
            ValueError: the format has none, as GPTQ.
        """
        if not self.is_gguf:
            raise ValueError(f"{self.name} has no blocks")
        return BlockParameters(*_perihelion.block_parameters(self._block_dtype))

    @property
    def elements_per_block(self) -> int:
        """The number of weights in a block."""
        return self.block_parameters.elements_per_block

    @property
    def block_size(self) -> int:
        """The number of bytes of a block."""
        return self.block_parameters.block_size

    @property
    def is_gguf(self) -> bool:
        """Whether GGUF files have it."""
        return self is not QuantizationEncoding.GPTQ

    @property
    def _block_dtype(self) -> str:
        return self.value.lower()
