#!/usr/bin/env python3
"""Runs a server under mixed load for minutes, and prints each minute what it answers and how much memory it has.

usage: tools/soak.py PERI [--minutes N] [MODEL]...

Clients stream, leave, ask for forms and send nonsense; one measures a request of its own. Fails if a request gets a status
of class 5xx, if the server ends, or if its memory grows by more than 2 % after the first third of the time.
"""

import argparse
import collections
import http.client
import json
import random
import subprocess
import threading
import time

PREFIX = "Once upon a time there was a little girl who lived in a house at the edge of a dark wood. "
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["age"]}


class Server:
    def __init__(self, peri, models):
        words = [peri, "serve", "--json", "--quiet", "--port", "0", "--log-format", "off", *models]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self.process.stdout.readline())["urls"][0].removeprefix("http://")
        self.statuses = collections.Counter()

    def ask(self, method, path, body=None, leaves_after=None):
        """The text of an answer, or of as many bytes of it as the client waits for."""
        connection = http.client.HTTPConnection(self.address, timeout=120)
        body = json.dumps(body) if isinstance(body, dict) else body
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read(leaves_after).decode(errors="replace")
        connection.close()
        self.statuses[answer.status] += 1
        return text

    def complete(self, random, **fields):
        prompt = PREFIX * random.randint(0, 2) + f"{random.randint(0, 50)} "
        body = {"prompt": prompt, "max_tokens": random.randint(1, 80), "ignore_eos": True, **fields}
        return "POST", "/v1/completions", body

    def metric(self, name):
        lines = self.ask("GET", "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))

    def memory(self):
        """Bytes of memory without files."""
        with open(f"/proc/{self.process.pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))


def client(server, seed, end):
    chance = random.Random(seed)
    while time.monotonic() < end:
        kind = chance.choice(["stream", "whole", "leave", "form", "wrong", "damaged", "chat"])
        if kind == "stream":
            server.ask(*server.complete(chance, stream=True))
        elif kind == "whole":
            server.ask(*server.complete(chance, n=chance.randint(1, 4), logprobs=3))
        elif kind == "leave":
            server.ask(*server.complete(chance, stream=True, n=4), leaves_after=chance.randint(1, 4000))
        elif kind == "form":
            schema = dict(SCHEMA, title=str(chance.randint(0, 500)))
            server.ask(*server.complete(chance, structured_outputs={"json": schema}))
        elif kind == "wrong":
            server.ask(*server.complete(chance, n=100_000))
        elif kind == "damaged":
            server.ask("POST", "/v1/completions", '{"prompt": ' + "[" * chance.randint(1, 100))
        else:
            messages = [{"role": "user", "content": PREFIX}]
            server.ask("POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 20})
        # So that the server is busy for about 70 % of the time.
        time.sleep(chance.uniform(0, 0.1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peri")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--minutes", type=float, default=10)
    arguments = parser.parse_args()
    server = Server(arguments.peri, arguments.models)
    begin = time.monotonic()
    end = begin + 60 * arguments.minutes
    clients = [threading.Thread(target=client, args=(server, seed, end), daemon=True) for seed in range(4)]
    for thread in clients:
        thread.start()
    memory = []
    print("minute  requests  statuses of class 5xx  p99 of a request  cached  memory")
    while time.monotonic() < end:
        times, until = [], min(end, time.monotonic() + min(60, 6 * arguments.minutes))
        while time.monotonic() < until:
            began = time.monotonic()
            server.ask("POST", "/v1/completions", {"prompt": "Once", "max_tokens": 4})
            times.append(time.monotonic() - began)
            time.sleep(0.2)
        failed = sum(count for status, count in server.statuses.items() if status >= 500)
        cached = server.metric("vllm:prefix_cache_hits_total") / server.metric("vllm:prefix_cache_queries_total")
        memory.append(server.memory())
        p99 = sorted(times)[int(len(times) * 0.99)]
        minute, requests = (time.monotonic() - begin) / 60, sum(server.statuses.values())
        print(f"{minute:6.1f}  {requests:8}  {failed:21}  {p99 * 1000:13.0f} ms  {cached:5.0%}  {memory[-1] / 2**20:.1f} MiB", flush=True)
        assert server.process.poll() is None, "the server has ended"
        assert failed == 0, server.statuses
    for thread in clients:
        thread.join()
    server.process.terminate()
    assert server.process.wait() == 0
    third = max(1, len(memory) // 3)
    early, late = max(memory[:third]), max(memory[-third:])
    print(f"statuses: {dict(sorted(server.statuses.items()))}; memory {(late / early - 1):+.1%}")
    assert late <= early * 1.02, "memory grows"


if __name__ == "__main__":
    main()
