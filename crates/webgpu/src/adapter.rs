//! The adapters that drivers of this system offer, which are looked for once and not before somebody asks.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use engine::Device;
use engine::devices::Accelerators;
use futures_lite::future::block_on;
use tensor::{DeviceSpec, Error};
use wgpu::{Adapter, AdapterInfo, Backend, Backends, DeviceType, Instance, InstanceDescriptor};

use crate::device::WebGpu;
use crate::fused;
use crate::gpu::Gpu;

/// What adapters are looked for in.
const API: &str = if cfg!(target_os = "macos") {
    "Metal"
} else if cfg!(windows) {
    "DirectX 12 or Vulkan"
} else {
    "Vulkan"
};

/// The environment variable that says which adapters count.
const CHOICE: &str = "PERIHELION_ACCELERATOR";

/// The accelerators that `wgpu` drives.
pub struct Adapters {
    found: OnceLock<Found>,
    /// Those that were opened.
    open: Mutex<BTreeMap<usize, Arc<Gpu>>>,
}

/// The adapters of this system.
pub static ADAPTERS: Adapters = Adapters { found: OnceLock::new(), open: Mutex::new(BTreeMap::new()) };

struct Found {
    /// Those that count, in the order of their numbers.
    adapters: Vec<Adapter>,
    /// The names of the others.
    others: Vec<String>,
    /// Says why the value of [`CHOICE`] is refused, if it is.
    unknown: Option<String>,
}

/// Which adapters count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Hardware,
    Software,
}

impl Choice {
    /// Reads what [`CHOICE`] says.
    fn of(text: Option<&str>) -> Result<Choice, String> {
        match text {
            None | Some("" | "webgpu") => Ok(Choice::Hardware),
            Some("software") => Ok(Choice::Software),
            Some(other) => Err(format!("{CHOICE} is {other:?}, expected software or webgpu")),
        }
    }

    fn counts(self, device: DeviceType) -> bool {
        (device == DeviceType::Cpu) == (self == Choice::Software)
    }
}

impl Adapters {
    fn found(&self) -> &Found {
        self.found.get_or_init(|| match Choice::of(env::var(CHOICE).ok().as_deref()) {
            Ok(choice) => Found::of(choice),
            Err(unknown) => Found { adapters: Vec::new(), others: Vec::new(), unknown: Some(unknown) },
        })
    }

    /// The opened adapter of a number: the same each time, so that memory of one opening is memory of all.
    fn gpu(&self, id: usize) -> Result<Arc<Gpu>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gpu) = open.get(&id) {
            return Ok(Arc::clone(gpu));
        }
        let gpu = self.open_new(id, |adapter| adapter.limits())?;
        open.insert(id, Arc::clone(&gpu));
        Ok(gpu)
    }

    /// Opens an adapter with the least limits that any has, as tests do.
    ///
    /// # Errors
    /// If there is none of that number, or it cannot be opened.
    pub fn open_with_least_limits(&self, id: usize, host: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(WebGpu::new(self.open_new(id, |_| wgpu::Limits::default())?, host)))
    }

    /// Opens an adapter anew, with the limits that a function chooses.
    pub(crate) fn open_new(
        &self,
        id: usize,
        limits: impl Fn(&Adapter) -> wgpu::Limits,
    ) -> Result<Arc<Gpu>, Error> {
        let spec = i32::try_from(id).ok().and_then(|id| DeviceSpec::accelerator(id).ok());
        let adapter = self.found().adapters.get(id).zip(spec);
        let (adapter, spec) = adapter.ok_or_else(|| Error::Device(format!("there is no gpu:{id}")))?;
        let gpu = Gpu::open(adapter, limits(adapter), spec).map_err(Error::Device)?;
        let functions = fused::functions(&gpu)?;
        gpu.fused.get_or_init(|| functions);
        Ok(gpu)
    }
}

impl Accelerators for Adapters {
    fn count(&self) -> usize {
        self.found().adapters.len()
    }

    fn absence(&self) -> String {
        let Found { others, unknown, .. } = self.found();
        match (unknown, others.join(", ")) {
            (Some(unknown), _) => unknown.clone(),
            (None, others) if others.is_empty() => {
                format!("{API} was looked for, and no adapter was found")
            }
            (None, others) => format!(
                "{API} was looked for, and only {others} found; software adapters count with {CHOICE}=software alone, and \
                 others without it alone"
            ),
        }
    }

    fn open(&self, id: usize, host: Arc<dyn Device>) -> Result<Arc<dyn Device>, Error> {
        Ok(Arc::new(WebGpu::new(self.gpu(id)?, host)))
    }
}

impl Found {
    fn of(choice: Choice) -> Found {
        let instance = Instance::new(InstanceDescriptor::new_without_display_handle());
        let all = block_on(instance.enumerate_adapters(Backends::PRIMARY));
        let (mut adapters, others): (Vec<Adapter>, Vec<Adapter>) = all
            .into_iter()
            .filter(|adapter| adapter.get_info().backend != Backend::Noop)
            .partition(|adapter| choice.counts(adapter.get_info().device_type));
        adapters.sort_by_key(|adapter| rank(&adapter.get_info()));
        let mut cards = Vec::new();
        adapters.retain(|adapter| {
            let card = card(&adapter.get_info());
            let is_new = card.is_none() || !cards.contains(&card);
            cards.push(card);
            is_new
        });
        let others = others.iter().map(|adapter| adapter.get_info().name).collect();
        Found { adapters, others, unknown: None }
    }
}

/// Cards before what shares the host's memory; Vulkan before others, as a card may have both.
fn rank(info: &AdapterInfo) -> (usize, bool) {
    let kinds = [DeviceType::DiscreteGpu, DeviceType::IntegratedGpu, DeviceType::VirtualGpu];
    let kind = kinds.iter().position(|kind| *kind == info.device_type);
    (kind.unwrap_or(kinds.len()), info.backend != Backend::Vulkan)
}

/// Identifies the card of an adapter by its PCI address, under which each driver finds it; `None` if it has none.
fn card(info: &AdapterInfo) -> Option<(u32, u32, String)> {
    let address = info.device_pci_bus_id.clone();
    (!address.is_empty()).then_some((info.vendor, info.device, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_adapters_count_only_when_named() {
        for named in [None, Some(""), Some("webgpu")] {
            let choice = Choice::of(named).unwrap();
            assert!(choice.counts(DeviceType::DiscreteGpu) && choice.counts(DeviceType::Other));
            assert!(!choice.counts(DeviceType::Cpu));
        }
        let software = Choice::of(Some("software")).unwrap();
        assert!(software.counts(DeviceType::Cpu) && !software.counts(DeviceType::IntegratedGpu));
        let error = Choice::of(Some("cuba")).err().unwrap();
        assert_eq!(error, r#"PERIHELION_ACCELERATOR is "cuba", expected software or webgpu"#);
    }
}
