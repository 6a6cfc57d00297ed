//! The paths of the page about the inference session.

use perihelion::driver::{Buffer, DType, InstructionSet, MapMode};
use perihelion::engine::{
    AssertLevel, CompileOptions, ExecuteOptions, ExportOptions, Extensions, InitOptions,
};

use super::any;

known!("perihelion::driver", "perihelion::engine", "perihelion::graph");

types! {
    perihelion::driver::Buffer,
    perihelion::driver::Cpu,
    perihelion::driver::DlpackTensor,
    perihelion::engine::Artifact,
    perihelion::engine::AssertLevel,
    perihelion::engine::CompiledModel,
    perihelion::engine::DebugConfig,
    perihelion::engine::Error,
    perihelion::engine::Extensions,
    perihelion::engine::InferenceSession,
    perihelion::engine::KernelSettings,
    perihelion::engine::LogLevel,
    perihelion::engine::Model,
    perihelion::engine::PrintStyle,
    perihelion::engine::GraphSource,
    perihelion::engine::SplitKReductionPrecision,
    perihelion::graph::Graph,
    perihelion::graph::Module,
}

traits! {
    perihelion::driver::Device,
    perihelion::engine::Marker,
    perihelion::engine::WeightValue,
    perihelion::engine::WeightsRegistry,
}

members! {
    perihelion::engine::AssertLevel::All,
    perihelion::engine::AssertLevel::None,
    perihelion::engine::AssertLevel::Safe,
    perihelion::engine::AssertLevel::Warn,
    perihelion::engine::Error::Artifact,
    perihelion::engine::Error::Compile,
    perihelion::engine::Error::Extension,
    perihelion::engine::Error::File,
    perihelion::engine::Error::Graph,
    perihelion::engine::Error::Setting,
    perihelion::engine::PrintStyle::Binary,
    perihelion::engine::PrintStyle::BinaryMaxCheckpoint,
    perihelion::engine::PrintStyle::Compact,
    perihelion::engine::PrintStyle::Full,
    perihelion::engine::PrintStyle::None,
    perihelion::engine::Profiling::Detailed,
    perihelion::engine::Profiling::Off,
    perihelion::engine::Profiling::On,
}

free_functions! {
    perihelion::driver::accelerator => (0),
    perihelion::driver::cpu => (),
    perihelion::driver::load_max_buffer => (""),
    perihelion::engine::extension::pack => (any(), any()),
}

functions! {
    perihelion::engine::InferenceSession {
        new([]),
        builder(),
    }
    perihelion::engine::DebugConfig {
        process(),
    }
    perihelion::engine::Extensions {
        load(""),
        load_all([""]),
    }
    perihelion::driver::Buffer {
        from_dlpack(any()),
        mmap("", DType::F32, [1], 0, MapMode::Read),
    }
    perihelion::driver::Cpu {
        with_instruction_set(0, InstructionSet::ALL[0]),
    }
    perihelion::driver::Tensor {
        from_dlpack(any()),
    }
}

methods! {
    perihelion::engine::InferenceSession {
        debug(),
        devices(),
        compile(""),
        load_all_with("", &(), &CompileOptions::default()),
        init(&any(), &()),
        init_with(&any(), &(), InitOptions::default()),
        init_all(&any(), &()),
        load("", &()),
        load_with("", &(), &CompileOptions::default()),
        load_all("", &()),
        enable_per_tensor_fp8_quantize(""),
        gpu_profiling(""),
        profile_summary(),
        set_debug_print_options("", 0, None),
        set_mojo_assert_level(AssertLevel::All),
        set_mojo_log_level(""),
        set_print_sink(std::io::sink()),
        set_split_k_reduction_precision(""),
        set_trace_file(""),
        use_fi_topk_kernel(""),
        use_old_top_k_kernel(""),
        write_trace(),
    }
    perihelion::engine::SessionBuilder {
        build(),
        compile_cache(None),
        custom_extensions(Extensions::default()),
        num_threads(None),
    }
    perihelion::engine::CompiledModel {
        export_mef(""),
        export_mef_with("", ExportOptions::default()),
        names(),
        target(),
    }
    perihelion::engine::Model {
        call(&[("", Buffer::scalar(0f32))]),
        execute(&[]),
        execute_into(&[], &[], &ExecuteOptions::default()),
        profile(&[]),
        release_weights(),
        reload(&()),
    }
    perihelion::engine::DebugConfig {
        device_sync_mode(),
        ir_output_dir(),
        nan_check(),
        pre_jit(),
        print_style(),
        reset(),
        sensible_mode(),
        set_assert_level(AssertLevel::All),
        source_tracebacks(),
        uninitialized_read_check(),
    }
    perihelion::graph::Graph {
        name(),
    }
    perihelion::graph::Builder {
        print(any(), ""),
        print_text("", ""),
    }
}

fields! {
    perihelion::engine::CompileOptions {
        custom_extensions,
        target,
    }
    perihelion::engine::InitOptions {
        strict,
    }
    perihelion::engine::PrintOptions {
        output_directory,
        precision,
        style,
    }
    perihelion::graph::Module {
        graphs,
    }
}
