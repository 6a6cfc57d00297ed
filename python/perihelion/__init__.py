"""Runs graphs and language models on CPUs.

The parts are modules of their own: `perihelion.engine`, `perihelion.driver` and `perihelion.dtype`.
"""

from ._perihelion import FileError, InternalError, OutOfMemory, __version__

__all__ = ["FileError", "InternalError", "OutOfMemory", "__version__"]
