"""Memory shared with other libraries: who sees whose writes, and who keeps what alive."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perihelion.driver import Buffer, DLPackArray
from perihelion.dtype import DType

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
has_versions = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

DTYPES = [d for d in DType if d.size_in_bits >= 8 and d is not DType.bfloat16 and not d.is_float8()]

LAYOUTS = {
    "row-major": (lambda a: a, True),
    "column-major": (lambda a: np.asfortranarray(a), False),
    "rows": (lambda a: a[1:3], True),
    "columns": (lambda a: a[:, 1:3], False),
    "reversed": (lambda a: a[::-1], False),
    "no elements": (lambda a: a[:0], True),
    "no axes": (lambda a: a[2, 1, ...], True),
    "broadcast": (lambda a: np.broadcast_to(a[:1], (4, 3)), False),
}


def make(dtype: DType) -> np.ndarray[Any, Any]:
    return np.arange(12).reshape(4, 3).astype(dtype.to_numpy())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_of_numpy_are_aliased_or_copied(dtype: DType, layout: str) -> None:
    arrange, row_major = LAYOUTS[layout]
    array = arrange(make(dtype))
    buffer = Buffer.from_numpy(array)
    assert (buffer.dtype, buffer.shape, buffer.is_contiguous) == (dtype, array.shape, True)
    np.testing.assert_array_equal(buffer.to_numpy(), array)
    shares = row_major and array.size > 0 and array.flags.writeable
    assert np.shares_memory(buffer.to_numpy(), array) == shares
    if row_major:
        np.testing.assert_array_equal(Buffer.from_dlpack(array).to_numpy(), array)
    else:
        # An older NumPy refuses itself to export what is read-only.
        with pytest.raises((ValueError, BufferError)):
            Buffer.from_dlpack(array, copy=False)


@pytest.mark.parametrize("view", [slice(None), slice(1, 3), slice(None, None, -1), (slice(None), slice(0, 2)), slice(0, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_libraries_see_the_memory_of_buffers(dtype: DType, view: Any) -> None:
    array = make(dtype)
    buffer = Buffer.from_numpy(array)[view]
    expected = array[view]
    for see in (Buffer.to_numpy, np.asarray, np.from_dlpack, lambda b: np.asarray(memoryview(b))):
        seen = see(buffer)
        np.testing.assert_array_equal(seen, expected)
        if expected.size:
            assert np.shares_memory(seen, array)
            assert seen.strides == expected.strides


def test_writes_are_seen_on_both_sides() -> None:
    array = np.zeros(3, "float32")
    buffer = Buffer.from_dlpack(array)
    array[0] = 1
    buffer[1] = 2
    memoryview(buffer)[2] = 3.0
    np.testing.assert_array_equal(buffer.to_numpy(), [1, 2, 3])
    np.testing.assert_array_equal(array, [1, 2, 3])


def test_buffers_give_themselves() -> None:
    buffer = Buffer.zeros((2,), DType.int8)
    assert Buffer.from_dlpack(buffer) is buffer
    copied = Buffer.from_dlpack(buffer, copy=True)
    copied[0] = 1
    assert buffer[0].item() == 0
    assert isinstance(buffer, DLPackArray)


def test_copies_are_made_when_asked() -> None:
    array = np.zeros(3, "float32")
    assert not np.shares_memory(Buffer.from_dlpack(array, copy=True).to_numpy(), array)
    assert np.shares_memory(Buffer.from_dlpack(array, copy=False).to_numpy(), array)
    buffer = Buffer.from_dlpack(array)
    assert not np.shares_memory(np.array(buffer, copy=True), array)
    assert np.asarray(buffer, dtype="float64").dtype == np.float64


def test_read_only_arrays_are_copied_unless_asked_not_to() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    copied = Buffer.from_dlpack(array)
    copied[0] = 5
    assert array[0] == 0
    if not has_versions:
        with pytest.raises(BufferError):
            Buffer.from_dlpack(array, copy=False)
        return
    shared = Buffer.from_dlpack(array, copy=False)
    assert memoryview(shared).readonly
    assert np.asarray(memoryview(shared)).ctypes.data == array.ctypes.data
    for write in (lambda: shared.__setitem__(0, 1), lambda: shared.inplace_copy_from(copied)):
        with pytest.raises(ValueError, match="read-only"):
            write()
    thawed = shared.to_numpy()
    assert thawed.flags.writeable and not np.shares_memory(thawed, array)
    assert not np.from_dlpack(shared).flags.writeable


def test_dtypes_that_numpy_lacks_are_bits() -> None:
    buffer = Buffer.scalar(1.0, DType.bfloat16)
    if "ml_dtypes" not in sys.modules:
        with pytest.raises(ValueError, match="NumPy has no dtype for bfloat16; import ml_dtypes"):
            buffer.to_numpy()
    with pytest.raises(ValueError):
        np.asarray(buffer)
    with pytest.raises(BufferError):
        memoryview(buffer)
    assert buffer.view(DType.uint16).to_numpy() == 0x3F80
    assert bytes(buffer) == b"\x80\x3f"
    assert Buffer.scalar(1.0, DType.float8_e4m3fn).to_numpy() == 0x38


def test_dtypes_of_ml_dtypes_are_known_by_name() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        array = np.ones((2, 3), getattr(ml_dtypes, name))
        buffer = Buffer.from_numpy(array)
        assert (buffer.dtype, buffer.shape) == (DType[name], (2, 3))
        assert buffer[1, 2].item() == 1.0


def test_memoryviews_have_format_shape_and_strides() -> None:
    buffer = Buffer.from_numpy(np.arange(12, dtype="int16").reshape(3, 4))
    view = memoryview(buffer[::2, 1:])
    assert (view.format, view.shape, view.strides, view.readonly) == ("h", (2, 3), (16, 2), False)
    assert view.tolist() == [[1, 2, 3], [9, 10, 11]]
    assert bytes(buffer[::2]) == np.arange(12, dtype="int16").reshape(3, 4)[::2].tobytes()
    assert len(bytes(memoryview(Buffer.zeros((), DType.float64)))) == 8


def capsule_name(capsule: object) -> bytes | None:
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    found: bytes | None = name(capsule)
    return found


def test_capsules_are_of_the_version_asked_for() -> None:
    buffer = Buffer.zeros((2,), DType.int8)
    assert capsule_name(buffer.__dlpack__()) == b"dltensor"
    assert capsule_name(buffer.__dlpack__(max_version=(0, 8))) == b"dltensor"
    assert capsule_name(buffer.__dlpack__(max_version=(1, 0))) == b"dltensor_versioned"
    assert buffer.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="dl_device"):
        buffer.__dlpack__(dl_device=(2, 0))


class Exporter:
    """A library of arrays that exports one capsule, made by another object."""

    def __init__(self, capsule: object) -> None:
        self.capsule = capsule

    def __dlpack__(self, *, stream: Any = None) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_a_capsule_is_taken_once() -> None:
    buffer = Buffer.zeros((2,), DType.int8)
    exporter = Exporter(buffer.__dlpack__())
    taken = Buffer.from_dlpack(exporter)
    assert capsule_name(exporter.capsule) == b"used_dltensor"
    with pytest.raises(ValueError):
        Buffer.from_dlpack(exporter)
    taken[1] = 4
    assert buffer[1].item() == 4


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(AttributeError, match="__dlpack__"):
        Buffer.from_dlpack([1, 2])
    with pytest.raises(TypeError):
        Buffer.from_dlpack(Exporter("no capsule"))
    with pytest.raises(ValueError, match="no DType"):
        Buffer.from_dlpack(np.zeros(2, "complex64"))


@pytest.mark.parametrize("first", ["array", "buffer"])
def test_an_array_of_numpy_lives_as_long_as_its_buffer(first: str) -> None:
    array = np.arange(1000.0)
    died = weakref.ref(array)
    buffer = Buffer.from_dlpack(array)
    if first == "buffer":
        del buffer
        gc.collect()
        assert died() is not None
        np.testing.assert_array_equal(array, np.arange(1000.0))
        return
    del array
    gc.collect()
    assert died() is not None
    np.testing.assert_array_equal(buffer.to_numpy(), np.arange(1000.0))
    view = buffer[10:]
    del buffer
    assert died() is not None
    del view
    gc.collect()
    assert died() is None


@pytest.mark.parametrize("export", [np.from_dlpack, np.asarray, memoryview, lambda b: b.to_numpy(), lambda b: b.__dlpack__()])
def test_the_memory_of_a_buffer_lives_as_long_as_what_shares_it(export: Any) -> None:
    array = np.arange(1000.0)
    died = weakref.ref(array)
    # The buffer's memory is the array's, so that its end can be seen.
    shared = export(Buffer.from_dlpack(array))
    del array
    gc.collect()
    assert died() is not None
    if hasattr(shared, "__getitem__"):
        assert shared[999] == 999.0
    del shared
    gc.collect()
    assert died() is None


def test_sharing_leaves_no_references() -> None:
    array = np.arange(10.0)
    before = sys.getrefcount(array)
    for _ in range(1000):
        buffer = Buffer.from_dlpack(array)
        np.from_dlpack(buffer), buffer.to_numpy(), memoryview(buffer), buffer.__dlpack__(max_version=(1, 0))
        with pytest.raises(ValueError):
            Buffer.from_dlpack(array[::2])
    del buffer
    gc.collect()
    assert sys.getrefcount(array) == before


def test_random_exchanges_under_a_debug_allocator_leave_nothing() -> None:
    # Python's allocator and the C library's overwrite freed memory.
    allocators = {"PYTHONMALLOC": "debug", "MALLOC_PERTURB_": "165"}
    program = Path(__file__).with_name("exchange_arrays.py")
    result = subprocess.run([sys.executable, program], env={**os.environ, **allocators}, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("10000 exchanges"), result.stdout


@needs_torch
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_torch_are_aliased(name: str) -> None:
    tensor = torch.zeros((2, 3), dtype=getattr(torch, name))
    buffer = Buffer.from_dlpack(tensor)
    assert (buffer.dtype, buffer.shape) == (DType[name], (2, 3))
    buffer[1, 2] = 1
    assert tensor.to(torch.float32)[1, 2] == 1
    back = torch.from_dlpack(buffer)
    assert back.data_ptr() == tensor.data_ptr()
    with pytest.raises(ValueError):
        Buffer.from_dlpack(tensor.T)


@needs_torch
def test_tensors_of_torch_live_as_long_as_their_buffers() -> None:
    tensor = torch.arange(1000.0)
    buffer = Buffer.from_dlpack(tensor)
    del tensor
    gc.collect()
    np.testing.assert_array_equal(buffer.to_numpy(), np.arange(1000.0))
    seen = torch.from_dlpack(buffer)
    del buffer
    gc.collect()
    assert seen[999] == 999
