"""Runs a model with Transformers for the process that started this one.

Commands are lines of JSON on a socket, which is standard input when this process starts; each answer is a line of JSON on
the same socket. Numbers lie in the memory that is standard output when this process starts. What Python writes on standard
output afterwards goes to standard error. The bootstrap calls `serve` with the commands as a binary file.
"""

import inspect
import json
import mmap
import os
import queue
import signal
import sys
import threading
import traceback

# What models call the cache of a sequence, in their outputs and arguments.
CACHES = ("cache", "past_key_values", "cache_params", "state")


class Failure(Exception):
    """A message for the other side that needs no name of an exception."""


def die_with_parent(parent):
    """Has the system kill this process when its parent ends, where it can."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent.
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    except (ImportError, AttributeError, OSError):
        pass  # Not on Linux: the end of the commands says it.
    if os.getppid() != parent:
        print("the process that started this one is gone", file=sys.stderr, flush=True)
        os._exit(1)


class Memory:
    """The memory that both processes see."""

    def __init__(self, file):
        self.file, self.size, self.map = file, 0, None

    def write(self, numbers):
        """Writes a tensor as f32, in row-major order. Returns its shape."""
        import torch

        numbers = numbers.to(torch.float32)
        size = 4 * numbers.numel()
        if size > self.size:
            os.ftruncate(self.file, size)
            self.size, self.map = size, mmap.mmap(self.file, size)
        if size:
            torch.frombuffer(self.map, dtype=torch.float32, count=numbers.numel()).copy_(numbers.reshape(-1))
        return list(numbers.shape)

    def write_bytes(self, content):
        """Writes bytes. Returns how many."""
        self.size = max(self.size, len(content))
        os.ftruncate(self.file, self.size)
        self.map = mmap.mmap(self.file, self.size)
        self.map[: len(content)] = content
        return len(content)


class Sequence:
    """What was read of a text: its cache, or its tokens if the model has no cache. `failure` is why it cannot go on."""

    def __init__(self):
        self.length, self.cache, self.tokens, self.failure = 0, None, [], None


class Model:
    """A model, and the sequences that it reads."""

    def __init__(self, folder, task, dtype, trust_remote_code, threads):
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.torch, self.sequences = torch, {}
        version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
        options = {
            "dtype" if version >= (4, 56) else "torch_dtype": getattr(torch, dtype) if dtype else "auto",
            "trust_remote_code": trust_remote_code,
            "local_files_only": not trust_remote_code,
        }
        names = ["AutoModelForCausalLM", "AutoModelForImageTextToText"] if task == "write" else ["AutoModel"]
        self.model = load(transformers, names, folder, options).eval()
        if task == "embed" and getattr(self.model.config, "is_encoder_decoder", False):
            self.model = self.model.get_encoder()
        self.parameters = inspect.signature(self.model.forward).parameters
        keeps = [name for name in ("logits_to_keep", "num_logits_to_keep") if name in self.parameters]
        self.keep = keeps[0] if keeps else None
        self.cache_name = None
        self.versions = {"transformers": transformers.__version__, "torch": torch.__version__}

    def facts(self, task):
        """Runs one token. Returns how many numbers there are of a token, and other facts."""
        if task == "write":
            output = self.forward([0], 0, None, 1)
            width, has_cache = output.logits.shape[-1], self.cache_of(output) is not None
        else:
            width, has_cache = self.hidden([0]).shape[-1], False
        return {"width": width, "has_cache": has_cache, **self.versions}

    def run(self, key, cached, tokens, outputs):
        """Reads the next tokens of a sequence. Returns the logits of the last `outputs` of them."""
        sequence = self.sequences.setdefault(key, Sequence())
        if cached == 0:
            sequence = self.sequences[key] = Sequence()
        if sequence.failure:
            raise Failure(sequence.failure)
        if sequence.length != cached:
            raise Failure(f"{cached} tokens of the sequence should be cached, but {sequence.length} are")
        try:
            return self.read(sequence, tokens, outputs)
        except Exception as error:
            # Some layers may have taken the tokens, others not.
            sequence.cache, sequence.tokens, sequence.failure = None, [], message_of(error)
            raise

    def read(self, sequence, tokens, outputs):
        if sequence.length > 0 and sequence.cache is None:
            sequence.tokens += tokens
            output = self.forward(sequence.tokens, 0, None, outputs)
        else:
            output = self.forward(tokens, sequence.length, sequence.cache, outputs)
            sequence.cache = self.cache_of(output)
            if sequence.cache is None:
                sequence.tokens = list(tokens)
        sequence.length += len(tokens)
        return output.logits[0, -outputs:] if outputs else output.logits[0, :0]

    def forward(self, tokens, cached, cache, outputs):
        arguments = {"input_ids": self.torch.tensor([tokens]), "use_cache": True, "return_dict": True}
        count = cached + len(tokens)
        arguments["attention_mask"] = self.torch.ones((1, count), dtype=self.torch.long)
        arguments["cache_position"] = self.torch.arange(cached, count)
        if cache is not None:
            arguments[self.cache_name] = cache
        known = {name: value for name, value in arguments.items() if name in self.parameters}
        if self.keep:
            known[self.keep] = max(outputs, 1)
        return self.model(**known)

    def cache_of(self, output):
        for name in CACHES:
            cache = getattr(output, name, None)
            if cache is not None and name in self.parameters:
                self.cache_name = name
                return cache
        return None

    def hidden(self, tokens):
        """The hidden states of a text: [tokens, width]."""
        arguments = {"input_ids": self.torch.tensor([tokens]), "use_cache": False, "return_dict": True}
        arguments["attention_mask"] = self.torch.ones((1, len(tokens)), dtype=self.torch.long)
        output = self.model(**{name: value for name, value in arguments.items() if name in self.parameters})
        states = getattr(output, "last_hidden_state", None)
        return (output[0] if states is None else states)[0]

    def drop(self, runner, sequences):
        """Forgets sequences of a runner, or all of them."""
        for key in [key for key in self.sequences if key[0] == runner and (sequences is None or key[1] in sequences)]:
            del self.sequences[key]


def tokenizer_json(folder, trust_remote_code):
    """The tokenizer of a folder as the content of a `tokenizer.json`."""
    from transformers import AutoTokenizer

    options = {"trust_remote_code": trust_remote_code, "local_files_only": not trust_remote_code}
    tokenizer = getattr(AutoTokenizer.from_pretrained(folder, **options), "backend_tokenizer", None)
    if not hasattr(tokenizer, "to_str"):
        raise Failure("the tokenizer is Python code, which cannot be read as a tokenizer.json")
    return tokenizer.to_str().encode()


def load(transformers, names, folder, options):
    """The model of a folder, by the first class that knows its architecture."""
    for name in names:
        if not hasattr(transformers, name):
            continue
        try:
            return getattr(transformers, name).from_pretrained(folder, **options)
        except ValueError as error:
            if "trust_remote_code" in str(error) and not options["trust_remote_code"]:
                raise Failure(
                    "the model needs Python code of its own repo: read that code, then set trust_remote_code to run it"
                ) from error
            if "Unrecognized configuration class" not in str(error) or name == names[-1]:
                raise
    raise Failure(f"transformers {transformers.__version__} has none of {', '.join(names)}")


def message_of(error):
    """An exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines)[:600]
    return text if isinstance(error, Failure) else f"{type(error).__name__}: {text}"


