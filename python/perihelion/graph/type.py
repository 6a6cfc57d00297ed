"""The types of values: dtype, shape and device."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from typing import TypeVar

from perihelion import _perihelion
from perihelion.driver import CPU, Accelerator, Device
from perihelion.dtype import DType

from .dim import StaticDim, SymbolicDim, _wrap as _wrap_dim
from .shape import Shape, ShapeLike

__all__ = [
    "BufferType",
    "ConvInputLayout",
    "DeviceKind",
    "DeviceRef",
    "FilterLayout",
    "TensorType",
    "Type",
]

_T = TypeVar("_T", bound="Type")


class DeviceKind(str, Enum):
    """A kind of device."""

    CPU = "cpu"
    GPU = "gpu"

    def __str__(self) -> str:
        return self.value


class ConvInputLayout(str, Enum):
    """Where the channels of images are."""

    NHWC = "NHWC"
    NCHW = "NCHW"


class FilterLayout(str, Enum):
    """The order of a filter's axes.

    R and S are height and width, Q is depth, C the channels of the input, F those of the result.
    """

    RSCF = "RSCF"
    QRSCF = "QRSCF"
    FCRS = "FCRS"
    FCQRS = "FCQRS"


class DeviceRef:
    """A device by kind and number, whether it is there or not.

    Args:
        device_type: "cpu" or "gpu".
        id: the number among devices of its kind; negative ones mean 0.

    Raises:
        ValueError: `device_type` is unknown.

    >>> str(DeviceRef.GPU(1)), DeviceRef("cpu") == DeviceRef.CPU()
    ('gpu:1', True)
    """

    __slots__ = ("device_type", "id")
    device_type: DeviceKind
    id: int

    def __init__(self, device_type: DeviceKind | str, id: int = 0) -> None:
        self.device_type = DeviceKind(device_type)
        self.id = max(id, 0)

    @staticmethod
    def CPU(id: int = 0) -> DeviceRef:
        """The CPU."""
        return DeviceRef(DeviceKind.CPU, id)

    @staticmethod
    def GPU(id: int = 0) -> DeviceRef:
        """An accelerator, counted from 0."""
        return DeviceRef(DeviceKind.GPU, id)

    @staticmethod
    def from_device(device: Device | DeviceRef) -> DeviceRef:
        """The reference of a device; a reference is given back itself."""
        return device if isinstance(device, DeviceRef) else DeviceRef(device.label, device.id)

    def to_device(self) -> Device:
        """The device.

        Raises:
            ValueError: it is not there.
        """
        return CPU() if self.is_cpu() else Accelerator(self.id)

    def is_cpu(self) -> bool:
        """Whether this is the CPU."""
        return self.device_type is DeviceKind.CPU

    def is_gpu(self) -> bool:
        """Whether this is an accelerator."""
        return self.device_type is DeviceKind.GPU

    @property
    def _native(self) -> int:
        return -1 if self.is_cpu() else self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceRef) and (self.device_type, self.id) == (other.device_type, other.id)

    def __hash__(self) -> int:
        return hash((self.device_type, self.id))

    def __str__(self) -> str:
        return f"{self.device_type}:{self.id}"

    def __repr__(self) -> str:
        return f"DeviceRef({self})"


class Type:
    """The dtype, shape and device of a tensor or buffer; see `TensorType` and `BufferType`."""

    __slots__ = ("device", "dtype", "shape")
    dtype: DType
    shape: Shape
    device: DeviceRef

    def __init__(self, dtype: DType, shape: ShapeLike, device: Device | DeviceRef) -> None:
        self.dtype = DType(dtype)
        self.shape = Shape(shape)
        self.device = DeviceRef.from_device(device)
        for dim in self.shape:
            if isinstance(dim, StaticDim) and dim.dim < 0:
                raise TypeError(f"shape: got the size {dim}, expected at least 0")

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def parameters(self) -> Iterable[SymbolicDim]:
        """The symbols in the shape, each once."""
        return self.shape.parameters

    def num_elements(self) -> int:
        """The number of elements.

        Raises:
            RuntimeError: a size is not a number.
        """
        if not Shape.is_static(self.shape):
            raise RuntimeError(f"{self!r} has no number of elements before a model is called")
        return math.prod(self.shape.static_dims)

    def cast(self: _T, dtype: DType) -> _T:
        """The same with another dtype."""
        return type(self)(dtype, self.shape, self.device)

    def as_tensor(self) -> TensorType:
        """The tensor of this dtype, shape and device."""
        return TensorType(self.dtype, self.shape, self.device)

    def as_buffer(self) -> BufferType:
        """The buffer of this dtype, shape and device."""
        return BufferType(self.dtype, self.shape, self.device)

    @property
    def _native(self) -> _perihelion._Type:
        dims = [dim._native for dim in self.shape]
        return (isinstance(self, BufferType), self.dtype.value, dims, self.device._native)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Type):
            return NotImplemented
        same = type(self) is type(other) and self.dtype is other.dtype
        return same and self.shape == other.shape and self.device == other.device

    def __hash__(self) -> int:
        return hash((type(self), self.dtype, tuple(self.shape), self.device))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self.dtype!r}, shape={self.shape}, device={self.device})"


class TensorType(Type):
    """The type of a tensor, which is fixed once made.

    Args:
        dtype: of the elements.
        shape: the sizes of the axes: numbers, and names for those that vary.
        device: where the tensor is.

    Raises:
        TypeError: a size is negative.

    >>> TensorType(DType.float32, ["batch", 8], DeviceRef.CPU())
    TensorType(dtype=float32, shape=[Dim('batch'), Dim(8)], device=cpu:0)
    """

    __slots__ = ()

    def __init__(self, dtype: DType, shape: ShapeLike, device: Device | DeviceRef) -> None:
        super().__init__(dtype, shape, device)


class BufferType(Type):
    """The type of a buffer, which graphs read and write.

    Args:
        dtype: of the elements.
        shape: the sizes of the axes.
        device: where the buffer is.
    """

    __slots__ = ()

    def __init__(self, dtype: DType, shape: ShapeLike, device: Device | DeviceRef) -> None:
        super().__init__(dtype, shape, device)


def _wrap(native: _perihelion._Type) -> Type:
    """The type that a native one stands for."""
    is_buffer, code, dims, device = native
    kind = BufferType if is_buffer else TensorType
    ref = DeviceRef.CPU() if device == -1 else DeviceRef.GPU(device)
    return kind(DType(code), [_wrap_dim(dim) for dim in dims], ref)
