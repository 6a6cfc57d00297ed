"""The HTTP server, on a thread of this process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from perihelion import _perihelion
from perihelion._tracebacks import shorten

from .pipelines.config import PipelineConfig
from .pipelines._model import _config, _threads

__all__ = ["Server", "serve"]


@dataclass
class _Settings:
    """How a server listens, and what it refuses."""

    host: str
    port: int
    num_threads: int | None = None
    keys: str | Sequence[str] | None = None
    key_file: str | Path | None = None
    insecure: bool = False
    allowed_hosts: str | Sequence[str] | None = None
    cors_origins: str | Sequence[str] | None = None


class Server:
    """A running server, until it is closed. `serve` makes them."""

    def __init__(self, native: _perihelion.Server) -> None:
        self._native = native

    @property
    def url(self) -> str:
        """Where programs on this machine reach it: `http://127.0.0.1:8000`. Clients of OpenAI add `/v1`."""
        return self._native.url

    def wait(self) -> None:
        """Waits until the server has ended. Ctrl-C raises `KeyboardInterrupt` here; the server goes on."""
        self._native.wait()

    def close(self) -> None:
        """Takes no more requests, answers those that run, and frees the memory. Waits until that is done."""
        self._native.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not sys.is_finalizing():
            native.release()

    def __reduce__(self) -> Any:
        raise TypeError("Server cannot be pickled: start one in each process")

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


def serve(
    model: str | Path | PipelineConfig | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    **options: Any,
) -> Server:
    """Loads a model and answers requests over HTTP from then on, as `peri serve` does, without waiting for them.

    Args:
        model: a name on a hub, a folder, a file, or a `PipelineConfig`; `None` is a small model that is built in.
        host: the IP address to listen on.
        port: the port to listen on; 0 takes a free one, which `Server.url` has.
        options: fields of `PipelineConfig`, whose defaults are for many requests at once, and settings of the server:
            `num_threads`, as for `LLM`; `keys`, one or more API keys of clients; `key_file`, a file with the hashes of
            keys; `insecure`, to answer everyone on an address that other machines reach; `allowed_hosts`, further names
            that the server answers to without keys; `cors_origins`, origins of pages that may call it.

    Raises:
        ConfigError: the configuration cannot be, with all that is wrong.
        FileNotFoundError: there is no such model.
        OSError: the address is in use.
        OutOfMemory: the model does not fit.
        ValueError: other machines would reach a server without keys.

    >>> with serve() as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """
    names = {field.name for field in fields(_Settings)}
    settings = _Settings(host, port, **{name: options.pop(name) for name in names & options.keys()})
    native = _config("serve", model, "server", options)._native
    return Server(_perihelion.Server(native, _threads(settings.num_threads), settings))


shorten(globals(), ["serve"])
