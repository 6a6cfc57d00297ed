"""Buffers: making, indexing, viewing, copying, printing, pickling, files."""

from __future__ import annotations

import copy
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypothesis import given
from hypothesis import strategies as st
from perihelion import FileError, OutOfMemory
from perihelion.driver import CPU, Buffer, load_max_buffer
from perihelion.dtype import DType


def arange(*shape: int, dtype: str = "float32") -> Buffer:
    return Buffer.from_numpy(np.arange(np.prod(shape), dtype=dtype).reshape(shape))


def test_new_buffers_are_described() -> None:
    buffer = Buffer(DType.float32, (2, 3))
    assert (buffer.dtype, buffer.shape, buffer.rank, buffer.num_elements) == (DType.float32, (2, 3), 2, 6)
    assert (buffer.element_size, buffer.is_host, buffer.is_contiguous, buffer.pinned) == (4, True, True, False)
    assert buffer.device == CPU()
    assert buffer.stream == CPU().default_stream
    assert repr(buffer) == "Buffer(shape=(2, 3), dtype=float32, device=cpu:0)"
    assert Buffer(DType.int8, [2], CPU(), pinned=True).pinned
    assert Buffer.zeros((), DType.int8).rank == 0


def test_impossible_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 is negative"):
        Buffer(DType.float32, (2, -1))
    with pytest.raises(ValueError, match="17 axes"):
        Buffer(DType.float32, (1,) * 17)
    with pytest.raises(ValueError, match=r"f32\[.*\] is not a possible array"):
        Buffer(DType.float32, (2**62, 2**62))
    with pytest.raises(OutOfMemory, match="the system refused"):
        Buffer(DType.float32, (2**60,))
    assert issubclass(OutOfMemory, MemoryError)


@pytest.mark.parametrize("dtype", [d for d in DType if d.size_in_bits >= 8])
def test_scalars_hold_their_value(dtype: DType) -> None:
    buffer = Buffer.scalar(1, dtype)
    assert (buffer.shape, buffer.item()) == ((), 1)
    assert type(buffer.item()) is (bool if dtype is DType.bool else float if dtype.is_float() else int)


def test_scalars_of_numpy_and_what_does_not_fit() -> None:
    assert Buffer.scalar(np.float32(2.5), DType.float64).item() == 2.5
    assert Buffer.scalar(np.bool_(True), DType.bool).item() is True
    assert Buffer.scalar(2**64 - 1, DType.uint64).item() == 2**64 - 1
    assert Buffer.scalar(-(2**63), DType.int64).item() == -(2**63)
    for value, dtype in [(256, DType.uint8), (-1, DType.uint64), (2.5, DType.int32), (2, DType.bool), (2**64, DType.int64)]:
        with pytest.raises(ValueError):
            Buffer.scalar(value, dtype)
    with pytest.raises(TypeError, match="got str, expected a number"):
        Buffer.scalar("1", DType.int8)


def test_item_needs_exactly_one_element() -> None:
    assert arange(1, 1).item() == 0
    for shape in [(2,), (0,), (1, 2)]:
        with pytest.raises(ValueError, match=f"has {np.prod(shape)}"):
            Buffer.zeros(shape, DType.int8).item()


indices = st.one_of(
    st.integers(-5, 4),
    st.slices(5),
    st.tuples(st.slices(5), st.slices(4)),
    st.tuples(st.integers(-5, 4), st.integers(-4, 3)),
    st.tuples(st.slices(5), st.integers(-4, 3)),
)


@given(indices)
def test_indices_take_what_they_take_of_numpy_arrays(index: Any) -> None:
    array = np.arange(20, dtype="int32").reshape(5, 4)
    view = Buffer.from_numpy(array)[index]
    expected = array[index]
    assert view.shape == expected.shape
    np.testing.assert_array_equal(view.to_numpy(), expected)
    if expected.size:
        assert np.shares_memory(view.to_numpy(), array)


