//! An adapter as a device of sessions.

use std::sync::Arc;

use engine::devices::{DeviceStats, host_stats};
use engine::{Device, Error, Far, FarKernel, FarStep, Kernel, NodeTypes, PackError, PackedWeight, Segment};
use graph::Type;
use tensor::{Allocator, Bytes, DType, DeviceSpec, Tensor};
use wgpu::{Backend, DeviceType};

use crate::gpu::Gpu;
use crate::kernels;
use crate::memory::WebGpuAllocator;
use crate::recorder::{ALIGNMENT, Recorder};
use crate::weights::{Weight, packed, weight};

/// A GPU that `wgpu` drives, and the host that packs its weights.
pub(crate) struct WebGpu {
    allocator: WebGpuAllocator,
    host: Arc<dyn Device>,
}

impl WebGpu {
    pub(crate) fn new(gpu: Arc<Gpu>, host: Arc<dyn Device>) -> WebGpu {
        WebGpu { allocator: WebGpuAllocator(gpu), host }
    }

    fn gpu(&self) -> &Arc<Gpu> {
        &self.allocator.0
    }

    /// Whether the adapter shares the memory of the host.
    fn is_hosts_memory(&self) -> bool {
        matches!(self.gpu().info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu)
    }
}

impl Device for WebGpu {
    fn name(&self) -> &str {
        "webgpu"
    }

    fn spec(&self) -> DeviceSpec {
        self.gpu().spec
    }

    fn api(&self) -> &str {
        match self.gpu().info.backend {
            Backend::Vulkan => "vulkan",
            Backend::Metal => "metal",
            Backend::Dx12 => "dx12",
            _ => "webgpu",
        }
    }

    fn stats(&self) -> Option<DeviceStats> {
        if self.is_hosts_memory() { host_stats() } else { None }
    }

    fn model_name(&self) -> String {
        self.gpu().info.name.clone()
    }

    fn max_single_alloc_size(&self) -> u64 {
        self.gpu().max_binding()
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(self.gpu().wait(None)?)
    }

    fn architecture_name(&self) -> Result<String, Error> {
        Ok(self.gpu().info.driver.clone())
    }

    fn target(&self) -> String {
        format!("webgpu.{}", self.api())
    }

    fn own_products(&self) -> Option<&'static str> {
        Some("webgpu")
    }

    fn kernel(&self, _node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        None
    }

    fn far(&self) -> Option<&dyn Far> {
        Some(self)
    }

    fn packing(&self, node: &NodeTypes<'_>, position: usize) -> Option<String> {
        self.host.packing(node, position)
    }

    fn pack(&self, layout: &str, tensor: &Tensor) -> Result<PackedWeight, PackError> {
        let here = self.host.pack(layout, tensor)?;
        self.host.finish_packing(&here);
        let ty = Type::new(tensor.dtype(), tensor.shape().iter().copied());
        let bytes = self.host.save_packed(&here)?;
        Ok(packed(layout, Weight::upload(&self.allocator, layout, &ty, &bytes)?))
    }

    fn packed_bytes(&self, layout: &str, ty: &Type) -> Option<usize> {
        self.host.packed_bytes(layout, ty)
    }

    fn save_packed(&self, packed: &PackedWeight) -> Result<Bytes, String> {
        weight(packed)?.download().map_err(|error| error.to_string())
    }

    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        // The host checks the bytes.
        self.host.load_packed(layout, ty, bytes.clone())?;
        let uploaded =
            Weight::upload(&self.allocator, layout, ty, &bytes).map_err(|error| error.to_string())?;
        Ok(packed(layout, uploaded))
    }

    fn threads(&self) -> usize {
        self.host.threads()
    }
}

impl Far for WebGpu {
    fn allocator(&self) -> &dyn Allocator {
        &self.allocator
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn FarKernel>> {
        kernels::kernel(self.gpu(), node)
    }

    fn reads(&self, dtype: DType) -> bool {
        matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
    }

    fn record(&self, steps: &[FarStep<'_>]) -> Result<Box<dyn Segment>, Error> {
        let mut recorder = Recorder::new(self.gpu());
        for FarStep { kernel, call } in steps {
            let fail = |message| tensor::Error::Device(format!("recording {}: {message}", kernel.name()));
            kernel.record(call, &mut recorder).map_err(fail)?;
        }
        Ok(Box::new(recorder.finish()?))
    }
}
