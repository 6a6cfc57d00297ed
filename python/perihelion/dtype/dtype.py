"""The types that elements of buffers can have, and the limits of floats."""

from __future__ import annotations

import builtins
from enum import Enum
from typing import Any

import numpy as np

from perihelion import _perihelion

__all__ = ["DType", "finfo"]


class DType(Enum):
    """The type of a buffer's elements. The values are the codes that files store.

    Members are also found by their names, here, in messages and in graph text, and by NumPy's dtypes. Functions that take
    a `DType` take its names too.

    >>> DType(81), DType("float32"), DType("f32"), DType("si64"), DType(np.uint8)
    (float32, float32, float32, int64, uint8)
    >>> DType.float32.size_in_bytes
    4
    """

    bool = 1
    float4_e2m1fn = 64
    float6_e2m3fn = 65
    float6_e3m2fn = 66
    float8_e8m0fnu = 73
    float8_e4m3fn = 75
    float8_e4m3fnuz = 76
    float8_e5m2 = 77
    float8_e5m2fnuz = 78
    float16 = 79
    bfloat16 = 80
    float32 = 81
    float64 = 82
    uint8 = 134
    int8 = 135
    uint16 = 136
    int16 = 137
    uint32 = 138
    int32 = 139
    uint64 = 140
    int64 = 141

    @classmethod
    def _missing_(cls, value: object) -> DType | None:
        if isinstance(value, (np.dtype, type)):
            return cls.from_numpy(np.dtype(value))
        return _BY_NAME.get(value) if isinstance(value, str) else None

    def __repr__(self) -> str:
        return self.name

    @property
    def align(self) -> int:
        """The alignment of elements in memory, in bytes."""
        return _TABLE[self.value][3]

    @property
    def size_in_bits(self) -> int:
        """Bits of one element."""
        return _TABLE[self.value][4]

    @property
    def size_in_bytes(self) -> int:
        """Bytes of one element, rounded up."""
        return (self.size_in_bits + 7) // 8

    @property
    def finfo(self) -> finfo:
        """The limits of a float; see `perihelion.dtype.finfo`."""
        return finfo(self)

    def is_integral(self) -> builtins.bool:
        """Whether this is an integer; `bool` is not."""
        return self.is_signed_integral() or self.is_unsigned_integral()

    def is_signed_integral(self) -> builtins.bool:
        """Whether this is a signed integer."""
        return self.name.startswith("int")

    def is_unsigned_integral(self) -> builtins.bool:
        """Whether this is an unsigned integer."""
        return self.name.startswith("uint")

    def is_float(self) -> builtins.bool:
        """Whether this is a floating-point number of any size."""
        return "float" in self.name

    def is_float8(self) -> builtins.bool:
        """Whether this is an 8-bit float."""
        return self.name.startswith("float8")

    def is_half(self) -> builtins.bool:
        """Whether this is a 16-bit float."""
        return self in (DType.float16, DType.bfloat16)

    def to_numpy(self) -> np.dtype[Any]:
        """The NumPy dtype. 8-bit floats become `uint8`, their bytes.

        Raises:
            ValueError: NumPy has none, as for bfloat16.

        >>> DType.int32.to_numpy()
        dtype('int32')
        """
        typestr = _TABLE[self.value][5]
        if not typestr:
            raise ValueError(f"NumPy has no dtype for {self!r}; view the buffer as integers")
        return np.dtype(typestr)

    @classmethod
    def from_numpy(cls, dtype: np.dtype[Any]) -> DType:
        """The member for a NumPy dtype. Dtypes of `ml_dtypes` are found by name.

        Raises:
            ValueError: there is none, as for complex numbers, text, and other byte orders.

        >>> DType.from_numpy(np.dtype("float16"))
        float16
        """
        dtype = np.dtype(dtype)
        found = cls.__members__.get(dtype.name) if dtype.isnative else None
        if found is None:
            raise ValueError(f"no DType is the NumPy dtype {dtype!r}")
        return found


_TABLE = {row[0]: row for row in _perihelion.dtypes()}
_BY_NAME: dict[object, DType] = {
    name: member for member in DType for name in (member.name, *_TABLE[member.value][1:3])
}


class finfo:
    """The limits of a floating-point dtype, as `numpy.finfo` gives them.

    Args:
        dtype: any float, also bfloat16, 8-bit and 4-bit ones.

    Raises:
        TypeError: the dtype is no float.

    >>> finfo(DType.bfloat16).max
    3.3895313892515355e+38
    """

    __slots__ = ("bits", "dtype", "eps", "max", "min", "smallest_normal", "tiny")

    def __init__(self, dtype: DType) -> None:
        dtype = DType(dtype)
        limits = _perihelion.float_info(dtype.value)
        if limits is None:
            raise TypeError(f"dtype: got {dtype!r}, expected a float")
        self.dtype = dtype
        self.bits, self.eps, self.max, self.min, self.tiny = limits
        self.smallest_normal = self.tiny

    def __repr__(self) -> str:
        return f"finfo(dtype={self.dtype!r}, max={self.max}, min={self.min}, eps={self.eps}, tiny={self.tiny})"
