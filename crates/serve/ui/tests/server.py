"""Serves the page in tests, with a model that says what it is told, or in front of a real server.

The model obeys the last user message:

    say TEXT           the text, some characters at a time
    call TEXT          the text, and a call of a tool
    rate N COUNT       COUNT words, N of them a second
    fail               an error in mid-answer
    long               stops with finish_reason `length`
    refuse             400 with a param
"""

import argparse
import http.client
import json
import math
import pathlib
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

UI = pathlib.Path(__file__).resolve().parent.parent
TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# The same headers as `ui.rs` sends.
POLICY = re.search(r'"(default-src [^"]*)"', (UI.parent / "src/ui.rs").read_text().replace("\\\n", "")).group(1)
POLICY = re.sub(r"\s+", " ", POLICY)
WORDS = "the old king walked along a river and saw that every boat was gone so he sat down".split()


class State:
    """What tests change and look at."""

    def __init__(self):
        self.key = None
        self.requests = []
        self.foreign = []
        # Of `mock`; `mock-embed` is in memory and pinned.
        self.model_state, self.pinned = "ready", False
        self.admin = True
        self.template = "{%- if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self):
        self.server.connections.discard(self.connection)
        super().finish()

    def handle(self):
        try:
            super().handle()
        except OSError:
            # The browser, or a test that kills the server, closed the connection.
            pass

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/":
            return self.file("index.html")
        if path.startswith("/ui/") and ".." not in path:
            return self.file(path[4:])
        self.answer("GET", path, None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer("POST", self.path, body)

    def file(self, name):
        path = UI / name
        if not path.is_file():
            return self.json({"error": {"message": f"no {name}"}}, 404)
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("content-type", TYPES.get(path.suffix, "text/plain"))
        self.send_header("content-security-policy", POLICY)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def json(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def answer(self, method, path, body):
        state = self.server.state
        if self.server.upstream:
            return self.forward(method, path, body)
        if state.key and self.headers.get("authorization") != f"Bearer {state.key}" and path not in ("/openapi.json", "/live"):
            return self.json({"error": {"message": "wrong API key", "code": "invalid_api_key"}}, 401)
        given = json.loads(body) if body else None
        state.requests.append((path, given))
        if path == "/v1/models":
            return self.json({"object": "list", "data": [self.model("mock"), self.model("mock-embed")]})
        if path == "/api/show":
            return self.json({"template": state.template, "capabilities": ["completion", "thinking"]})
        if path == "/debug/memory" and state.admin:
            parts = {"weights": 4653056, "kv_live": 2 << 20, "kv_cached": 3 << 20, "kv_free": 8 << 20, "scratch": 1 << 20}
            names = ["mock-embed"] + (["mock"] if state.model_state == "ready" else [])
            return self.json({"budget": 64 << 20, "used": 20 << 20, "models": [{"model": name, **parts} for name in names]})
        if path == "/admin/requests" and state.admin:
            common = {"route": "/v1/chat/completions", "prompt_tokens": 20, "generated_tokens": 7, "seconds": 1.5}
            return self.json({"requests": [{"id": "req-1", "model": "mock", **common}, {"id": "poll", "model": None, **common, "route": "/metrics"}]})
        if path in ("/admin/load", "/admin/unload", "/admin/pin"):
            if not state.admin:
                return self.json({"error": {"message": "the key `page` has not the scope admin", "code": "permission_denied"}}, 403)
            if path == "/admin/pin":
                state.pinned = given["pin"]
            else:
                state.model_state = "ready" if path == "/admin/load" else "absent"
            return self.json(self.model(given["model"]))
        if path == "/openapi.json":
            fields = {"properties": {"prompt": {}, "model": {}, "return_token_strs": {}}}
            post = {"post": {"requestBody": {"content": {"application/json": {"schema": fields}}}}}
            return self.json({"paths": {"/tokenize": post, "/apply-template": post, "/metrics": {"get": {}}, "/debug/memory": {"get": {}}, "/admin/load": {"post": {}}, "/admin/requests": {"get": {}}}})
        if path == "/tokenize":
            pieces = re.findall(r"\s*\w+|\s*[^\w\s]+|\s+", given["prompt"])
            return self.json({"tokens": [len(p) for p in pieces], "token_strs": pieces, "count": len(pieces)})
        if path == "/apply-template":
            return self.json({"prompt": "".join(f"<|{m['role']}|>{m['content']}\n" for m in given["messages"])})
        if path == "/metrics":
            text = f'vllm:num_requests_running{{model_name="mock"}} {int(time.time()) % 4}\nvllm:generation_tokens_total{{model_name="mock"}} {int(time.time() * 40)}\n'
            data = text.encode()
            self.send_response(200)
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            return self.wfile.write(data)
        if path == "/v1/embeddings":
            data = [{"index": i, "embedding": [math.sin(len(text) + k) for k in range(8)]} for i, text in enumerate(given["input"])]
            return self.json({"data": data, "usage": {"prompt_tokens": 9}})
        if path == "/v1/chat/completions":
            return self.chat(given)
        if path in ("/live", "/health", "/version"):
            return self.json({"status": "ok", "version": "0.0.0"})
        self.json({"error": {"message": f"there is no route {path}"}}, 404)

    def model(self, name):
        state = self.server.state
        meta = {"architecture": "mock", "parameters": 1163264, "weight_bytes": 4653056, "memory_bytes": 18 << 20, "running": 0, "waiting": 0}
        if name == "mock-embed":
            return {"id": name, "object": "model", "max_model_len": 512, "meta": {"kind": "embedding", "state": "ready", "pinned": True, **meta}}
        sampling = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
        own = {"kind": "text", "state": state.model_state, "pinned": state.pinned, "sampling": sampling}
        if state.model_state == "loading":
            own["progress"] = {"phase": "packing", "percent": 40}
        return {"id": name, "object": "model", "max_model_len": 131072, "meta": {**own, **meta}}

    def chat(self, body):
        messages = body["messages"]
        command = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        verb, _, rest = command.partition(" ")
        if verb == "refuse":
            return self.json({"error": {"message": "temperature is 9: give at most 5", "code": "invalid_request_error", "param": "temperature"}}, 400)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.send_header("connection", "close")
        if body.get("response_format"):
            self.send_header("x-peri-ignored", "response_format")
        self.end_headers()
        self.close_connection = True
        try:
            self.stream(body, verb, rest)
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass

    def stream(self, body, verb, rest):
        continued = body.get("continue_final_message")
        seed = body.get("seed", 0)
        pause, finish = 0.0, "stop"
        if verb in ("say", "call"):
            tokens = re.findall(r"[^]?\S{1,12}\s*|\s+".replace("[^]?", ""), rest, re.S) if rest else []
        elif verb == "rate":
            speed, count = map(int, rest.split()[:2])
            pause = 1 / speed
            tokens = [WORDS[(seed + i * i) % len(WORDS)] + (".\n\n" if i % 40 == 39 else " ") for i in range(count)]
        else:
            tokens = [WORDS[(seed + i * 7) % len(WORDS)] + " " for i in range(12)]
        if verb == "think":
            for word in ["Let ", "me ", "think."]:
                self.event({"choices": [{"index": 0, "delta": {"reasoning_content": word}, "finish_reason": None}]})
        if verb == "long" and not continued:
            finish = "length"
        started = time.monotonic()
        for index, token in enumerate(tokens):
            if verb == "fail" and index == 5 and not continued:
                self.event({"error": {"message": "the model failed", "code": "internal_error"}})
                return
            logprobs = None
            if body.get("logprobs"):
                p = [0.97, 0.6, 0.35, 0.08][index % 4]
                top = [{"token": token, "logprob": math.log(p), "bytes": list(token.encode())},
                       {"token": "other ", "logprob": math.log((1 - p) / 2), "bytes": list(b"other ")}]
                logprobs = {"content": [{**top[0], "top_logprobs": top}]}
            self.event({"choices": [{"index": 0, "delta": {"content": token}, "logprobs": logprobs, "finish_reason": None}]})
            if pause:
                time.sleep(max(0, started + (index + 1) * pause - time.monotonic()))
        if verb == "call":
            call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 3}'}}
            self.event({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
        self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 20, "completion_tokens": len(tokens), "prompt_tokens_details": {"cached_tokens": 16}}
        self.event({"choices": [], "usage": usage})
        self.chunk(b"data: [DONE]\n\n")

    def event(self, value):
        self.chunk(b"data: " + json.dumps(value).encode() + b"\n\n")

    def chunk(self, data):
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def forward(self, method, path, body):
        try:
            upstream = http.client.HTTPConnection("127.0.0.1", self.server.upstream, timeout=60)
            headers = {k: v for k, v in self.headers.items() if k.lower() in ("content-type", "authorization", "accept")}
            upstream.request(method, path, body, headers)
            response = upstream.getresponse()
        except OSError:
            self.close_connection = True
            return self.connection.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while data := response.read1(65536):
                self.wfile.write(data)
                self.wfile.flush()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            upstream.close()


class PageServer(ThreadingHTTPServer):
    def __init__(self, *arguments):
        self.connections = set()
        super().__init__(*arguments)

    def kill(self):
        """Ends as a process does that is killed: all connections break."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def handle_error(self, *_):
        error = sys.exc_info()[1]
        if not isinstance(error, OSError | ValueError):
            super().handle_error(*_)


def start(port=0, upstream=None, state=None):
    """A server on a thread of its own; `kill()` ends it."""
    server = PageServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.upstream = upstream
    server.state = state or State()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8124)
    parser.add_argument("--upstream", type=int, help="the port of a real server")
    arguments = parser.parse_args()
    start(arguments.port, arguments.upstream)
    print(f"http://127.0.0.1:{arguments.port}/")
    threading.Event().wait()
