"""Writes crates/perihelion/tests/models/goldens: a tiny random checkpoint of each architecture, and its logits. Beside
it, in gptq and quantized, some that are quantized, with the logits of the weights that this leaves; in encoders, embedders and rerankers,
models that make embeddings and scores.

Needs the packages `torch`, `transformers`, `sentence-transformers`, `safetensors` and `gguf`: python tools/tiny_checkpoints.py [NAME ...]
Some GGUF files are written by llama.cpp's converter, for which LLAMA_CPP names a checkout of llama.cpp.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

LLAMA_CPP = os.environ.get("LLAMA_CPP")
if LLAMA_CPP:
    sys.path[:0] = [LLAMA_CPP, f"{LLAMA_CPP}/gguf-py"]

import gguf
import numpy as np
import torch
import tokenizers
import transformers
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from block_goldens import NF4

OUTPUT = Path(__file__).parent.parent / "crates/perihelion/tests/models/goldens"
ENCODERS_OUTPUT = OUTPUT.parent / "encoders"
RERANKERS_OUTPUT = OUTPUT.parent / "rerankers"
EMBEDDERS_OUTPUT = OUTPUT.parent / "embedders"
GPTQ_OUTPUT = OUTPUT.parent / "gptq"
QUANTIZED_OUTPUT = OUTPUT.parent / "quantized"

# Longer than any window below. The models of LONG read more, and keep the logits of the last LENGTH tokens.
LENGTH = 40
LONG_LENGTH = 420
# Checkpoints of several kinds of state, and of ropes and windows that matter over many pages.
LONG: set[str] = {
    "llama4", "llama4_vision",
    "gpt_oss", "gpt_oss_clamped", "gemma3n", "gemma3n_vision", "gemma4", "gemma4_vision", "gemma4_unified",
    "qwen3_next", "qwen3_next_dense", "olmo_hybrid", "olmo_hybrid_rotated", "qwen3_5", "qwen3_5_vision", "qwen3_5_moe", "qwen3_5_moe_vision",
    "lfm2", "lfm2_biases", "lfm2_moe", "lfm2_moe_plain", "lfm3", "lfm3_plain", "mamba2", "mamba2_biases", "mamba", "falcon_mamba", "falcon_mamba_biases", "granite_hybrid", "granite_hybrid_dense", "granite_hybrid_full",
    "falcon_h1", "falcon_h1_norms", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "nemotron_h_groups", "jamba", "jamba_dense", "bamba",
    "deepseek_v2", "deepseek_v2_greedy", "deepseek_v3", "glm4_moe_lite", "glm_moe_dsa", "kimi_k25", "falcon_alibi",
}
SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}
# Small bases, so that rotation is fast enough to matter within LENGTH tokens.
THETA = {"rope_type": "default", "rope_theta": 500.0}
SMALL = {"intermediate_size": 16, "tie_word_embeddings": True}
# Heads of another size than that of the model over their number.
GEMMA = {
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 12, "intermediate_size": 24,
    "tie_word_embeddings": True,
}
# LongRoPE's factors, of heads of 8 dims.
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 500.0, "short_factor": [1.0, 1.5, 0.7, 2.0],
    "long_factor": [2.0, 3.0, 4.0, 5.0],
}
YARN = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 64}
# Heads of ten dims.
TEN = {"hidden_size": 40, "intermediate_size": 24, "vocab_size": 64}
SMALLER = {"hidden_size": 24, "intermediate_size": 24, "vocab_size": 64}
TIED = {"tie_word_embeddings": True}
# Layers of both kinds, of which the last two read the keys of the first two.
GEMMA3N = {
    "hidden_size": 16, "intermediate_size": [20, 12, 12, 20], "num_hidden_layers": 4, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 10, "vocab_size": 64, "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 6, "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2, "sliding_window": 19, "activation_sparsity_pattern": [0.95, 0.0, 0.4, 0.0],
    "final_logit_softcapping": 20.0, "tie_word_embeddings": True, "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}
# Two pairs of five turn in layers without window.
GEMMA4 = {
    "hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "global_head_dim": 10, "vocab_size": 64, "sliding_window": 19,
    "layer_types": ["sliding_attention", "full_attention", "full_attention"], "final_logit_softcapping": 20.0,
    "hidden_size_per_layer_input": 0, "pad_token_id": 0, "tie_word_embeddings": True, "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    },
}
# Dims that are multiples of nothing.
LATENT = {
    **SMALLER, "num_key_value_heads": 4, "kv_lora_rank": 17, "qk_nope_head_dim": 7, "qk_rope_head_dim": 4, "v_head_dim": 9,
    "n_shared_experts": 1, "moe_intermediate_size": 10,
}
MELLUM = {
    **SMALLER, "num_hidden_layers": 3, "head_dim": 10, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
    "sliding_window": 11, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_parameters": {
        "full_attention": YARN, "sliding_attention": THETA,
    },
}
LINEAR = "linear_attention"
DELTA_NET = {
    **SMALLER, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 10, "linear_num_key_heads": 2,
    "linear_conv_kernel_dim": 4, "rope_parameters": {**THETA, "partial_rotary_factor": 0.4},
}
QWEN_VISION = {
    "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "out_hidden_size": 24, "patch_size": 4,
    "num_position_embeddings": 4,
}
CLIP_VISION = {
    "model_type": "clip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    "image_size": 28, "patch_size": 14,
}
GLM_VISION = {
    "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "out_hidden_size": 32, "patch_size": 4, "image_size": 8,
}
MUSE_VISION = {
    "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "patch_size": 4, "pos_emb_height": 2,
    "pos_emb_width": 2, "max_position_embeddings": 4,
}
IDEFICS_VISION = {
    "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 28, "patch_size": 14,
}
# Layers of both kinds, of which those without a window rotate half of their dims, and gates that are bounded in some.
STEP = {
    **SMALLER, "pad_token_id": 0, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "num_sliding_attention_heads": 6,
    "head_dim": 12, "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "share_expert_dim": 14,
    "moe_router_scaling_factor": 2.5, "sliding_window": 11, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    "swiglu_limits": [None, 0.0, 0.4, 0.6], "swiglu_limits_shared": [0.5, None, 0.3, 0.0],
    "vision_config": {
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 28, "patch_size": 14, "mlp_ratio": 1.0,
        "max_position_embeddings": 4,
    },
}
# Hybrids of attention and state spaces, with heads of 8 channels.
STATE_SPACE = {
    "hidden_size": 24, "vocab_size": 64, "mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 9, "mamba_d_conv": 4,
    "mamba_chunk_size": 32,
}
MODELS = {
    "llama_linear": ("Llama", {**SMALL, "rope_parameters": {**THETA, "rope_type": "linear", "factor": 4.0}}),
    "llama_llama3": ("Llama", {**SMALL, "rope_parameters": {
        **THETA, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }}),
    "llama_biases": ("Llama", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    "ministral": ("Ministral", {
        **SMALL, "head_dim": 8, "sliding_window": 11, "layer_types": ["full_attention", "sliding_attention"],
    }),
    "mistral": ("Mistral", {"sliding_window": 11, "rms_norm_eps": 1e-5}),
    "ministral3": ("Ministral3", {
        **SMALL, "head_dim": 8, "rope_parameters": {
            **YARN, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
    }),
    "mistral3": ("Mistral3ForConditionalGeneration", {
        **SMALL, "model_type": "mistral", "head_dim": 12, "sliding_window": None, "vision_config": {
            "model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 1, "head_dim": 8, "image_size": 28, "patch_size": 14,
        },
    }),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2_window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    "qwen2_yarn": ("Qwen2", {**SMALL, "rope_parameters": YARN}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "granite": ("Granite", {
        "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 5.0,
        "tie_word_embeddings": True,
    }),
    "phi3": ("Phi3", {"sliding_window": 13}),
    "phi3_partial": ("Phi3", {
        "sliding_window": None, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5},
        "tie_word_embeddings": True,
    }),
    # Within the original context, so that the short factors hold.
    "phi3_longrope": ("Phi3", {
        "max_position_embeddings": 256, "original_max_position_embeddings": 64, "sliding_window": None,
        "tie_word_embeddings": True, "rope_parameters": {**LONGROPE, "original_max_position_embeddings": 64},
    }),
    # Beyond it.
    "phi3_longrope_long": ("Phi3", {
        **SMALL, "max_position_embeddings": 256, "original_max_position_embeddings": 32, "sliding_window": None,
        "rope_parameters": {**LONGROPE, "original_max_position_embeddings": 32},
    }),
    # So far from the best that about half of the experts count.
    "phi_moe": ("Phimoe", {
        **SMALLER, "num_key_value_heads": 1, "num_local_experts": 5, "num_experts_per_tok": 2, "router_jitter_noise": 0.6,
        "attention_bias": True, "lm_head_bias": True, "sliding_window": 11,
    }),
    "phi_moe_longrope": ("Phimoe", {
        **SMALLER, "hidden_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 256,
        "original_max_position_embeddings": 64, "attention_bias": True, "lm_head_bias": True, "rope_parameters": {
            **LONGROPE, "original_max_position_embeddings": 64, "short_mscale": 1.2, "long_mscale": 1.2,
        },
    }),
    "smollm3": ("SmolLM3", {
        "num_hidden_layers": 4, "intermediate_size": 32, "no_rope_layer_interval": 3, "tie_word_embeddings": True,
    }),
    # GGUF files say of no layer that it does not rotate: every fourth does not.
    "smollm3_usual": ("SmolLM3", {**SMALL, "num_hidden_layers": 4}),
    "olmo2": ("Olmo2", {}),
    "olmo3": ("Olmo3", {**SMALL, "num_hidden_layers": 4, "sliding_window": 10, "rope_parameters": {
        "full_attention": YARN, "sliding_attention": THETA,
    }}),
    "exaone4": ("Exaone4", {**SMALL, "num_hidden_layers": 5, "sliding_window": 10, "sliding_window_pattern": 4}),
    "exaone4_full": ("Exaone4", {**SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "exaone4_5": ("Exaone4_5_ForConditionalGeneration", {
        "model_type": "exaone4", "num_hidden_layers": 5, "intermediate_size": 24, "sliding_window": 10, "vision_config": {
            "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "num_key_value_heads": 1, "out_hidden_size": 32,
            "patch_size": 4, "fullatt_block_indexes": [0],
        },
    }),
    "exaone_moe": ("ExaoneMoe", {
        **SMALLER, "num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 10, "num_experts": 6,
        "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2, "moe_intermediate_size": 10, "num_shared_experts": 2,
        "routed_scaling_factor": 1.7,
    }),
    "exaone_moe_full": ("ExaoneMoe", {
        **SMALLER, "head_dim": 8, "layer_types": ["full_attention"] * 2, "num_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 12, "num_shared_experts": 1, "first_k_dense_replace": 0,
        "norm_topk_prob": False, **TIED,
    }),
    "gemma": ("Gemma", {**GEMMA}),
    # Caps small enough to bend scores and logits of these sizes.
    "gemma2": ("Gemma2", {
        **GEMMA, "query_pre_attn_scalar": 12, "sliding_window": 10, "attn_logit_softcapping": 4.0,
        "final_logit_softcapping": 20.0,
    }),
    "gemma3": ("Gemma3", {
        **GEMMA, "num_hidden_layers": 7, "query_pre_attn_scalar": 20, "sliding_window": 10, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    }),
    # Beside a model that sees, which we leave out.
    "gemma3_vision": ("Gemma3ForConditionalGeneration", {
        **GEMMA, "sliding_window": 10, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": None, "vision_config": {
            "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
            "image_size": 28, "patch_size": 14,
        },
    }),
    # Of 5 experts, three choices turn when keys and values are rounded to bf16, here and in PyTorch alike.
    "mixtral": ("Mixtral", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    # All experts in one tensor, as `transformers` has them in memory.
    "mixtral_stacked": ("Mixtral", {"num_local_experts": 3, "num_experts_per_tok": 1, "intermediate_size": 32}),
    "qwen2_moe": ("Qwen2Moe", {
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 64, "norm_topk_prob": False,
    }),
    "qwen3_moe": ("Qwen3Moe", {
        "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True,
    }),
    # Experts in the second layer alone.
    "qwen3_moe_sparse": ("Qwen3Moe", {
        "num_hidden_layers": 3, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
        "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": [0, 2],
    }),
    # Two of three groups, the layers after a dense one, and half of each head turned.
    "glm4_moe": ("Glm4Moe", {
        **SMALLER, "num_hidden_layers": 3, "head_dim": 12, "num_key_value_heads": 1, "n_routed_experts": 9, "n_group": 3,
        "topk_group": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 10, "n_shared_experts": 2,
        "routed_scaling_factor": 1.7, "use_qk_norm": True, "attention_bias": True,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}, "num_mtp_layers": 0,
    }),
    "glm4_moe_plain": ("Glm4Moe", {
        **SMALLER, "num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 10, "n_routed_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1, "norm_topk_prob": False,
        "first_k_dense_replace": 0, "rope_parameters": {**THETA, "partial_rotary_factor": 0.4}, **TIED,
    }),
    # Saved as Ling, which `transformers` does not have: groups of experts, and dims of which some rotate.
    "ling": ("Glm4Moe", {
        **TEN, "num_hidden_layers": 3, "head_dim": 10, "n_routed_experts": 9, "n_group": 3, "topk_group": 2, "num_experts_per_tok": 3,
        "moe_intermediate_size": 12, "n_shared_experts": 1, "routed_scaling_factor": 2.5, "use_qk_norm": True,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.6}, "num_mtp_layers": 0,
    }),
    "ling_plain": ("Glm4Moe", {
        **SMALLER, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10, "n_routed_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 10, "n_shared_experts": 2, "norm_topk_prob": False, "first_k_dense_replace": 0, "attention_bias": True,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.4}, "num_mtp_layers": 0,
    }),
    "solar_open": ("SolarOpen", {
        **SMALLER, "head_dim": 14, "num_key_value_heads": 1, "n_routed_experts": 9, "n_group": 3, "topk_group": 2,
        "num_experts_per_tok": 3, "moe_intermediate_size": 10, "n_shared_experts": 2, "routed_scaling_factor": 1.7,
        "attention_bias": True, "rope_parameters": YARN,
    }),
    # Heads whose keys, values and latents are all of different sizes; stretched positions, by which scores grow.
    "deepseek_v2": ("DeepseekV2", {
        **LATENT, "kv_lora_rank": 18, "qk_nope_head_dim": 6, "q_lora_rank": None, "n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2,
        "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.0, "first_k_dense_replace": 1,
        "rope_parameters": {**YARN, "original_max_position_embeddings": 128, "mscale": 0.707, "mscale_all_dim": 0.707},
    }),
    "deepseek_v2_greedy": ("DeepseekV2", {
        **LATENT, "num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 22, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 6, "v_head_dim": 5, "q_lora_rank": 18, "n_routed_experts": 5, "num_experts_per_tok": 2, "topk_method": "greedy", "attention_bias": True, **TIED,
    }),
    "deepseek_v3": ("DeepseekV3", {
        **LATENT, "num_hidden_layers": 3, "q_lora_rank": 10, "n_routed_experts": 9, "num_experts_per_tok": 3,
        "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1, "scoring_func": "sigmoid",
        "routed_scaling_factor": 2.5, "num_mtp_layers": 0,
        "rope_parameters": {**YARN, "original_max_position_embeddings": 128, "mscale": 1.0, "mscale_all_dim": 1.0},
    }),
    # Pairs of dims that are half of those that turn apart.
    "deepseek_v3_halves": ("DeepseekV3", {
        **LATENT, "q_lora_rank": 10, "n_routed_experts": 9, "num_experts_per_tok": 3, "n_group": 3, "topk_group": 2,
        "first_k_dense_replace": 1, "num_mtp_layers": 0, "rope_interleave": False,
    }),
    "kimi_k25": ("DeepseekV3", {
        **LATENT, "q_lora_rank": 9, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "routed_scaling_factor": 2.8, "num_mtp_layers": 0,
    }),
    "kimi_vl": ("DeepseekV3", {
        **LATENT, "q_lora_rank": None, "n_routed_experts": 5, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
        "first_k_dense_replace": 1, "routed_scaling_factor": 2.4, "num_mtp_layers": 0,
    }),
    # Fewer positions than the prompt has are chosen, by so many heads that hardly any scores are equal (0).
    "deepseek_v32": ("DeepseekV32", {
        **LATENT, "q_lora_rank": 10, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1, "scoring_func": "sigmoid", "index_topk": 21, "index_head_dim": 6, "index_n_heads": 11,
        "rope_parameters": {**YARN, "original_max_position_embeddings": 128, "mscale": 1.0, "mscale_all_dim": 1.0},
    }),
    "glm_moe_dsa": ("GlmMoeDsa", {
        **LATENT, "num_hidden_layers": 3, "qk_nope_head_dim": 10, "v_head_dim": 12, "q_lora_rank": 9, "n_routed_experts": 4,
        "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "scoring_func": "sigmoid",
        "index_topk": 270, "index_head_dim": 5, "index_n_heads": 13, "indexer_types": ["full", "shared", "full"],
    }),
    "glm4_moe_lite": ("Glm4MoeLite", {
        **LATENT, "qk_nope_head_dim": 10, "v_head_dim": 12, "q_lora_rank": 9, "n_routed_experts": 5,
        "num_experts_per_tok": 2, "routed_scaling_factor": 1.8,
    }),
    # Queries that grow early, and stretched positions, by which scores grow.
    "mistral4": ("Mistral4", {
        **LATENT, "num_hidden_layers": 3, "q_lora_rank": 10, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "first_k_dense_replace": 1, "routed_scaling_factor": 1.7, "rope_parameters": {
            **YARN, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5,
        },
    }),
    "mistral4_vision": ("Mistral3ForConditionalGeneration", {
        **LATENT, "model_type": "mistral4", "q_lora_rank": None, "n_routed_experts": 6, "num_experts_per_tok": 3, "n_group": 3,
        "topk_group": 2, "norm_topk_prob": False, "rope_parameters": {
            **YARN, "original_max_position_embeddings": 128, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
        },
        "vision_config": {
            "model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 1, "head_dim": 8, "image_size": 28, "patch_size": 14,
        },
    }),
    "dots1": ("Dots1", {
        **SMALLER, "head_dim": 10, "num_key_value_heads": 1, "n_routed_experts": 4, "n_group": 2, "topk_group": 1,
        "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.5, "norm_topk_prob": True, "sliding_window": None, "scoring_func": "sigmoid",
    }),
    "hunyuan": ("HunYuanDenseV1", {**SMALLER, "head_dim": 10, "num_key_value_heads": 1, "attention_bias": True}),
    # A base that is stretched.
    "hunyuan_alpha": ("HunYuanDenseV1", {
        **SMALLER, "head_dim": 12, "rope_parameters": {"rope_type": "dynamic", "rope_theta": 50.0, "factor": 1.0, "alpha": 5.0}, **TIED,
    }),
    "hunyuan_moe": ("HunYuanMoEV1", {
        **SMALLER, "head_dim": 10, "num_experts": 5, "moe_topk": [2, 2], "moe_intermediate_size": [24, 24],
        "num_shared_expert": [1, 1],
    }),
    # Layers whose tokens get different numbers of experts.
    "hunyuan_moe_layers": ("HunYuanMoEV1", {
        **SMALLER, "head_dim": 10, "num_experts": 5, "moe_topk": [1, 3], "moe_intermediate_size": [24, 24],
        "num_shared_expert": [1, 1],
    }),
    "hy_v3": ("HYV3", {
        **SMALLER, "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 10, "num_experts": 6, "num_experts_per_tok": 3,
        "num_shared_experts": 2, "moe_intermediate_size": 10, "router_scaling_factor": 1.7,
    }),
    "ernie4_5_moe": ("Ernie4_5_Moe", {
        **SMALLER, "num_hidden_layers": 3, "num_key_value_heads": 1, "moe_num_experts": 5, "moe_k": 2,
        "moe_intermediate_size": 12, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, **TIED,
    }),
    "minimax_m2": ("MiniMaxM2", {
        **SMALLER, "head_dim": 10, "num_local_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 12,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.6}, "rotary_dim": 6,
        "scoring_func": "sigmoid",
    }),
    # Positions that count by time, height and width, which are one and the same for text.
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {
        "head_dim": 12, "intermediate_size": 24, "rope_parameters": {**THETA, "mrope_section": [2, 2, 2], "mrope_interleaved": True},
        "vision_config": {**QWEN_VISION, "out_hidden_size": 32, "deepstack_visual_indexes": [0]}, **TIED,
    }),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", {
        **SMALLER, "head_dim": 10, "num_key_value_heads": 1, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "rope_parameters": {**THETA, "mrope_section": [2, 2, 1], "mrope_interleaved": True},
        "vision_config": {**QWEN_VISION, "deepstack_visual_indexes": [0]},
    }),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", {
        "intermediate_size": 24, "rope_parameters": {**THETA, "mrope_section": [1, 2, 1]},
        "vision_config": {"depth": 1, "embed_dim": 8, "hidden_size": 32, "num_heads": 1, "patch_size": 4}, **TIED,
    }),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", {
        "hidden_size": 40, "intermediate_size": 24, "rope_parameters": {**THETA, "mrope_section": [1, 2, 2]},
        "vision_config": {**QWEN_VISION, "out_hidden_size": 40, "fullatt_block_indexes": [0]},
    }),
    "glm4v": ("Glm4vForConditionalGeneration", {
        "intermediate_size": 24, "num_key_value_heads": 1,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}, "vision_config": GLM_VISION,
    }),
    "glm46v": ("Glm46VForConditionalGeneration", {
        "intermediate_size": 24, "num_key_value_heads": 1,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]}, "vision_config": GLM_VISION,
    }),
    "glm4v_moe": ("Glm4vMoeForConditionalGeneration", {
        **SMALLER, "head_dim": 12, "num_key_value_heads": 1, "n_routed_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 10, "n_shared_experts": 1, "first_k_dense_replace": 1, "attention_bias": True,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 1]},
        "vision_config": {**GLM_VISION, "out_hidden_size": 24},
    }),
    # Frames around text models of any family.
    "llava": ("LlavaForConditionalGeneration", {**SMALL, "model_type": "llama", "vision_config": CLIP_VISION}),
    "llava_next": ("LlavaNextForConditionalGeneration", {
        "model_type": "mistral", "intermediate_size": 24, "sliding_window": None, "vision_config": CLIP_VISION,
    }),
    "llava_onevision": ("LlavaOnevisionForConditionalGeneration", {
        "model_type": "qwen2", "intermediate_size": 24, "vision_config": {**CLIP_VISION, "model_type": "siglip_vision_model"},
    }),
    "internvl": ("InternVLForConditionalGeneration", {
        "model_type": "qwen3", "intermediate_size": 24, "head_dim": 12, "vision_config": {
            "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": [28, 28],
            "patch_size": [14, 14],
        },
    }),
    "internvl_chat": ("Qwen2", {**SMALL, "num_key_value_heads": 1}),
    "idefics3": ("Idefics3ForConditionalGeneration", {
        "model_type": "llama", "intermediate_size": 24, "vision_config": IDEFICS_VISION,
    }),
    "smolvlm": ("SmolVLMForConditionalGeneration", {
        **SMALLER, "model_type": "llama", "head_dim": 10, "vision_config": IDEFICS_VISION,
    }),
    # Attention between delta nets.
    "qwen3_next": ("Qwen3Next", {
        **DELTA_NET, "num_hidden_layers": 4, "layer_types": [LINEAR, "full_attention", LINEAR, LINEAR],
        "linear_num_value_heads": 4, "linear_key_head_dim": 5, "linear_value_head_dim": 7, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12, "vocab_size": 48,
    }),
    # A dense layer, which llama.cpp has no place for.
    "qwen3_next_dense": ("Qwen3Next", {
        **DELTA_NET, "layer_types": [LINEAR, "full_attention"], "linear_num_value_heads": 2, "linear_key_head_dim": 6,
        "linear_value_head_dim": 6, "num_experts": 3, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "shared_expert_intermediate_size": 8, "mlp_only_layers": [1], "norm_topk_prob": False, **TIED,
    }),
    "qwen3_5": ("Qwen3_5ForCausalLM", {
        **DELTA_NET, "num_hidden_layers": 5, "layer_types": None, "linear_num_value_heads": 6, "linear_key_head_dim": 9,
        "linear_value_head_dim": 6, "linear_conv_kernel_dim": 3, **TIED,
    }),
    "qwen3_5_vision": ("Qwen3_5ForConditionalGeneration", {
        **DELTA_NET, "layer_types": ["full_attention", LINEAR], "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 10, "attention_bias": True, "vision_config": QWEN_VISION,
    }),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", {
        **DELTA_NET, "num_hidden_layers": 3, "layer_types": ["full_attention", LINEAR, LINEAR],
        "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 5, "num_experts": 4,
        "num_experts_per_tok": 3, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 8, **TIED,
    }),
    "qwen3_5_moe_vision": ("Qwen3_5MoeForConditionalGeneration", {
        **DELTA_NET, "num_hidden_layers": 2, "layer_types": [LINEAR, "full_attention"], "linear_num_value_heads": 4,
        "linear_key_head_dim": 4, "linear_value_head_dim": 4, "num_experts": 3, "num_experts_per_tok": 1,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "vision_config": QWEN_VISION,
    }),
    "olmoe": ("Olmoe", {"num_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32, "norm_topk_prob": False}),
    "granite_moe": ("GraniteMoe", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32, "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 5.0, "tie_word_embeddings": True,
    }),
    "granite_moe_shared": ("GraniteMoeShared", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 24, "shared_intermediate_size": 20,
        "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 5.0,
        "tie_word_embeddings": True,
    }),
    # One base, two, and none.
    "granite_swa": ("GraniteSWA", {
        **SMALLER, "num_hidden_layers": 5, "num_key_value_heads": 1, "sliding_window": 10, "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 5.0, "attention_bias": True, **TIED,
        "layer_rope_theta": [0, 500.0, 500.0, 0, 500.0],
    }),
    "granite_swa_bases": ("GraniteSWA", {
        **SMALLER, "num_hidden_layers": 3, "sliding_window": 10, "attention_multiplier": 0.3, "mlp_bias": True,
        "layer_rope_theta": [50.0, 500.0, 0.0],
    }),
    "granite_moe_swa": ("GraniteMoeSWA", {
        **SMALLER, "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 12, "shared_intermediate_size": 20,
        "sliding_window": 10, "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4,
        "logits_scaling": 5.0, **TIED,
    }),
    "gpt2": ("GPT2LMHeadModel", {**TEN, "num_attention_heads": 3, "hidden_size": 30, **TIED}),
    "gpt2_unscaled": ("GPT2LMHeadModel", {
        **TEN, "n_inner": 24, "scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "activation_function": "relu",
    }),
    "gpt_neox": ("GPTNeoX", {**TEN, "rope_parameters": {**THETA, "partial_rotary_factor": 0.6}}),
    "gpt_neox_sequential": ("GPTNeoX", {
        **TEN, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True,
        "rope_parameters": {**THETA, "partial_rotary_factor": 1.0},
    }),
    "starcoder2": ("Starcoder2", {**TEN, "hidden_size": 36, "num_attention_heads": 6, "sliding_window": 11, **TIED}),
    "starcoder2_plain": ("Starcoder2", {**TEN, "use_bias": False, "hidden_act": "silu"}),
    "cohere": ("Cohere", {**TEN, "num_key_value_heads": 1, "logit_scale": 0.3, **TIED}),
    "cohere_norms": ("Cohere", {**TEN, "use_qk_norm": True, "attention_bias": True, "logit_scale": 0.3, **TIED}),
    "cohere2": ("Cohere2", {
        **TEN, "hidden_size": 24, "num_hidden_layers": 5, "sliding_window": 10, "logit_scale": 0.3, **TIED,
    }),
    # Dense layers in front, of which one has no window and turns positions all the same.
    "cohere2_moe": ("Cohere2Moe", {
        **SMALLER, "num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 10, "logit_scale": 0.3,
        "prefix_dense_intermediate_size": 20, "intermediate_size": 12, "first_k_dense_replace": 1, "num_experts": 6,
        "num_experts_per_tok": 3, "num_shared_experts": 2, "expert_selection_fn": "sigmoid", **TIED,
    }),
    "cohere2_moe_plain": ("Cohere2Moe", {
        **SMALLER, "num_hidden_layers": 3, "head_dim": 8, "sliding_window": 10, "sliding_window_pattern": 2, "rms_norm_eps": 1e-5,
        "intermediate_size": 12, "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "attention_bias": True,
        "shared_expert_combination_strategy": "sum",
    }),
    "stablelm": ("StableLm", {
        **TEN, "hidden_size": 48, "use_qkv_bias": True, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5},
    }),
    "stablelm_parallel": ("StableLm", {
        **TEN, "hidden_size": 32, "qk_layernorm": True, "use_parallel_residual": True, **TIED,
        "rope_parameters": {**THETA, "partial_rotary_factor": 0.25},
    }),
    "olmo": ("Olmo", {**TEN, "num_key_value_heads": 4}),
    # A limit that bends about one of four values.
    "olmo_clipped": ("Olmo", {**TEN, "clip_qkv": 1.0, **TIED}),
    "glm": ("Glm", {**SMALLER, "head_dim": 12, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}),
    "glm4": ("Glm4", {
        **SMALLER, "head_dim": 12, "num_key_value_heads": 1, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5},
    }),
    "ernie4_5": ("Ernie4_5", {**SMALLER, "head_dim": 10, **TIED}),
    "ernie4_5_biases": ("Ernie4_5", {**SMALLER, "head_dim": 6, "use_bias": True}),
    "seed_oss": ("SeedOss", {**SMALLER, "head_dim": 14, "attention_out_bias": True, "mlp_bias": True}),
    "phi": ("Phi", {**TEN, "num_key_value_heads": 4, "rope_parameters": {**THETA, "partial_rotary_factor": 0.4}}),
    "phi_norms": ("Phi", {
        **TEN, "qk_layernorm": True, "rope_parameters": {**THETA, "partial_rotary_factor": 0.6},
    }),
    # One key and value head, as the 7B has; several, as the 40B; one for each query head, and blocks in sequence.
    "falcon": ("Falcon", {**TEN, "num_attention_heads": 2, "hidden_size": 20, **TIED}),
    "falcon_new": ("Falcon", {
        **TEN, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True, "ffn_hidden_size": 24, **TIED,
    }),
    "falcon_one_norm": ("Falcon", {
        **TEN, "new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1,
        "ffn_hidden_size": 24, **TIED,
    }),
    "falcon_sequential": ("Falcon", {
        **TEN, "multi_query": False, "parallel_attn": False, "ffn_hidden_size": 24, "tie_word_embeddings": False,
    }),
    # Without positions, and with them; layers of both kinds have their norms in other places.
    "olmo_hybrid": ("OlmoHybrid", {
        **SMALLER, "num_hidden_layers": 3, "layer_types": [LINEAR, LINEAR, "full_attention"], "num_attention_heads": 3,
        "num_key_value_heads": 1, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 5,
        "linear_value_head_dim": 7, "rope_parameters": {"rope_type": "default", "rope_theta": None},
    }),
    "olmo_hybrid_rotated": ("OlmoHybrid", {
        **SMALLER, "layer_types": [LINEAR, "full_attention"], "num_attention_heads": 2, "num_key_value_heads": 2,
        "linear_allow_neg_eigval": False, "linear_conv_kernel_dim": 3, **TIED,
    }),
    "arcee": ("Arcee", {**TEN, "rope_parameters": THETA}),
    "cwm": ("Cwm", {
        **TEN, "num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 6, "sliding_window": 11, "mlp_bias": True,
        "rope_parameters": {
            **THETA, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    }),
    "apertus": ("Apertus", {
        **TEN, "num_key_value_heads": 1, "rope_parameters": {
            **THETA, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    }),
    # Slopes, positions and biases that bf16 rounds.
    "falcon_alibi": ("Falcon", {
        **TEN, "alibi": True, "num_attention_heads": 20, "multi_query": False, "parallel_attn": False, "bias": True,
        "ffn_hidden_size": 24,
    }),
    # Heads of an odd number of pairs, and a rope that is stretched in layers without window alone.
    "mellum": ("Mellum", MELLUM),
    "mellum_dense": ("Mellum", {
        **MELLUM, "mlp_layer_types": ["dense", "sparse", "sparse"], "num_mtp_layers": 1, **TIED,
        "rope_parameters": {"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}},
    }),
    # Another number of heads in each layer, whose gates are one for a head, and dims that are rotated in part.
    "laguna": ("Laguna", {
        **SMALLER, "num_hidden_layers": 3, "num_attention_heads_per_layer": [4, 6, 2], "head_dim": 10, "num_experts": 5,
        "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 14, "moe_routed_scaling_factor": 2.5,
        "sliding_window": 11, "layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_parameters": {
            "full_attention": {**YARN, "partial_rotary_factor": 0.6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 1.0},
        },
    }),
    "laguna_elements": ("Laguna", {
        **SMALLER, "head_dim": 10, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "gating": "per-element",
        "shared_expert_intermediate_size": 10, "moe_router_logit_softcapping": 0.7, "mlp_layer_types": ["sparse", "dense"],
        "rope_parameters": {"full_attention": THETA}, **TIED,
    }),
    "afmoe": ("Afmoe", {
        **SMALLER, "num_hidden_layers": 4, "head_dim": 10, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
        "num_shared_experts": 2, "route_scale": 2.5, "sliding_window": 11, "mup_enabled": True,
    }),
    # Embeddings that are not multiplied, and other layers with a window.
    "afmoe_plain": ("Afmoe", {
        **SMALLER, "num_hidden_layers": 3, "head_dim": 10, "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
        "num_shared_experts": 1, "num_dense_layers": 2, "sliding_window": 11, "global_attn_every_n_layers": 2, **TIED,
    }),
    # Layers of all three kinds, and those of one without gates and norms behind blocks.
    "lfm3": ("Lfm3", {
        **SMALLER, "num_hidden_layers": 5, "head_dim": 10, "sliding_window": 19, "conv_L_cache": 5, "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        }, **TIED,
    }),
    "lfm3_plain": ("Lfm3", {
        **SMALLER, "layer_types": ["full_attention", "conv"], "head_dim": 8, "conv_bias": True, "use_sandwich_norm": False,
        "use_attention_gate": False, "rope_parameters": {
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 500.0},
        },
    }),
    "youtu": ("Youtu", {
        **SMALLER, "num_key_value_heads": 4, "kv_lora_rank": 17, "q_lora_rank": 13, "qk_nope_head_dim": 7, "qk_rope_head_dim": 4,
        "v_head_dim": 9, **TIED,
    }),
    # Values of fewer dims than keys, and twice as many of both in layers with a window.
    "mimo_v2": ("MiMoV2Flash", {
        **SMALLER, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 12, "v_head_dim": 7,
        "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "sliding_window": 11, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.334},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.334},
        },
    }),
    "step3p5": ("Step3p7ForConditionalGeneration", {
        **STEP, "rope_parameters": {
            "full_attention": {
                "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64, "partial_rotary_factor": 0.5,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 1.0},
        },
    }),
    "step3p7": ("Step3p7ForConditionalGeneration", {
        **STEP, "num_key_value_heads": 1, "num_sliding_attention_heads": 3, "head_dim": 8, "mlp_layer_types": ["sparse"] * 4,
        "swiglu_limits": None, "swiglu_limits_shared": None, "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
        },
    }),
    "minicpm3": ("MiniCPM3", {
        **SMALLER, "num_key_value_heads": 4, "kv_lora_rank": 17, "q_lora_rank": 13, "qk_nope_head_dim": 7, "qk_rope_head_dim": 4, **TIED,
    }),
    # Factors that are not those of the published model, and values of another size.
    "minicpm3_longrope": ("MiniCPM3", {
        **SMALLER, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 10, "qk_nope_head_dim": 5, "qk_rope_head_dim": 8, "v_head_dim": 9,
        "scale_emb": 3, "scale_depth": None, "dim_model_base": None, "max_position_embeddings": 256,
        "rope_parameters": {**LONGROPE, "original_max_position_embeddings": 64},
    }),
    # More experts that give what they read.
    "longcat_flash": ("LongcatFlash", {
        **SMALLER, "num_hidden_layers": 4, "num_key_value_heads": 4, "kv_lora_rank": 17, "qk_nope_head_dim": 7, "qk_rope_head_dim": 4,
        "head_dim": 4, "v_head_dim": 9, "q_lora_rank": 10, "intermediate_size": 20, "moe_intermediate_size": 10, "n_routed_experts": 5,
        "zero_expert_num": 3, "num_experts_per_tok": 3, "routed_scaling_factor": 1.7,
    }),
    # Layers with a window, which rotate, and without, which do not, as GGUF files have them; and layers of other kinds.
    "muse_glimmer": ("MuseGlimmerForConditionalGeneration", {
        **SMALLER, "num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 10, "sliding_window": 11, "final_logit_softcapping": 5.0,
        "output_multiplier": 0.7, "qk_scale_factor": 2.3, "vision_config": MUSE_VISION,
    }),
    "muse_glimmer_layers": ("MuseGlimmerForConditionalGeneration", {
        **SMALLER, "num_hidden_layers": 3, "head_dim": 8, "sliding_window": 11, "layer_rope_theta": [0, 500.0, 500.0],
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "post_norm_eps": 0.1, "vision_config": MUSE_VISION,
    }),
    "nemotron": ("Nemotron", {
        **TEN, "attention_bias": True, "mlp_bias": True, "rope_parameters": {**THETA, "partial_rotary_factor": 0.6},
    }),
    # A head size that is not the model's over its heads, two query heads for a key head, and ends of the blend between pairs.
    "gpt_oss": ("GptOss", {
        "hidden_size": 36, "head_dim": 10, "intermediate_size": 12, "sliding_window": 19, "num_local_experts": 4,
        "num_experts_per_tok": 2, "vocab_size": 64, "rope_parameters": {
            **YARN, "original_max_position_embeddings": 128, "beta_fast": 20.0, "beta_slow": 2.0, "truncate": False,
        },
    }),
    # A limit that bends about one of three gates.
    "gpt_oss_clamped": ("GptOss", {
        "hidden_size": 24, "num_key_value_heads": 1, "head_dim": 8, "intermediate_size": 12, "sliding_window": 11,
        "layer_types": ["full_attention", "sliding_attention"], "num_local_experts": 3, "num_experts_per_tok": 3,
        "vocab_size": 64, "swiglu_limit": 0.8, **TIED,
    }),
    # GGUF files always have chunks of 8,192 positions.
    "llama4": ("Llama4", {
        "hidden_size": 24, "head_dim": 10, "intermediate_size": 12, "intermediate_size_mlp": 20, "vocab_size": 64,
        "num_key_value_heads": 1, "num_hidden_layers": 4, "interleave_moe_layer_step": 2, "num_local_experts": 3,
        "num_experts_per_tok": 2, "attention_chunk_size": 8192, "rope_parameters": {
            **THETA, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    }),
    # Chunks that begin within pages, and queries that grow early.
    "llama4_vision": ("Llama4", {
        "hidden_size": 24, "head_dim": 6, "intermediate_size": 12, "intermediate_size_mlp": 20, "vocab_size": 64,
        "num_hidden_layers": 3, "moe_layers": [1], "num_local_experts": 4, "attention_chunk_size": 90,
        "no_rope_layers": [1, 0, 1], "floor_scale": 50, "attn_scale": 0.3, "use_qk_norm": False,
    }),
    "gemma3n": ("Gemma3n", {**GEMMA3N}),
    # Fewer rows in the second embedding, and the other stream.
    "gemma3n_vision": ("Gemma3n", {
        **GEMMA3N, "vocab_size_per_layer_input": 60, "altup_num_inputs": 3, "altup_active_idx": 1, "laurel_rank": 5,
    }),
    "gemma4": ("Gemma4", {
        **GEMMA4, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "hidden_size_per_layer_input": 6,
        "vocab_size_per_layer_input": 64,
    }),
    "gemma4_vision": ("Gemma4ForConditionalGeneration", {
        **GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True,
        "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 12, "vision_config": {
            "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
            "num_key_value_heads": 1, "head_dim": 8, "patch_size": 4, "position_embedding_size": 8,
        },
    }),
    "gemma4_unified": ("Gemma4UnifiedForConditionalGeneration", {
        **{key: value for key, value in GEMMA4.items() if key != "hidden_size_per_layer_input"},
        "attention_k_eq_v": True, "num_global_key_value_heads": 2, "use_bidirectional_attention": "vision",
        "vision_config": None,
    }),
    "nemotron_plain": ("Nemotron", {**SMALLER, "head_dim": 12, **TIED, "rope_parameters": {**THETA, "partial_rotary_factor": 0.5}}),
    # Attention between convolutions, and a width that is made from another one.
    "lfm2": ("Lfm2", {
        "hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 3, "vocab_size": 64,
        "layer_types": ["conv", "full_attention", "conv"], "intermediate_size": 50, "block_multiple_of": 8,
        "block_ffn_dim_multiplier": 1.1, **TIED,
    }),
    "lfm2_biases": ("Lfm2", {
        "hidden_size": 24, "num_hidden_layers": 3, "vocab_size": 64, "full_attn_idxs": [0], "conv_bias": True,
        "conv_L_cache": 4, "block_auto_adjust_ff_dim": False,
    }),
    # Experts in the layers after a dense one.
    "lfm2_moe": ("Lfm2Moe", {
        "hidden_size": 30, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 4, "vocab_size": 64,
        "layer_types": ["conv", "conv", "full_attention", "conv"], "intermediate_size": 28, "moe_intermediate_size": 10,
        "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 3, **TIED,
    }),
    "lfm2_moe_plain": ("Lfm2Moe", {
        "hidden_size": 24, "num_hidden_layers": 2, "vocab_size": 64, "layer_types": ["full_attention", "conv"],
        "moe_intermediate_size": 12, "num_dense_layers": 0, "num_experts": 5, "num_experts_per_tok": 2,
        "use_expert_bias": False, "norm_topk_prob": False, "routed_scaling_factor": 1.7,
    }),
    "lfm2_vl": ("Lfm2VlForConditionalGeneration", {
        "model_type": "lfm2", "hidden_size": 24, "num_hidden_layers": 2, "vocab_size": 64,
        "layer_types": ["full_attention", "conv"], "intermediate_size": 24, "block_auto_adjust_ff_dim": False, **TIED,
        "vision_config": {
            "model_type": "siglip2_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 1, "num_patches": 4, "patch_size": 2,
        },
    }),
    "mamba2": ("Mamba2", {
        "hidden_size": 30, "num_heads": 6, "head_dim": 10, "n_groups": 3, "state_size": 7, "vocab_size": 64,
        "conv_kernel": 4, "chunk_size": 32,
    }),
    "mamba2_biases": ("Mamba2", {
        "hidden_size": 24, "num_heads": 3, "head_dim": 16, "n_groups": 1, "state_size": 12, "vocab_size": 64,
        "conv_kernel": 3, "chunk_size": 64, "use_bias": True, "use_conv_bias": False, "time_step_limit": [0.2, 0.7], **TIED,
    }),
    "mamba": ("Mamba", {"hidden_size": 30, "state_size": 5, "conv_kernel": 3, "time_step_rank": 3, "vocab_size": 64}),
    "falcon_mamba": ("FalconMamba", {
        "hidden_size": 20, "vocab_size": 64, "state_size": 7, "time_step_rank": 3, "conv_kernel": 3, "layer_norm_epsilon": 1e-4,
    }),
    "falcon_mamba_biases": ("FalconMamba", {
        "hidden_size": 24, "vocab_size": 64, "state_size": 5, "use_bias": True, "use_conv_bias": False, "mixer_rms_eps": 0.01,
    }),
    # Experts in addition to a block that every token gets, and no positions.
    "granite_hybrid": ("GraniteMoeHybrid", {
        **STATE_SPACE, "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 4,
        "num_experts_per_tok": 2, "intermediate_size": 12, "shared_intermediate_size": 14, "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2, "residual_multiplier": 0.4, "logits_scaling": 5.0, **TIED,
    }),
    "granite_hybrid_dense": ("GraniteMoeHybrid", {
        **STATE_SPACE, "mamba_n_groups": 1, "layer_types": ["attention", "mamba"], "num_local_experts": 0,
        "shared_intermediate_size": 28, "position_embedding_type": "rope", "attention_bias": True,
        "attention_multiplier": 0.3,
        "time_step_limit": [0.0, 0.9],
    }),
    "granite_hybrid_full": ("GraniteMoeHybrid", {
        **STATE_SPACE, "layer_types": ["attention", "attention"], "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 28, "intermediate_size": 28,
        "position_embedding_type": "rope", "attention_multiplier": 0.3,
    }),
    "falcon_h1": ("FalconH1", {
        **STATE_SPACE, "head_dim": 10, "mamba_d_ssm": 36, "mamba_d_head": 6, "intermediate_size": 28,
        "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7, "key_multiplier": 0.6, "ssm_in_multiplier": 1.2,
        "ssm_multipliers": [0.5, 1.5, 0.8, 1.1, 0.9], "ssm_out_multiplier": 0.6, "mlp_multipliers": [0.8, 0.7],
        "embedding_multiplier": 2.0, "lm_head_multiplier": 0.3,
    }),
    "falcon_h1_norms": ("FalconH1", {
        **STATE_SPACE, "head_dim": 8, "mamba_d_ssm": 48, "mamba_d_head": 8, "intermediate_size": 28, "mamba_rms_norm": True,
        "mamba_norm_before_gate": True, "projectors_bias": True, "mamba_conv_bias": False, **TIED,
    }),
    "nemotron_h": ("NemotronH", {
        "hidden_size": 24, "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
        "head_dim": 10, "intermediate_size": 20, "vocab_size": 64, "ssm_state_size": 9, "mamba_num_heads": 6,
        "mamba_head_dim": 7, "n_groups": 2, "conv_kernel": 4, "chunk_size": 32,
        "d_head": 7,
    }),
    # Plain experts; those that read narrower rows; those of which groups are chosen.
    "nemotron_h_moe": ("NemotronH", {
        "hidden_size": 24, "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "head_dim": 10,
        "vocab_size": 64, "ssm_state_size": 9, "mamba_num_heads": 6, "mamba_head_dim": 7, "n_groups": 2,
        "conv_kernel": 4, "chunk_size": 32, "n_routed_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "moe_shared_expert_intermediate_size": 18, "routed_scaling_factor": 2.5, "d_head": 7,
    }),
    "nemotron_h_latent": ("NemotronH", {
        "hidden_size": 24, "layers_block_type": ["moe", "linear_attention", "full_attention", "moe"], "head_dim": 8, "vocab_size": 64,
        "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 6, "n_groups": 1, "conv_kernel": 4,
        "chunk_size": 32, "n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 10,
        "moe_shared_expert_intermediate_size": 14, "moe_latent_size": 11, "norm_topk_prob": False, "d_head": 6, **TIED,
    }),
    "nemotron_h_groups": ("NemotronH", {
        "hidden_size": 24, "layers_block_type": ["linear_attention", "moe", "mlp", "full_attention"], "head_dim": 8,
        "intermediate_size": 20, "vocab_size": 64, "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 6,
        "n_groups": 2, "conv_kernel": 4, "chunk_size": 32, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
        "num_experts_per_tok": 3, "moe_intermediate_size": 10, "moe_shared_expert_intermediate_size": 10,
    }),
    "jamba": ("Jamba", {
        **SMALLER, "num_hidden_layers": 4, "attn_layer_period": 3, "attn_layer_offset": 1, "num_experts": 3,
        "num_experts_per_tok": 2, "mamba_d_state": 6, "mamba_dt_rank": 5, "intermediate_size": 12,
    }),
    "jamba_dense": ("Jamba", {
        **SMALLER, "num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1,
        "num_experts_per_tok": 1, "mamba_d_state": 4, "mamba_d_conv": 3, "mamba_conv_bias": False, "mamba_proj_bias": True,
        **TIED,
    }),
    "bamba": ("Bamba", {
        **STATE_SPACE, "num_attention_heads": 3, "num_key_value_heads": 1, "attn_layer_indices": [1], "intermediate_size": 28, "attention_bias": True,
    }),
}
# Those that are written as GGUF too, and whether rows of queries and keys lie in pairs there.
GGUF = {
    "llama_linear": True, "llama_llama3": True, "mistral": True, "qwen2": False, "qwen2_yarn": False,
    "smollm3_usual": True, "qwen3": False, "granite": True, "phi3": False, "olmo2": False, "olmo3": False, "exaone4": False, "gemma": False,
    "gemma2": False, "gemma3": False, "mixtral": True, "mixtral_stacked": True, "qwen2_moe": False, "qwen3_moe": False,
    "olmoe": False, "granite_moe": True, "ministral3": True, "gpt2": False, "gpt_neox": False, "gpt_neox_sequential": False,
    "starcoder2": False, "cohere": False, "cohere_norms": False, "cohere2": False, "stablelm": False,
    "stablelm_parallel": False, "olmo": True, "olmo_clipped": True, "glm": False, "glm4": False, "ernie4_5": False,
    "seed_oss": False, "phi": False, "falcon": False, "falcon_new": False, "nemotron": False, "arcee": True, "apertus": False,
    "mellum": False, "laguna": False, "afmoe": False, "mimo_v2": False, "step3p5": False, "minicpm3": False, "muse_glimmer": True,
    "ling": False,
}
# What the GGUF files of some call themselves.
GGUF_NAMES = {
    "llama_linear": "llama", "llama_llama3": "llama", "mistral": "llama", "qwen2_yarn": "qwen2",
    "smollm3_usual": "smollm3",
    "olmo3": "olmo2", "mixtral": "llama", "mixtral_stacked": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
    "granite_moe": "granitemoe", "ministral3": "mistral3", "gpt_neox": "gptneox", "gpt_neox_sequential": "gptneox",
    "cohere": "command-r", "cohere_norms": "command-r", "stablelm_parallel": "stablelm", "olmo_clipped": "olmo",
    "ling": "bailingmoe2", "mimo_v2": "mimo2", "step3p5": "step35", "muse_glimmer": "muse-glimmer", "glm": "chatglm", "phi": "phi2", "falcon_new": "falcon",
}
# Those that the package `gguf` does not know yet, and one whose tensors are called the same.
GGUF_TENSORS = {"mellum": "dots1", "laguna": "step35", "muse-glimmer": "afmoe"}
# Those whose GGUF files llama.cpp's converter writes.
CONVERTED = {
    "qwen3_next", "qwen3_5", "qwen3_5_vision", "qwen3_5_moe", "qwen3_5_moe_vision",
    "deepseek_v2", "deepseek_v2_greedy",
    "deepseek_v3", "deepseek_v32", "kimi_k25", "qwen3_vl", "qwen3_vl_moe", "glm_moe_dsa", "glm4_moe", "glm4_moe_lite", "glm4_moe_plain", "minimax_m2", "dots1",
    "hunyuan", "hunyuan_moe", "ernie4_5_moe",
    "gpt_oss", "gemma3n", "gemma4", "gemma4_vision", "gemma4_unified", "llama4", "qwen2_vl", "qwen2_5_vl", "glm4v", "glm4v_moe",
    "llava",
    "kimi_k25", "qwen3_vl", "qwen3_vl_moe", "lfm2", "lfm2_moe", "mamba2", "mamba", "granite_hybrid", "granite_hybrid_full", "falcon_h1", "nemotron_h", "nemotron_h_moe", "nemotron_h_latent", "jamba",
}
# Those whose files hold weights that predict tokens further ahead.
PREDICTING = {"qwen3_5_vision"}
# Text models that are saved as parts of models that see, which are called so, and what is in front of their names.
PARTS = {
    "gemma3n_vision": ("Gemma3nForConditionalGeneration", "gemma3n", {"model.": "model.language_model."}),
    "llama4_vision": ("Llama4ForConditionalGeneration", "llama4", {"model.": "model.language_model."}),
    "kimi_k25": ("KimiK25ForConditionalGeneration", "kimi_k25", {"": "language_model."}),
    "kimi_vl": ("KimiVLForConditionalGeneration", "kimi_vl", {"": "language_model."}),
    "internvl_chat": ("InternVLChatModel", "internvl_chat", {"": "language_model."}),
}
# Sizes of projections from what models see to what they read.
OUTER = {"MuseGlimmerForConditionalGeneration": {"out_hidden_size": 32, "projector_hidden_size": 8}}
# Keys that llama.cpp's converter needs, and that `transformers` does not write.
PUBLISHED = {"gemma4_unified": {"moe_intermediate_size": None}}
# Texts that are longer than the furthest relative position that has a bucket of its own.
ENCODER_LENGTH = 150
ENCODER_SIZES = {
    "vocab_size": 80, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3,
    "max_position_embeddings": 152,
}
DISTILBERT = {"hidden_dim": 40, "sinusoidal_pos_embds": False}
MODERNBERT = {"num_hidden_layers": 4, "local_attention": 16, "pad_token_id": 0, "cls_token_id": 0, "sep_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
ENCODERS = {
    "bert": ("BertModel", {}),
    "bert_masked": ("BertForMaskedLM", {"hidden_act": "gelu_new", "layer_norm_eps": 0.1}),
    "mpnet": ("MPNetModel", {"layer_norm_eps": 1e-5}),
    "mpnet_masked": ("MPNetForMaskedLM", {"hidden_act": "relu"}),
    "roberta": ("RobertaModel", {"pad_token_id": 1, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "roberta_masked": ("RobertaForMaskedLM", {"pad_token_id": 0}),
    "xlm_roberta": ("XLMRobertaModel", {"pad_token_id": 1, "type_vocab_size": 1}),
    "xlm_roberta_masked": ("XLMRobertaForMaskedLM", {"pad_token_id": 1}),
    "distilbert": ("DistilBertModel", DISTILBERT),
    "distilbert_masked": ("DistilBertForMaskedLM", {**DISTILBERT, "activation": "relu"}),
    "bert_classifier": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}),
    "distilbert_classifier": ("DistilBertForSequenceClassification", {**DISTILBERT, "num_labels": 2}),
    "mpnet_classifier": ("MPNetForSequenceClassification", {"num_labels": 1}),
    "roberta_classifier": ("RobertaForSequenceClassification", {"pad_token_id": 1, "type_vocab_size": 1, "num_labels": 1}),
    # Windows shorter than the text; odd sizes of heads.
    "modernbert": ("ModernBertModel", {**MODERNBERT, "norm_bias": True, "attention_bias": True, "mlp_bias": True}),
    "modernbert_masked": ("ModernBertForMaskedLM", MODERNBERT),
    "modernbert_classifier": ("ModernBertForSequenceClassification", {
        **MODERNBERT, "classifier_pooling": "mean", "num_labels": 1,
    }),
    "modernbert_classifier_first": ("ModernBertForSequenceClassification", {
        **MODERNBERT, "classifier_pooling": "cls", "classifier_bias": True, "num_labels": 3,
    }),
    "nomic_bert": ("NomicBertModel", {"rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}),
    "gte": ("GteModel", {"type_vocab_size": 0, "rope_parameters": {"rope_type": "default", "rope_theta": 160000.0}}),
    "nomic_bert_masked": ("NomicBertForMaskedLM", {"type_vocab_size": 1}),
    "gte_masked": ("GteForMaskedLM", {"type_vocab_size": 1}),
    "gte_classifier": ("GteForSequenceClassification", {
        "num_labels": 1, "type_vocab_size": 2, "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0},
    }),
    "xlm_roberta_classifier": ("XLMRobertaForSequenceClassification", {"pad_token_id": 1, "num_labels": 2}),
    # One head of keys for three of queries; every sixth layer without a window.
    "embedding_gemma": ("Gemma3TextModel", {
        "use_bidirectional_attention": True, "num_hidden_layers": 7, "num_key_value_heads": 1, "head_dim": 12,
        "query_pre_attn_scalar": 12, "sliding_window": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    }),
    "jina_v3": ("JinaEmbeddingsV3Model", {"pad_token_id": 1, "type_vocab_size": 1, "rope_parameters": dict(THETA)}),
    # As it was published first, with adapters.
    "jina_v3_adapters": ("JinaEmbeddingsV3Model", {"pad_token_id": 1, "type_vocab_size": 1, "rope_parameters": dict(THETA)}),
}
# Those that `transformers` does not have.
NOMIC_BERT_MOE = {
    "activation_function": "gelu", "qkv_proj_bias": True, "mlp_fc1_bias": True, "mlp_fc2_bias": True, "n_positions": 2048,
    "moe_every_n_layers": 2, "num_experts": 5, "moe_top_k": 2, "type_vocab_size": 1, "vocab_size": 80, "pad_token_id": 1,
}
# Whether experts have a bias, which GGUF files leave out.
NOMIC_BERTS_MOE = {"nomic_bert_moe": True, "nomic_bert_moe_unbiased": False}
# Those that are written as GGUF too, which is so of one model of each kind of positions, and one with a head.
ENCODERS_GGUF = ["bert", "roberta", "roberta_classifier"]
# Those that llama.cpp's converter writes, and the keys of published configurations that it needs beyond those of `transformers`.
NOMIC_BERT = {
    "n_embd": 24, "n_inner": 40, "n_layer": 2, "n_head": 3, "n_positions": 8192, "max_trained_positions": 2048,
    "layer_norm_epsilon": 1e-12, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "activation_function": "swiglu", "causal": False, "qkv_proj_bias": False,
    "mlp_fc1_bias": False, "mlp_fc2_bias": False, "prenorm": False,
}
MODERNBERT_PUBLISHED = {"layer_norm_eps": 1e-5, "global_attn_every_n_layers": 3}
ENCODERS_CONVERTED = {
    "modernbert_classifier": MODERNBERT_PUBLISHED, "modernbert_classifier_first": MODERNBERT_PUBLISHED,
    "nomic_bert": NOMIC_BERT, "embedding_gemma": {"sliding_window": 16}, "jina_v3_adapters": {"rotary_emb_base": 500.0},
    "nomic_bert_moe_unbiased": {
        "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3, "head_dim": 8, "max_position_embeddings": 2048,
    },
}
# Those that are repositories of sentence-transformers: pooling, layers behind it, prompts.
EMBEDDERS = {
    "embedding_gemma": {"pooling": "mean", "dense": [(24, 56, "linear.Identity"), (56, 20, "linear.Identity")], "around": ["<bos>", "<eos>"],
                        "prompts": {"query": "task: search result | query: ", "document": "title: none | text: "}},
    "xlm_roberta": {"pooling": "cls", "dense": [], "around": ["<s>", "</s>"], "prompts": {}},
    "qwen3_embedding": {"pooling": "lasttoken", "dense": [], "prompts": {"query": "Instruct: Find what answers\nQuery:", "document": ""}},
}

# Those that get a tokenizer, and the scores of texts and pairs.
CLASSIFIERS = {"bert_classifier": "Identity", "roberta_classifier": "Sigmoid"}
TEXTS = ["a cat sat", "the dog ran and ran and sat", "fast " * 60]
PAIRS = [
    ["is a cat here", "the cat sat on a mat"],
    ["is a cat here", "dogs run"],
    ["is a cat here", "the fast dog ran on and on"],
    ["is a cat here", ""],
    # Longer than the tokenizer's limit: one of the texts, and both.
    ["is a cat here", "the dog ran " * 30],
    ["cat " * 41, "dog " * 50],
]
# Decoders that score texts: settings of the model, and how its files say that it does.
RERANKER_SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 12, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 2,
}
RERANKERS = {
    # The odds of two tokens, as a module of sentence-transformers states them; a conversation with an instruction.
    "qwen3_reranker": ("Qwen3ForCausalLM", {"tie_word_embeddings": True}, {"template": "default", "tokens": ["yes", "no"]}),
    # The logit of one token of a head of its own, a template with a name, and contents in parts.
    "qwen3_reranker_named": ("Qwen3ForCausalLM", {"tie_word_embeddings": False}, {"template": "pairs", "tokens": ["yes"]}),
    # With a head, and without a template.
    "qwen3_classifier": ("Qwen3ForSequenceClassification", {"num_labels": 1}, {}),
    "qwen3_classifier_labels": ("Qwen3ForSequenceClassification", {"num_labels": 2}, {}),
    # Of a family without a row for it.
    "llama_classifier": ("LlamaForSequenceClassification", {"num_labels": 1}, {}),
}
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
# As its model card has it.
RERANKER_TEMPLATE = """<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can \
only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: {instruction}
<Query>: {query}
<Document>: {document}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
LETTERS = "abcdefghijklmnoprstu"
WORDS = ["the", "cat", "dog", "ran", "sat", "on", "and", "is", "here", "fast", "mat", "run", "##s"]

