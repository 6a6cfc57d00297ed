//! Writes new keys and values, or rows that are both, to their pages: a thread for two neighboring elements of the cache.

use std::any::Any;
use std::sync::Arc;

use engine::{FarCall, FarKernel};
use tensor::DType;

use super::operand;
use super::ragged::{Batch, LISTS, PAGES, PARAMS, RAGGED};
use crate::recorder::{Place, Recorder};
use crate::shader::{Access, Shader};

/// Threads of a workgroup.
const THREADS: usize = 128;
/// Neighboring positions that a thread looks after.
const UNIT: usize = 2;

/// Writes keys and values to a layer of a cache of a dtype.
pub(crate) fn kv_store(layer: usize, cache: DType) -> Option<Arc<dyn FarKernel>> {
    kernel(KvStore { layer, cache, rows: &["k", "v"] })
}

/// Writes rows that are keys and values at once to a layer of a cache of a dtype.
pub(crate) fn latent_store(layer: usize, cache: DType) -> Option<Arc<dyn FarKernel>> {
    kernel(KvStore { layer, cache, rows: &["v"] })
}

fn kernel(kernel: KvStore) -> Option<Arc<dyn FarKernel>> {
    matches!(kernel.cache, DType::F32 | DType::F16 | DType::BF16)
        .then(|| Arc::new(kernel) as Arc<dyn FarKernel>)
}

struct KvStore {
    layer: usize,
    cache: DType,
    /// The operands that are stored.
    rows: &'static [&'static str],
}

impl KvStore {
    fn shader(&self) -> Shader {
        let row_element = match self.rows {
            ["v"] => "return v(i);",
            _ => "if part == 0u { return k(i); } return v(i);",
        };
        let row_element = format!("fn row_element(part: u32, i: u32) -> f32 {{ {row_element} }}\n");
        let store = match self.cache {
            DType::F32 => include_str!("store_floats.wgsl").to_string(),
            DType::BF16 => include_str!("store_halves.wgsl").replace("half_bits", "bf16_bits"),
            _ => include_str!("store_halves.wgsl").replace("half_bits", "f16_bits"),
        };
        let source = [RAGGED, PAGES, &row_element, &store, include_str!("kv_store.wgsl")].concat();
        let rows = self.rows.iter().map(|name| (*name, DType::F32, Access::Memory));
        let bindings = [("cache", self.cache, Access::Memory)].into_iter().chain(rows).chain(LISTS);
        let constants = [("PARTS", self.rows.len()), ("UNIT", UNIT)];
        let constants = constants.map(|(name, size)| (name, format!("{size}u")));
        let params = [&PARAMS[..], &["units"]].concat();
        Shader::new("kv_store", &bindings.collect::<Vec<_>>(), &params, &constants, &source)
    }
}

impl FarKernel for KvStore {
    fn name(&self) -> String {
        let op = if self.rows.len() == 2 { "kv_store" } else { "latent_store" };
        format!("{op}[{}].webgpu", self.cache)
    }

    fn record(&self, call: &FarCall<'_>, recorder: &mut dyn Any) -> Result<(), String> {
        let arrays = (0..call.inputs.len()).map(|i| operand(call, i)).collect::<Result<Vec<_>, _>>()?;
        let (cache, rows, page_table) = (arrays[0], arrays[1], arrays[arrays.len() - 1]);
        let batch = Batch::new(rows.shape[0], rows.shape[2], cache.shape, page_table.shape);
        if batch.is_empty() {
            return Ok(());
        }
        let units = batch.units(1, UNIT);
        let items = units * batch.kv_heads * batch.parts * batch.head_dim;
        let places: Vec<Place<'_>> = arrays.iter().map(|array| Place::Memory(&array.bytes)).collect();
        let params = [&batch.params(self.layer, 1)[..], &[units as u32]].concat();
        let groups = items.div_ceil(THREADS);
        Recorder::of(recorder)?.dispatch(&self.shader(), &places, &params, groups, 64 * items as u64)
    }
}
