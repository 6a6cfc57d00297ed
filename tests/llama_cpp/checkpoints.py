"""Tiny checkpoints that llama.cpp can read: those of the Rust tests, some of them less odd than they are there."""

import json
import re
import shutil
import struct
from pathlib import Path

GOLDENS = Path(__file__).resolve().parents[2] / "crates/perihelion/tests/models/goldens"

# Why llama.cpp does not compute the same from the files of some goldens: there is no way to say it, or it is not read. Files
# of the same architecture without that are among PLAIN, or other goldens.
ODD = {
    "cohere_norms": "norms of queries and keys are for 64 layers",
    "deepseek_v2": "queries without latents are for 26 and 27 layers",
    "deepseek_v2_greedy": "biases of attention",
    "deepseek_v32": "heads that choose positions have 64 dims or a multiple",
    "dots1": "as many key heads as heads",
    "ernie4_5_biases": "biases of feed-forward blocks",
    "exaone4": "windows are for 64 layers",
    "exaone4_5": "windows are for 64 layers",
    "exaone_moe_full": "a tied embedding",
    "falcon_new": "biases",
    "gemma3": "scores are divided by the root of the head's size",
    "gemma3_vision": "scores are divided by the root of the head's size",
    "gemma3n": "sizes that the published models share",
    "glm": "heads of the size of the model over their number",
    "glm_moe_dsa": "heads that choose positions have 64 dims or a multiple",
    "gpt_neox_sequential": "a tied embedding",
    "gpt_oss": "YaRN that blends between parts of pairs",
    "granite_hybrid_full": "no layer has a state",
    "hunyuan": "biases of the attention's output",
    "jamba_dense": "a convolution without a bias",
    "kimi_vl": "queries without latents are for 26 and 27 layers",
    "lfm2_biases": "biases",
    "lfm2_moe_plain": "no correction of scores",
    "ling_plain": "no norms of queries and keys",
    "mellum_dense": "every layer has experts",
    "minicpm3": "the dims that rotate begin at an odd one",
    "ministral": "windows",
    "mistral": "windows",
    "nemotron_plain": "a tied embedding",
    "olmo3": "a tied embedding",
    "olmoe": "as many key heads as heads",
    "phi3": "windows",
    "phi3_longrope": "windows",
    "phi_moe_longrope": "experts are chosen at once",
    "phi_norms": "norms of queries and keys",
    "qwen2_window": "windows",
    "qwen3_5": "keys and values of delta nets have one size",
    "qwen3_5_moe": "keys and values of delta nets have one size",
    "qwen3_5_moe_vision": "keys and values of delta nets have one size",
    "qwen3_5_vision": "keys and values of delta nets have one size",
    "qwen3_moe_sparse": "every layer has experts",
    "qwen3_next": "keys and values of delta nets have one size",
    "qwen3_next_dense": "every layer has experts",
    "seed_oss": "biases of the attention's output",
    "stablelm_parallel": "a tied embedding",
    "starcoder2": "windows",
}

# The names in GGUF of architectures that llama.cpp computes otherwise, whatever the checkpoint.
OTHERWISE = {"phimoe"}

# Goldens that become plain by other settings, and the sizes that weights then have; without a size, a weight is left out.
DELTA_NET = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}


def sizes_of_delta_net(all, values):
    parts = {"(in_proj_qkv|conv1d)": all, "in_proj_z": values, "norm": 8, "out_proj": (None, values)}
    return {rf"linear_attn\.{part}\.": size for part, size in parts.items()}


