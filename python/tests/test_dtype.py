"""Dtypes: their names, their NumPy twins, and the limits of floats."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from perihelion.dtype import DType, finfo

NUMPY = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64",
]  # fmt: skip


def test_codes_are_those_that_files_store() -> None:
    codes = {"bool": 1, "float4_e2m1fn": 64, "float8_e5m2fnuz": 78, "bfloat16": 80, "uint8": 134, "int64": 141}
    for name, code in codes.items():
        assert DType[name] is DType(code)
        assert DType(code).value == code


def test_members_print_as_names_and_are_found_by_them() -> None:
    assert repr(DType.float32) == "float32"
    assert str(DType.float32) == "DType.float32"
    assert DType("si32") is DType("i32") is DType("int32") is DType.int32
    assert DType("f32") is DType.float32
    assert DType("bf16") is DType.bfloat16
    assert DType("ui8") is DType.uint8
    assert DType("i1") is DType.bool
    for wrong in ("f33", 0, None, 3.5):
        with pytest.raises(ValueError, match="is not a valid DType"):
            DType(wrong)


def test_kinds_are_told_apart() -> None:
    assert [d.name for d in DType if d.is_half()] == ["float16", "bfloat16"]
    assert len([d for d in DType if d.is_float8()]) == 5
    assert len([d for d in DType if d.is_float()]) == 12
    assert {d.name for d in DType if d.is_signed_integral()} == {"int8", "int16", "int32", "int64"}
    assert {d.name for d in DType if d.is_unsigned_integral()} == {"uint8", "uint16", "uint32", "uint64"}
    assert [d for d in DType if not d.is_float() and not d.is_integral()] == [DType.bool]


def test_sizes_are_in_bits_and_bytes() -> None:
    assert (DType.float64.size_in_bits, DType.float64.size_in_bytes, DType.float64.align) == (64, 8, 8)
    assert (DType.bool.size_in_bits, DType.bool.size_in_bytes) == (8, 1)
    assert (DType.float4_e2m1fn.size_in_bits, DType.float4_e2m1fn.size_in_bytes) == (4, 1)


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_dtypes_go_both_ways(name: str) -> None:
    dtype = DType[name]
    assert dtype.to_numpy() == np.dtype(name)
    assert DType.from_numpy(np.dtype(name)) is dtype
    assert dtype.size_in_bytes == np.dtype(name).itemsize
    assert dtype.align == np.dtype(name).alignment


def test_numpy_dtypes_without_a_twin_are_refused() -> None:
    assert DType.float8_e4m3fn.to_numpy() == np.uint8
    for dtype in (DType.bfloat16, DType.float4_e2m1fn):
        with pytest.raises(ValueError, match=f"NumPy has no dtype for {dtype!r}"):
            dtype.to_numpy()
    for other in ("complex64", "U3", "object", ">f4", "datetime64[s]"):
        with pytest.raises(ValueError, match="no DType is the NumPy dtype"):
            DType.from_numpy(np.dtype(other))


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_are_those_of_numpy(name: str) -> None:
    ours, numpys = finfo(DType[name]), np.finfo(name)
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        assert getattr(ours, field) == getattr(numpys, field), field
    assert ours.dtype is DType[name]


def test_limits_of_small_floats() -> None:
    assert (finfo(DType.float8_e4m3fn).max, finfo(DType.float8_e4m3fn).bits) == (448.0, 8)
    assert DType.bfloat16.finfo.eps == 2.0**-7
    assert finfo(DType.float4_e2m1fn).max == 6.0
    for dtype in DType:
        if not dtype.is_float():
            with pytest.raises(TypeError, match="expected a float"):
                finfo(dtype)


def test_members_are_pickled_as_themselves() -> None:
    for dtype in DType:
        assert pickle.loads(pickle.dumps(dtype)) is dtype
