"""The types that elements of buffers can have."""

from .dtype import DType, finfo

__all__ = ["DType", "finfo"]