def test_wrong_indices_are_named() -> None:
    buffer = arange(2, 3)
    for index in (2, -3, (0, 3), (0, 0, 0), 2**80):
        with pytest.raises(IndexError):
            buffer[index]
    with pytest.raises(ValueError, match="step"):
        buffer[::0]
    for wrong in (None, ..., 1.5, True, [0], "a"):
        with pytest.raises(TypeError, match="expected an integer, a slice"):
            buffer[wrong]
    assert buffer[5:].shape == (0, 3)
    assert buffer[-(2**80) : 2**80].shape == (2, 3)


def test_assignment_sets_one_element() -> None:
    buffer = arange(2, 3)
    buffer[1, -1] = 9
    buffer[0, 0] = np.float64(0.5)
    buffer[0, 1] = Buffer.scalar(7, DType.int8)
    np.testing.assert_array_equal(buffer.to_numpy(), [[0.5, 7, 2], [3, 4, 9]])
    scalar = Buffer.zeros((), DType.int8)
    scalar[0] = 3
    assert scalar.item() == 3
    for index in (0, (0, 0, 0), slice(None), (0, slice(None))):
        with pytest.raises(ValueError):
            buffer[index] = 1
    with pytest.raises(IndexError):
        buffer[2, 0] = 1
    with pytest.raises(TypeError):
        buffer[0, 0] = "1"


def test_views_share_memory_and_know_gaps() -> None:
    buffer = arange(4, 6)
    assert buffer[1:3].is_contiguous and buffer[2, 1:4].is_contiguous
    assert not buffer[:, 1:3].is_contiguous
    assert not buffer[::-1].is_contiguous
    buffer[1][2] = 77
    assert buffer[1, 2].item() == 77
    assert [row.shape for row in buffer] == [(6,)] * 4
    assert len(buffer) == 4
    with pytest.raises(TypeError, match="no length"):
        len(Buffer.zeros((), DType.int8))


def test_contiguous_and_copy() -> None:
    buffer = arange(4, 6)
    assert buffer.contiguous() is buffer
    reversed_rows = buffer[::-1]
    packed = reversed_rows.contiguous()
    assert packed.is_contiguous and packed[0, 0].item() == 18
    twin = buffer.copy()
    twin[0, 0] = -1
    assert buffer[0, 0].item() == 0
    assert buffer.to(CPU()) is buffer
    assert buffer.to([CPU()]) == [buffer]
    assert copy.copy(buffer).shape == copy.deepcopy(buffer).shape == (4, 6)


def test_views_as_other_types() -> None:
    buffer = arange(2, 4)
    assert buffer.view(DType.uint8).shape == (2, 16)
    assert buffer.view(DType.float64).shape == (2, 2)
    assert buffer.view(DType.int32, (8,)).shape == (8,)
    buffer.view(DType.int32)[0, 0] = 0x3F800000
    assert buffer[0, 0].item() == 1.0
    with pytest.raises(ValueError, match="no whole number"):
        arange(2, 3).view(DType.float64)
    with pytest.raises(ValueError, match="36 are needed"):
        arange(2, 4).view(DType.float32, (3, 3))
    with pytest.raises(ValueError, match="row-major"):
        buffer[:, ::2].view(DType.uint8)


def test_inplace_copy() -> None:
    target, source = Buffer.zeros((6,), DType.float32), arange(2, 3)
    target.inplace_copy_from(source)
    np.testing.assert_array_equal(target.to_numpy(), np.arange(6))
    reversed_self = target[::-1]
    reversed_self.inplace_copy_from(reversed_self)
    for wrong in (arange(5), arange(6, dtype="int32"), arange(12)[::2]):
        with pytest.raises(ValueError):
            target.inplace_copy_from(wrong)


def test_text_shows_values_and_repr_does_not() -> None:
    buffer = Buffer.from_numpy(np.array([[0.5, 1], [2, 3]], "float32"))
    assert str(buffer) == "Buffer([[0.5 1. ]\n        [2.  3. ]], dtype=f32, shape=[2, 2], device=cpu)"
    assert "0.5" not in repr(buffer)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16, DType.bool, DType.float8_e5m2])
