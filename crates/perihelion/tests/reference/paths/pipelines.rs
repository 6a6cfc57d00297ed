//! The paths of the page about the configuration of pipelines.

use perihelion::pipelines::config::{Devices, SupportedEncoding};

use super::any;

known!("perihelion::pipelines", "perihelion::pipelines::config", "perihelion::sources");

types! {
    perihelion::driver::DType,
    perihelion::driver::DeviceSpec,
    perihelion::pipelines::Embedder,
    perihelion::pipelines::Error,
    perihelion::pipelines::Plan,
    perihelion::pipelines::TextGenerator,
    perihelion::pipelines::config::HuggingFaceRepo,
    perihelion::pipelines::config::KVCacheStrategy,
    perihelion::pipelines::config::PipelineConfig,
    perihelion::pipelines::config::PipelineEngine,
    perihelion::pipelines::config::QuantizationEncoding,
    perihelion::pipelines::config::RepoType,
    perihelion::pipelines::config::RopeType,
    perihelion::pipelines::config::SupportedEncoding,
    perihelion::pipelines::config::UnknownName,
    perihelion::pipelines::config::WeightsConverter,
    perihelion::pipelines::config::WeightsFormat,
    perihelion::sources::Error,
    perihelion::sources::ModelInfo,
    perihelion::weights::Weights,
}

traits! {
    perihelion::driver::Device,
    perihelion::pipelines::config::Devices,
}

members! {
    perihelion::pipelines::config::KVCacheStrategy::Continuous,
    perihelion::pipelines::config::KVCacheStrategy::ModelDefault,
    perihelion::pipelines::config::KVCacheStrategy::Naive,
    perihelion::pipelines::config::KVCacheStrategy::Paged,
    perihelion::pipelines::config::PipelineEngine::HuggingFace,
    perihelion::pipelines::config::PipelineEngine::Max,
    perihelion::pipelines::config::RepoType::Local,
    perihelion::pipelines::config::RepoType::Online,
    perihelion::pipelines::config::RopeType::Neox,
    perihelion::pipelines::config::RopeType::None,
    perihelion::pipelines::config::RopeType::Normal,
    perihelion::pipelines::config::SupportedEncoding::Bfloat16,
    perihelion::pipelines::config::SupportedEncoding::Float32,
    perihelion::pipelines::config::SupportedEncoding::Q4K,
    perihelion::pipelines::config::SupportedEncoding::Q4_0,
    perihelion::pipelines::config::SupportedEncoding::Q6K,
    perihelion::pipelines::config::WeightsFormat::Gguf,
    perihelion::pipelines::config::WeightsFormat::Pytorch,
    perihelion::pipelines::config::WeightsFormat::Safetensors,
}

free_functions! {
    perihelion::pipelines::config::machine => (),
}

functions! {
    perihelion::pipelines::config::HuggingFaceRepo {
        new(""),
        open("", any()),
    }
    perihelion::pipelines::config::PipelineConfig {
        help(),
        new(""),
    }
    perihelion::pipelines::config::SupportedEncoding {
        parse_from_file_name(""),
    }
}

methods! {
    perihelion::pipelines::config::HuggingFaceRepo {
        download("", false),
        download_all(&[], false, &|_| ()),
        encoding_for_file(""),
        file_exists(""),
        files_for_encoding(SupportedEncoding::Q4K, None, None),
        formats_available(),
        info(),
        repo_id(),
        repo_type(),
        size_of(""),
        supported_encodings(),
        trust_remote_code(),
        weight_files(),
    }
    perihelion::pipelines::config::PipelineConfig {
        device(),
        devices(),
        download_weights(),
        dtype(),
        huggingface_config(),
        huggingface_weights_repo(),
        load_weights(),
        plan(any()),
        sampling_defaults(),
        short_name(),
        update_architecture(),
        validate(any()),
        weights_format(),
        weights_size(),
    }
    perihelion::pipelines::config::SupportedEncoding {
        dtype(),
        quantization_encoding(),
    }
}

fields! {
    perihelion::pipelines::MemoryPlan {
        cache,
    }
    perihelion::pipelines::config::PipelineConfig {
        architecture,
        cache_strategy,
        device_specs,
        enable_echo,
        enable_prefix_caching,
        engine,
        force_download,
        gpu_memory_utilization,
        huggingface_repo_id,
        kv_cache_page_size,
        max_cache_batch_size,
        max_ce_batch_size,
        max_length,
        max_new_tokens,
        max_num_steps,
        pad_to_multiple_of,
        quantization_encoding,
        rope_type,
        save_to_serialized_model_path,
        serialized_model_path,
        top_k,
        trust_remote_code,
        weight_path,
        _devices,
        _huggingface_config,
        _weights_converter,
        _weights_repo_id,
    }
    perihelion::pipelines::config::RepoOptions {
        repo_type,
        trust_remote_code,
    }
}
