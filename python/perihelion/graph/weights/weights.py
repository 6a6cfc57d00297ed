"""The tensors of weight files by their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Union

import numpy.typing as npt

from perihelion import _perihelion
from perihelion._tracebacks import shorten, shorten_methods
from perihelion.driver import Buffer, DLPackArray
from perihelion.driver.buffer import _wrap as _wrap_buffer
from perihelion.dtype import DType

from ..buffer_utils import cast_tensor_to
from ..quantization import QuantizationEncoding
from ..shape import Shape, ShapeLike
from ..type import DeviceRef
from ..weight import Weight
from .format import WeightsFormat, weights_format

__all__ = ["GGUFWeights", "SafetensorWeights", "WeightData", "Weights", "load_weights"]

_Path = Union[str, PathLike[str]]


@dataclass
class WeightData:
    """The value of a weight."""

    data: DLPackArray
    """The elements, or the bytes of quantized ones."""
    name: str
    """The name."""
    dtype: DType
    """The type of the elements; `uint8` of quantized ones."""
    shape: Shape
    """The sizes of the axes."""
    quantization_encoding: QuantizationEncoding | None = None
    """How the bytes hold elements, if they are quantized."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self.data.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.data.__dlpack_device__()

    def to_buffer(self) -> Buffer:
        """The value as a buffer, which shares the memory if it can be written."""
        return Buffer.from_dlpack(self.data)

    @classmethod
    def from_numpy(cls, arr: npt.NDArray[Any], name: str) -> WeightData:
        """The value of an array."""
        return cls(Buffer.from_numpy(arr), name, DType.from_numpy(arr.dtype), Shape(arr.shape))

    def astype(self, dtype: DType) -> WeightData:
        """The value with its elements in another dtype.

        Raises:
            ValueError: it is quantized.
        """
        if self.quantization_encoding is not None:
            raise ValueError(f"weight {self.name!r} is quantized: {self.quantization_encoding.name}")
        return WeightData(cast_tensor_to(self.to_buffer(), dtype), self.name, dtype, self.shape)

    def __repr__(self) -> str:
        return f"WeightData({self.name!r}, {self.dtype!r}, {self.shape}, {self.quantization_encoding})"