@pytest.mark.parametrize("shape", [(), (3, 4), (0, 2)])
def test_pickles_hold_dtype_shape_and_bytes(protocol: int, dtype: DType, shape: tuple[int, ...]) -> None:
    buffer = Buffer(dtype, shape)
    raw = buffer._bytes()
    raw[:] = np.arange(raw.size) % 2
    back = pickle.loads(pickle.dumps(buffer, protocol=protocol))
    assert (back.dtype, back.shape, bytes(back)) == (dtype, shape, bytes(buffer))
    assert back._bytes().flags.writeable


def test_pickles_out_of_band_copy_nothing() -> None:
    buffer, kept = arange(1000), []
    data = pickle.dumps(buffer, protocol=5, buffer_callback=kept.append)
    assert len(data) < 300
    assert len(kept) == 1
    back = pickle.loads(data, buffers=kept)
    assert np.shares_memory(back.to_numpy(), buffer.to_numpy())
    # Read-only and badly aligned memory is copied.
    room = bytearray(4001)
    room[1:] = bytes(buffer)
    for other in (bytes(buffer), memoryview(room)[1:]):
        back = pickle.loads(data, buffers=[other])
        np.testing.assert_array_equal(back.to_numpy(), np.arange(1000))
        back[0] = 5


def test_files_are_mapped(tmp_path: Path) -> None:
    path = tmp_path / "data"
    np.arange(6, dtype="float32").tofile(path)
    mapped = Buffer.mmap(path, DType.float32, (2, 2), offset=8)
    np.testing.assert_array_equal(mapped.to_numpy(), [[2, 3], [4, 5]])
    mapped[0, 0] = 9
    assert np.fromfile(path, "float32")[2] == 2
    written = Buffer.mmap(str(path), DType.float32, 6, mode="r+")
    written[2] = 9
    assert np.fromfile(path, "float32")[2] == 9
    private = Buffer.mmap(path, DType.float32, (6,), mode="readonly")
    private[2] = 1
    assert np.fromfile(path, "float32")[2] == 9


def test_files_that_cannot_be_mapped_are_named(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with pytest.raises(FileNotFoundError) as missing:
        Buffer.mmap(path, DType.float32, (2,))
    assert missing.value.filename == str(path) or missing.value.filename == path
    with pytest.raises(IsADirectoryError):
        Buffer.mmap(tmp_path, DType.float32, (2,))
    path.write_bytes(b"1234")
    with pytest.raises(FileError, match="in a file of 4 bytes"):
        Buffer.mmap(path, DType.float32, (2,))
    with pytest.raises(ValueError, match="expected one of copyonwrite"):
        Buffer.mmap(path, DType.float32, (1,), mode="w")


def checkpoint(values: np.ndarray[Any, Any], dtype: DType) -> bytes:
    """A `.max` file, written as its format is specified."""
    key = b"t"
    metadata = struct.pack("<I", len(key)) + key + struct.pack("<BB", dtype.value, values.ndim)
    metadata += struct.pack(f"<{values.ndim}I", *values.shape)
    offset = 24 + len(metadata) + 8
    head = bytes([0x93, 0xF0, 0x9F, 0x94, 0xA5, 0x2B, 0x2B, 0x93]) + struct.pack("<IIQ", 0, 1, len(metadata) + 8)
    return head + metadata + struct.pack("<Q", offset) + values.tobytes()


def test_max_files_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "t.max"
    values = np.arange(6, dtype="int64").reshape(2, 3)
    path.write_bytes(checkpoint(values, DType.int64))
    np.testing.assert_array_equal(load_max_buffer(path).to_numpy(), values)
    path.write_bytes(b"no checkpoint at all, whatever it may be")
    with pytest.raises(FileError, match="magic number"):
        load_max_buffer(path)
    assert issubclass(FileError, ValueError)
    with pytest.raises(FileNotFoundError):
        load_max_buffer(tmp_path / "none.max")
