//! How data rests on disk: GGUF, safetensors, PyTorch archives, names.