def answer(model, memory, command):
    """Does what a command says. Returns the answer, and the model."""
    name = command["do"]
    if name == "load":
        task = command["task"]
        arguments = [command[key] for key in ("folder", "task", "dtype", "trust_remote_code", "threads")]
        try:
            import torch  # noqa: F401
            import transformers  # noqa: F401
        except ImportError as error:
            advice = "install torch and transformers for this interpreter, or name another one as `python`"
            raise Failure(f"{error}: {advice}") from error
        model = Model(*arguments)
        with model.torch.inference_mode():
            return model.facts(task), model
    with model.torch.inference_mode():
        if name == "run":
            key = (command["runner"], command["sequence"])
            logits = model.run(key, command["cached"], command["tokens"], command["outputs"])
            return {"shape": memory.write(logits)}, model
        if name == "tokenizer":
            content = tokenizer_json(command["folder"], command["trust_remote_code"])
            return {"bytes": memory.write_bytes(content)}, model
        if name == "hidden":
            return {"shape": memory.write(model.hidden(command["tokens"]))}, model
        raise Failure(f"there is no command {name}")


def serve(commands, parent):
    die_with_parent(parent)
    replies, memory = os.fdopen(os.dup(commands.fileno()), "wb", buffering=0), Memory(os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    waiting = queue.SimpleQueue()

    def listen():
        for line in commands:
            waiting.put(line)
        os._exit(0)  # The parent is gone, or needs this process no more.

    threading.Thread(target=listen, daemon=True).start()
    model = None
    while True:
        command = json.loads(waiting.get())
        if command["do"] == "drop":
            model.drop(command["runner"], command["sequences"])
            continue
        try:
            reply, model = answer(model, memory, command)
        except Exception as error:
            traceback.print_exc()
            sys.stderr.flush()
            reply = {"error": message_of(error)}
        replies.write(json.dumps(reply).encode() + b"\n")
