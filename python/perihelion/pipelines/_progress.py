"""How far loading and requests are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Union

Progress = Union[bool, Callable[..., Any]]
"""Whether a bar is shown, or what makes one, such as `tqdm.tqdm`."""

LoadProgress = Union[bool, Callable[[str, int, int], object]]
"""Whether a bar is shown, or what is called with a phase, what is done of it, and all that there is to do."""


class _Bar:
    """A line on standard error that says how much is done."""

    def __init__(self, total: int, name: str = "") -> None:
        self._total, self._done, self._name = total, 0, name

    def update(self, more: int) -> None:
        self._done += more
        filled = 30 * self._done // max(self._total, 1)
        bar = "█" * filled + "░" * (30 - filled)
        sys.stderr.write(f"\r{self._name}{bar} {self._done}/{self._total}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


class _Progress:
    """A bar of the answers that are whole, if one is wanted."""

    def __init__(self, wanted: Progress, size: int) -> None:
        self._bar = wanted(total=size) if callable(wanted) else _Bar(size) if wanted else None
        self._shown = 0

    def show(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(done - self._shown)
            self._shown = done

    def end(self) -> None:
        if self._bar is not None:
            self._bar.close()


class _Loading:
    """A bar for each phase of loading, if they are wanted; else the program's callable."""

    def __init__(self, wanted: LoadProgress) -> None:
        self._told = wanted if callable(wanted) else self._show if wanted else None
        self._bars: dict[str, tuple[_Bar, int]] = {}

    def __enter__(self) -> Callable[[str, int, int], object] | None:
        return self._told

    def __exit__(self, *args: object) -> None:
        if self._bars:
            sys.stderr.write("\n")

    def _show(self, phase: str, done: int, total: int) -> None:
        mega = 1 << 20
        bar, shown = self._bars.get(phase) or (_Bar(total // mega, f"{phase} (MiB) "), 0)
        bar.update(done // mega - shown)
        self._bars[phase] = (bar, done // mega)
