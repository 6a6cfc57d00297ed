"""Answers for asyncio: each step of the model wakes the loop once, for all its answers."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from perihelion import _perihelion

__all__: list[str] = []


class _Loop:
    """The tasks of an event loop that wait for answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        this, of_loop = weakref.ref(self), weakref.ref(loop)

        def ready() -> None:
            if (found := this()) is not None:
                found._wake()

        def wake() -> None:
            if (loop := of_loop()) is not None:
                loop.call_soon_threadsafe(ready)

        self._native = _perihelion.Wakeups(wake)

    def _wake(self) -> None:
        for key, item in self._native.ready():
            future = self._waiting.get(key)
            if future is not None and not future.done():
                future.set_result(item)

    async def next(self, answers: _perihelion.Answers) -> Any:
        """The next item; `StopAsyncIteration` after the last. Cancelling it cancels the request."""
        item = answers.poll(self._native)
        if item is not None:
            return item
        # `_wake` runs on this loop, so it cannot run before the future is there.
        future = self._waiting[answers.key] = asyncio.get_running_loop().create_future()
        try:
            item = await future
        except BaseException:
            answers.close()
            raise
        finally:
            del self._waiting[answers.key]
        if isinstance(item, BaseException):
            raise item
        return item


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()


def _running() -> _Loop:
    """The waiting tasks of the running loop."""
    loop = asyncio.get_running_loop()
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Loop(loop)
    return found
