//! The shapes of published models: what their `config.json` says, in the words in which it was published, and the
//! number of weights that they are known to have.

use std::collections::HashSet;

use perihelion_models::{Architecture, Attention, Config, Decoder, Mixer, Norms, Rope, Scaling, WeightTypes};
use tensor::DType;

/// A model, its configuration less what no family reads, its number of weights, and the context it is known for.
struct Published {
    name: &'static str,
    json: &'static str,
    parameters: usize,
    context: usize,
}

const MODELS: &[Published] = &[
    Published {
        name: "Llama 2 7B",
        json: r#"{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05,
            "rope_scaling": null, "tie_word_embeddings": false, "vocab_size": 32000}"#,
        parameters: 6_738_415_616,
        context: 4096,
    },
    Published {
        name: "Llama 3.1 8B",
        json: r#"{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
            "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
            "tie_word_embeddings": false, "vocab_size": 128256}"#,
        parameters: 8_030_261_248,
        context: 131_072,
    },
    Published {
        name: "Llama 3.2 1B",
        json: r#"{"architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
            "tie_word_embeddings": true, "vocab_size": 128256}"#,
        parameters: 1_235_814_400,
        context: 131_072,
    },
    Published {
        name: "DeepSeek Coder 6.7B",
        json: r#"{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 16384, "model_type": "llama",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-06,
            "rope_scaling": {"factor": 4.0, "type": "linear"}, "rope_theta": 100000, "tie_word_embeddings": false,
            "vocab_size": 32256}"#,
        parameters: 6_740_512_768,
        context: 16384,
    },
    Published {
        name: "Mistral 7B v0.3",
        json: r#"{"architectures": ["MistralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096,
            "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32768}"#,
        parameters: 7_248_023_552,
        context: 32768,
    },
    Published {
        name: "Mistral NeMo 12B",
        json: r#"{"architectures": ["MistralForCausalLM"], "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 131072,
            "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false,
            "vocab_size": 131072}"#,
        parameters: 12_247_782_400,
        context: 131_072,
    },
    Published {
        name: "Ministral 8B",
        json: r#"{"architectures": ["MistralForCausalLM"], "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 32768,
            "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_theta": 100000000.0, "sliding_window": 32768,
            "tie_word_embeddings": false, "vocab_size": 131072}"#,
        parameters: 8_019_808_256,
        context: 32768,
    },
    Published {
        name: "Mistral Small 3.1 24B",
        json: r#"{"architectures": ["Mistral3ForConditionalGeneration"], "image_token_index": 10,
            "model_type": "mistral3", "text_config": {"attention_dropout": 0.0, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 32768,
            "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32,
            "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_theta": 1000000000.0, "sliding_window": null, "use_cache": true, "vocab_size": 131072},
            "vision_config": {"hidden_size": 1024, "model_type": "pixtral", "num_hidden_layers": 24}}"#,
        parameters: 23_572_403_200,
        context: 131_072,
    },
    Published {
        name: "Qwen 2.5 0.5B",
        json: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 896,
            "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
            "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
            "use_mrope": false, "use_sliding_window": false, "vocab_size": 151936}"#,
        parameters: 494_032_768,
        context: 32768,
    },
    Published {
        name: "Qwen 2.5 7B, stretched",
        json: r#"{"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 3584,
            "intermediate_size": 18944, "max_position_embeddings": 32768, "max_window_layers": 28,
            "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
            "rms_norm_eps": 1e-06, "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768,
            "type": "yarn"}, "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false,
            "use_sliding_window": false, "vocab_size": 152064}"#,
        parameters: 7_615_616_512,
        context: 131_072,
    },
    Published {
        name: "Qwen 3 0.6B",
        json: r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
            "max_window_layers": 28, "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
            "sliding_window": null, "tie_word_embeddings": true, "use_sliding_window": false,
            "vocab_size": 151936}"#,
        parameters: 596_049_920,
        context: 40960,
    },
    Published {
        name: "Qwen 3 8B",
        json: r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
            "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
            "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
            "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
            "vocab_size": 151936}"#,
        parameters: 8_190_735_360,
        context: 40960,
    },
    Published {
        name: "Granite 3.3 2B",
        json: r#"{"architectures": ["GraniteForCausalLM"], "attention_bias": false,
            "attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 8192, "logits_scaling": 8.0,
            "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "granite",
            "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "residual_multiplier": 0.22, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000.0,
            "tie_word_embeddings": true, "vocab_size": 49159}"#,
        parameters: 2_533_539_840,
        context: 131_072,
    },
    Published {
        name: "Phi-3 mini 4K",
        json: r#"{"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 3072, "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "original_max_position_embeddings": 4096, "rms_norm_eps": 1e-05, "rope_scaling": null,
            "rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false, "vocab_size": 32064}"#,
        parameters: 3_821_079_552,
        context: 4096,
    },
    Published {
        name: "Phi-4 mini",
        json: r#"{"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "full_attn_mod": 1,
            "hidden_act": "silu", "hidden_size": 3072, "intermediate_size": 8192, "interpolate_factor": 1,
            "lm_head_bias": false, "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "phi3",
            "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
            "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "rms_norm_eps": 1e-05,
            "rope_scaling": {"long_factor": [
                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 32, 47.77
            ], "short_factor": [
                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1.0
            ], "type": "longrope"}, "rope_theta": 10000.0, "sliding_window": 262144,
            "tie_word_embeddings": true, "vocab_size": 200064}"#,
        parameters: 3_836_021_760,
        context: 131_072,
    },
    Published {
        name: "Phi-4",
        json: r#"{"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 5120, "intermediate_size": 17920, "max_position_embeddings": 16384, "model_type": "phi3",
            "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
            "original_max_position_embeddings": 16384, "rms_norm_eps": 1e-05, "rope_scaling": null,
            "rope_theta": 250000, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 100352}"#,
        parameters: 14_659_507_200,
        context: 16384,
    },
    Published {
        name: "SmolLM3 3B",
        json: r#"{"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536,
            "max_window_layers": 28, "mlp_bias": false, "model_type": "smollm3", "no_rope_layer_interval": 4,
            "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
            "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null, "use_sliding_window": false,
            "vocab_size": 128256}"#,
        parameters: 3_075_098_624,
        context: 65536,
    },
    Published {
        name: "OLMo 2 7B",
        json: r#"{"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
            "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000, "tie_word_embeddings": false,
            "vocab_size": 100352}"#,
        parameters: 7_298_617_344,
        context: 4096,
    },
    Published {
        name: "OLMo 3 7B",
        json: r#"{"architectures": ["Olmo3ForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 65536,
            "model_type": "olmo3", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "rms_norm_eps": 1e-06, "rope_scaling": {"attention_factor": 1.2079441541679836, "beta_fast": 32,
            "beta_slow": 1, "factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "yarn"},
            "rope_theta": 500000, "sliding_window": 4096, "tie_word_embeddings": false, "vocab_size": 100278}"#,
        parameters: 7_298_011_136,
        context: 65536,
    },
    Published {
        name: "EXAONE 4 1.2B",
        json: r#"{"architectures": ["Exaone4ForCausalLM"], "head_dim": 64, "hidden_act": "silu",
            "hidden_size": 2048, "intermediate_size": 4096, "layer_types": null, "max_position_embeddings": 65536,
            "model_type": "exaone4", "num_attention_heads": 32, "num_hidden_layers": 30, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "rope_theta": 1000000, "sliding_window": null, "sliding_window_pattern": null,
            "tie_word_embeddings": true, "vocab_size": 102400}"#,
        parameters: 1_279_391_488,
        context: 65536,
    },
    Published {
        name: "EXAONE 4 32B",
        json: r#"{"architectures": ["Exaone4ForCausalLM"], "head_dim": 128, "hidden_act": "silu",
            "hidden_size": 5120, "intermediate_size": 27392, "max_position_embeddings": 131072,
            "model_type": "exaone4", "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 4.0,
            "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "rope_theta": 1000000, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
            "tie_word_embeddings": false, "vocab_size": 102400}"#,
        parameters: 32_003_216_384,
        context: 131_072,
    },
    Published {
        name: "Gemma 2B",
        json: r#"{"architectures": ["GemmaForCausalLM"], "attention_bias": false, "head_dim": 256,
            "hidden_act": "gelu", "hidden_activation": null, "hidden_size": 2048, "intermediate_size": 16384,
            "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 8,
            "num_hidden_layers": 18, "num_key_value_heads": 1, "rms_norm_eps": 1e-06, "rope_scaling": null,
            "rope_theta": 10000.0, "vocab_size": 256000}"#,
        parameters: 2_506_172_416,
        context: 8192,
    },
    Published {
        name: "Gemma 2 2B",
        json: r#"{"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attn_logit_softcapping": 50.0,
            "cache_implementation": "hybrid", "final_logit_softcapping": 30.0, "head_dim": 256,
            "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
            "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
            "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
            "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096,
            "vocab_size": 256000}"#,
        parameters: 2_614_341_888,
        context: 8192,
    },
    Published {
        name: "Gemma 2 27B",
        json: r#"{"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 4608, "intermediate_size": 36864,
            "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 32,
            "num_hidden_layers": 46, "num_key_value_heads": 16, "query_pre_attn_scalar": 144,
            "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000}"#,
        parameters: 27_227_128_320,
        context: 8192,
    },
    Published {
        name: "Gemma 3 1B",
        json: r#"{"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attn_logit_softcapping": null,
            "cache_implementation": "hybrid", "final_logit_softcapping": null, "head_dim": 256,
            "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
            "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
            "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
            "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
            "sliding_window_pattern": 6, "vocab_size": 262144}"#,
        parameters: 999_885_952,
        context: 32768,
    },
    Published {
        name: "Gemma 3 4B",
        json: r#"{"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
            "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3", "text_config": {
            "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024}, "vision_config": {
            "hidden_size": 1152, "image_size": 896, "model_type": "siglip_vision_model",
            "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14}}"#,
        parameters: 3_880_263_168,
        context: 131_072,
    },
    Published {
        name: "Gemma 3 27B",
        json: r#"{"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": {
            "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504, "model_type": "gemma3_text",
            "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
            "query_pre_attn_scalar": 168, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024}, "vision_config": {"model_type": "siglip_vision_model"}}"#,
        parameters: 27_009_346_304,
        context: 131_072,
    },
    Published {
        name: "GPT-2",
        json: r#"{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
            "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
            "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}"#,
        parameters: 124_439_808,
        context: 1024,
    },
    Published {
        name: "Pythia 160M",
        json: r#"{"architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu", "hidden_size": 768,
            "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
            "model_type": "gpt_neox", "num_attention_heads": 12, "num_hidden_layers": 12, "rotary_emb_base": 10000,
            "rotary_pct": 0.25, "tie_word_embeddings": false, "use_parallel_residual": true, "vocab_size": 50304}"#,
        parameters: 162_322_944,
        context: 2048,
    },
    Published {
        name: "StarCoder2 3B",
        json: r#"{"architectures": ["Starcoder2ForCausalLM"], "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": 3072, "intermediate_size": 12288, "max_position_embeddings": 16384,
            "mlp_type": "default", "model_type": "starcoder2", "norm_epsilon": 1e-05, "norm_type": "layer_norm",
            "num_attention_heads": 24, "num_hidden_layers": 30, "num_key_value_heads": 2,
            "rope_theta": 999999.4420358813, "sliding_window": 4096, "use_bias": true, "vocab_size": 49152}"#,
        parameters: 3_030_371_328,
        context: 16384,
    },
    Published {
        name: "Command R",
        json: r#"{"architectures": ["CohereForCausalLM"], "attention_bias": false, "hidden_act": "silu",
            "hidden_size": 8192, "intermediate_size": 22528, "layer_norm_eps": 1e-05, "logit_scale": 0.0625,
            "max_position_embeddings": 8192, "model_max_length": 131072, "model_type": "cohere",
            "num_attention_heads": 64, "num_hidden_layers": 40, "num_key_value_heads": 64,
            "rope_theta": 8000000.0, "use_qk_norm": false, "vocab_size": 256000}"#,
        parameters: 34_980_831_232,
        context: 8192,
    },
    Published {
        name: "OLMo 1B",
        json: r#"{"architectures": ["OlmoForCausalLM"], "attention_bias": false, "clip_qkv": null,
            "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 2048,
            "model_type": "olmo", "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 16,
            "rope_scaling": null, "rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": 50304}"#,
        parameters: 1_176_764_416,
        context: 2048,
    },
    Published {
        name: "GLM-4 9B",
        json: r#"{"architectures": ["Glm4ForCausalLM"], "attention_bias": true, "head_dim": 128,
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 13696,
            "max_position_embeddings": 32768, "model_type": "glm4", "num_attention_heads": 32,
            "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 151552}"#,
        parameters: 9_400_279_040,
        context: 32768,
    },
    Published {
        name: "Phi-2",
        json: r#"{"architectures": ["PhiForCausalLM"], "hidden_act": "gelu_new", "hidden_size": 2560,
            "intermediate_size": 10240, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
            "model_type": "phi", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "partial_rotary_factor": 0.4, "qk_layernorm": false, "rope_scaling": null, "rope_theta": 10000.0,
            "tie_word_embeddings": false, "vocab_size": 51200}"#,
        parameters: 2_779_683_840,
        context: 2048,
    },
    Published {
        name: "Falcon 7B",
        json: r#"{"alibi": false, "architectures": ["FalconForCausalLM"], "bias": false, "hidden_size": 4544,
            "layer_norm_epsilon": 1e-05, "model_type": "falcon", "multi_query": true,
            "new_decoder_architecture": false, "num_attention_heads": 71, "num_hidden_layers": 32,
            "parallel_attn": true, "vocab_size": 65024}"#,
        parameters: 6_921_720_704,
        context: 2048,
    },
];

