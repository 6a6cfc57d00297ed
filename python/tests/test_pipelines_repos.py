"""Repositories: of a hub on this machine, of its cache without a network, and folders."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import shared
from perihelion import LLM, SamplingParams
from perihelion.pipelines import HuggingFaceRepo, ModelInfo, PipelineConfig, RepoType, SupportedEncoding, WeightsFormat

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GREEDY = SamplingParams(temperature=0, max_tokens=8)


class Hub(BaseHTTPRequestHandler):
    """Serves the repository `ada/tiny` and notes which files are fetched."""

    files: dict[str, bytes] = {}
    fetched: list[str] = []

    def do_GET(self) -> None:
        name = self.path.removeprefix(f"/ada/tiny/resolve/{COMMIT}/")
        if self.path.startswith("/api/models/ada/tiny/revision/"):
            siblings = [{"rfilename": name, "size": len(content)} for name, content in self.files.items()]
            self.reply(json.dumps({"id": "ada/tiny", "sha": COMMIT, "tags": ["tiny"], "siblings": siblings}).encode())
        elif name in self.files:
            if self.command == "GET":
                self.fetched.append(name)
            self.reply(self.files[name])
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def reply(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    """A hub on this machine, and an empty cache."""
    folder = shared("stories260k/hf")
    Hub.files = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors", "tokenizer.json")}
    Hub.fetched = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    yield Hub
    server.shutdown()
    server.server_close()


def test_a_hub_describes_its_repositories(hub: type[Hub]) -> None:
    repo = HuggingFaceRepo("ada/tiny")
    assert (repo.repo_id, repo.repo_type) == ("ada/tiny", RepoType.online)
    info = repo.info
    assert isinstance(info, ModelInfo) and (info.id, info.sha, info.tags) == ("ada/tiny", COMMIT, ["tiny"])
    assert info.siblings == [(name, len(content)) for name, content in hub.files.items()]
    assert repo.size_of("config.json") == len(hub.files["config.json"])
    assert repo.file_exists("config.json") and not repo.file_exists("no.json")
    assert repo.weight_files == {WeightsFormat.safetensors: ["model.safetensors"]}


def test_files_are_downloaded_once_unless_forced(hub: type[Hub]) -> None:
    repo = HuggingFaceRepo("ada/tiny")
    for force, times in [(False, 1), (False, 1), (True, 2)]:
        assert repo.download("config.json", force).read_bytes() == hub.files["config.json"]
        assert hub.fetched.count("config.json") == times
    for force, times in [(False, 1), (False, 1), (True, 2)]:
        config = PipelineConfig("ada/tiny", force_download=force)
        config.download_weights()
        assert config.weight_path[0].read_bytes() == hub.files["model.safetensors"]
        assert hub.fetched.count("model.safetensors") == times


def test_options_say_where_to_look(hub: type[Hub]) -> None:
    with pytest.raises(FileNotFoundError, match="ada/tiny"):
        HuggingFaceRepo("ada/tiny", repo_type=RepoType.local)
    assert HuggingFaceRepo("ada/tiny", repo_type=RepoType.online).repo_type is RepoType.online
    assert HuggingFaceRepo("ada/tiny", trust_remote_code=True).trust_remote_code
    assert not HuggingFaceRepo("ada/tiny").trust_remote_code


def snapshot(cache: Path, repo: str) -> Path:
    """The folder of the one commit that the cache has of a repository."""
    root = cache / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    return root / "snapshots" / COMMIT


def test_models_run_from_the_cache_of_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder, packed = shared("stories260k/hf"), shared("stories260k/gguf/stories260K-Q8_0.gguf")
    shutil.copytree(folder, snapshot(tmp_path, "ada/tiny"))
    (weights := snapshot(tmp_path, "ada/packed")).mkdir(parents=True)
    shutil.copy(packed, weights)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for config, local in [
        (PipelineConfig("ada/tiny"), folder),
        (PipelineConfig("ada/tiny", weight_path=[Path("ada/packed") / packed.name]), packed),
    ]:
        with LLM(config) as llm, LLM(local) as expected:
            assert llm.generate("Once", GREEDY)[0].text == expected.generate("Once", GREEDY)[0].text
    config.download_weights()
    assert config.huggingface_weights_repo().repo_id == "ada/packed"
    other = PipelineConfig("ada/tiny", _weights_repo_id="ada/packed")
    assert other.huggingface_weights_repo().repo_id == "ada/packed"
    assert PipelineConfig("ada/tiny").huggingface_weights_repo().repo_id == "ada/tiny"
    with pytest.warns(UserWarning, match="trust_remote_code has no effect"):
        PipelineConfig("ada/tiny", trust_remote_code=True).validate()


def test_files_are_found_by_encoding_and_format() -> None:
    repo = HuggingFaceRepo(str(shared("stories260k/gguf")))
    q4_0, q4_k, gguf = SupportedEncoding.q4_0, SupportedEncoding.q4_k, WeightsFormat.gguf
    found = {gguf: [Path("stories260K-Q4_0.gguf")]}
    assert repo.files_for_encoding(q4_0, gguf) == repo.files_for_encoding(q4_k, alternate_encoding=q4_0) == found
    assert not repo.files_for_encoding(q4_0, WeightsFormat.safetensors) and not repo.files_for_encoding(q4_k)
