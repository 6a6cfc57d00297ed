//! An opened adapter: its queue, its first failure, and the pipelines made of shaders so far.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_lite::future::block_on;
use tensor::{DeviceSpec, Error};
use wgpu::{
    Adapter, AdapterInfo, BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType,
    Buffer, BufferBindingType, BufferDescriptor, BufferUsages, ComputePipeline, ComputePipelineDescriptor,
    DeviceDescriptor, ErrorFilter, ExperimentalFeatures, Features, Limits, MemoryHints,
    PipelineLayoutDescriptor, PollType, ShaderModule, ShaderModuleDescriptor, ShaderRuntimeChecks,
    ShaderSource, ShaderStages, SubmissionIndex, Trace,
};

use crate::shader::{Access, Shader};

/// Numbers of 64 bits, which shaders compute with only where the adapter's `fma` rounds twice.
pub(crate) const DOUBLES: Features = Features::SHADER_F64.union(Features::SHADER_INT64);

/// An opened adapter.
pub(crate) struct Gpu {
    pub(crate) spec: DeviceSpec,
    pub(crate) info: AdapterInfo,
    pub(crate) limits: Limits,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// What went wrong first: later calls fail with it.
    failure: Arc<OnceLock<String>>,
    /// The functions `fused` and `fused_4` of shaders; empty until they are set.
    pub(crate) fused: OnceLock<&'static str>,
    /// By the text of the shader.
    pipelines: Mutex<HashMap<String, Arc<Pipeline>>>,
    /// Holds the buffer that the last read went through, which the next one can use.
    pub(crate) staging: Mutex<Option<Buffer>>,
}

/// A shader as the device runs it.
pub(crate) struct Pipeline {
    pub(crate) compute: ComputePipeline,
    pub(crate) layout: BindGroupLayout,
}

impl Gpu {
    /// Opens an adapter with these limits.
    pub(crate) fn open(adapter: &Adapter, limits: Limits, spec: DeviceSpec) -> Result<Arc<Gpu>, String> {
        let info = adapter.get_info();
        let request = adapter.request_device(&DeviceDescriptor {
            label: Some("perihelion"),
            required_features: adapter.features() & DOUBLES,
            required_limits: limits.clone(),
            experimental_features: ExperimentalFeatures::disabled(),
            memory_hints: MemoryHints::Performance,
            trace: Trace::Off,
        });
        let (device, queue) =
            block_on(request).map_err(|error| format!("{spec} ({}): {error}", info.name))?;
        let failure = Arc::new(OnceLock::new());
        let first = Arc::clone(&failure);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            let _ = first.set(error.to_string());
        }));
        let first = Arc::clone(&failure);
        device.set_device_lost_callback(move |reason, message| {
            let _ = first.set(format!("the device is lost ({reason:?}): {message}"));
        });
        let (fused, pipelines, staging) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Ok(Arc::new(Gpu { spec, info, limits, device, queue, failure, fused, pipelines, staging }))
    }

    /// Fails with the first error that the driver reported, if it reported one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::Device(format!("{} ({}): {failure}", self.spec, self.info.name))),
        }
    }

    /// Waits until what was submitted is done.
    pub(crate) fn wait(&self, submission: Option<SubmissionIndex>) -> Result<(), Error> {
        let waited = self.device.poll(PollType::Wait { submission_index: submission, timeout: None });
        self.check()?;
        waited.map(|_| ()).map_err(|error| Error::Device(format!("{}: {error}", self.spec)))
    }

    /// The most bytes that one binding can see of a buffer.
    pub(crate) fn max_binding(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size)
    }

    /// Makes a buffer for values or weights, all zero. Its size is rounded up, so that copies of whole words fit.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<Buffer, Error> {
        self.check()?;
        let size = (bytes as u64).next_multiple_of(16).max(16);
        if size > self.limits.max_buffer_size {
            return Err(Error::OutOfMemory { bytes });
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let scope = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        match block_on(scope.pop()) {
            Some(_) => Err(Error::OutOfMemory { bytes }),
            None => self.check().map(|()| buffer),
        }
    }

    /// The pipeline of a shader, made if there is none yet.
    pub(crate) fn pipeline(&self, shader: &Shader) -> Result<Arc<Pipeline>, Error> {
        if let Some(pipeline) = lock(&self.pipelines).get(shader.text()) {
            return Ok(Arc::clone(pipeline));
        }
        // Made without the lock: it takes long. Whoever is first keeps its own.
        let pipeline = Arc::new(self.make_pipeline(shader)?);
        let mut pipelines = lock(&self.pipelines);
        Ok(Arc::clone(pipelines.entry(shader.text().to_string()).or_insert(pipeline)))
    }

    fn make_pipeline(&self, shader: &Shader) -> Result<Pipeline, Error> {
        self.check()?;
        let scope = self.device.push_error_scope(ErrorFilter::Validation);
        let module = self.module(shader);
        let entry = |(binding, ty)| BindGroupLayoutEntry {
            binding,
            visibility: ShaderStages::COMPUTE,
            ty: BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let storages = shader
            .accesses()
            .iter()
            .map(|access| BufferBindingType::Storage { read_only: *access == Access::Weight });
        let types = [BufferBindingType::Uniform].into_iter().chain(storages);
        let entries: Vec<_> = (0..).zip(types).map(entry).collect();
        let label = Some(shader.name());
        let layout =
            self.device.create_bind_group_layout(&BindGroupLayoutDescriptor { label, entries: &entries });
        let pipeline_layout = self.device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let compute = self.device.create_compute_pipeline(&ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        match block_on(scope.pop()) {
            Some(error) => Err(Error::Device(format!("{}: shader {}: {error}", self.spec, shader.name()))),
            None => self.check().map(|()| Pipeline { compute, layout }),
        }
    }

    #[expect(unsafe_code, reason = "counters in loops would slow each of them many times")]
    fn module(&self, shader: &Shader) -> ShaderModule {
        let text = [shader.text(), self.fused.get().copied().unwrap_or_default()].concat();
        let source = ShaderSource::Wgsl(Cow::Owned(text));
        let description = ShaderModuleDescriptor { label: Some(shader.name()), source };
        let checks = ShaderRuntimeChecks {
            bounds_checks: true,
            force_loop_bounding: false,
            int_div_checks: true,
            ..ShaderRuntimeChecks::checked()
        };
        // SAFETY: the shaders are this crate's own, and all their loops end: they count up to bounds that are read before.
        unsafe { self.device.create_shader_module_trusted(description, checks) }
    }
}

/// Nothing here can be left half changed, so what a panicking thread held is good still.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
