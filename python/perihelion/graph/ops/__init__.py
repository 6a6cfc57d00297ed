"""Ops: functions of the values of the current graph."""

from perihelion._tracebacks import shorten

from . import (
    allreduce,
    along,
    buffers,
    bundled_allreduce,
    complex,
    control,
    devices,
    elementwise,
    images,
    indexing,
    make,
    products,
    random,
    reducescatter,
    reduction,
    shapes,
)
from .along import *
from .buffers import *
from .control import *
from .devices import *
from .elementwise import *
from .images import *
from .indexing import *
from .make import *
from .products import *
from .shapes import *

__all__ = ["allreduce", "bundled_allreduce", "complex", "elementwise", "random", "reducescatter", "reduction"]
__all__ += along.__all__
__all__ += buffers.__all__
__all__ += control.__all__
__all__ += devices.__all__
__all__ += elementwise.__all__
__all__ += images.__all__
__all__ += indexing.__all__
__all__ += make.__all__
__all__ += products.__all__
__all__ += shapes.__all__

shorten(globals(), __all__)
for _module in (allreduce, bundled_allreduce, complex, elementwise, random, reducescatter, reduction):
    shorten(vars(_module), _module.__all__)
