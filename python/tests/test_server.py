"""The HTTP server in this process: its life, its settings, its clients."""

from __future__ import annotations

import gc
import json
import os
import pickle
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
import pytest

import perihelion
from conftest import STORYTELLER, python, shared
from perihelion import LLM, Embedder, FileError, SamplingParams
from perihelion.pipelines import PipelineConfig
from perihelion.server import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with perihelion.serve() as server:
        yield server


def call(server: Server, path: str, body: dict[str, Any] | None = None, **headers: str) -> HTTPResponse:
    """The response to a request: a POST if there is a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    response = urllib.request.urlopen(urllib.request.Request(server.url + path, data, headers), timeout=30)
    assert isinstance(response, HTTPResponse)
    return response


def answer(server: Server, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    with call(server, path, body, **headers) as response:
        return json.load(response)


def refusal(server: Server, path: str, **headers: str) -> tuple[int, str]:
    with pytest.raises(HTTPError) as raised:
        call(server, path, **headers)
    with raised.value as error:
        return error.code, json.load(error)["error"]["message"]


def test_answers_are_those_of_the_class(server: Server, llm: LLM) -> None:
    assert [model["id"] for model in answer(server, "/v1/models")["data"]] == ["storyteller"]
    body = {"prompt": "The fox", "max_tokens": 20, "temperature": 0.8, "seed": 7}
    expected = llm.generate("The fox", SamplingParams(max_tokens=20, temperature=0.8, seed=7))[0]
    assert answer(server, "/v1/completions", body)["choices"][0]["text"] == expected.text
    assert repr(server) == f"Server('{server.url}')"
    with pytest.raises(TypeError, match="Server cannot be pickled"):
        pickle.dumps(server)


def test_clients_of_openai_work(server: Server) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    chunks = client.completions.create(model="storyteller", prompt="The fox", max_tokens=9, temperature=0, stream=True)
    whole = client.completions.create(model="storyteller", prompt="The fox", max_tokens=9, temperature=0)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text != ""


def test_models_are_named_and_configured_as_elsewhere() -> None:
    config = PipelineConfig(STORYTELLER, max_length=32, cache_strategy="paged")
    with perihelion.serve(config, num_threads=1) as server:
        (model,) = answer(server, "/v1/models")["data"]
        assert model["id"] == "model"
        with pytest.raises(HTTPError) as raised:
            call(server, "/v1/completions", {"prompt": "word " * 40})
        with raised.value as error:
            assert json.load(error)["error"]["code"] == "context_length_exceeded"
    folder = shared("minilm-l6-v2")
    with perihelion.serve(folder) as server, Embedder(folder) as embedder:
        data = answer(server, "/v1/embeddings", {"model": folder.name, "input": ["a cat"]})["data"]
        assert (np.array(data[0]["embedding"], np.float32) == embedder.embed("a cat")[0]).all()


def test_a_server_ends_once_its_requests_are_answered() -> None:
    server = perihelion.serve()
    body = {"prompt": "The fox", "temperature": 0, "max_tokens": 300, "ignore_eos": True, "stream": True}
    with call(server, "/v1/completions", body) as response:
        assert response.readline().startswith(b"data: ")
        closing = threading.Thread(target=server.close)
        closing.start()
        lines = [line for line in response if line.startswith(b"data: ")]
    assert lines[-1] == b"data: [DONE]\n" and len(lines) > 200
    closing.join(10)
    assert not closing.is_alive()
    with pytest.raises(URLError):
        call(server, "/v1/models")
    server.wait()
    server.close()


def test_a_server_ends_with_its_object() -> None:
    server = perihelion.serve()
    url = f"{server.url}/live"
    urllib.request.urlopen(url).close()
    del server
    gc.collect()
    deadline = time.monotonic() + 10
    with pytest.raises(URLError):
        while time.monotonic() < deadline:
            urllib.request.urlopen(url).close()


def test_signals_interrupt_waiting_and_the_server_goes_on(server: Server) -> None:
    def interrupt() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    sent: list[float] = []
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        server.wait()
    late = time.monotonic() - sent[0]
    thread.join()
    assert late < 0.2
    assert answer(server, "/v1/models")["data"]


def test_keys_are_needed_once_there_are_some(tmp_path: Path) -> None:
    with perihelion.serve(keys=["one", "two"]) as server:
        assert refusal(server, "/v1/models")[0] == 401
        for key in ("one", "two"):
            assert answer(server, "/v1/models", Authorization=f"Bearer {key}")["data"]
        assert refusal(server, "/v1/models", Authorization="Bearer three")[0] == 401
    file = tmp_path / "keys"
    # The BLAKE3 hash of "secret".
    hash = "5fbf08af2b116ab8f7f3c14b8ec01a46ce23d290e2ebc7a752d0982d54c054f2"
    file.write_text(f"alice:infer:{hash}\n")
    with perihelion.serve(key_file=file, keys="one") as server:
        for key in ("one", "secret"):
            assert answer(server, "/v1/models", x_api_key=key)["data"]
    file.write_text("alice:infer\n")
    with pytest.raises(FileError, match="keys: line 1: 2 fields"):
        perihelion.serve(key_file=file)
    with pytest.raises(FileNotFoundError):
        perihelion.serve(key_file=tmp_path / "missing")


def test_names_and_origins_are_those_that_are_allowed(server: Server) -> None:
    code, message = refusal(server, "/v1/models", Host="example.com")
    assert code == 403 and "example.com" in message
    assert refusal(server, "/v1/models", Origin="https://example.com")[0] == 403
    with perihelion.serve(allowed_hosts="example.com", cors_origins=["https://example.com"]) as open_server:
        assert answer(open_server, "/v1/models", Host="example.com")["data"]
        with call(open_server, "/v1/models", Origin="https://example.com") as response:
            assert response.headers["Access-Control-Allow-Origin"] == "https://example.com"


def test_servers_that_cannot_start(server: Server) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    cases: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (OSError, "cannot listen on 127.0.0.1:", {"port": port}),
        (ValueError, "port is 70000: give a whole number, at most 65535", {"port": 70_000}),
        (TypeError, "port: got str", {"port": "80"}),
        (ValueError, "host is \"localhost\": give an IP address", {"host": "localhost"}),
        (TypeError, "keys: got int, expected a text, a list of texts, or None", {"keys": 5}),
        (TypeError, "hots", {"hots": "127.0.0.1"}),
        (ValueError, "can be reached from other machines", {"host": "0.0.0.0"}),
        (FileNotFoundError, "nowhere.gguf", {"model": "nowhere.gguf"}),
        (perihelion.ConfigError, "kv_cache_page_size", {"kv_cache_page_size": 7}),
    ]
    for error, message, options in cases:
        with pytest.raises(error, match=message):
            perihelion.serve(**options)
    with perihelion.serve(host="0.0.0.0", insecure=True) as everyone:
        assert everyone.url.startswith("http://127.0.0.1:") and answer(everyone, "/v1/models")["data"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_cannot_use_the_server_of_its_parent() -> None:
    result = python("""
        import os, urllib.request
        import perihelion
        server = perihelion.serve()
        child = os.fork()
        if child == 0:
            for call in (server.wait, server.close):
                try:
                    call()
                    print("it worked", flush=True)
                except RuntimeError as error:
                    print("refused" if "spawn" in str(error) else error, flush=True)
            del server
            raise SystemExit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(urllib.request.urlopen(server.url + "/live").status)
        server.close()
        """)
    assert (result.stdout.split(), result.stderr) == (["refused", "refused", "200"], "")


def test_the_interpreter_ends_quietly_while_a_server_runs() -> None:
    result = python("""
        import threading
        import perihelion
        server = perihelion.serve()
        threading.Thread(target=server.wait, daemon=True).start()
        raise SystemExit(3)
        """)
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")
