"""The signatures of graphs and ops match the specification: names, kinds and defaults of parameters."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from test_names import text

from perihelion import graph
from perihelion.graph import buffer_utils, ops, weights

SIGNATURES = {
    "(lhs, rhs)": "add sub mul div mod pow equal not_equal greater greater_equal logical_and logical_or logical_xor "
    "floor_div matmul outer",
    "(x)": "abs exp erf log log1p sqrt rsqrt sin cos tanh atanh acos ceil floor round trunc negate relu sigmoid silu "
    "is_nan is_inf logical_not as_interleaved_complex buffer_load",
    "(x, approximate='none')": "gelu",
    "(value, axis=-1)": "softmax logsoftmax",
    "(x, y=None, /, axis=None)": "min max",
    "(x, axis=-1)": "sum mean prod argmin argmax",
    "(input, gamma, beta, epsilon)": "layer_norm",
    "(input, weight, epsilon, weight_offset=0.0, multiply_before_cast=False)": "rms_norm",
    "(input, gamma, beta, num_groups, epsilon)": "group_norm",
    "(x, axis=-1, exclusive=False, reverse=False)": "cumsum",
    "(x, ascending=True)": "argsort",
    "(input, k, axis=-1)": "top_k bottom_k",
    "(x, filter, stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), groups=1, bias=None, "
    "input_layout=ConvInputLayout.NHWC, filter_layout=FilterLayout.RSCF)": "conv2d",
    "(x, filter, stride=(1, 1, 1), dilation=(1, 1, 1), padding=(0, 0, 0, 0, 0, 0), groups=1, bias=None, "
    "input_layout=ConvInputLayout.NHWC, filter_layout=FilterLayout.QRSCF)": "conv3d",
    "(x, filter, stride=(1, 1), dilation=(1, 1), padding=(0, 0, 0, 0), output_paddings=(0, 0), bias=None, "
    "input_layout=ConvInputLayout.NHWC, filter_layout=FilterLayout.RSCF)": "conv2d_transpose",
    "(input, kernel_size, stride=1, dilation=1, padding=0, ceil_mode=False, count_boundary=True)": "avg_pool2d",
    "(input, kernel_size, stride=1, dilation=1, padding=0, ceil_mode=False)": "max_pool2d",
    "(input, output_size, kernel_size, stride=1, dilation=1, padding=0)": "fold",
    "(input, rois, output_height, output_width, spatial_scale=1.0, sampling_ratio=0.0, aligned=False, "
    "mode='AVG')": "roi_align",
    "(input, shape, interpolation=InterpolationMode.BILINEAR)": "resize",
    "(input, size, coordinate_transform_mode=0, antialias=False)": "resize_linear",
    "(input, size, coordinate_transform_mode=0, round_mode=0)": "resize_nearest",
    "(input, size)": "resize_bicubic",
    "(boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold, out_dim='num_selected')": (
        "non_maximum_suppression"
    ),
    "(input_tensor, n=None, axis=-1, normalization=Normalization.BACKWARD, input_is_complex=False, "
    "buffer_size_mb=512)": "irfft",
    "(x, shape)": "reshape",
    "(x, start_dim=0, end_dim=-1)": "flatten",
    "(x, axis)": "squeeze unsqueeze",
    "(x, dims)": "permute",
    "(x, axis_1, axis_2)": "transpose",
    "(x, shape, out_dims=None)": "broadcast_to",
    "(vals, axis=0)": "concat stack",
    "(x, split_sizes, axis=0)": "split",
    "(x, chunks, axis=0)": "chunk",
    "(x, repeats)": "tile",
    "(x, repeats, axis=None, out_dim=None)": "repeat_interleave",
    "(input, paddings, mode='constant', value=0)": "pad",
    "(x, indices)": "slice_tensor",
    "(x, shape, message='', layout=None)": "rebind",
    "(shape)": "shape_to_tensor",
    "(x, num_lower=None, num_upper=None, exclude=False)": "band_part",
    "(input, indices, axis)": "gather",
    "(input, indices, batch_dims=0)": "gather_nd",
    "(condition, x, y)": "where",
    "(x, out_dim)": "nonzero",
    "(input, mask, updates, out_dim)": "masked_scatter",
    "(input, updates, indices, axis=-1)": "scatter scatter_add scatter_max scatter_min scatter_mul",
    "(input, updates, indices)": "scatter_nd scatter_nd_add scatter_nd_max scatter_nd_min scatter_nd_mul",
    "(value, dtype=None, device=None)": "constant",
    "(name, type, align=None)": "constant_external",
    "(start, stop, step=1, out_dim=None, *, dtype, device)": "range",
    "(window_length, device, periodic=True, dtype=DType.float32)": "hann_window",
    "(x, dtype)": "cast",
    "(x, device)": "transfer_to",
    "(value, label='debug_tensor')": "print",
    "(type)": "buffer_create",
    "(destination, source)": "buffer_store",
    "(destination, source, indices)": "buffer_store_slice",
    "(pred, out_types, then_fn, else_fn)": "cond",
    "(initial_values, predicate, body)": "while_loop",
    "(graph, *args, prefix='')": "call",
    "(name, device, values, out_types, parameters=None)": "custom",
    "(name, device, values, out_types=None, parameters=None)": "inplace_custom",
    "(encoding, config, lhs, *rhs)": "qmatmul",
    "(encoding, quantized)": "dequantize",
    "(inputs, signal_buffers, axis=0)": "allgather",
    "(input, signal_buffers)": "distributed_broadcast",
    "(input_chunks, signal_buffers)": "distributed_scatter",
    "(inputs, devices, axis=0)": "shard_and_stack",
}
OPS = [(name, signature) for signature, names in SIGNATURES.items() for name in names.split()]

WITHIN_MODULES = [
    (ops.allreduce.sum, "(inputs, signal_buffers)"),
    (ops.bundled_allreduce.sum, "(inputs, signal_buffers)"),
    (ops.reducescatter.sum, "(inputs, signal_buffers, axis=0)"),
    (ops.complex.mul, "(lhs, rhs)"),
    (ops.random.set_seed, "(seed=0)"),
    (ops.random.normal, "(like, mean=0, std=1)"),
    (ops.random.gaussian, "(like, mean=0, std=1)"),
    (ops.random.uniform, "(like, range=(0, 1))"),
]

OTHERS = [
    (
        graph.Graph,
        "(name, forward=None, input_types=(), path=None, *args, custom_extensions=[], kernel_library=None, "
        "module=None, strict_device_placement=DevicePlacementPolicy.Warn, **kwargs)",
    ),
    (graph.Graph.output, "(self, *outputs)"),
    (graph.Graph.add_weight, "(self, weight, force_initial_weight_on_host=True)"),
    (
        graph.Graph.add_subgraph,
        "(self, name, forward=None, input_types=(), path=None, custom_extensions=[], devices=[])",
    ),
    (graph.Module, "()"),
    (
        graph.Weight,
        "(name, dtype, shape, device, quantization_encoding=None, align=None, sharding_strategy=None)",
    ),
    (graph.TensorType, "(dtype, shape, device)"),
    (graph.BufferType, "(dtype, shape, device)"),
    (graph.DeviceRef, "(device_type, id=0)"),
    (graph.DeviceRef.CPU, "(id=0)"),
    (graph.Dim, "(value)"),
    (graph.Shape, "(dims=())"),
    (graph.KernelLibrary, "(paths=())"),
    (graph.QuantizationConfig, "(quant_method, bits, group_size, desc_act=False, sym=False)"),
    (graph.TensorValue.reshape, "(self, shape)"),
    (graph.TensorValue.flatten, "(self, start_dim=0, end_dim=-1)"),
    (graph.TensorValue.rebind, "(self, shape, message='')"),
    (graph.TensorValue.transpose, "(self, dim_1, dim_2)"),
    (graph.TensorValue.print, "(self, label='debug_tensor')"),
    (graph.TensorValue.max, "(self, axis=-1)"),
    (graph.BufferValue.print, "(self, label='debug_buffer')"),
    (buffer_utils.cast_tensor_to, "(tensor, new_dtype, session=None)"),
    (weights.WeightData, "(data, name, dtype, shape, quantization_encoding=None)"),
    (
        weights.Weights.allocate,
        "(self, dtype=None, shape=None, quantization_encoding=None, device=DeviceRef(cpu:0))",
    ),
    (weights.load_weights, "(paths)"),
    (weights.weights_format, "(paths)"),
    (graph.default_custom_extensions_scope, "(*paths)"),
]


def shown(function: Any) -> str:
    signature = inspect.signature(function)
    plain = text(signature, annotated=False)
    only = [p.name for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY]
    return plain.replace(f"{only[-1]}=None", f"{only[-1]}=None, /") if only else plain


@pytest.mark.parametrize("name, signature", OPS)
def test_ops(name: str, signature: str) -> None:
    assert shown(getattr(ops, name)) == signature


@pytest.mark.parametrize("function, signature", WITHIN_MODULES + OTHERS)
def test_others(function: Any, signature: str) -> None:
    assert shown(function) == signature


def test_every_op_is_listed() -> None:
    modules = {"allreduce", "bundled_allreduce", "complex", "elementwise", "random", "reducescatter", "reduction"}
    enums = {"InterpolationMode", "Normalization"}
    assert set(ops.__all__) - modules - enums - {"parallel"} == {name for name, _ in OPS}
