"""Writes crates/tensor/src/blocks/goldens.txt: blocks, and what GGML's reference makes of them, or for blocks that GGML
does not have, their formula in NumPy.

Needs the packages `gguf` and `numpy`: python tools/block_goldens.py
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

OUTPUT = Path(__file__).parent.parent / "crates/tensor/src/blocks/goldens.txt"

# Where a block's f16 fields are, in bytes.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0],
}
QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
# Pairs of f16 bits: ordinary, negative, subnormal, zero and negative zero, largest, mixed.
SCALES = [(0x2A3B, 0x2711), (0xA9C4, 0x31FE), (0x0001, 0x83FF), (0x0000, 0x8000),
          (0x7BFF, 0xFBFF), (0x5A01, 0x0003), (0x1403, 0xA802)]
HEAD = """# What GGML's reference implementation (Python package gguf) makes of blocks; written by tools/block_goldens.py.
# dequantize <dtype> <block> <FNV-1a 64 over the f32 bytes of the weights>
# quantize <dtype> <f32 values> <block>
"""


def fnv1a(data: bytes) -> int:
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest


def blocks(size: int, halves: list[int], random: np.random.Generator) -> np.ndarray:
    block = random.integers(0, 256, (len(SCALES) + 2, size), dtype=np.uint8)
    block[-2], block[-1] = 0, 255
    for row, pair in zip(block, [*SCALES, SCALES[0], SCALES[1]]):
        for offset, bits in zip(halves, pair):
            row[offset : offset + 2] = bits & 255, bits >> 8
    return block


def dequantize_gptq(block: np.ndarray) -> np.ndarray:
    scale = block[:2].view(np.float16).astype(np.float32)
    codes = np.concatenate([block[3:] & 15, block[3:] >> 4]).astype(np.float32)
    return scale * codes - scale * np.float32(block[2])


def samples(random: np.random.Generator) -> np.ndarray:
    ties = np.arange(-16, 16) / 2
    rows = [random.normal(size=32), random.normal(size=32) * 1e-4, random.uniform(1, 2, 32), ties, np.full(32, -0.75),
            np.zeros(32)]
    return np.array(rows, dtype=np.float32)


def main() -> None:
    random = np.random.default_rng(20240607)
    with OUTPUT.open("w") as file:
        file.write(HEAD)
        for name in HALVES:
            for block in blocks(GGML_QUANT_SIZES[Type[name]][1], HALVES[name], random):
                weights = dequantize(block[None], Type[name])
                file.write(f"dequantize {name.lower()} {block.tobytes().hex()} {fnv1a(weights.tobytes()):016x}\n")
        for name in QUANTIZED:
            for values in samples(random):
                block = quantize(values[None], Type[name])
                file.write(f"quantize {name.lower()} {values.tobytes().hex()} {block.tobytes().hex()}\n")
        for block in blocks(19, [0], random):
            file.write(f"dequantize gptq {block.tobytes().hex()} {fnv1a(dequantize_gptq(block).tobytes()):016x}\n")


if __name__ == "__main__":
    main()
