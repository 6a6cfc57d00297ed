"""Ops on images and signals."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Union

from perihelion import _perihelion

from ..dim import Dim, DimLike
from ..shape import Shape, ShapeLike
from ..type import ConvInputLayout, FilterLayout
from ..value import TensorValue, TensorValueLike, _current, _native, _native_data, _operand, _wrap_tensor
from .make import _scalar

__all__ = [
    "InterpolationMode",
    "Normalization",
    "avg_pool2d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "fold",
    "irfft",
    "max_pool2d",
    "non_maximum_suppression",
    "resize",
    "resize_bicubic",
    "resize_linear",
    "resize_nearest",
    "roi_align",
]

_Pair = Union[int, tuple[int, int]]


class InterpolationMode(str, Enum):
    """How elements between others are made."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Normalization(str, Enum):
    """The factor of a Fourier transform."""

    BACKWARD = "backward"
    ORTHO = "ortho"
    FORWARD = "forward"


def conv2d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A convolution of images.

    Args:
        x: images, as `input_layout` says.
        filter: as `filter_layout` says; its sizes are numbers. An array takes the dtype of `x`; of tensors, the dtype that
            holds both is the result's.
        stride: the distance of windows, down and across.
        dilation: the distance of elements in a window.
        padding: zeros above, below, left and right.
        groups: into how many groups the channels fall.
        bias: [result channels].
        input_layout: of `x` and of the result.
        filter_layout: of `filter`.
    """
    return _conv(2, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


def conv3d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int, int] = (1, 1, 1),
    dilation: tuple[int, int, int] = (1, 1, 1),
    padding: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
) -> TensorValue:
    """As `conv2d`, over depth, height and width."""
    return _conv(3, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


def conv2d_transpose(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    output_paddings: tuple[int, int] = (0, 0),
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """A transposed convolution: the gradient of the convolution with the same `filter`.

    Args:
        x: images.
        filter: [height, width, result channels, channels], or as `filter_layout` says.
        stride: the distance of windows in the result.
        dilation: the distance of elements in a window.
        padding: rows and columns cut off the result above, below, left and right.
        output_paddings: rows and columns added below and right.
        bias: [result channels].
        input_layout: of `x` and of the result.
        filter_layout: of `filter`.
    """
    graph = _current()
    settings = _windows(stride, dilation, padding), list(output_paddings), *_layouts(input_layout, filter_layout)
    return _wrap_tensor(graph._native.conv2d_transpose(*_operands(x, filter, bias), settings), graph)


def avg_pool2d(
    input: TensorValueLike,
    kernel_size: tuple[int, int],
    stride: _Pair = 1,
    dilation: _Pair = 1,
    padding: _Pair = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
) -> TensorValue:
    """The mean of each window of images [batch, height, width, channels].

    Args:
        input: images.
        kernel_size: height and width of the window.
        stride: the distance of windows.
        dilation: the distance of elements in a window.
        padding: zeros on both sides.
        ceil_mode: whether windows that reach beyond the end count.
        count_boundary: whether padding counts for the mean.
    """
    return _pool(input, kernel_size, stride, dilation, padding, ceil_mode, count_boundary)


def max_pool2d(
    input: TensorValueLike,
    kernel_size: tuple[int, int],
    stride: _Pair = 1,
    dilation: _Pair = 1,
    padding: _Pair = 0,
    ceil_mode: bool = False,
) -> TensorValue:
    """The largest element of each window of images; see `avg_pool2d`."""
    return _pool(input, kernel_size, stride, dilation, padding, ceil_mode, None)


def fold(
    input: TensorValueLike,
    output_size: tuple[DimLike, DimLike],
    kernel_size: _Pair,
    stride: _Pair = 1,
    dilation: _Pair = 1,
    padding: _Pair = 0,
) -> TensorValue:
    """Images of the sums of their windows: [batch, channels * window, positions] to [batch, channels, height, width].

    Args:
        input: the windows.
        output_size: height and width of the images.
        kernel_size: of the window.
        stride: the distance of windows.
        dilation: the distance of elements in a window.
        padding: what is cut off on both sides.
    """
    size = [dim._native for dim in Shape(output_size)]
    windows = _same_windows(stride, dilation, padding)
    graph = _current()
    return _wrap_tensor(graph._native.fold(_native("input", input), size, _pair(kernel_size), windows), graph)


def roi_align(
    input: TensorValueLike,
    rois: TensorValueLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: float = 0.0,
    aligned: bool = False,
    mode: str = "AVG",
) -> TensorValue:
    """Regions of images at one size, by samples between their elements.

    Args:
        input: images [batch, height, width, channels].
        rois: [count, 5]: the number of an image, and x and y of two corners.
        output_height: of the results.
        output_width: of the results.
        spatial_scale: the factor from the regions' coordinates to the images'.
        sampling_ratio: samples along each side of a bin; 0 takes as many as the bin has elements.
        aligned: whether coordinates mean the centers of elements.
        mode: what becomes of the samples of a bin: "AVG" or "MAX".
    """
    settings = ((output_height, output_width), spatial_scale, int(sampling_ratio), aligned, mode)
    graph = _current()
    native = graph._native.roi_align(_native("input", input), _native_data("rois", rois), settings)
    return _wrap_tensor(native, graph)


def resize(
    input: TensorValueLike, shape: ShapeLike, interpolation: InterpolationMode = InterpolationMode.BILINEAR
) -> TensorValue:
    """A tensor at another size of all axes, such as images [batch, channels, height, width]."""
    return _resize(input, shape, InterpolationMode(interpolation).value, "half_pixel")


def resize_linear(
    input: TensorValueLike, size: ShapeLike, coordinate_transform_mode: int = 0, antialias: bool = False
) -> TensorValue:
    """A tensor at another size, on lines between its elements.

    Args:
        input: floats.
        size: of all axes.
        coordinate_transform_mode: 0 half pixel, 1 aligned corners, 2 asymmetric, 3 half pixel in one dimension.
        antialias: whether all elements count where an axis shrinks.
    """
    return _resize(input, size, "bilinear", _coordinates(coordinate_transform_mode), antialias=antialias)


def resize_nearest(
    input: TensorValueLike, size: ShapeLike, coordinate_transform_mode: int = 0, round_mode: int = 0
) -> TensorValue:
    """A tensor at another size, by the nearest elements.

    Args:
        input: floats.
        size: of all axes.
        coordinate_transform_mode: as for `resize_linear`.
        round_mode: 0 half down, 1 half up, 2 down, 3 up.
    """
    rounding = _nth("round_mode", round_mode, ["half_down", "half_up", "floor", "ceil"])
    return _resize(input, size, "nearest", _coordinates(coordinate_transform_mode), rounding)


def resize_bicubic(input: TensorValueLike, size: ShapeLike) -> TensorValue:
    """A tensor at another size of all axes, on cubics through its elements."""
    return _resize(input, size, "bicubic", "half_pixel")


def non_maximum_suppression(
    boxes: TensorValueLike,
    scores: TensorValueLike,
    max_output_boxes_per_class: TensorValueLike,
    iou_threshold: TensorValueLike,
    score_threshold: TensorValueLike,
    out_dim: DimLike = "num_selected",
) -> TensorValue:
    """The best of boxes that overlap: int64 [out_dim, 3], each image, class and box.

    Args:
        boxes: float32 [batch, n, 4], y and x of two corners.
        scores: float32 [batch, classes, n].
        max_output_boxes_per_class: boxes kept of each class of an image at most.
        iou_threshold: the intersection over union above which the lesser box goes.
        score_threshold: the score that a box must be above.
        out_dim: a name for the number of boxes.
    """
    graph = _current()
    native = graph._native.non_maximum_suppression(
        _native("boxes", boxes),
        _native("scores", scores),
        _scalar(max_output_boxes_per_class, "int64"),
        _scalar(iou_threshold, "float32"),
        _scalar(score_threshold, "float32"),
        str(out_dim),
    )
    return _wrap_tensor(native, graph)


def irfft(
    input_tensor: TensorValueLike,
    n: int | None = None,
    axis: int = -1,
    normalization: Normalization | str = Normalization.BACKWARD,
    input_is_complex: bool = False,
    buffer_size_mb: int = 512,
) -> TensorValue:
    """The real signal of half a spectrum, as `numpy.fft.irfft`.

    Args:
        input_tensor: float32.
        n: the length of the signal; `2 * (bins - 1)` if not given.
        axis: of the bins, not counting the axis of real and imaginary parts.
        normalization: what the sums are multiplied by.
        input_is_complex: whether the last axis holds real and imaginary parts; if not, the imaginary parts are 0.
        buffer_size_mb: has no effect.
    """
    length = None if n is None else Dim(n)._native
    norm = Normalization(normalization).value
    x = _native("input_tensor", input_tensor)
    graph = _current()
    native = graph._native.irfft(
        x if input_is_complex else graph._native.unary("real_as_complex", x), length, axis, norm
    )
    return _wrap_tensor(native, graph)


def _conv(
    axes: int,
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    groups: int,
    bias: TensorValueLike | None,
    input_layout: ConvInputLayout,
    filter_layout: FilterLayout,
) -> TensorValue:
    graph = _current()
    settings = _windows(stride, dilation, padding), groups, *_layouts(input_layout, filter_layout)
    return _wrap_tensor(graph._native.conv(axes, *_operands(x, filter, bias), settings), graph)


def _operands(
    x: TensorValueLike, filter: TensorValueLike, bias: TensorValueLike | None
) -> tuple[_perihelion.GraphValue, _perihelion._Operand, _perihelion._Operand | None]:
    return _native("x", x), _operand("filter", filter), None if bias is None else _operand("bias", bias)


def _layouts(images: ConvInputLayout, filter: FilterLayout) -> tuple[str, str]:
    return ConvInputLayout(images).value, FilterLayout(filter).value


def _pool(
    x: TensorValueLike,
    size: tuple[int, int],
    stride: _Pair,
    dilation: _Pair,
    padding: _Pair,
    round_up: bool,
    count_padding: bool | None,
) -> TensorValue:
    windows = _same_windows(stride, dilation, padding)
    graph = _current()
    native = graph._native.pool2d(_native("input", x), _pair(size), windows, round_up, count_padding)
    return _wrap_tensor(native, graph)


def _resize(
    x: TensorValueLike,
    size: ShapeLike,
    interpolation: str,
    coordinates: str,
    rounding: str = "half_down",
    antialias: bool = False,
) -> TensorValue:
    dims = [dim._native for dim in Shape(size)]
    graph = _current()
    native = graph._native.resize(_native("input", x), dims, interpolation, coordinates, rounding, antialias)
    return _wrap_tensor(native, graph)


_Windows = tuple[list[int], list[int], list[list[int]]]


def _windows(stride: Sequence[int], dilation: Sequence[int], padding: Sequence[int]) -> _Windows:
    """Strides, dilations, and pairs of paddings."""
    return list(stride), list(dilation), [list(padding[i : i + 2]) for i in range(0, len(padding), 2)]


def _same_windows(stride: _Pair, dilation: _Pair, padding: _Pair) -> _Windows:
    """Windows with the same padding on both sides of an axis."""
    return list(_pair(stride)), list(_pair(dilation)), [[size, size] for size in _pair(padding)]


def _pair(value: _Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _coordinates(mode: int) -> str:
    modes = ["half_pixel", "align_corners", "asymmetric", "half_pixel_1d"]
    return _nth("coordinate_transform_mode", mode, modes)


def _nth(parameter: str, index: int, names: list[str]) -> str:
    if 0 <= index < len(names):
        return names[index]
    raise ValueError(f"{parameter}: got {index}, expected 0 to {len(names) - 1}")
