"""Tracebacks with at most two frames of this package, and warnings at the line of the program."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, MutableMapping
from types import FunctionType, TracebackType
from typing import Any

_FOLDER = os.path.dirname(__file__) + os.sep


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns at the line of the program that called this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def shorten(namespace: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Wraps the functions of these names: their tracebacks show the call that the program made, and where it failed."""
    for name in names:
        if isinstance(namespace[name], FunctionType):
            namespace[name] = _shortened(namespace[name])


def shorten_methods(owner: type, names: Iterable[str] | None = None) -> None:
    """Wraps methods of a class: those of these names, else the constructor, the operators and all public ones."""
    for name, value in vars(owner).copy().items():
        if name not in names if names is not None else name.startswith("_") and name not in _OPERATORS:
            continue
        if isinstance(value, FunctionType):
            setattr(owner, name, _shortened(value))
        elif isinstance(value, (staticmethod, classmethod)):
            setattr(owner, name, type(value)(_shortened(value.__func__)))
        elif isinstance(value, property) and value.fget is not None:
            setattr(owner, name, property(_shortened(value.fget), value.fset))


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
        except BaseException as error:
            raise error.with_traceback(_trimmed(error))

    @functools.wraps(function)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except BaseException as error:
            raise error.with_traceback(_trimmed(error))

    return acall if inspect.iscoroutinefunction(function) else call


def _trimmed(error: BaseException) -> TracebackType | None:
    """The traceback below the frame that caught the error, with only the last of this package's frames."""
    entries, entry = [], error.__traceback__ and error.__traceback__.tb_next
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    trimmed, has_ours = None, False
    for entry in reversed(entries):
        is_ours = entry.tb_frame.f_code.co_filename.startswith(_FOLDER)
        if not (is_ours and has_ours):
            trimmed = TracebackType(trimmed, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
        has_ours = has_ours or is_ours
    return trimmed