GPTQ_SIZES = {"hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": True}
# Family and settings of the model, and of its quantization; which layers are left as they are.
GPTQ = {
    # Zero points, and columns in the order of their importance.
    "llama": ("Llama", {}, {"group_size": 32, "sym": False, "desc_act": True}, "lm_head"),
    # Biases, and groups the last of which is short.
    "qwen2": ("Qwen2", {}, {"group_size": 64, "sym": True, "desc_act": False}, r"lm_head|layers\.0\..*\.o_proj"),
    # Permuted and symmetric; the format that keeps zero points as they are; a head of its own.
    "mistral": ("Mistral", {"tie_word_embeddings": False}, {
        "group_size": 32, "sym": True, "desc_act": True, "checkpoint_format": "gptq_v2",
    }, "nothing"),
    # Several projections in one; one group.
    "phi3": ("Phi3", {}, {
        "group_size": -1, "sym": False, "desc_act": False, "checkpoint_format": "gptq_v2",
    }, "lm_head"),
    # Queries, keys, values and gates of delta nets in one, permuted.
    "qwen3_next": ("Qwen3Next", {
        "layer_types": [LINEAR, "full_attention"], "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_num_value_heads": 4, "linear_value_head_dim": 16,
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    }, {"group_size": 32, "sym": False, "desc_act": True}, r"lm_head|mlp\.|in_proj_ba"),
    # Experts one by one.
    "qwen3_moe": ("Qwen3Moe", {
        "head_dim": 16, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True,
    }, {"group_size": 32, "sym": False, "desc_act": False}, r"lm_head|mlp\.gate"),
}