class Weights:
    """The tensors of weight files. Attributes and items make names: `weights.layers[0].attn.weight`.

    Made by `load_weights`, `GGUFWeights` or `SafetensorWeights`.
    """

    def __init__(self) -> None:
        raise TypeError("make weights with load_weights")

    @classmethod
    def _open(cls, paths: Sequence[_Path]) -> Weights:
        weights = object.__new__(cls)
        weights._start(paths)
        return weights

    def _start(self, paths: Sequence[_Path]) -> None:
        self._files = _perihelion.WeightFiles(list(paths))
        self._name = ""
        self._allocated: dict[str, DLPackArray] = {}

    @property
    def name(self) -> str:
        """The name so far: of a tensor, or a prefix of several."""
        return self._name

    def __getattr__(self, attr: str) -> Weights:
        if attr.startswith("__"):
            raise AttributeError(attr)
        return self._at(attr)

    def __getitem__(self, idx: int | str) -> Weights:
        return self._at(str(idx))

    def _at(self, part: str) -> Weights:
        weights = object.__new__(type(self))
        weights._files, weights._allocated = self._files, self._allocated
        weights._name = f"{self._name}.{part}" if self._name else part
        return weights

    def exists(self) -> bool:
        """Whether there is a tensor of the name.

        >>> import tempfile, pathlib, struct
        >>> header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.safetensors")
        >>> _ = path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        >>> weights = load_weights([path])
        >>> weights.w.exists(), weights.v.exists()
        (True, False)
        """
        return self._name in self._files

    def items(self) -> Iterator[tuple[str, Weights]]:
        """The tensors whose names begin with the name so far, with their names."""
        whole = object.__new__(type(self))
        whole._files, whole._allocated, whole._name = self._files, self._allocated, ""
        prefix = f"{self._name}." if self._name else ""
        for name in self._files.names:
            if name == self._name or name.startswith(prefix):
                yield name, whole._at(name)

    def data(self) -> WeightData:
        """The value of the tensor, in the mapped file.

        Raises:
            KeyError: there is no tensor of the name.
        """
        dtype, shape, encoding = self._spec()
        return WeightData(_wrap_buffer(self._files.data(self._name)), self._name, dtype, shape, encoding)

    def allocate(
        self,
        dtype: DType | None = None,
        shape: ShapeLike | None = None,
        quantization_encoding: QuantizationEncoding | None = None,
        device: DeviceRef = DeviceRef.CPU(),
    ) -> Weight:
        """A weight of a graph that has the value of the tensor.

        Args:
            dtype: what the tensor must have, if given.
            shape: what the tensor must have, if given.
            quantization_encoding: what the tensor must have, if given.
            device: where the weight is used.

        Raises:
            KeyError: there is no tensor of the name.
            ValueError: the tensor is of another dtype, shape or encoding.
        """
        found_dtype, found_shape, found_encoding = self._spec()
        weight = Weight(self._name, found_dtype, found_shape, device, found_encoding)
        for what, found, expected in (
            ("dtype", {found_dtype, weight.original_dtype_and_shape[0]}, dtype),
            (
                "shape",
                (found_shape, weight.original_dtype_and_shape[1]),
                None if shape is None else Shape(shape),
            ),
            ("quantization_encoding", (found_encoding,), quantization_encoding),
        ):
            if expected is not None and expected not in found:
                given = " or ".join(str(value) for value in found)
                raise ValueError(f"weight {self._name!r}: {what} is {given}, expected {expected}")
        self._allocated[self._name] = _wrap_buffer(self._files.data(self._name))
        return weight

    @property
    def allocated_weights(self) -> dict[str, DLPackArray]:
        """The values of the weights that `allocate` made, by name: a `weights_registry`."""
        return self._allocated

    def _spec(self) -> tuple[DType, Shape, QuantizationEncoding | None]:
        code, shape, blocks = self._files.spec(self._name)
        if blocks is None:
            return DType(code), Shape(shape), None
        try:
            return DType(code), Shape(shape), QuantizationEncoding(blocks)
        except ValueError as error:
            raise ValueError(
                f"weight {self._name!r} is quantized as {blocks}, which graphs do not take"
            ) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._name!r})"


class GGUFWeights(Weights):
    """The tensors of a GGUF file.

    Args:
        source: the file, or one of a split set.

    Raises:
        FileNotFoundError: it is not there.
        perihelion.FileError: it is damaged, or of another format.
    """

    def __init__(self, source: _Path) -> None:
        self._start([source])
        _expect_format(self, WeightsFormat.gguf)


class SafetensorWeights(Weights):
    """The tensors of safetensors files.

    Args:
        filepaths: the files.

    Raises:
        FileNotFoundError: one is not there.
        perihelion.FileError: one is damaged, or of another format.
    """

    def __init__(self, filepaths: Sequence[_Path]) -> None:
        self._start(filepaths)
        _expect_format(self, WeightsFormat.safetensors)


def load_weights(paths: Sequence[_Path]) -> Weights:
    """The tensors of the files of a model.

    Args:
        paths: files of one format.

    Raises:
        ValueError: `paths` is empty, or the formats differ or are unknown.
        FileNotFoundError: one is not there.
        perihelion.FileError: one is damaged.
    """
    match weights_format(paths):
        case WeightsFormat.gguf:
            return GGUFWeights._open(paths)
        case WeightsFormat.safetensors:
            return SafetensorWeights._open(paths)
        case _:
            return Weights._open(paths)


def _expect_format(weights: Weights, format: WeightsFormat) -> None:
    if weights._files.format != format.value:
        raise ValueError(f"the files are {weights._files.format}, expected {format}")


shorten(globals(), ["load_weights"])
shorten_methods(WeightData)
