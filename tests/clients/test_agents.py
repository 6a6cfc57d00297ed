"""Recorded first requests of coding agents, with every chat template that knows tools.

`requests` holds what Claude Code 2.1 and Codex 0.171 sent in their first turn. The texts are left out, and so is what names
a person or a machine; fields, roles, tools and their schemas are as they were.
"""

import copy
import json
from pathlib import Path

import httpx
import pytest
import tiny_model
from conftest import DATA, serve

REQUESTS = Path(__file__).parent / "requests"
# Those of the shared data, and small ones that write calls as models do whose templates are not among these.
FOLDERS = [DATA / "chat-templates" / "templates", Path(__file__).parent / "templates"]
TEMPLATES = sorted(path for folder in FOLDERS for path in folder.glob("*.jinja") if "tool" in path.read_text())


@pytest.fixture(scope="module")
def agents_server(tmp_path_factory):
    """A server with one tiny model for each template."""
    folder = tmp_path_factory.mktemp("models")
    for template in TEMPLATES:
        tiny_model.write(folder / template.stem, template.read_text())
    with serve(["--models-dir", str(folder), "--lazy"]) as address:
        yield address


@pytest.fixture(params=TEMPLATES, ids=lambda path: path.stem)
def model(request):
    return request.param.stem


def recorded(agent):
    return json.loads((REQUESTS / f"{agent}.json").read_text())


def events(address, request, body):
    """The events of a streamed answer, in which nothing is left to chance."""
    response = httpx.post(address + request["path"], json=body | {"temperature": 0}, headers=request["headers"], timeout=120)
    assert response.status_code == 200, response.text
    assert len(response.headers.get("x-peri-ignored", "")) < 8192
    data = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    answer = [json.loads(line) for line in data]
    assert not [event for event in answer if event["type"] in ("error", "response.failed")]
    return answer


def test_claude_code_gets_a_text(agents_server, model):
    request = recorded("claude-code")
    answer = events(agents_server, request, request["body"] | {"model": model, "tool_choice": {"type": "none"}})
    deltas = [event["delta"] for event in answer if event["type"] == "content_block_delta"]
    assert answer[0]["type"] == "message_start" and answer[-1]["type"] == "message_stop"
    # Some templates open the reasoning, in which the model stays.
    assert "".join(delta.get("text", delta.get("thinking", "")) for delta in deltas).endswith("o")


def test_claude_code_calls_a_tool_and_sends_its_result(agents_server, model):
    request = recorded("claude-code")
    body = request["body"] | {"model": model, "tool_choice": {"type": "tool", "name": "Read"}, "max_tokens": 400}
    # The model closes its reasoning with one mark only, so the server does.
    body["thinking"] = {"type": "enabled", "budget_tokens": 8}
    answer = events(agents_server, request, body)
    calls = [event["content_block"] for event in answer if event.get("content_block", {}).get("type") == "tool_use"]
    # Where arguments are tagged text, the model does not find their end.
    assert calls or answer[-2]["delta"]["stop_reason"] == "max_tokens"
    call = {"type": "tool_use", "id": "toolu_1", "name": "Read"} | (calls[0] if calls else {})
    assert call["name"] == "Read"
    history = copy.deepcopy(request["body"]["messages"])
    call["input"] = {"file_path": "a.txt"}
    history.append({"role": "assistant", "content": [{"type": "thinking", "thinking": "A file.", "signature": "s"}, call]})
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "hello"}]}
    history.append({"role": "user", "content": [result, {"type": "text", "text": "Go on."}]})
    history.append({"role": "system", "content": "The plan mode is off."})
    answer = events(agents_server, request, body | {"messages": history, "tool_choice": {"type": "none"}})
    assert answer[-1]["type"] == "message_stop"


def test_codex_gets_a_text(agents_server, model):
    request = recorded("codex")
    answer = events(agents_server, request, request["body"] | {"model": model, "tool_choice": "none"})
    kinds = ("response.output_text.delta", "response.reasoning_text.delta")
    assert answer[0]["type"] == "response.created" and answer[-1]["type"] == "response.completed"
    assert "".join(event["delta"] for event in answer if event["type"] in kinds).endswith("o")


def test_codex_calls_a_tool_and_sends_its_result(agents_server, model):
    request = recorded("codex")
    choice = {"type": "function", "name": "exec_command"}
    body = request["body"] | {"model": model, "tool_choice": choice, "max_output_tokens": 400, "reasoning": {"effort": "none"}}
    response = events(agents_server, request, body)[-1]["response"]
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert calls or response["status"] == "incomplete"
    made = {"type": "function_call", "call_id": "call_1", "name": "exec_command", "arguments": '{"cmd": "ls"}'}
    call = calls[0] if calls else made
    assert call["name"] == "exec_command"
    output = response["output"] if calls else [made]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "hello"}
    developer = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "The sandbox is off."}]}
    history = [*request["body"]["input"], *output, result, developer]
    answer = events(agents_server, request, body | {"input": history, "tool_choice": "none"})
    assert answer[-1]["type"] == "response.completed"