QUANTIZED_SIZES = {"hidden_size": 64, "intermediate_size": 128, "tie_word_embeddings": True}


def compressed(format: str, **weights: object) -> dict:
    """What compressed-tensors writes into config.json."""
    group = {"weights": weights, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


# Family and settings of the model, what quantizes its matrices (a function below, and what it is given), what its config.json
# says of it, and which layers are left as they are.
QUANTIZED = {
    # Experts one by one; blocks smaller than the matrices.
    "fp8_blocks": ("Qwen3Moe", {
        "head_dim": 16, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": True,
    }, ("fp8", {"block": (48, 64)}), {"quant_method": "fp8", "weight_block_size": [48, 64]}, r"lm_head|mlp\.gate"),
    # A scale for each row, in bf16; several projections in one.
    "fp8_rows": ("Phi3", {}, ("fp8", {"block": (1, None)}), compressed("float-quantized", num_bits=8, type="float"), "lm_head"),
    # What makes keys and values of latents; scales are powers of two, as those of DeepSeek V3.1 are.
    "fp8_latents": ("DeepseekV3", {
        "num_key_value_heads": 4, "kv_lora_rank": 64, "q_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
        "moe_intermediate_size": 64, "first_k_dense_replace": 1, "num_mtp_layers": 0,
    }, ("fp8", {"block": (24, 64), "powers": True}), {"quant_method": "fp8", "weight_block_size": [24, 64]}, r"lm_head|mlp\.gate$"),
    # Queries, keys, values and gates of delta nets in one matrix.
    "fp8_delta_nets": ("Qwen3Next", {
        "layer_types": [LINEAR, "full_attention"], "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_key_head_dim": 16, "linear_num_value_heads": 4, "linear_value_head_dim": 16,
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    }, ("fp8", {"block": (16, 64)}), {"quant_method": "fp8", "weight_block_size": [16, 64]},
        r"lm_head|mlp\.gate$|in_proj_ba|shared_expert_gate"),
    # As OpenAI publishes it. Every token gets all experts, so that rounded activations choose no others.
    "mxfp4": ("GptOss", {
        "head_dim": 16, "intermediate_size": 32, "sliding_window": 19, "num_local_experts": 3, "num_experts_per_tok": 3,
    }, ("mxfp4", {}), {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "self_attn|router|lm_head"),
    "mxfp4_packed": ("Llama", {}, ("mxfp4_packed", {}), compressed("mxfp4-pack-quantized", num_bits=4, group_size=32), "lm_head"),
    "awq": ("Mistral", {}, ("awq", {"size": 32}), {
        "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
    }, "lm_head"),
    "gptq_8_bits": ("Qwen2", {}, ("gptq8", {"size": 64}), {
        "quant_method": "gptq", "bits": 8, "group_size": 64, "desc_act": False, "sym": False, "checkpoint_format": "gptq",
    }, "lm_head"),
    "int4": ("Llama", {}, ("integers", {"bits": 4, "size": 32}), compressed("pack-quantized", num_bits=4, group_size=32), "lm_head"),
    # Columns in the order of their importance.
    "int4_permuted": ("Phi3", {}, ("integers", {"bits": 4, "size": 32, "permuted": True}), compressed(
        "pack-quantized", num_bits=4, group_size=32, actorder="group",
    ), "lm_head"),
    # Integers of 8 bits in bytes, as for 8-bit activations, which stay f32 here.
    "int8": ("Qwen3", {"head_dim": 16}, ("integers", {"bits": 8, "size": None}), compressed("int-quantized", num_bits=8), "lm_head"),
    "nvfp4": ("Llama", {}, ("nvfp4", {}), compressed("nvfp4-pack-quantized", num_bits=4, group_size=16), "lm_head"),
    "nf4": ("Llama", {}, ("nf4", {}), {
        "quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True,
    }, "lm_head"),
}


def randomize(model: torch.nn.Module, random: torch.Generator) -> None:
    """Gives every parameter values that show when it is left out."""
    for name, parameter in sorted(model.named_parameters()):
        noise = torch.randn(parameter.shape, generator=random)
        if name.endswith("correction_bias"):
            parameter.data.copy_(0.1 * noise)
            continue
        if name.endswith(".A_log"):
            # Some states forget within a few tokens, some hardly at all.
            noise = 2.0 * noise - 3.0
        elif parameter.dim() == 2 or ".experts." in name:
            noise *= 1.0 if "embed" in name else 1.5 / parameter.shape[-1] ** 0.5
        else:
            family = type(model).__name__
            centered = family.startswith(("Gemma", "Nemotron", "Step3p7", "MuseGlimmer")) and not family.startswith(("Gemma3n", "Gemma4"))
            centered |= name.endswith("bias")
            if family.startswith(("Qwen3Next", "Qwen3_5")):
                centered |= name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight")
            noise = 0.4 * noise + (0.0 if centered else 1.0)
        parameter.data.copy_(noise)
    for name, buffer in sorted(model.named_buffers()):
        if name.endswith("act_fn.beta"):
            buffer.add_(0.2 * torch.randn(buffer.shape, generator=random))
        if name.endswith("layer_scalar"):
            buffer.copy_(1.0 + 0.4 * torch.randn(buffer.shape, generator=random))
        if name.endswith(("correction_bias", "expert_bias")):
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=random))


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Puts the two rows of each rotated pair, which are half a head apart, next to each other."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)


