"""Measures one engine with one model, as the program of an interpreter that has the engine: MODULE MODEL SETTINGS.

Prints the engine's version and its figures, which have the names of those of `peri bench`. Seconds to the first token do
not include the start of Python and its imports.
"""
import ctypes
import importlib
import json
import random
import sys
import time
from importlib.metadata import version

# As `peri bench` does it: tokens of each sequence before they are decoded together, and steps of that.
BATCH_PROMPT, BATCH_TOKENS = 16, 25


def rate(count, work):
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


class LlamaCpp:
    """A model in llama.cpp or ik_llama.cpp, by the functions of their C interface."""

    def __init__(self, api, path, settings):
        self.api, self.settings = api, settings
        self.is_ik = not hasattr(api, "llama_get_memory")
        api.llama_backend_init()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        if self.is_ik:
            # Its fastest setting: weights in the order of its kernels, which a mapped file cannot have.
            params.repack_tensors, params.use_thp, params.use_mmap = True, True, False
        self.model = api.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"{path} cannot be loaded")
        vocabulary = api.llama_model_get_vocab(self.model)
        self.vocabulary = api.llama_vocab_n_tokens(vocabulary)
        self.sequences = max(settings["batches"])
        self.batch = api.llama_batch_init(2048, 0, self.sequences)
        self.open(flash_attention=True)
        self.run_text(self.model if self.is_ik else vocabulary, settings["text"].encode())

    def open(self, flash_attention):
        """Starts with an empty context."""
        of_batch = self.sequences * (BATCH_PROMPT + BATCH_TOKENS)
        length = max(*self.settings["prompts"], BATCH_PROMPT + self.settings["tokens"], of_batch)
        params = self.api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max = length + 256, 2048, 512, self.sequences
        params.n_threads = params.n_threads_batch = self.settings["threads"]
        if self.is_ik:
            params.flash_attn = flash_attention
        else:
            # It uses flash attention by itself.
            params.kv_unified = True
        self.context = self.api.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"the engine cannot make a context of {params.n_ctx} tokens")

    def run_text(self, tokenizer, text):
        tokens = (ctypes.c_int32 * len(text))()
        count = self.api.llama_tokenize(tokenizer, text, len(text), tokens, len(text), True, False)
        self.run([(token, i, 0, i == count - 1) for i, token in enumerate(tokens[:count])])

    def clear(self):
        if self.is_ik:
            self.api.llama_kv_cache_clear(self.context)
        else:
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def run(self, items):
        """Runs tokens, each with its position, its sequence, and whether its logits are wanted."""
        self.batch.n_tokens = len(items)
        for i, (token, position, sequence, logits) in enumerate(items):
            self.batch.token[i], self.batch.pos[i], self.batch.logits[i] = token, position, logits
            self.batch.n_seq_id[i] = 1
            self.batch.seq_id[i][0] = sequence
        if self.api.llama_decode(self.context, self.batch):
            raise SystemExit(f"llama_decode fails for {len(items)} tokens")
        # Waits until the logits are there.
        self.api.llama_get_logits_ith(self.context, -1)

    def tokens(self, count):
        return [random.randrange(256, self.vocabulary - 2) for _ in range(count)]

    def prompt_rate(self, count):
        self.clear()
        items = [(token, i, 0, i == count - 1) for i, token in enumerate(self.tokens(count))]
        return rate(count, lambda: self.run(items))

    def decode_rate(self, sequences, steps):
        """Tokens per second of sequences that are decoded together after a short prompt each."""
        if sequences > 1 and self.is_ik:
            # Its flash attention ends the process with `GGML_ASSERT(S > 0) failed` if there are several sequences.
            self.open(flash_attention=False)
        self.clear()
        step = lambda position: [(token, position, i, True) for i, token in enumerate(self.tokens(sequences))]
        self.run([item for position in range(BATCH_PROMPT) for item in step(position)])
        steps = [step(BATCH_PROMPT + i) for i in range(steps)]
        return rate(sequences * len(steps), lambda: [self.run(items) for items in steps])


class OpenVino:
    """A model in OpenVINO GenAI, with its default precision and cache."""

    def __init__(self, api, path, settings):
        import numpy
        import openvino

        self.tensor = lambda rows: openvino.Tensor(numpy.array(rows, numpy.int64))
        self.api = api
        self.model = api.LLMPipeline(path, "CPU", INFERENCE_NUM_THREADS=settings["threads"])
        self.model.generate(settings["text"], max_new_tokens=1, ignore_eos=True)

    def generate(self, sequences, count, tokens):
        """Milliseconds in all, and those to the first token."""
        # All vocabularies have these tokens.
        rows = self.tensor([[random.randrange(256, 2048) for _ in range(count)] for _ in range(sequences)])
        mask = self.tensor([[1] * count] * sequences)
        inputs = self.api.TokenizedInputs(rows, mask)
        metrics = self.model.generate(inputs, max_new_tokens=tokens, ignore_eos=True).perf_metrics
        return metrics.get_generate_duration().mean, metrics.get_ttft().mean

    def prompt_rate(self, count):
        return count / self.generate(1, count, 1)[1] * 1e3

    def decode_rate(self, sequences, steps):
        total, first = self.generate(sequences, BATCH_PROMPT, steps + 1)
        return sequences * steps / (total - first) * 1e3


ENGINES = {
    "llama_cpp": ("llama_cpp", LlamaCpp, "llama-cpp-python"),
    "ik_llama_cpp": ("ik_llama_cpp._ctypes_api", LlamaCpp, "ik-llama-cpp-python"),
    "openvino_genai": ("openvino_genai", OpenVino, "openvino-genai"),
}


def main():
    module, path, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    module, engine, package = ENGINES[module]
    api = importlib.import_module(module)
    start = time.perf_counter()
    engine = engine(api, path, settings)
    figures = {"start to first token": time.perf_counter() - start}
    engine.prompt_rate(max(settings["prompts"]))  # Faults pages in and is not counted.
    figures |= {f"pp{count}": engine.prompt_rate(count) for count in settings["prompts"]}
    figures[f"tg{settings['tokens']}"] = engine.decode_rate(1, settings["tokens"])
    figures |= {f"b{count}": engine.decode_rate(count, BATCH_TOKENS) for count in settings["batches"]}
    print(json.dumps({"version": f"{package} {version(package)}", "figures": figures}))


main()
