"""Ops: functions of the values of the current graph."""

from . import allreduce, bundled_allreduce, complex, random, reducescatter
from .along import *
from .along import __all__ as _along
from .buffers import *
from .buffers import __all__ as _buffers
from .control import *
from .control import __all__ as _control
from .devices import *
from .devices import __all__ as _devices
from .elementwise import *
from .elementwise import __all__ as _elementwise
from .images import *
from .images import __all__ as _images
from .indexing import *
from .indexing import __all__ as _indexing
from .make import *
from .make import __all__ as _make
from .products import *
from .products import __all__ as _products
from .shapes import *
from .shapes import __all__ as _shapes

__all__ = [
    "allreduce",
    "bundled_allreduce",
    "complex",
    "random",
    "reducescatter",
    *_along,
    *_buffers,
    *_control,
    *_devices,
    *_elementwise,
    *_images,
    *_indexing,
    *_make,
    *_products,
    *_shapes,
]
