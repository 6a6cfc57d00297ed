//! Finds the linear layers that GPTQ quantized, and gives their weights the names that the graph knows.
//!
//! The graph brings the columns of the input into the order of a layer with a weight that is made here. Layers that read
//! the same input have the same order as a rule, and then share it, so that the input is ordered once for all of them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tensor::Tensor;
use weights::{GptqConfig, Weights};

use crate::Error;
use crate::stored::Stored;
use crate::stored::gptq::{Layer, Part};

/// Gives the weights of quantized layers their names, and those of the orders of their columns.
pub(super) fn gather(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: Option<&GptqConfig>,
    config_json: &Path,
) -> Result<(), Error> {
    let stem = |name: &String| name.strip_suffix(".qweight").map(str::to_string);
    // What the tables of names do not know keeps its own, and is no part of the model.
    let is_known =
        |(name, stored): &(&String, &Stored)| !matches!(stored, Stored::Whole(own) if own == *name);
    let mut stems: Vec<String> = names.iter().filter(is_known).filter_map(|(name, _)| stem(name)).collect();
    if stems.is_empty() {
        return Ok(());
    }
    stems.sort();
    let config = match config {
        Some(config) => *config,
        None => {
            let first = format!("{}.qweight", stems[0]);
            let in_file = names.get(&first).and_then(|stored| stored.tensors().first().copied());
            beside(config_json, in_file.unwrap_or(&first))?
        }
    };
    let mut orders: HashMap<Arc<[u32]>, String> = HashMap::new();
    for stem in stems {
        let mut layer = read_layer(&stem, names, weights, &config)?;
        if let Some(order) = &layer.order {
            let name = orders.entry(Arc::clone(order)).or_insert_with(|| format!("{stem}.order")).clone();
            let indices: Vec<i32> = order.iter().map(|&column| column as i32).collect();
            names.insert(name.clone(), Stored::Made(Tensor::from_slice([layer.columns], &indices)));
            layer.order_name = Some(name);
        }
        if names.insert(format!("{stem}.weight"), Stored::Gptq(layer)).is_some() {
            let message = "is there as it was and quantized (qweight), expected one of them".to_string();
            return Err(Error::Weight { name: format!("{stem}.weight"), message });
        }
    }
    Ok(())
}

/// The settings in `quantize_config.json`, the file that early GPTQ tools wrote beside config.json.
fn beside(config_json: &Path, tensor: &str) -> Result<GptqConfig, Error> {
    let path = config_json.with_file_name("quantize_config.json");
    let json = super::read_text(&path).map_err(|error| {
        let message = format!(
            "has no `quantization_config`, but `{tensor}` is there; nor is there a quantize_config.json: {error}"
        );
        Error::config(&config_json.display().to_string(), message)
    })?;
    Ok(GptqConfig::from_quantize_config(&path.display().to_string(), &json)?)
}

/// Takes the four tensors of a layer.
fn read_layer(
    stem: &str,
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: &GptqConfig,
) -> Result<Layer, Error> {
    let mut take = |leaf: &'static str| match names.remove(&format!("{stem}.{leaf}")) {
        Some(Stored::Whole(name)) => weights.get(&name).map(|tensor| Part { leaf, name, tensor }),
        _ => None,
    };
    let parts = ["qweight", "scales", "qzeros", "g_idx"].map(&mut take);
    Layer::of(parts, config)
        .map_err(|(leaf, message)| Error::Weight { name: format!("{stem}.{leaf}"), message })
}

#[cfg(test)]
mod tests;
