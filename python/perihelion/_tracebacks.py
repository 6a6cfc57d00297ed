"""Tracebacks that show at most two frames of this package: the call that the program made, and where it failed."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, MutableMapping
from types import FunctionType
from typing import Any

_FOLDER = os.path.dirname(__file__)


def shorten(namespace: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Wraps the functions of these names."""
    for name in names:
        if isinstance(namespace[name], FunctionType):
            namespace[name] = _shortened(namespace[name])


def shorten_methods(owner: type) -> None:
    """Wraps the constructor, the operators and the public methods of a class."""
    for name, value in vars(owner).copy().items():
        if isinstance(value, FunctionType) and (not name.startswith("_") or name in _OPERATORS):
            setattr(owner, name, _shortened(value))


_ARITHMETIC = "add sub mul truediv floordiv mod divmod pow matmul and or xor".split()
_OPERATORS = {
    *(f"__{name}__" for name in "init getitem setitem eq ne lt le gt ge neg invert abs round".split()),
    *(f"__{prefix}{name}__" for name in _ARITHMETIC for prefix in ("", "r")),
}


# A function with two names stays one function.
@functools.cache
def _shortened(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            frame = last = error.__traceback__ and error.__traceback__.tb_next
            while frame is not None:
                if not frame.tb_frame.f_code.co_filename.startswith(_FOLDER):
                    # A function of the program failed.
                    raise
                frame, last = frame.tb_next, frame
            raise error.with_traceback(last)

    return call