def stacked(weights: dict) -> dict:
    """All experts of a layer in one tensor each for gate, up and down, under the names that `gguf` maps."""
    result, experts = {}, {}
    for name, weight in weights.items():
        if match := re.fullmatch(r"(.*\.experts\.)(\d+)\.(.*)", name):
            experts.setdefault(match[1] + match[3], {})[int(match[2])] = weight
        elif name.endswith((".input_linear.weight", ".experts.gate_up_proj")):
            # GGUF has gate and up apart.
            gate, up = weight.chunk(2, dim=1)
            layer = name.split(".")[2]
            result[f"model.layers.{layer}.mlp.experts.gate_proj.weight"] = gate
            result[f"model.layers.{layer}.mlp.experts.up_proj.weight"] = up
        else:
            result[name.replace(".experts.down_proj", ".experts.down_proj.weight")] = weight
    return result | {name: torch.stack([part[i] for i in sorted(part)]) for name, part in experts.items()}


def grouped(weight: torch.Tensor, kv_heads: int, head_dim: int) -> torch.Tensor:
    """Puts all query heads before all key heads and those before all value heads: they lie in groups of query heads, the
    key head and the value head that serve them."""
    groups = weight.reshape(kv_heads, -1, head_dim, *weight.shape[1:])
    parts = groups[:, :-2], groups[:, -2:-1], groups[:, -1:]
    return torch.cat([part.reshape(-1, *weight.shape[1:]) for part in parts])


