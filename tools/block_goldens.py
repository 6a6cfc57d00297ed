"""Writes crates/tensor/src/blocks/goldens.txt: blocks, and what GGML's reference makes of them, or for blocks that GGML
does not have, their formula in NumPy.

Needs the packages `gguf` and `numpy`, and GGML's own library for the formats that `gguf` does not quantize. The package
`pywhispercpp` has one: python tools/block_goldens.py PATH/libggml-base.so
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import MXFP4, dequantize, quantize

OUTPUT = Path(__file__).parent.parent / "crates/tensor/src/blocks/goldens.txt"

# Where a block's f16 fields are, in bytes.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0],
}
# The same for formats that are read and not written; empty if the scale is not an f16.
READ = {
    "MXFP4": [], "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "TQ1_0": [52],
    "TQ2_0": [64], "IQ1_M": [], "NVFP4": [],
}
# Formats whose names here are not GGML's.
NAMES = {"NVFP4": "ggml_nvfp4"}
QUANTIZED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
# Pairs of f16 bits: ordinary, negative, subnormal, zero and negative zero, largest, mixed.
SCALES = [(0x2A3B, 0x2711), (0xA9C4, 0x31FE), (0x0001, 0x83FF), (0x0000, 0x8000),
          (0x7BFF, 0xFBFF), (0x5A01, 0x0003), (0x1403, 0xA802)]
HEAD = """# What GGML's reference implementation (Python package gguf) makes of blocks; written by tools/block_goldens.py.
# dequantize <dtype> <block> <FNV-1a 64 over the f32 bytes of the weights>
# quantize <dtype> <f32 values> <block>
# search <dtype> <kind of rows> <plain | important> <FNV-1a 64 over the blocks of three rows>; libggml-base made these
"""
# Bits of the importance of columns, and of what random rows are made of.
MASK = 0xFFFF
ROWS, COLUMNS = 3, 512


class Random:
    """SplitMix64, whose upper half is taken; the tests have the same."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        mixed = self.state
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        return (mixed ^ (mixed >> 31)) >> 32