/// A checkpoint that has what the configuration lets one expect.
struct Expected(HashSet<&'static str>);

impl WeightTypes for Expected {
    fn dtype(&self, name: &str) -> Option<DType> {
        self.0.contains(name).then_some(DType::BF16)
    }
}

fn open(name: &str) -> (Config, Decoder) {
    let published = MODELS.iter().find(|published| published.name == name).unwrap();
    let config = Config::from_hugging_face("config.json", published.json);
    let config = config.unwrap_or_else(|error| panic!("{name}: {error}"));
    let architecture = Architecture::from_hugging_face(&config.architecture).unwrap();
    let ropes = Rope::all(&config, graph::ops::RopeStyle::HalfSplit).unwrap();
    let mut weights = HashSet::new();
    if published.json.contains(r#""tie_word_embeddings": false"#) || name.starts_with("Mistral Small") {
        weights.insert("output.weight");
    }
    let biases: &[&str] = match architecture.gguf {
        "qwen2" | "glm4" => &["blk.0.attn_q.bias"],
        "gpt2" | "gptneox" | "starcoder2" => {
            &["blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_up.bias"]
        }
        "phi2" => &["blk.0.attn_q.bias", "blk.0.attn_output.bias", "blk.0.ffn_up.bias", "output.bias"],
        _ => &[],
    };
    weights.extend(biases);
    // None of them has a key that belongs to another family.
    assert_eq!(config.ignored_keys, [""; 0], "{name}");
    let decoder = (architecture.decoder)(&config, ropes, &Expected(weights));
    (config, decoder)
}

#[test]
fn published_models_have_their_size() {
    for published in MODELS {
        let (config, decoder) = open(published.name);
        assert_eq!(decoder.parameters(), published.parameters, "{}", published.name);
        assert_eq!(config.context_length, published.context, "{}", published.name);
    }
}

fn attention(decoder: &Decoder, layer: usize) -> Attention {
    let Mixer::Attention(attention) = decoder.layers[layer].mixer;
    attention
}

/// The windows of a model's layers, from the first on.
fn windows(decoder: &Decoder) -> Vec<Option<usize>> {
    (0..decoder.layers.len()).map(|layer| attention(decoder, layer).window).collect()
}

#[test]
fn windows_are_where_they_belong() {
    let none =
        ["Llama 3.1 8B", "Mistral 7B v0.3", "Mistral NeMo 12B", "Qwen 2.5 0.5B", "Qwen 3 8B", "SmolLM3 3B"];
    for name in none.into_iter().chain(["EXAONE 4 1.2B", "Phi-4", "Gemma 2B", "Granite 3.3 2B", "OLMo 2 7B"])
    {
        assert!(windows(&open(name).1).iter().all(Option::is_none), "{name}");
    }
    assert_eq!(windows(&open("Phi-3 mini 4K").1), [Some(2047); 32]);
    assert_eq!(windows(&open("Ministral 8B").1), [Some(32768); 36]);
    for (name, window, every) in [
        ("Gemma 2 2B", 4096, 2),
        ("Gemma 3 1B", 512, 6),
        ("Gemma 3 27B", 1024, 6),
        ("OLMo 3 7B", 4096, 4),
        ("EXAONE 4 32B", 4096, 4),
    ] {
        let found = windows(&open(name).1);
        let expected = (1..=found.len()).map(|layer| (layer % every != 0).then_some(window));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn layers_turn_positions_as_they_should() {
    let (config, decoder) = open("OLMo 3 7B");
    assert!(matches!(config.rope.scaling, Some(Scaling::Yarn { .. })));
    assert_eq!((decoder.ropes.len(), decoder.ropes[1].scale), (2, 1.0));
    assert_eq!(attention(&decoder, 2).rope, Some(1));
    assert_eq!(attention(&decoder, 3).rope, Some(0));
    let (config, decoder) = open("Gemma 3 4B");
    assert_eq!((config.rope.theta, config.local_rope.unwrap().theta), (1e6, 1e4));
    assert_eq!(decoder.ropes[0].inverse_frequencies[0], 0.125);
    assert_eq!(decoder.ropes[1].inverse_frequencies[0], 1.0);
    let turned = |name: &str| -> Vec<bool> {
        let decoder = open(name).1;
        (0..decoder.layers.len()).map(|layer| attention(&decoder, layer).rope.is_some()).collect()
    };
    assert_eq!(turned("EXAONE 4 1.2B"), [true; 30]);
    assert_eq!(turned("EXAONE 4 32B"), [true, true, true, false].repeat(16));
    assert_eq!(turned("SmolLM3 3B"), [true, true, true, false].repeat(9));
    assert_eq!(open("Phi-4 mini").0.rope.dims, 96);
}

#[test]
fn gemma_scales_what_it_should() {
    let scale = |name: &str| attention(&open(name).1, 0).scale;
    assert_eq!(scale("Gemma 2B"), 1.0 / 16.0);
    assert_eq!(scale("Gemma 2 27B"), 1.0 / 12.0);
    assert_eq!(scale("Gemma 3 27B"), 1.0 / 168f32.sqrt());
    let (_, decoder) = open("Gemma 2 2B");
    assert_eq!((decoder.embedding_scale, decoder.logit_softcap), (48.0, Some(30.0)));
    assert_eq!(attention(&decoder, 0).softcap, Some(50.0));
    assert!(matches!(decoder.layers[0].norms, Norms::Sandwich(_)));
    let (_, decoder) = open("Gemma 3 4B");
    assert_eq!((decoder.logit_softcap, attention(&decoder, 0).softcap), (None, None));
}