def as_in_gguf(spelled: str, config: transformers.PretrainedConfig, weights: dict) -> dict:
    """What the converter of llama.cpp makes of the layout of some families."""
    weights = {name: weight for name, weight in weights.items() if not name.endswith(".attn.bias")}
    result, norms = {}, {}
    for name, weight in weights.items():
        if spelled == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            weight = weight.T
        if "query_key_value" in name and spelled != "bailingmoe2":
            kv_heads = len(weight) // config.head_dim - config.num_attention_heads
            weight = grouped(weight, kv_heads // 2, config.head_dim)
        # Corrections of scores and sinks have a leaf.
        name = name.replace("experts.e_score_correction_bias", "gate.e_score_correction_bias")
        name = name.replace("e_score_correction_bias", "e_score_correction.bias").replace("expert_bias", "expert_bias.bias")
        name = name.replace("attention_sink_bias", "attention_sink_bias.weight").replace("router_bias", "router_bias.bias")
        if spelled == "nemotron" and name.endswith("norm.weight"):
            weight = weight + 1.0
        if match := re.fullmatch(r"(.*_layernorm)\.norms\.(\d+)(.*)", name):
            norms.setdefault(match[1] + match[3], {})[int(match[2])] = weight
            continue
        result[name] = weight
    return result | {name: torch.stack([part[i] for i in sorted(part)]) for name, part in norms.items()}


def write_gguf(name: str, path: Path, config: transformers.PretrainedConfig, weights: dict) -> None:
    spelled = GGUF_NAMES.get(name, name)
    writer = gguf.GGUFWriter(path, spelled)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    has = lambda key: getattr(config, key, None) is not None
    if not has("head_dim"):
        config.head_dim = config.hidden_size // config.num_attention_heads
    if spelled == "gpt2":
        config.intermediate_size, config.num_key_value_heads = 4 * config.hidden_size, config.num_attention_heads
    if spelled == "gptneox":
        config.num_key_value_heads = config.num_attention_heads
    if spelled == "falcon":
        config.intermediate_size = config.ffn_hidden_size
        config.num_key_value_heads = config.num_kv_heads if config.new_decoder_architecture else 1
    writer.add_feed_forward_length(config.intermediate_size)
    heads = getattr(config, "num_attention_heads_per_layer", None) or config.num_attention_heads
    if name == "step3p5":
        heads = [heads if kind == "full_attention" else config.num_sliding_attention_heads for kind in config.layer_types]
        for clamp, limits in (writer.add_swiglu_clamp_exp, config.swiglu_limits), (writer.add_swiglu_clamp_shexp, config.swiglu_limits_shared):
            clamp([limit or 0.0 for limit in limits])
    writer.add_head_count(heads)
    kv_heads = config.num_key_value_heads
    if name == "mimo_v2":
        kv_heads = [kv_heads * (2 if kind == "sliding_attention" else 1) for kind in config.layer_types]
        writer.add_float32("mimo2.attention.value_scale", config.attention_value_scale)
    writer.add_head_count_kv(kv_heads)
    if has("rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        eps = [key for key in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps") if has(key)]
        writer.add_layer_norm_eps(getattr(config, eps[0]) if eps else 1e-5)
    rope = getattr(config, "rope_parameters", None) or {"rope_type": "default"}
    rope = rope.get("full_attention", rope)
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("partial_rotary_factor", 1.0) != 1.0 and name != "step3p5":
        writer.add_rope_dimension_count(int(config.head_dim * rope["partial_rotary_factor"]))
    if spelled in ("gptneox", "stablelm"):
        writer.add_parallel_residual(config.use_parallel_residual)
    if has("logit_scale"):
        writer.add_logit_scale(config.logit_scale)
    if has("clip_qkv"):
        writer.add_clamp_kqv(config.clip_qkv)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        # As factors that frequencies are divided by.
        kind = {"layer_type": "full_attention"} if name == "step3p5" else {}
        llama3, _ = ROPE_INIT_FUNCTIONS["llama3"](config, **kind)
        if name == "step3p5":
            base, dims = rope["rope_theta"], int(config.head_dim * rope["partial_rotary_factor"])
            plain = 1.0 / base ** (torch.arange(0, dims, 2) / dims)
            # As many as layers with a window have pairs.
            factors = torch.cat([plain / llama3, torch.ones(config.head_dim // 2 - len(plain))])
        else:
            plain, _ = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
            factors = plain / llama3
        writer.add_tensor("rope_freqs.weight", factors.numpy())
    if name == "ministral3":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if name == "muse_glimmer":
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
        writer.add_logit_scale(config.output_multiplier)
        weights = {stored.replace("model.language_model.", "model."): weight for stored, weight in weights.items() if "vision" not in stored}
        # The norms after projections hold the factor on queries.
        for layer in range(config.num_hidden_layers):
            for part, factor in ("q", config.qk_scale_factor), ("k", 1.0):
                weights[f"model.layers.{layer}.self_attn.{part}_norm.weight"] = torch.full((config.head_dim,), factor)
    if name in ("exaone4", "mellum", "laguna", "mimo_v2", "step3p5", "muse_glimmer"):
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if name in ("gemma3", "mellum", "laguna", "mimo_v2", "step3p5"):
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
    if name == "minicpm3":
        writer.add_q_lora_rank(config.q_lora_rank)
        writer.add_kv_lora_rank(config.kv_lora_rank)
        writer.add_key_length(config.qk_nope_head_dim + config.qk_rope_head_dim)
        writer.add_rope_dimension_count(config.qk_rope_head_dim)
    elif getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.v_head_dim if name == "mimo_v2" else config.head_dim)
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if spelled.startswith("granite"):
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_logit_scale(config.logits_scaling)
    if name in ("gemma2", "gemma3"):
        writer.add_attention_scale(config.query_pre_attn_scalar**-0.5)
    if name == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    # Of two names, configurations have one.
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
    if getattr(config, "moe_intermediate_size", None):
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    if getattr(config, "shared_expert_intermediate_size", None):
        writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)
    if name == "apertus":
        numbers = lambda leaf: [float(weights.pop(f"model.layers.{layer}.mlp.act_fn.{leaf}")) for layer in range(config.num_hidden_layers)]
        writer.add_xielu_alpha_p(numbers("alpha_p"))
        writer.add_xielu_alpha_n(numbers("alpha_n"))
        writer.add_xielu_beta(numbers("beta"))
        writer.add_xielu_eps(numbers("eps"))
    if name == "step3p5":
        writer.add_expert_shared_feed_forward_length(config.share_expert_dim)
    if name in ("afmoe", "laguna", "ling", "mimo_v2", "step3p5"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_weights_norm(True)
        scale = {"afmoe": "route_scale", "laguna": "moe_routed_scaling_factor", "ling": "routed_scaling_factor", "mimo_v2": "routed_scaling_factor", "step3p5": "moe_router_scaling_factor"}
        writer.add_expert_weights_scale(getattr(config, scale[name]))
        writer.add_leading_dense_block_count(1)
    if name == "afmoe":
        writer.add_expert_shared_count(config.num_shared_experts)
    if name == "ling":
        writer.add_expert_shared_count(config.n_shared_experts)
        writer.add_expert_shared_feed_forward_length(config.moe_intermediate_size)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
    if name == "laguna":
        writer.add_rope_dimension_count_swa(config.head_dim)
    architecture = next(arch for arch, other in gguf.MODEL_ARCH_NAMES.items() if other == GGUF_TENSORS.get(spelled, spelled))
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for stored, weight in stacked(as_in_gguf(spelled, config, weights)).items():
        for projection, heads in ("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads):
            if GGUF[name] and projection in stored:
                weight = interleaved(weight, heads)
        if name.startswith(("gemma", "step3p5")) and stored.endswith("norm.weight"):
            weight = weight + 1.0
        if name == "muse_glimmer" and stored.endswith("layernorm.weight"):
            weight = weight + 1.0
        if stored.endswith("shared_expert_gate.weight"):
            weight = weight[0]
        target = names.get_name(stored, (".weight", ".bias"))
        if name == "mixtral_stacked" and "_exps" in target:
            # As early files had them: one by one.
            for expert, matrix in enumerate(weight):
                apart = target.replace("_exps", f".{expert}")
                writer.add_tensor(apart, matrix.contiguous().numpy())
            continue
        writer.add_tensor(target, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_mamba(path: Path, config: transformers.PretrainedConfig, weights: dict) -> None:
    """A Falcon-Mamba as GGUF, where it calls itself a Mamba."""
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_ssm_conv_kernel(config.conv_kernel)
    writer.add_ssm_inner_size(config.intermediate_size)
    writer.add_ssm_state_size(config.state_size)
    writer.add_ssm_time_step_rank(config.time_step_rank)
    writer.add_layer_norm_rms_eps(config.layer_norm_epsilon)
    writer.add_ssm_dt_b_c_rms(True)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MAMBA, config.num_hidden_layers)
    for stored, weight in weights.items():
        weight = -weight.exp() if stored.endswith("A_log") else weight.squeeze(1) if weight.dim() == 3 else weight
        writer.add_tensor(names.get_name(stored, (".weight", ".bias")), weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def as_step3p5(folder: Path, config: transformers.PretrainedConfig) -> None:
    """Makes the text part of a Step 3.7 a checkpoint as Step 3.5 is published, whose lists go on with a layer that predicts."""
    weights = load_file(folder / "model.safetensors")
    weights = {name: weight for name, weight in weights.items() if not name.startswith(("vision_model.", "vit_large_projector."))}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    described = config.to_dict()
    ropes = [config.rope_parameters[kind] for kind in [*config.layer_types, "sliding_attention"]]
    scaling = {key: value for key, value in ropes[0].items() if key not in ("rope_theta", "partial_rotary_factor")}
    kept = [
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "head_dim", "vocab_size", "max_position_embeddings",
        "rms_norm_eps", "sliding_window", "moe_intermediate_size", "share_expert_dim", "moe_router_scaling_factor", "tie_word_embeddings",
    ]
    published = {key: described[key] for key in kept} | {
        "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "num_attention_groups": config.num_key_value_heads,
        "moe_num_experts": config.n_routed_experts, "moe_top_k": config.num_experts_per_tok, "num_nextn_predict_layers": 1,
        "layer_types": [*config.layer_types, "sliding_attention"], "swiglu_limits": [*config.swiglu_limits, 0.0],
        "swiglu_limits_shared": [*config.swiglu_limits_shared, 0.0], "rope_theta": [rope["rope_theta"] for rope in ropes],
        "partial_rotary_factors": [rope["partial_rotary_factor"] for rope in ropes], "rope_scaling": scaling,
        "moe_layers_enum": ",".join(str(layer) for layer, kind in enumerate(config.mlp_layer_types) if kind == "sparse"),
        "attention_other_setting": {
            "attention_type": "sliding_attention", "num_attention_heads": config.num_sliding_attention_heads,
            "num_attention_groups": config.num_key_value_heads, "head_dim": config.head_dim,
        },
    }
    (folder / "config.json").write_text(json.dumps(published, indent=2) + "\n")


LING_NAMES = {
    "embed_tokens": "word_embeddings", "self_attn.o_proj": "attention.dense", "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm", "gate.e_score_correction_bias": "gate.expert_bias",
}
# Of GLM-4.5's keys, those that Ling has too or calls otherwise.
LING_KEYS = {key: key for key in [
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size",
    "max_position_embeddings", "rms_norm_eps", "hidden_act", "moe_intermediate_size", "num_experts_per_tok", "n_group", "topk_group",
    "norm_topk_prob", "routed_scaling_factor", "first_k_dense_replace", "use_qk_norm", "tie_word_embeddings",
]} | {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts", "attention_bias": "use_qkv_bias"}


def as_ling(name: str, folder: Path, config: transformers.PretrainedConfig) -> None:
    """Makes a GLM-4.5 a Ling: it computes the same, with other names, and projections of queries, keys and values in one."""
    weights = load_file(folder / "model.safetensors")
    spelled = lambda name: next((name.replace(own, other) for own, other in LING_NAMES.items() if own in name), name)
    result = {spelled(name): weight for name, weight in weights.items() if not re.search(r"\.[qkv]_proj\.", name)}
    for first in [name for name in weights if ".q_proj." in name]:
        parts = [weights[first.replace("q_proj", f"{part}_proj")] for part in "qkv"]
        result[first.replace("self_attn.q_proj", "attention.query_key_value")] = torch.cat(parts)
    save_file(result, folder / "model.safetensors", {"format": "pt"})
    described = {other: getattr(config, own) for own, other in LING_KEYS.items()} | {
        "architectures": ["BailingMoeV2ForCausalLM"], "model_type": "bailing_moe", "score_function": "sigmoid", "use_bias": False,
        "moe_router_enable_expert_bias": True, "num_nextn_predict_layers": 0, "rope_scaling": None, "use_rmsnorm": True,
        "rope_theta": config.rope_parameters["rope_theta"],
    }
    share = config.rope_parameters["partial_rotary_factor"]
    # Either is published.
    described |= {"rotary_dim": int(share * config.head_dim)} if name == "ling_plain" else {"partial_rotary_factor": share}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")


def add_prediction(path: Path, hidden: int) -> None:
    """Adds what `transformers` leaves out: weights that predict tokens further ahead."""
    head = {"mtp.fc.weight": torch.zeros(hidden, 2 * hidden), "mtp.norm.weight": torch.zeros(hidden)}
    layer = {"mtp.layers.0.self_attn.k_proj.weight": torch.zeros(8, hidden)}
    save_file(load_file(path) | head | layer, path, {"format": "pt"})


def convert(folder: Path, vocab_size: int, tokenizes: bool = False, published: dict = {}) -> None:
    """Writes a GGUF file by llama.cpp's converter, with the folder's tokenizer, or without any."""
    from conversion import get_model_class
    from conversion.base import ModelBase

    text = (folder / "config.json").read_text()
    if "GraniteMoeHybrid" in text or "NemotronH" in text:
        # As they are published, without what `transformers` adds to them.
        ModelBase.load_hparams = staticmethod(lambda *_, **__: json.loads(text))
    with tempfile.TemporaryDirectory() as parent:
        # The converter puts the name of the folder into the file.
        source = Path(parent) / folder.name
        source.mkdir()
        for file in ("config.json", "model.safetensors"):
            shutil.copy(folder / file, source)
        architecture = json.loads((folder / "config.json").read_text())["architectures"][0]
        model_class = get_model_class(architecture)
        if tokenizes:
            for path in folder.rglob("*.json*"):
                (source / path.relative_to(folder)).parent.mkdir(exist_ok=True)
                shutil.copy(path, source / path.relative_to(folder))
            # How the converter knows rerankers.
            (source / "README.md").write_text(f"# {folder.name.replace('_', '-')}\n")
            model_class.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
        else:
            # Some families count its tokens.
            vocab = {f"t{token}": token for token in range(vocab_size)}
            (source / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": vocab}, "added_tokens": []}))
            types = json.loads((folder / "config.json").read_text()).get("type_vocab_size")
            model_class.set_vocab = lambda self: self.gguf_writer.add_token_type_count(types) if types else None
        if published:
            described = json.loads((source / "config.json").read_text())
            (source / "config.json").write_text(json.dumps(described | published))
            for path in folder.glob("[0-9]_*/*"):
                (source / path.relative_to(folder)).parent.mkdir(exist_ok=True)
                shutil.copy(path, source / path.relative_to(folder))
            if (folder / "modules.json").exists():
                shutil.copy(folder / "modules.json", source)
        model_class.no_mtp = True
        with torch.inference_mode():
            dense = {"sentence_transformers_dense_modules": True} if (folder / "2_Dense").exists() else {}
            model_class(source, gguf.LlamaFileType.ALL_F32, folder / "model.gguf", **dense).write()
        # Adapters.
        for path in folder.glob("lora-*.gguf"):
            path.unlink()


def as_part(folder: Path, architecture: str, model_type: str, prefixes: dict) -> None:
    """Makes a checkpoint one of a model that sees, with a tensor of the other half, which may be quantized."""
    weights = load_file(folder / "model.safetensors")
    for own, other in prefixes.items():
        weights = {re.sub(f"^{own}", other, name): weight for name, weight in weights.items()}
    quantized = model_type == "kimi_k25"
    weights["model.vision_tower.weight"] = torch.zeros(2, 2, dtype=torch.float8_e4m3fn if quantized else None)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    text = json.loads((folder / "config.json").read_text())
    part = "llm_config" if model_type == "internvl_chat" else "text_config"
    config = {"architectures": [architecture], "model_type": model_type, part: text}
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def write(name: str, family: str, settings: dict) -> None:
    whole = "For" in family or family.endswith("Model")
    model_class = getattr(transformers, family if whole else f"{family}ForCausalLM")
    settings = {**SIZES, "rope_parameters": dict(THETA), **settings}
    length = LENGTH
    if name in LONG:
        length = LONG_LENGTH
        settings = {**settings, "max_position_embeddings": 512}
    if family.startswith("GPT2"):
        del settings["rope_parameters"]
    if family.startswith(("Mamba", "FalconMamba")):
        del settings["intermediate_size"]
    if "vision_config" in settings:
        settings = {"vision_config": settings.pop("vision_config"), "text_config": settings, **OUTER.get(family, {})}
    config = model_class.config_class(**settings)
    # The eager attention of Falcon adds biases twice: they are in its mask already.
    config._attn_implementation = "sdpa" if name == "falcon_alibi" else "eager"
    config._experts_implementation = "eager"
    model = model_class(config).eval()
    random = torch.Generator().manual_seed(20240607)
    with torch.no_grad():
        randomize(model, random)
        tokens = torch.randint(0, config.get_text_config().vocab_size, (length,), generator=random)
        logits = model(tokens[None], use_cache=False).logits[0, -LENGTH:]
    folder = OUTPUT / name
    # Experts one by one, or all together as they are in memory.
    model.save_pretrained(folder, save_original_format="stacked" not in name)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in PREDICTING:
        add_prediction(folder / "model.safetensors", config.get_text_config().hidden_size)
    save_file({"tokens": tokens.int(), "logits": logits.contiguous()}, folder / "logits.safetensors")
    if name == "falcon_mamba":
        write_mamba(folder / "model.gguf", config, load_file(folder / "model.safetensors"))
    if name == "longcat_flash":
        # As it is published: without gates of experts that give what they read.
        weights = load_file(folder / "model.safetensors")
        number = lambda name: int(match[1]) if (match := re.search(r"experts\.(\d+)", name)) else 0
        weights = {name: weight for name, weight in weights.items() if number(name) < config.n_routed_experts}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    if name == "step3p5":
        config = config.get_text_config()
        config.allow_global_per_layer_attribute_access = True
        as_step3p5(folder, config)
    if name == "muse_glimmer":
        config = config.get_text_config()
    if name.startswith("ling"):
        as_ling(name, folder, config)
    if name in GGUF:
        write_gguf(name, folder / "model.gguf", config, load_file(folder / "model.safetensors"))
    if family == "NemotronH" and "moe" not in settings["layers_block_type"]:
        # As dense models are published: without experts, and with a letter for each layer.
        described = json.loads((folder / "config.json").read_text())
        described = {key: value for key, value in described.items() if "moe" not in key and "expert" not in key}
        letters = {"linear_attention": "M", "mlp": "-", "full_attention": "*"}
        described["hybrid_override_pattern"] = "".join(letters[kind] for kind in described.pop("layers_block_type"))
        described["num_hidden_layers"] = config.num_hidden_layers
        (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    if family == "GraniteMoeHybrid" and name in CONVERTED:
        # In the words of published models, which are those that the converter knows.
        described = json.loads((folder / "config.json").read_text())
        kinds = {"linear_attention": "mamba", "full_attention": "attention"}
        described["layer_types"] = [kinds[kind] for kind in described["layer_types"]]
        (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    if name.startswith("olmo_hybrid"):
        # As it is published: `transformers` parts filters into equal shares, and gives norms of both kinds of layers one name.
        weights = load_file(folder / "model.safetensors")
        for stem in [name.removesuffix("q_conv1d.weight") for name in weights if name.endswith("q_conv1d.weight")]:
            parts = [f"{stem}{part}_conv1d.weight" for part in "qkv"]
            sizes = [len(weights[f"{stem}{part}_proj.weight"]) for part in "qkv"]
            shares = torch.cat([weights[part] for part in parts]).split(sizes)
            weights |= {part: share.clone() for part, share in zip(parts, shares)}
        kinds = {f".{layer}.": kind for layer, kind in enumerate(config.layer_types)}
        spelled = lambda name: name.replace("feedforward_layer_norm", "post_attention_layernorm") if any(
            place in name and kind == "full_attention" for place, kind in kinds.items()) else name
        save_file({spelled(name): weight for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    if name == "ministral3":
        # As older files have it.
        described = json.loads((folder / "config.json").read_text())
        rope = described.pop("rope_parameters")
        described |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": {"type": rope.pop("rope_type"), **rope}}
        (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    if family == "Phimoe":
        # As it is published.
        described = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(described | {"architectures": ["PhiMoEForCausalLM"]}, indent=2) + "\n")
    if name == "qwen3_vl_moe":
        # As it is published.
        weights = load_file(folder / "model.safetensors")
        turned = lambda name, weight: weight.transpose(1, 2).contiguous() if ".experts." in name else weight
        save_file({name: turned(name, weight) for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    if name in PARTS:
        as_part(folder, *PARTS[name])
    if name in CONVERTED:
        convert(folder, config.get_text_config().vocab_size, published=PUBLISHED.get(name, {}))
    print(f"{name}: logits up to {logits.abs().max():.2f}")


def words(codes: np.ndarray) -> np.ndarray:
    """Eight numbers of 4 bits in each i32, along the first axis, the first one in the lowest bits."""
    shifts = np.arange(0, 32, 4, dtype=np.uint32)[:, None]
    parts = codes.astype(np.uint32).reshape(-1, 8, codes.shape[1]) << shifts
    return np.bitwise_or.reduce(parts, axis=1).view(np.int32)


def gptq(weight: np.ndarray, inputs: np.ndarray, settings: dict) -> tuple[dict, np.ndarray]:
    """Frantar et al., 2022, column by column: each takes the error of those before it into account. Gives the tensors of
    the checkpoint, and the weights they stand for."""
    weight = weight.astype(np.float64).copy()
    rows, columns = weight.shape
    size = columns if settings["group_size"] == -1 else settings["group_size"]
    hessian = inputs.T.astype(np.float64) @ inputs
    order = np.argsort(-np.diag(hessian)) if settings["desc_act"] else np.arange(columns)
    weight, hessian = weight[:, order], hessian[order][:, order]
    hessian += 0.01 * np.mean(np.diag(hessian)) * np.eye(columns)
    inverse = np.linalg.cholesky(np.linalg.inv(hessian)).T
    codes, exact = np.zeros((rows, columns), np.int64), np.zeros((rows, columns), np.float32)
    scales, zeros = [], []
    for column in range(columns):
        if column % size == 0:
            group = weight[:, column : column + size]
            low, high = np.minimum(group.min(1), 0.0), np.maximum(group.max(1), 0.0)
            if settings["sym"]:
                high = np.maximum(-low, high)
                low = -high
            scales.append(((high - low) / 15.0).astype(np.float16))
            scale = scales[-1].astype(np.float64)
            zeros.append(np.full(rows, 8) if settings["sym"] else np.clip(np.round(-low / scale), 0, 15).astype(np.int64))
        codes[:, column] = np.clip(np.round(weight[:, column] / scale) + zeros[-1], 0, 15)
        exact[:, column] = scale * (codes[:, column] - zeros[-1])
        error = (weight[:, column] - exact[:, column]) / inverse[column, column]
        weight[:, column + 1 :] -= np.outer(error, inverse[column, column + 1 :])
    groups = np.zeros(columns, np.int32)
    groups[order] = np.arange(columns) // size
    stored_codes, stored_exact = np.zeros_like(codes), np.zeros_like(exact)
    stored_codes[:, order], stored_exact[:, order] = codes, exact
    packed_zeros = words(np.stack(zeros).T).T.view(np.uint32)
    if settings.get("checkpoint_format", "gptq") == "gptq":
        # Of the word, not of each number, as the tools do it: one that is 0 borrows from the next.
        packed_zeros = packed_zeros - np.uint32(0x11111111)
    tensors = {
        "qweight": words(stored_codes.T), "scales": np.stack(scales), "qzeros": packed_zeros.view(np.int32),
        "g_idx": groups,
    }
    return {leaf: torch.from_numpy(np.ascontiguousarray(tensor)) for leaf, tensor in tensors.items()}, stored_exact


def float8(values: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Values as e4m3, and what these are."""
    codes = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32)).to(torch.float8_e4m3fn)
    return codes, codes.float().numpy()


def fp8(weight: np.ndarray, block: tuple, powers: bool = False) -> tuple[dict, np.ndarray]:
    """Scales of blocks of rows and columns; of bf16 and of all columns, if these are `None`; or powers of two."""
    rows, columns = weight.shape
    high, wide = block[0], block[1] or columns
    scales = np.zeros((-(-rows // high), -(-columns // wide)), np.float32)
    for row, column in np.ndindex(*scales.shape):
        scales[row, column] = np.abs(weight[row * high :, column * wide :][:high, :wide]).max() / 448
    scales = torch.from_numpy(2 ** np.ceil(np.log2(scales)) if powers else scales)
    scales = scales if block[1] else scales.bfloat16()
    each = scales.float().numpy().repeat(high, 0)[:rows].repeat(wide, 1)[:, :columns]
    codes, exact = float8(weight / each)
    return {"weight": codes, "weight_scale_inv" if block[1] else "weight_scale": scales}, exact * each


def affine(weight: np.ndarray, bits: int, size: int | None, dtype: torch.dtype) -> tuple:
    """Codes, and scales and zero points of groups, of which most are in no code's middle; and the weights these are."""
    rows, columns = weight.shape
    groups = weight.reshape(rows, -1, size or columns)
    low, high = np.minimum(groups.min(-1), 0), np.maximum(groups.max(-1), 0)
    scales = torch.from_numpy((high - low) / (2**bits - 1)).to(dtype)
    step = scales.float().numpy()
    zeros = np.clip(np.round(-low / step), 0, 2**bits - 1).astype(np.int64)
    codes = np.clip(np.round(groups / step[..., None]) + zeros[..., None], 0, 2**bits - 1).astype(np.int64)
    exact = ((codes - zeros[..., None]) * step[..., None]).astype(np.float32)
    return codes.reshape(rows, columns), scales, zeros, exact.reshape(rows, columns)


def packed(codes: np.ndarray, bits: int, order: Sequence[int] | None = None) -> torch.Tensor:
    """Codes of a row in words, from the lowest bits on; the last word of a row is filled with zeros."""
    each = 32 // bits
    codes = np.pad(codes, ((0, 0), (0, -codes.shape[1] % each))).reshape(len(codes), -1, each)
    codes = codes[..., list(order)] if order else codes
    words = (codes << (bits * np.arange(each))).sum(-1)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def awq(weight: np.ndarray, size: int) -> tuple[dict, np.ndarray]:
    codes, scales, zeros, exact = affine(weight, 4, size, torch.float16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    tensors = {"qweight": packed(codes.T, 4, order), "qzeros": packed(zeros.T, 4, order), "scales": scales.T}
    return tensors, exact


def gptq8(weight: np.ndarray, size: int) -> tuple[dict, np.ndarray]:
    codes, scales, zeros, exact = affine(weight, 8, size, torch.float16)
    # Of the word, not of each number, as the tools do it: one that is 0 borrows from the next.
    less = packed(zeros.T, 8).numpy().view(np.uint32) - np.uint32(0x01010101)
    return {"qweight": packed(codes, 8).T, "qzeros": torch.from_numpy(less.view(np.int32)), "scales": scales.T}, exact


def integers(weight: np.ndarray, bits: int, size: int | None, permuted: bool = False) -> tuple[dict, np.ndarray]:
    order = np.argsort(-np.abs(weight).sum(0)) if permuted else np.arange(weight.shape[1])
    back = np.argsort(order)
    codes, scales, zeros, exact = affine(weight[:, order], bits, size, torch.bfloat16 if size else torch.float32)
    codes, exact = codes[:, back], exact[:, back]
    if size is None:
        tensors = {"weight": codes - 128, "weight_zero_point": zeros - 128}
        return {leaf: torch.from_numpy(tensor).to(torch.int8) for leaf, tensor in tensors.items()} | {"weight_scale": scales}, exact
    shape = torch.tensor(weight.shape, dtype=torch.int64)
    tensors = {"weight_packed": packed(codes, bits), "weight_scale": scales, "weight_shape": shape}
    if permuted:
        tensors["weight_g_idx"] = torch.from_numpy((back // size).astype(np.int32))
    return tensors | {"weight_zero_point": packed(zeros.T, bits).T}, exact


def nvfp4(weight: np.ndarray) -> tuple[dict, np.ndarray]:
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, -levels])
    whole = np.float32(448 * 6 / np.abs(weight).max())
    groups = weight.reshape(len(weight), -1, 16)
    scales, exact = float8(np.abs(groups).max(-1) / 6 * whole)
    each = (exact / whole)[..., None]
    codes = np.abs(groups[..., None] - levels * each[..., None]).argmin(-1)
    pairs = codes.reshape(len(weight), -1, 2)
    tensors = {
        "weight_packed": torch.from_numpy((pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)),
        "weight_scale": scales, "weight_global_scale": torch.tensor([whole]), "input_global_scale": torch.tensor([1.0]),
    }
    return tensors, (levels[codes] * each).reshape(weight.shape)


def mxfp4_packed(weight: np.ndarray) -> tuple[dict, np.ndarray]:
    """As compressed-tensors stores it."""
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, -levels])
    groups = weight.reshape(len(weight), -1, 32)
    exponents = np.ceil(np.log2(np.abs(groups).max(-1) / 6)).astype(np.int32)
    scales = (2.0**exponents).astype(np.float32)[..., None]
    codes = np.abs(groups[..., None] - levels * scales[..., None]).argmin(-1)
    pairs = codes.reshape(len(weight), -1, 2)
    tensors = {
        "weight_packed": torch.from_numpy((pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)),
        "weight_scale": torch.from_numpy((exponents + 127).astype(np.uint8)),
    }
    return tensors, (levels[codes] * scales).reshape(weight.shape)


def mxfp4(weight: np.ndarray) -> tuple[dict, np.ndarray]:
    """Of experts [experts, columns, rows], which are published with their axes the other way round."""
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    levels = np.concatenate([levels, -levels])
    experts, columns, rows = weight.shape
    groups = weight.transpose(0, 2, 1).reshape(experts, rows, columns // 32, 32)
    exponents = np.ceil(np.log2(np.abs(groups).max(-1) / 6)).astype(np.int32)
    scales = (2.0**exponents).astype(np.float32)[..., None]
    codes = np.abs(groups[..., None] - levels * scales[..., None]).argmin(-1)
    pairs = codes.reshape(experts, rows, columns // 32, 16, 2)
    tensors = {
        "_blocks": torch.from_numpy((pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)),
        "_scales": torch.from_numpy((exponents + 127).astype(np.uint8)),
    }
    return tensors, (levels[codes] * scales).reshape(experts, rows, columns).transpose(0, 2, 1)


def nf4(weight: np.ndarray) -> tuple[dict, np.ndarray]:
    """With scales that are quantized too, to quarters of circles rather than the map of bitsandbytes, which files store."""
    blocks = weight.reshape(-1, 64)
    absmax = np.abs(blocks).max(1)
    offset = np.float32(absmax.mean())
    meaning = np.sin(np.linspace(-np.pi / 2, np.pi / 2, 256)).astype(np.float32)
    nested = np.array([np.abs(part - offset).max() for part in np.split(absmax, range(256, len(absmax), 256))], np.float32)
    of_each = nested.repeat(256)[: len(absmax)]
    codes = np.abs((absmax - offset)[:, None] - meaning * of_each[:, None]).argmin(1)
    scales = meaning[codes] * of_each + offset
    levels = np.array(NF4, np.float32)
    nibbles = np.abs(blocks[..., None] - levels * scales[:, None, None]).argmin(-1)
    state = {
        "quant_type": "nf4", "blocksize": 64, "dtype": "float16", "shape": list(weight.shape), "nested_blocksize": 256,
        "nested_dtype": "float32", "nested_offset": float(offset),
    }
    pairs = nibbles.reshape(-1, 2)
    tensors = {
        "weight": (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8), "weight.absmax": codes.astype(np.uint8),
        "weight.nested_absmax": nested, "weight.nested_quant_map": meaning, "weight.quant_map": levels,
        "weight.quant_state.bitsandbytes__nf4": np.frombuffer(json.dumps(state).encode(), np.uint8).copy(),
    }
    exact = (levels[nibbles] * scales[:, None]).reshape(weight.shape)
    return {leaf: torch.from_numpy(tensor) for leaf, tensor in tensors.items()}, exact


def write_gptq(name: str, family: str, settings: dict, quantization: dict, left: str) -> None:
    # What reads the same input has the same Hessian.
    calibration = {}

    def quantize(stem: str, weight: np.ndarray, random: torch.Generator) -> tuple[dict, np.ndarray]:
        reads = re.sub(r"\.(q|k|v)_proj", ".qkv_proj", re.sub(r"\.(gate|up)_proj", ".gate_up_proj", stem))
        if reads not in calibration:
            spread = torch.randn(weight.shape[1], generator=random).exp()
            calibration[reads] = (torch.randn((256, weight.shape[1]), generator=random) * spread).numpy()
        return gptq(weight, calibration[reads], quantization)

    described = {"quant_method": "gptq", "bits": 4, **quantization}
    folder = GPTQ_OUTPUT / name
    write_quantized(folder, family, {**GPTQ_SIZES, **settings}, quantize, described, left)
    if name == "llama":
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")


def write_quantized(
    folder: Path, family: str, settings: dict, quantize: Callable, described: dict, left: str
) -> None:
    model_class = getattr(transformers, f"{family}ForCausalLM")
    config = model_class.config_class(**{**SIZES, "rope_parameters": dict(THETA), **settings})
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    random = torch.Generator().manual_seed(20240607)
    with torch.no_grad():
        randomize(model, random)
        corrections = [buffer for name, buffer in model.named_buffers() if name.endswith("correction_bias")]
        for parameter in [*model.parameters(), *corrections]:
            parameter.copy_(parameter.half().float())
        model.save_pretrained(folder)
        weights = load_file(folder / "model.safetensors")
        stored = {}
        for name, weight in sorted(weights.items(), key=lambda item: item[0].removesuffix(".weight")):
            stem = name.removesuffix(".weight")
            linear = ("_proj" in stem or "lm_head" in stem or "mlp.gate" in stem) and not stem.endswith("bias")
            if not linear or re.search(left, stem):
                stored[name] = weight.half()
                continue
            tensors, exact = quantize(stem, weight.numpy(), random)
            dot = lambda leaf: leaf if leaf.startswith("_") else f".{leaf}"
            stored |= {f"{stem}{dot(leaf)}": tensor.contiguous() for leaf, tensor in tensors.items()}
            weights[name] = torch.from_numpy(np.ascontiguousarray(exact, dtype=np.float32))
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = torch.randint(0, config.vocab_size, (LENGTH,), generator=random)
        logits = model(tokens[None], use_cache=False).logits[0]
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    (folder / "generation_config.json").unlink(missing_ok=True)
    own = json.loads((folder / "config.json").read_text())
    own["quantization_config"] = described
    (folder / "config.json").write_text(json.dumps(own, indent=2) + "\n")
    if described.get("format") == "nvfp4-pack-quantized":
        convert(folder, config.vocab_size)
    save_file({"tokens": tokens.int(), "logits": logits.contiguous()}, folder / "logits.safetensors")
    print(f"{folder.parent.name}/{folder.name}: logits up to {logits.abs().max():.2f}")


def write_encoder_gguf(path: Path, config: transformers.PretrainedConfig, weights: dict) -> None:
    """As llama.cpp's converter does: positions before the first are left out."""
    first = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings - first)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_token_type_count(config.type_vocab_size)
    if "classifier.dense.weight" in weights:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(list(config.id2label.values()))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    for stored, weight in weights.items():
        if stored.startswith("pooler."):
            continue
        weight = weight[first:] if "position_embeddings" in stored else weight
        name = names.get_name(stored.removeprefix("roberta."), (".weight", ".bias"))
        writer.add_tensor(name, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_texts(name: str, folder: Path, activation: str) -> None:
    """Adds a tokenizer, and what sentence-transformers makes of texts and pairs."""
    is_bert = name.startswith("bert")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] if is_bert else ["<s>", "<pad>", "</s>", "<unk>"]
    padding, unknown, start, end = special if is_bert else [special[i] for i in (1, 3, 0, 2)]
    words = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS if letter != "s"), *WORDS]
    vocab = {word: index for index, word in enumerate(dict.fromkeys(words))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token=unknown))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    processor = tokenizers.processors.BertProcessing if is_bert else tokenizers.processors.RobertaProcessing
    tokenizer.post_processor = processor((end, vocab[end]), (start, vocab[start]))
    tokenizer.add_special_tokens(special)
    tokenizer.save(str(folder / "tokenizer.json"))
    inputs = ["input_ids", "attention_mask", *(["token_type_ids"] if is_bert else [])]
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 48, "model_input_names": inputs,
        "pad_token": padding, "unk_token": unknown, "cls_token": start, "sep_token": end,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    config = json.loads((folder / "config.json").read_text())
    module = "linear" if activation == "Identity" else "activation"
    config["sentence_transformers"] = {"activation_fn": f"torch.nn.modules.{module}.{activation}"}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    model = CrossEncoder(str(folder))
    own = transformers.AutoTokenizer.from_pretrained(folder)
    ids = own(*map(list, zip(*PAIRS)), truncation="longest_first", max_length=48)["input_ids"]
    with torch.no_grad():
        texts = [model.model(**own(text, truncation=True, return_tensors="pt")).logits[0].tolist() for text in TEXTS]
    scores = model.predict(PAIRS).reshape(len(PAIRS), -1).tolist()
    expected = {"texts": TEXTS, "logits": texts, "pairs": PAIRS, "ids": ids, "scores": scores}
    (folder / "texts.json").write_text(json.dumps(expected) + "\n")


def write_qwen_tokenizer(folder: Path) -> transformers.PreTrainedTokenizerFast:
    """A tokenizer of bytes as Qwen has it, with few merges."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    split = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(split), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator([RERANKER_TEMPLATE, *(" ".join(pair) for pair in PAIRS), "yes no " * 50, "yes", "no"], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 240, "pad_token": special[0],
        "eos_token": special[2], "padding_side": "left", "model_input_names": ["input_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    return transformers.AutoTokenizer.from_pretrained(folder)


def write_modules(folder: Path, tokens: list[int], template: str) -> None:
    """The files of sentence-transformers for a decoder that scores texts by the logits of tokens."""
    write = lambda path, content: (folder / path).write_text(json.dumps(content, indent=2) + "\n")
    library, is_structured = "sentence_transformers", template != "default"
    write("modules.json", [
        {"idx": 0, "name": "0", "path": "", "type": f"{library}.base.modules.transformer.Transformer"},
        {"idx": 1, "name": "1", "path": "1_LogitScore", "type": f"{library}.cross_encoder.modules.logit_score.LogitScore"},
    ])
    (folder / "1_LogitScore").mkdir(exist_ok=True)
    write("1_LogitScore/config.json", dict(zip(["true_token_id", "false_token_id"], [*tokens, None])))
    logits = {"method": "forward", "method_output_name": "logits"}
    arguments = {"add_generation_prompt": True, **({"chat_template": template} if is_structured else {})}
    write("sentence_bert_config.json", {
        "transformer_task": "text-generation", "module_output_name": "causal_logits",
        "modality_config": {"text": logits, "message": {**logits, "format": "structured" if is_structured else "flat"}},
        "processing_kwargs": {"chat_template": arguments},
    })
    write("config_sentence_transformers.json", {
        "model_type": "CrossEncoder", "prompts": {"query": "Find what answers"}, "activation_fn": "torch.nn.modules.linear.Identity",
        **({} if is_structured else {"default_prompt_name": "query"}),
    })
    content = ".content[0].text" if is_structured else ".content"
    of_role = lambda role: f'(messages | selectattr("role", "eq", "{role}") | first){content}'
    # A generation prompt only if it is asked for.
    source = RERANKER_TEMPLATE.replace("{query}", "{{ " + of_role("query") + " }}")
    source = source.replace("{document}", "{{ " + of_role("document") + " }}")
    source = source.replace("{instruction}", "{{ " + of_role("system") + ' if messages[0].role == "system" else "Judge" }}')
    before, after = source.rstrip().split("<|im_start|>assistant")
    source = before + '{% if add_generation_prompt %}<|im_start|>assistant' + after + "\n\n{% endif %}"
    path = folder / ("additional_chat_templates/pairs.jinja" if is_structured else "chat_template.jinja")
    path.parent.mkdir(exist_ok=True)
    path.write_text(source)
    if is_structured:
        # The one for conversations.
        (folder / "chat_template.jinja").write_text("{% for message in messages %}{{ message.content }}{% endfor %}")


def write_reranker(name: str, family: str, settings: dict, files: dict) -> None:
    folder = RERANKERS_OUTPUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_qwen_tokenizer(folder)
    model_class = getattr(transformers, family)
    rope = {"rope_parameters": dict(THETA)}
    model = model_class(model_class.config_class(vocab_size=len(tokenizer) + 3, **RERANKER_SIZES, **rope, **settings)).eval()
    random = torch.Generator().manual_seed(20240607)
    with torch.no_grad():
        randomize(model, random)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    expected = {"pairs": PAIRS, "texts": TEXTS}
    if files:
        tokens = tokenizer.convert_tokens_to_ids(files["tokens"])
        write_modules(folder, tokens, files["template"])
        model = CrossEncoder(str(folder))
        instructed = model.predict(PAIRS, prompt="Judge well").reshape(-1, 1).tolist()
        expected |= {"scores": model.predict(PAIRS).reshape(-1, 1).tolist(), "instructed": instructed}
        expected["ids"] = [model.preprocess([pair], prompt=model.prompts.get(model.default_prompt_name))["input_ids"][0].tolist() for pair in PAIRS]
        expected["odds"] = torch.sigmoid(torch.tensor(expected["scores"])).tolist()
    else:
        prompts = [RERANKER_TEMPLATE.format(instruction=INSTRUCTION, query=query, document=document) for query, document in PAIRS]
        score = lambda ids: model(torch.tensor([ids])).logits[0].tolist()
        # The end stays if a pair is cut.
        end = tokenizer(RERANKER_TEMPLATE.split("{document}")[1])["input_ids"]
        cut = lambda ids: ids if len(ids) <= 240 else ids[: 240 - len(end)] + end
        expected["ids"] = [cut(tokenizer(prompt)["input_ids"]) for prompt in prompts]
        with torch.no_grad():
            expected["scores"] = [score(ids) for ids in expected["ids"]]
            expected["logits"] = [score(tokenizer(text)["input_ids"]) for text in TEXTS]
    (folder / "texts.json").write_text(json.dumps(expected) + "\n")
    if "no" in files.get("tokens", []):
        convert(folder, model[0].model.config.vocab_size, tokenizes=True)
    print(f"{name}: scores {expected['scores'][:3]}")


def write_embedder(name: str, folder: Path) -> None:
    """Adds a tokenizer and the files of sentence-transformers, and what it makes of texts."""
    begin, end = EMBEDDERS[name]["around"]
    special = ["<pad>", begin, end, "<unk>"] if name != "xlm_roberta" else [begin, "<pad>", end, "<unk>"]
    letters = [(letter, -3.0) for letter in LETTERS] + [("▁", -2.0)]
    words = [("▁" + word.removeprefix("##"), -4.0) for word in WORDS]
    vocab = [(token, 0.0) for token in special] + letters + words
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, unk_id=3))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.add_special_tokens(special)
    around = [(token, tokenizer.token_to_id(token)) for token in (begin, end)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=f"{begin} $A {end}", special_tokens=around)
    tokenizer.save(str(folder / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 48, "pad_token": "<pad>", "bos_token": begin, "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(described, indent=2) + "\n")
    write_embeddings(name, folder)


def write_qwen3_embedding(name: str) -> None:
    """As Qwen3-Embedding is published: a decoder without its head, whose last token ends each text."""
    folder = EMBEDDERS_OUTPUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_qwen_tokenizer(folder)
    described = json.loads((folder / "tokenizer.json").read_text())
    described["post_processor"] = {
        "type": "TemplateProcessing", "pair": [], "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(described))
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer), tie_word_embeddings=True, rope_parameters=dict(THETA), **RERANKER_SIZES
    )
    model = transformers.Qwen3Model(config).eval()
    random = torch.Generator().manual_seed(20240607)
    with torch.no_grad():
        randomize(model, random)
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Qwen3ForCausalLM"]}, indent=2) + "\n")
    write_embeddings(name, folder)
    convert(folder, len(tokenizer), tokenizes=True)
    print(f"{name}: written")


def write_embeddings(name: str, folder: Path) -> None:
    """Adds the files of sentence-transformers, and what it makes of texts."""
    files = EMBEDDERS[name]
    write = lambda path, content: (folder / path).write_text(json.dumps(content, indent=2) + "\n")
    random = torch.Generator().manual_seed(20240608)
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [(f"{index}_Dense", "Dense") for index in range(2, 2 + len(files["dense"]))]
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    write("modules.json", [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ])
    for path, _ in modules[1:-1]:
        (folder / path).mkdir(exist_ok=True)
    width = json.loads((folder / "config.json").read_text())["hidden_size"]
    ways = {f"pooling_mode_{way}": way.startswith(files["pooling"]) for way in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    write("1_Pooling/config.json", {"word_embedding_dimension": width, **ways, "include_prompt": True})
    for index, (inner, outer, activation) in enumerate(files["dense"]):
        path = f"{index + 2}_Dense"
        write(f"{path}/config.json", {
            "in_features": inner, "out_features": outer, "bias": False, "activation_function": f"torch.nn.modules.{activation}",
        })
        weight = torch.randn((outer, inner), generator=random) / inner**0.5
        save_file({"linear.weight": weight}, folder / path / "model.safetensors")
    write("sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False})
    write("config_sentence_transformers.json", {"prompts": files["prompts"], "default_prompt_name": None, "similarity_fn_name": "cosine"})
    model = SentenceTransformer(str(folder))
    expected = {"texts": TEXTS, "embeddings": model.encode(TEXTS).tolist()}
    expected["prompted"] = {prompt: model.encode(TEXTS, prompt_name=prompt).tolist() for prompt in files["prompts"]}
    expected["tokens"] = [len(model.tokenizer(text, truncation=True, max_length=48)["input_ids"]) for text in TEXTS]
    (folder / "texts.json").write_text(json.dumps(expected) + "\n")


def as_published_jina(folder: Path) -> None:
    """Renames weights and keys of Jina v3 as its first files have them, and adds adapters of two tasks."""
    described = json.loads((folder / "config.json").read_text())
    theta = described.pop("rope_parameters")["rope_theta"]
    described |= {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "position_embedding_type": "rotary",
                  "rotary_emb_base": theta, "lora_adaptations": ["retrieval.query", "separation"], "lora_rank": 2, "lora_alpha": 1}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    random = torch.Generator().manual_seed(20240609)
    weights = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        own = f"roberta.{name}"
        if name.endswith(".weight") and weight.dim() == 2:
            stem = f"{own.removesuffix('.weight')}.parametrizations.weight"
            weights[f"{stem}.0.lora_A"] = torch.randn((2, 2, weight.shape[1]), generator=random)
            weights[f"{stem}.0.lora_B"] = torch.randn((2, weight.shape[0], 2), generator=random)
            own = f"{stem}.original"
        weights[own] = weight
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def nomic_bert_moe(weights: dict, tokens: torch.Tensor, heads: int) -> torch.Tensor:
    """The hidden states of nomic-bert with experts, by its equations."""
    norm = lambda x, name: torch.nn.functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12)
    linear = lambda x, name: x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    x = weights["embeddings.word_embeddings.weight"][tokens] + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "emb_ln")
    count, dim = x.shape[0], x.shape[1] // heads
    angles = torch.outer(torch.arange(count).double(), 1000.0 ** (-torch.arange(0, dim, 2).double() / dim)).repeat(1, 2)
    turn = lambda y: y * angles.cos() + torch.cat([-y[..., dim // 2 :], y[..., : dim // 2]], -1) * angles.sin()
    for layer in range(2):
        prefix = f"encoder.layers.{layer}"
        q, k, v = linear(x, f"{prefix}.attn.Wqkv").reshape(count, 3, heads, dim).permute(1, 2, 0, 3)
        shares = (turn(q.double()) @ turn(k.double()).transpose(1, 2) / dim**0.5).softmax(-1)
        attended = (shares @ v.double()).transpose(0, 1).reshape(count, -1).float()
        x = norm(x + linear(attended, f"{prefix}.attn.out_proj"), f"{prefix}.norm1")
        if layer % 2 == 0:
            fed = linear(torch.nn.functional.gelu(linear(x, f"{prefix}.mlp.fc1")), f"{prefix}.mlp.fc2")
        else:
            scores = (x @ weights[f"{prefix}.mlp.router.layer.weight"].T).softmax(-1)
            w1, w2 = (weights[f"{prefix}.mlp.experts.mlp.{name}"].reshape(scores.shape[1], -1, x.shape[1]) for name in ("w1", "w2"))
            shares = torch.zeros_like(scores).scatter(1, scores.topk(2).indices, scores.topk(2).values)
            inner = torch.nn.functional.gelu(torch.einsum("th,efh->tef", x, w1))
            fed = torch.einsum("tef,efh,te->th", inner, w2, shares) + weights[f"{prefix}.mlp.experts.bias"]
        x = norm(x + fed, f"{prefix}.norm2")
    return x


def write_nomic_bert_moe(name: str, has_bias: bool) -> None:
    random = torch.Generator().manual_seed(20240607)
    config = NOMIC_BERT | NOMIC_BERT_MOE
    hidden, inner, experts = config["n_embd"], config["n_inner"], config["num_experts"]
    normal = lambda *shape: torch.randn(shape, generator=random)
    matrix = lambda rows, columns: {"weight": 1.5 * normal(rows, columns) / columns**0.5, "bias": 0.4 * normal(rows)}
    norm = lambda: {"weight": 1.0 + 0.4 * normal(hidden), "bias": 0.4 * normal(hidden)}
    parts = {"emb_ln": norm(), "embeddings.word_embeddings": {"weight": normal(80, hidden)}, "embeddings.token_type_embeddings": {"weight": normal(1, hidden)}}
    for layer in range(2):
        prefix = f"encoder.layers.{layer}"
        parts |= {f"{prefix}.attn.Wqkv": matrix(3 * hidden, hidden), f"{prefix}.attn.out_proj": matrix(hidden, hidden),
                  f"{prefix}.norm1": norm(), f"{prefix}.norm2": norm()}
        if layer % 2 == 0:
            parts |= {f"{prefix}.mlp.fc1": matrix(inner, hidden), f"{prefix}.mlp.fc2": matrix(hidden, inner)}
        else:
            parts[f"{prefix}.mlp.router.layer"] = {"weight": normal(experts, hidden) / 2}
            parts[f"{prefix}.mlp.experts"] = {"bias": has_bias * normal(hidden)}
            parts[f"{prefix}.mlp.experts.mlp"] = {way: 1.5 * normal(experts * inner, hidden) / hidden**0.5 for way in ("w1", "w2")}
    weights = {f"{stem}.{leaf}": tensor for stem, part in parts.items() for leaf, tensor in part.items()}
    tokens = torch.randint(2, 80, (ENCODER_LENGTH,), generator=random)
    folder = ENCODERS_OUTPUT / name
    folder.mkdir(exist_ok=True)
    described = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", **config}
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    hidden_states = nomic_bert_moe(weights, tokens, config["n_head"])
    save_file({"tokens": tokens.int(), "hidden": hidden_states.contiguous()}, folder / "hidden.safetensors")
    if name in ENCODERS_CONVERTED:
        convert(folder, 80, published=ENCODERS_CONVERTED[name])
    print(f"{name}: hidden states up to {hidden_states.abs().max():.2f}")


def write_encoder(name: str, family: str, settings: dict) -> None:
    model_class = getattr(transformers, family)
    config = model_class.config_class(**{**ENCODER_SIZES, **settings})
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    random = torch.Generator().manual_seed(20240607)
    with torch.no_grad():
        randomize(model, random)
        # Not the token of padding, which has no position.
        tokens = torch.randint(2, config.vocab_size, (ENCODER_LENGTH,), generator=random)
        expected = {"tokens": tokens.int(), "hidden": model.base_model(tokens[None]).last_hidden_state[0]}
        if "Classification" in family:
            # As those of a pair, if the model has types.
            types = (torch.arange(ENCODER_LENGTH) > ENCODER_LENGTH // 3).long()
            inputs = {"token_type_ids": types[None]} if getattr(config, "type_vocab_size", 1) > 1 else {}
            expected |= {"token_types": types.int(), "logits": model(tokens[None], **inputs).logits[0]}
    folder = ENCODERS_OUTPUT / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_file({key: value.contiguous() for key, value in expected.items()}, folder / "hidden.safetensors")
    if name == "jina_v3_adapters":
        as_published_jina(folder)
    if name in ENCODERS_CONVERTED:
        described = json.loads((folder / "config.json").read_text())
        if name == "embedding_gemma":
            # As it is published: `transformers` halves it when it reads it.
            described["sliding_window"] = settings["sliding_window"]
            (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    if name in CLASSIFIERS:
        write_texts(name, folder, CLASSIFIERS[name])
    if name in EMBEDDERS:
        write_embedder(name, folder)
    if name in ENCODERS_CONVERTED:
        convert(folder, config.vocab_size, published=ENCODERS_CONVERTED[name])
    if name in ENCODERS_GGUF:
        write_encoder_gguf(folder / "model.gguf", config, load_file(folder / "model.safetensors"))
    print(f"{name}: hidden states up to {expected['hidden'].abs().max():.2f}")


def main() -> None:
    for name in sys.argv[1:] or [*MODELS, *ENCODERS, *NOMIC_BERTS_MOE, "qwen3_embedding", *RERANKERS, *(f"gptq/{name}" for name in GPTQ),
                                 *(f"quantized/{name}" for name in QUANTIZED)]:
        if name in MODELS:
            write(name, *MODELS[name])
        elif name.startswith("quantized/"):
            name = name.removeprefix("quantized/")
            family, settings, (scheme, given), described, left = QUANTIZED[name]
            quantize = lambda stem, weight, random: globals()[scheme](weight, **given)
            write_quantized(QUANTIZED_OUTPUT / name, family, {**QUANTIZED_SIZES, **settings}, quantize, described, left)
        elif name.startswith("gptq/"):
            write_gptq(name.removeprefix("gptq/"), *GPTQ[name.removeprefix("gptq/")])
        elif name == "qwen3_embedding":
            write_qwen3_embedding(name)
        elif name in NOMIC_BERTS_MOE:
            write_nomic_bert_moe(name, NOMIC_BERTS_MOE[name])
        elif name in RERANKERS:
            write_reranker(name, *RERANKERS[name])
        else:
            write_encoder(name, *ENCODERS[name])


if __name__ == "__main__":
    main()
