"""Arrays in the memory of a device, shared with other libraries without copies."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from perihelion import _perihelion
from perihelion._tracebacks import shorten_methods
from perihelion.dtype import DType

from .driver import CPU, Accelerator, Device, DeviceStream

__all__ = ["Buffer", "DLPackArray", "load_max_buffer"]

_MODES = {
    "copyonwrite": "c",
    "c": "c",
    "readonly": "r",
    "r": "r",
    "readwrite": "r+",
    "r+": "r+",
}

# Integers and floats, which NumPy exports as they are.
_EXPORTED = frozenset(np.dtype(code) for code in "bhilqBHILQefd")


@runtime_checkable
class DLPackArray(Protocol):
    """An array of any library that shares its memory through DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> Any: ...


class Buffer(_perihelion.BufferProtocol):
    """An array in the memory of a device. A new one holds zeros.

    Other libraries see the same memory: `numpy.asarray(buffer)`, `torch.from_dlpack(buffer)`, `memoryview(buffer)`.

    Args:
        dtype: of the elements.
        shape: the sizes of the axes.
        device: where the memory is; the CPU if not given.
        pinned: whether the memory is page-locked.

    Raises:
        ValueError: no array can have this dtype and shape.
        OutOfMemory: the system refuses so much memory.

    >>> buffer = Buffer(DType.float32, (2, 3))
    >>> buffer[1, 2] = 7
    >>> buffer.to_numpy()
    array([[0., 0., 0.],
           [0., 0., 7.]], dtype=float32)
    """

    __slots__ = ("__weakref__", "_native")
    _native: _perihelion.Buffer

    def __init__(
        self, dtype: DType, shape: Sequence[int], device: Device | None = None, pinned: bool = False
    ) -> None:
        native = None if device is None else device._native
        self._native = _perihelion.Buffer.zeros(DType(dtype).value, list(shape), native, pinned)

    @staticmethod
    def zeros(
        shape: Sequence[int], dtype: DType, device: Device | None = None, pinned: bool = False
    ) -> Buffer:
        """A buffer of zeros.

        >>> Buffer.zeros([2], DType.int8)
        Buffer(shape=(2,), dtype=int8, device=cpu:0)
        """
        return Buffer(dtype, shape, device, pinned)

    @staticmethod
    def scalar(value: bool | int | float | np.generic, dtype: DType, device: Device | None = None) -> Buffer:
        """A buffer of one value and no axes. Floats are rounded to the dtype.

        Raises:
            ValueError: an integer dtype cannot hold the value.

        >>> Buffer.scalar(2.5, DType.bfloat16).item()
        2.5
        """
        scalar = _wrap(_perihelion.Buffer.scalar(DType(dtype).value, value))
        return scalar if device is None else scalar.to(device)

    @staticmethod
    def from_numpy(arr: npt.NDArray[Any]) -> Buffer:
        """A buffer over the memory of an array. An array with gaps, or read-only, is copied.

        Raises:
            ValueError: no `DType` is the array's dtype.

        >>> array = np.zeros(3, np.int64)
        >>> Buffer.from_numpy(array)[1] = 5
        >>> array
        array([0, 5, 0])
        """
        return Buffer.from_dlpack(np.require(arr, requirements=["C", "A"]))

    @staticmethod
    def from_dlpack(array: Any, *, copy: bool | None = None) -> Buffer:
        """A buffer over the memory of another library's array; a `Buffer` is given back itself.

        Args:
            array: has `__dlpack__`, and its elements lie in row-major order without gaps.
            copy: whether to copy the elements. By default, read-only arrays are copied; with `False`, they give a
                read-only buffer.

        Raises:
            ValueError: the array has gaps, or its dtype or device are unknown here.

        >>> Buffer.from_dlpack(np.arange(3)).shape
        (3,)
        """
        if isinstance(array, Buffer):
            return array.copy() if copy else array
        if isinstance(array, np.ndarray) and array.dtype not in _EXPORTED:
            # As bytes: libraries disagree about how truth values are exported, and know nothing of our 8-bit floats.
            dtype = DType.from_numpy(array.dtype)
            if dtype is DType.bool or dtype.is_float8() or dtype is DType.bfloat16:
                carrier = np.uint8 if dtype.size_in_bytes == 1 else np.uint16
                carried = Buffer.from_dlpack(array.view(carrier), copy=copy)
                return carried.view(dtype, array.shape)
        return _wrap(_perihelion.Buffer.from_dlpack(array, copy))

    @staticmethod
    def mmap(
        filename: str | PathLike[str],
        dtype: DType,
        shape: Sequence[int] | int,
        mode: Literal["copyonwrite", "readonly", "readwrite", "c", "r", "r+"] = "copyonwrite",
        offset: int = 0,
    ) -> Buffer:
        """A buffer over a part of a file, as `numpy.memmap` maps it.

        Args:
            filename: a regular file.
            dtype: of the elements.
            shape: the sizes of the axes.
            mode: what becomes of the file when the buffer is written: nothing ("copyonwrite"; "readonly" also reads
                all of it at once), or the file is written too ("readwrite").
            offset: of the first element, in bytes.

        Raises:
            FileNotFoundError: there is no such file; other errors of the system accordingly.
            perihelion.FileError: the file is too short.
        """
        if mode not in _MODES:
            raise ValueError(f"mode: got {mode!r}, expected one of {', '.join(_MODES)}")
        sizes = [shape] if isinstance(shape, int) else list(shape)
        return _wrap(_perihelion.mmap(filename, DType(dtype).value, sizes, _MODES[mode], offset))

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return DType(self._native.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._native.shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self._native.shape)

    @property
    def num_elements(self) -> int:
        """The number of elements; one if there are no axes."""
        return self._native.num_elements

    @property
    def element_size(self) -> int:
        """Bytes of one element."""
        return self._native.element_size

    @property
    def device(self) -> Device:
        """Where the memory is."""
        id = self._native.device_id
        return CPU() if id == -1 else Accelerator(id)

    @property
    def stream(self) -> DeviceStream:
        """The stream of the device."""
        return self.device.default_stream

    @property
    def is_host(self) -> bool:
        """Whether the memory is the CPU's."""
        return self._native.is_host

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return self._native.is_contiguous

    @property
    def pinned(self) -> bool:
        """Whether the memory is page-locked."""
        return self._native.pinned

    def to_numpy(self) -> npt.NDArray[Any]:
        """The elements as an array over the same memory, which can be written. A copy if the buffer is read-only, or on an accelerator.

        8-bit floats are shown as their bytes. A program that imports `ml_dtypes` gets arrays of its `bfloat16`,
        which are copies if the buffer has gaps.

        Raises:
            ValueError: NumPy has no such dtype, as for bfloat16.
        """
        if not self.is_host:
            return self.to(CPU()).to_numpy()
        if self.dtype is DType.bfloat16:
            try:
                # NumPy knows the name once ml_dtypes is imported.
                bfloat16 = np.dtype("bfloat16")
            except TypeError:
                raise ValueError(
                    "NumPy has no dtype for bfloat16; import ml_dtypes, or view the buffer as integers"
                ) from None
            bits = self.contiguous()._native.view(DType.uint16.value, list(self.shape))
            array = np.asarray(bits).view(bfloat16)
        else:
            array = np.asarray(self._native)
        return array.copy() if self._native.is_read_only else array

    def item(self) -> bool | int | float:
        """The value of a buffer of exactly one element, of any rank.

        Raises:
            ValueError: there is another number of elements.
        """
        return self._native.item()

    def view(self, dtype: DType, shape: Sequence[int] | None = None) -> Buffer:
        """The same memory as another dtype and shape. Without a shape, the last axis gets as many elements as fit.

        Raises:
            ValueError: the bytes do not fit, or the buffer has gaps.

        >>> Buffer.zeros((2, 3), DType.float32).view(DType.uint8).shape
        (2, 12)
        """
        return _wrap(self._native.view(DType(dtype).value, None if shape is None else list(shape)))

    def contiguous(self) -> Buffer:
        """The same elements in row-major order: the buffer itself if it is so already, else a copy."""
        return self if self.is_contiguous else self.copy()

    def copy(self, device: Device | None = None) -> Buffer:
        """The same elements, row-major, in memory of their own: on a device, or where these are."""
        if device is None or device == self.device:
            return _wrap(self._native.copy())
        return self.to(device)

    @overload
    def to(self, device: Device) -> Buffer: ...

    @overload
    def to(self, device: Sequence[Device]) -> list[Buffer]: ...

    def to(self, device: Device | Sequence[Device]) -> Buffer | list[Buffer]:
        """The elements on a device, or on each of several: the buffer itself where it is already, else a copy."""
        if isinstance(device, Device):
            return self if device == self.device else _wrap(self._native.to(device._native))
        return [self.to(one) for one in device]

    def inplace_copy_from(self, src: Buffer) -> None:
        """Copies the elements of another buffer, whose shape may differ, into this one.

        Raises:
            ValueError: dtype or number of elements differ, either buffer has gaps, or this one is read-only.
        """
        self._native.inplace_copy_from(src._native)

    def __getitem__(self, index: Any) -> Buffer:
        """A part that shares the memory. Takes integers, slices, and tuples of them."""
        return _wrap(self._native.slice(index))

    def __setitem__(self, index: Any, value: bool | int | float | np.generic | Buffer) -> None:
        """Sets one element. The index has one integer for each axis."""
        self._native.set(index, value)

    def __bool__(self) -> bool:
        if self.num_elements != 1:
            raise ValueError(f"{self!r} of {self.num_elements} elements is neither true nor false; compare its elements")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __format__(self, format_spec: str) -> str:
        return format(self.item(), format_spec) if format_spec else str(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a buffer without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Buffer]:
        return (self[position] for position in range(len(self)))

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The buffer as a DLPack capsule, for `from_dlpack` of other libraries."""
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"dl_device: got {dl_device}, but the buffer is on {device}")
        native = self._native.copy() if copy else self._native
        return native.dlpack(max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        if not self.is_host:
            raise BufferError(f"the buffer is on {self.device}: copy it with `to` first")
        return (1, 0)

    def __buffer__(self, flags: int, /) -> memoryview:
        try:
            return np.asarray(self._native).data
        except ValueError as error:
            raise BufferError(str(error)) from None

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        array = self.to_numpy()
        wanted = array.dtype if dtype is None else np.dtype(dtype)
        if wanted == array.dtype:
            return array.copy() if copy else array
        if copy is False:
            raise ValueError(f"{array.dtype} as {wanted} needs a copy")
        return array.astype(wanted)

    def __bytes__(self) -> bytes:
        return self._bytes().tobytes()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        data = self._bytes()
        stored = pickle.PickleBuffer(data.data) if protocol >= 5 else data.tobytes()
        return _rebuild, (self.dtype, self.shape, stored)

    def __repr__(self) -> str:
        return f"Buffer(shape={self.shape}, dtype={self.dtype!r}, device={self.device})"

    def __str__(self) -> str:
        return str(self._native)

    def _bytes(self) -> npt.NDArray[np.uint8]:
        """All bytes in row-major order; the buffer's own if it has no gaps."""
        rows = self.to(CPU()).contiguous()
        size = rows.num_elements * rows.dtype.size_in_bits // 8
        return np.asarray(rows._native.view(DType.uint8.value, [size]))


def load_max_buffer(path: str | PathLike[str]) -> Buffer:
    """The tensor of a `.max` file, mapped rather than read; writing it leaves the file as it is.

    Raises:
        FileNotFoundError: there is no such file; other errors of the system accordingly.
        perihelion.FileError: the file is damaged, of a newer version, or holds several tensors.
    """
    return _wrap(_perihelion.load_max_buffer(path))


def _wrap(native: _perihelion.Buffer) -> Buffer:
    """The buffer that a native handle stands for."""
    buffer = object.__new__(Buffer)
    buffer._native = native
    return buffer


def _rebuild(dtype: DType, shape: tuple[int, ...], data: Any) -> Buffer:
    """A pickled buffer: over `data`, unless that is read-only or badly aligned."""
    stored = np.frombuffer(data, np.uint8) if math.prod(shape) else np.empty(0, np.uint8)
    if stored.__array_interface__["data"][0] % dtype.align:
        stored = stored.copy()
    return Buffer.from_dlpack(stored).view(dtype, shape)


# Others are quick, and one frame.
shorten_methods(Buffer, ["from_numpy", "to", "zeros"])
