"""Weights of files in graphs."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import shared
from graphs import Array, data, run

import perihelion
from perihelion.dtype import DType
from perihelion.engine import InferenceSession
from perihelion.graph import QuantizationEncoding, TensorValue, ops
from perihelion.graph.weights import (
    GGUFWeights,
    SafetensorWeights,
    WeightData,
    WeightsFormat,
    load_weights,
    weights_format,
)


def write_safetensors(path: Path, **tensors: Array) -> Path:
    header, body = {}, b""
    for name, array in tensors.items():
        offsets = [len(body), len(body) + array.nbytes]
        dtype = {"float32": "F32", "float16": "F16", "int64": "I64"}[array.dtype.name]
        header[name.replace("__", ".")] = {"dtype": dtype, "shape": array.shape, "data_offsets": offsets}
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    tensors = {
        "layers__0__w": data(4, 3),
        "layers__1__w": data(4, 3, seed=1),
        "norm": data(4, dtype="float16"),
    }
    return write_safetensors(tmp_path / "model.safetensors", **tensors)


def test_attributes_and_items_make_names(file: Path) -> None:
    weights = load_weights([file])
    assert isinstance(weights, SafetensorWeights) and weights.name == ""
    assert weights.layers[0].w.name == "layers.0.w" and weights.layers[0].w.exists()
    assert not weights.layers.exists() and not weights.layers[2].w.exists()
    assert [name for name, _ in weights.items()] == ["layers.0.w", "layers.1.w", "norm"]
    assert [name for name, weight in weights.layers.items() if weight.exists()] == [
        "layers.0.w",
        "layers.1.w",
    ]
    assert weights["norm"].data().dtype is DType.float16


def test_values_are_those_of_the_file(file: Path) -> None:
    value = load_weights([file]).layers[1].w.data()
    assert (value.name, value.dtype, value.shape) == ("layers.1.w", DType.float32, [4, 3])
    assert value.quantization_encoding is None
    np.testing.assert_array_equal(value.to_buffer().to_numpy(), data(4, 3, seed=1))
    np.testing.assert_array_equal(np.from_dlpack(value.to_buffer()), data(4, 3, seed=1))
    half = value.astype(DType.float16)
    assert half.dtype is DType.float16
    np.testing.assert_array_equal(half.to_buffer().to_numpy(), data(4, 3, seed=1).astype(np.float16))
    array = np.arange(3)
    made = WeightData.from_numpy(array, "n")
    assert (made.name, made.dtype, made.shape) == ("n", DType.int64, [3])
    assert made.to_buffer().to_numpy() is not array


def test_weights_run(session: InferenceSession, file: Path) -> None:
    weights = load_weights([file])
    assert weights.allocated_weights == {}
    up = weights.layers[0].w.allocate()
    down = weights.layers[1].w.allocate(DType.float32, [4, 3])
    x = data(2, 4)
    (y,) = run(session, lambda x: x @ up @ down.T, [x], weights=weights.allocated_weights)
    np.testing.assert_allclose(y, x @ data(4, 3) @ data(4, 3, seed=1).T, rtol=1e-5)
    assert sorted(weights.allocated_weights) == ["layers.0.w", "layers.1.w"]


def test_expectations_are_checked(file: Path) -> None:
    weights = load_weights([file])
    with pytest.raises(ValueError, match="norm.*dtype is .*float16, expected .*float32"):
        weights.norm.allocate(DType.float32)
    with pytest.raises(ValueError, match="norm.*shape"):
        weights.norm.allocate(shape=[5])
    with pytest.raises(ValueError, match="quantization_encoding"):
        weights.norm.allocate(quantization_encoding=QuantizationEncoding.Q4_0)
    with pytest.raises(KeyError):
        weights.nothing.data()


def test_files_are_checked(tmp_path: Path, file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_weights([tmp_path / "none.gguf"])
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF")
    with pytest.raises(perihelion.FileError):
        load_weights([damaged])
    with pytest.raises(ValueError, match="the files are safetensors, expected gguf"):
        GGUFWeights(file)
    assert weights_format([file]) is WeightsFormat.safetensors == "safetensors"
    assert repr(WeightsFormat.gguf) == "gguf" and json.dumps(WeightsFormat.gguf) == '"gguf"'
    for wrong in ([], [file, damaged], [tmp_path / "a.txt"]):
        with pytest.raises(ValueError):
            weights_format(wrong)


def test_a_quantized_matrix_of_a_file_multiplies(session: InferenceSession) -> None:
    weights = load_weights([shared("shakespeare-llama/gguf/shakespeare-llama-Q4_0.gguf")])
    assert isinstance(weights, GGUFWeights)
    found = [w for _, w in weights.items() if w.data().quantization_encoding is QuantizationEncoding.Q4_0]
    matrix = next(weight for weight in found if len(weight.data().shape) == 2)
    value = matrix.data()
    assert value.dtype is DType.uint8
    with pytest.raises(ValueError, match="is quantized"):
        value.astype(DType.float32)
    weight = matrix.allocate(DType.float32)
    _, (_, columns) = weight.original_dtype_and_shape

    def build(x: TensorValue) -> list[TensorValue]:
        q4 = QuantizationEncoding.Q4_0
        return [ops.qmatmul(q4, None, x, weight), ops.dequantize(q4, weight)]

    x = data(3, int(columns))
    product, elements = run(session, build, [x], weights=weights.allocated_weights)
    expected = x @ elements.T
    np.testing.assert_allclose(product, expected, atol=0.05 * np.abs(expected).max())


def test_a_safetensors_model_is_read() -> None:
    weights = load_weights([shared("minilm-l6-v2/model.safetensors")])
    embeddings = weights.embeddings.word_embeddings.weight
    assert embeddings.data().shape == [30522, 384]
    assert embeddings.data().to_buffer().to_numpy().shape == (30522, 384)
