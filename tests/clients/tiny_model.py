"""A model folder of one layer that answers "o" to any prompt, whatever its chat template is.

Its next byte depends on the last one only: `o` after any byte, and the end after `o`. If a grammar forbids the end, reasoning
is closed by `</think>`; strings are empty and objects end soon, so that calls of tools do.
"""

import json
import struct

WIDTH = 32
CONTEXT = 65536
BEGIN, END = 256, 257
MARK = "</think>"
TENSORS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def matrix(rows, columns, values):
    """The bytes of a matrix in f32 that is zero but for `values`, by row and column."""
    data = bytearray(4 * rows * columns)
    for (row, column), value in values.items():
        struct.pack_into("<f", data, 4 * (row * columns + column), value)
    return bytes(data)


def tensors():
    """The shapes and bytes of the weights, by name."""
    # The state of the model is what its last byte was: any, the answer, a quotation mark, or a byte of the mark.
    any_byte, answer, quote, mark = 0, 1, 2, 3
    states = {ord("o"): answer, ord('"'): quote} | {ord(byte): mark + at for at, byte in enumerate(MARK[:-1])}
    embeddings = {(byte, states.get(byte, any_byte)): 1.0 for byte in range(END + 1)}
    likely = {
        any_byte: ["o", "}", '"'],
        answer: [END, MARK[0], '"', "}"],
        quote: ['"', "}", "o"],
        **{mark + at: [byte] for at, byte in enumerate(MARK[1:])},
    }
    head = {
        (byte if byte == END else ord(byte), state): 30.0 - 5 * place
        for state, following in likely.items()
        for place, byte in enumerate(following)
    }
    ones = {(0, column): 1.0 for column in range(WIDTH)}
    layer = "model.layers.0."
    weights = {
        "model.embed_tokens.weight": ([END + 1, WIDTH], embeddings),
        "lm_head.weight": ([END + 1, WIDTH], head),
        "model.norm.weight": ([WIDTH], ones),
        layer + "input_layernorm.weight": ([WIDTH], ones),
        layer + "post_attention_layernorm.weight": ([WIDTH], ones),
        **{f"{layer}{name}.weight": ([WIDTH, WIDTH], {}) for name in TENSORS},
    }
    return {name: (shape, matrix(shape[0] if shape[1:] else 1, WIDTH, values)) for name, (shape, values) in weights.items()}


def write_weights(path):
    header, data = {}, b""
    for name, (shape, content) in tensors().items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def letters():
    """The letters for bytes in byte-level vocabularies."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + index) for index, byte in enumerate(others)}}


def write(folder, template):
    """Writes the model with this chat template."""
    folder.mkdir()
    write_weights(folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": WIDTH,
        "vocab_size": END + 1,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
        "torch_dtype": "float32",
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": BEGIN + at, "content": text, "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
            for at, text in enumerate(["<|begin|>", "<|end|>"])
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in letters().items()}, "merges": []},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