# A value of each kind of row, from an integer of at most 17 bits, a second one, and its place. All are exact in f32.
KINDS = {
    "triangular": lambda v, r, i: v * 2.0**-20,
    "heavy": lambda v, r, i: v * 2.0 ** -(20 + r % 8),
    "groups": lambda v, r, i: v * 2.0 ** -(20 + i // 16 % 24),
    "positive": lambda v, r, i: abs(v) * 2.0**-20,
    "negative": lambda v, r, i: -abs(v) * 2.0**-20,
    "offset": lambda v, r, i: (v + 2**16) * 2.0**-20,
    "sparse": lambda v, r, i: v * 2.0**-20 if r % 16 == 0 else 0.0,
    "ties": lambda v, r, i: (i % 32 - 16) / 2,
    "constant": lambda v, r, i: -0.75,
    "large": lambda v, r, i: v * 2.0**10,
    "tiny": lambda v, r, i: v * 2.0**-40,
    "negligible": lambda v, r, i: v * 2.0**-70,
    "zero": lambda v, r, i: 0.0,
}


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


def row(random: Random, kind: str) -> list[float]:
    values = []
    for i in range(COLUMNS):
        bits, more = random.next(), random.next()
        values.append(KINDS[kind]((bits & MASK) + (bits >> 16) - MASK, more, i))
    return values


def search(library: ctypes.CDLL, name: str, kind: str, important: bool) -> bytes:
    random = Random(len(kind))
    rows = np.array([row(random, kind) for _ in range(ROWS)], dtype=np.float32)
    columns = np.array([(random.next() & MASK) * 2.0**-12 for _ in range(COLUMNS)], dtype=np.float32)
    elements, size = GGML_QUANT_SIZES[Type[name]]
    blocks = np.zeros(rows.size // elements * size, dtype=np.uint8)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    count, pointer = ctypes.c_int64, ctypes.c_void_p
    written = library.ggml_quantize_chunk(
        ctypes.c_int(Type[name]), pointer(rows.ctypes.data), pointer(blocks.ctypes.data), count(0), count(ROWS),
        count(COLUMNS), pointer(columns.ctypes.data if important else None))
    assert written == blocks.size
    return blocks.tobytes()


def read_only(name: str) -> list[str]:
    """The goldens of a format whose blocks are only read. They do not depend on those of others."""
    random = np.random.default_rng(len(name))
    lines = []
    for block in blocks(GGML_QUANT_SIZES[Type[name]][1], READ[name], random):
        weights = dequantize(block[None], Type[name])
        own = NAMES.get(name, name.lower())
        lines.append(f"dequantize {own} {block.tobytes().hex()} {fnv1a(weights.tobytes()):016x}\n")
    return lines


def float8(codes: np.ndarray) -> np.ndarray:
    """The values of e4m3 codes; that of NaN is 480."""
    sign, exponent, mantissa = np.where(codes & 128, -1.0, 1.0), codes >> 3 & 15, (codes & 7).astype(np.float32)
    normal = (8 + mantissa) * 2.0 ** (exponent.astype(np.float32) - 10)
    return (sign * np.where(exponent == 0, mantissa * 2.0**-9, normal)).astype(np.float32)


def dequantize_fp8(block: np.ndarray) -> np.ndarray:
    return block[:4].view(np.float32) * float8(block[4:])


def dequantize_gptq8(block: np.ndarray) -> np.ndarray:
    scale = block[:4].view(np.float32)
    return scale * (block[5:].astype(np.float32) - 128) - scale * (np.float32(block[4]) - 128)


def dequantize_nvfp4(block: np.ndarray) -> np.ndarray:
    levels = np.array(MXFP4.kvalues, dtype=np.float32)
    codes = np.concatenate([levels[half >> shift & 15] for half in block[8:].reshape(2, 16) for shift in (0, 4)])
    return (block[:4].view(np.float32) * float8(block[4:8]))[:, None].repeat(16, 1).ravel() * codes


def on_levels(levels: list[float]) -> Callable[[np.ndarray], np.ndarray]:
    def dequantize_levels(block: np.ndarray) -> np.ndarray:
        codes = np.stack([block[4:] & 15, block[4:] >> 4], -1).ravel()
        return block[:4].view(np.float32) * np.array(levels, dtype=np.float32)[codes]

    return dequantize_levels


# The levels of bitsandbytes (`functional.get_4bit_type`).
NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]
FP4 = [value / 12 for value in [0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3]]
# Formats that GGML does not have: their bytes and formula.
FORMULAS = {
    "fp8": (68, dequantize_fp8), "gptq8": (37, dequantize_gptq8), "nvfp4": (40, dequantize_nvfp4),
    "nf4": (36, on_levels(NF4)), "fp4": (36, on_levels(FP4)),
}


def by_formula(name: str) -> list[str]:
    """The goldens of a format with an f32 scale at the start of its blocks."""
    (size, formula), random, lines = FORMULAS[name], np.random.default_rng(len(name)), []
    for scale in [1.0, -0.3, 1e-40, 0.0, 3e38, 2.0**-126, 1.7e-5]:
        block = random.integers(0, 256, size, dtype=np.uint8)
        block[:4] = np.array([scale], dtype=np.float32).view(np.uint8)
        lines.append(f"dequantize {name} {block.tobytes().hex()} {fnv1a(formula(block).tobytes()):016x}\n")
    return lines


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
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
        for name in HALVES:
            for kind in KINDS:
                for important in [False, True]:
                    digest = fnv1a(search(library, name, kind, important))
                    file.write(f"search {name.lower()} {kind} {'important' if important else 'plain'} {digest:016x}\n")
        for block in blocks(19, [0], random):
            file.write(f"dequantize gptq {block.tobytes().hex()} {fnv1a(dequantize_gptq(block).tobytes()):016x}\n")
        for name in READ:
            file.writelines(read_only(name))
        for name in FORMULAS:
            file.writelines(by_formula(name))


if __name__ == "__main__":
    main()
