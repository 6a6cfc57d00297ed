"""llama.cpp as a function: the logits of the last tokens of a prompt, from a GGUF file.

The package xllamacpp has llama.cpp in its extension module, whose C interface is called here. Its structs are those of the
version in requirements.txt; their usual values are checked.
"""

import ctypes
import multiprocessing
import os
import tempfile
from importlib.util import find_spec

F32 = 0


class ModelParameters(ctypes.Structure):
    """Passed on as they are. Larger than they need be."""

    _fields_ = [("bytes", ctypes.c_ubyte * 512)]


class ContextParameters(ctypes.Structure):
    """The first of them, and room for the others."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ["n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq"]),
        *((name, ctypes.c_int32) for name in ["n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type", "pooling_type"]),
        *((name, ctypes.c_int32) for name in ["attention_type", "flash_attn_type"]),
        ("rope", ctypes.c_float * 6),
        ("yarn_orig_ctx", ctypes.c_uint32),
        ("defrag_thold", ctypes.c_float),
        ("cb_eval", ctypes.c_void_p * 2),
        *((name, ctypes.c_int32) for name in ["type_k", "type_v"]),
        ("others", ctypes.c_ubyte * 256),
    ]


class Batch(ctypes.Structure):
    """Tokens, the position and the sequences of each, and whether its logits are asked for."""

    _fields_ = [
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


class LlamaCppError(Exception):
    """The log of llama.cpp before it failed."""


def logits(path, tokens, rows):
    """The logits after each of the last `rows` tokens, in a process of its own: llama.cpp ends its process on some errors."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as log:
        process = context.Process(target=_send_logits, args=(theirs, log, str(path), tokens, rows))
        process.start()
        theirs.close()
        try:
            return ours.recv()
        except EOFError:
            process.join()
            log.seek(0)
            reasons = [line.strip() for line in log if "error" in line or "GGML_ASSERT" in line]
            raise LlamaCppError(f"the process ended with {process.exitcode}: {' '.join(reasons)}") from None
        finally:
            process.join()


def _library():
    lib = ctypes.CDLL(find_spec("xllamacpp.xllamacpp").origin)
    signatures = {
        "llama_model_default_params": (ModelParameters, []),
        "llama_model_load_from_file": (ctypes.c_void_p, [ctypes.c_char_p, ModelParameters]),
        "llama_context_default_params": (ContextParameters, []),
        "llama_init_from_model": (ctypes.c_void_p, [ctypes.c_void_p, ContextParameters]),
        "llama_decode": (ctypes.c_int32, [ctypes.c_void_p, Batch]),
        "llama_get_logits_ith": (ctypes.POINTER(ctypes.c_float), [ctypes.c_void_p, ctypes.c_int32]),
        "llama_model_get_vocab": (ctypes.c_void_p, [ctypes.c_void_p]),
        "llama_vocab_n_tokens": (ctypes.c_int32, [ctypes.c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def _send_logits(connection, log, path, tokens, rows):
    os.dup2(log.fileno(), 2)
    os.environ["GGML_NO_BACKTRACE"] = "1"
    lib = _library()
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        return
    settings = lib.llama_context_default_params()
    usual = (settings.n_ctx, settings.n_batch, settings.n_threads, settings.flash_attn_type, list(settings.rope), settings.type_k, settings.type_v)
    assert usual == (512, 2048, 4, -1, [0, 0, -1, -1, -1, -1], 1, 1), usual
    count = len(tokens)
    settings.n_ctx = settings.n_batch = settings.n_ubatch = count
    settings.n_threads = settings.n_threads_batch = 1
    settings.flash_attn_type = 0
    settings.type_k = settings.type_v = F32
    context = lib.llama_init_from_model(model, settings)
    if not context:
        return
    numbers = lambda values, kind=ctypes.c_int32: (kind * count)(*values)
    sequence = ctypes.pointer(ctypes.c_int32(0))
    sequences = (ctypes.POINTER(ctypes.c_int32) * count)(*[sequence] * count)
    wanted = numbers((index >= count - rows for index in range(count)), ctypes.c_int8)
    batch = Batch(count, numbers(tokens), None, numbers(range(count)), numbers([1] * count), sequences, wanted)
    if lib.llama_decode(context, batch) != 0:
        return
    vocabulary = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    found = [lib.llama_get_logits_ith(context, index)[:vocabulary] for index in range(count - rows, count)]
    connection.send(found)