INDEXER = {"index_head_dim": 64}
PLAIN = {
    "deepseek_v32": (INDEXER, {r"indexer\.wq_b": 64 * 11, r"indexer\.(wk|k_norm)\.": 64}),
    "glm_moe_dsa": (INDEXER, {r"indexer\.wq_b": 64 * 13, r"indexer\.(wk|k_norm)\.": 64}),
    "dots1": ({"num_key_value_heads": 4}, {r"[kv]_proj": 40}),
    "exaone4": ({"sliding_window": None, "layer_types": ["full_attention"] * 4}, {}),
    "gemma3": ({"query_pre_attn_scalar": 12}, {}),
    # Wide, as llama.cpp takes the unbiased deviation of gates.
    "gemma3n": (
        {
            "num_hidden_layers": 2, "num_kv_shared_layers": 0, "layer_types": ["sliding_attention", "full_attention"],
            "hidden_size_per_layer_input": 256, "activation_sparsity_pattern": [0.95] * 2, "intermediate_size": 2048, "final_logit_softcapping": 30.0,
        },
        {
            r"layers\.[23]\.": None, r"embed_tokens_per_layer": (None, 512), r"per_layer_model_projection": 512,
            r"per_layer_projection_norm|per_layer_input_gate": 256, r"per_layer_projection\.": (None, 256),
            r"mlp\.(gate|up)_proj": 2048, r"mlp\.down_proj": (None, 2048),
        },
    ),
    "glm": ({"num_attention_heads": 2}, {r"q_proj": 24, r"o_proj": (None, 24)}),
    "gpt_oss": ({"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, {}),
    "mistral": ({"sliding_window": None}, {}),
    "olmoe": ({"num_key_value_heads": 4}, {r"[kv]_proj|k_norm": 32}),
    "qwen3_5": (DELTA_NET, sizes_of_delta_net(80, 48)),
    "qwen3_5_moe": (DELTA_NET, sizes_of_delta_net(64, 32)),
    "qwen3_next": (DELTA_NET, {r"in_proj_qkvz": 96, r"conv1d": 64, r"linear_attn\.norm\.": 8, r"linear_attn\.out_proj": (None, 32)}),
    "seed_oss": ({"attention_out_bias": False, "mlp_bias": False}, {r"o_proj\.bias|mlp\..*bias": None}),
    "starcoder2": ({"sliding_window": None}, {}),
}
SECTIONS = {"mrope_section": [1, 1, 0], "mrope_interleaved": True}


def names():
    return sorted(folder.name for folder in GOLDENS.iterdir())


def architectures():
    """The architectures of which a checkpoint is one that llama.cpp reads alike."""
    fits = [name for name in names() if name not in ODD or name in PLAIN]
    return {json.loads((GOLDENS / name / "config.json").read_text())["architectures"][0] for name in fits}


def tensors(path):
    """The shapes and numbers of the tensors of a safetensors file."""
    file = path.read_bytes()
    (length,) = struct.unpack("<Q", file[:8])
    header = json.loads(file[8 : 8 + length])
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        start, end = (8 + length + offset for offset in entry["data_offsets"])
        letter = {"F32": "f", "I32": "i", "U32": "I"}[entry["dtype"]]
        found[name] = (entry["shape"], struct.unpack(f"<{(end - start) // 4}{letter}", file[start:end]))
    return found


def rows(tensor):
    shape, numbers = tensor
    return [numbers[start : start + shape[-1]] for start in range(0, len(numbers), shape[-1])]


def write_tensors(path, weights):
    header, data = {}, b""
    for name, (shape, numbers) in weights.items():
        content = struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def resized(tensor, size):
    """A tensor with another first axis, or another last one of a pair; its numbers come again."""
    shape, numbers = tensor
    shape = [*shape[:-1], size[1]] if isinstance(size, tuple) else [size, *shape[1:]]
    count = 1
    for dim in shape:
        count *= dim
    return shape, tuple(numbers[index % len(numbers)] for index in range(count))


def tokenizer(vocabulary):
    """A tokenizer of as many tokens as a model has rows."""
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    words = {word: token for token, word in enumerate(special + [f"w{token}" for token in range(len(special), vocabulary)])}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": words}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    return {"normalizer": normalizer, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": model}


def write(name, folder, plain):
    """Writes a golden, or the plain checkpoint that is made of it; gives the size of its vocabulary."""
    described = json.loads((GOLDENS / name / "config.json").read_text())
    folder.mkdir()
    if not plain:
        shutil.copy(GOLDENS / name / "model.safetensors", folder)
    else:
        weights = tensors(GOLDENS / name / "model.safetensors")
        settings, sizes = PLAIN[name]
        described |= settings
        if name.startswith("qwen3_5"):
            described["rope_parameters"] |= SECTIONS
        for pattern, size in sizes.items():
            for weight in [weight for weight in weights if re.search(pattern, weight)]:
                if size is None:
                    del weights[weight]
                else:
                    weights[weight] = resized(weights[weight], size)
        write_tensors(folder / "model.safetensors", weights)
    vocabulary = described.get("vocab_size") or next(part["vocab_size"] for part in described.values() if isinstance(part, dict) and "vocab_size" in part)
    (folder / "config.json").write_text(json.dumps(described))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(vocabulary)))
    return vocabulary
