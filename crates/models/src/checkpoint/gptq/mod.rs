//! Finds the linear layers that GPTQ quantized, and gives their weights the names that the graph knows.
//!
//! The graph reorders the columns of a layer's input with a weight that is made here. Layers that read the same input
//! usually have the same order; they share this weight, so that the input is reordered once for all of them.

use std::collections::HashMap;
use std::path::Path;

use weights::{GptqConfig, Weights};

use super::repacked::{Orders, known_stems, put, take};
use crate::Error;
use crate::stored::Stored;
use crate::stored::gptq::Layer;
use crate::stored::repacked::Repacked;

/// Names the weights of quantized layers and the orders of their columns.
pub(super) fn gather(
    names: &mut HashMap<String, Stored>,
    weights: &Weights,
    config: Option<&GptqConfig>,
    config_json: &Path,
) -> Result<(), Error> {
    let stems = known_stems(names, "qweight");
    if stems.is_empty() {
        return Ok(());
    }
    let config = match config {
        Some(config) => *config,
        None => {
            let first = format!("{}.qweight", stems[0]);
            let in_file = names.get(&first).and_then(|stored| stored.tensors().first().copied());
            from_quantize_config(config_json, in_file.unwrap_or(&first))?
        }
    };
    let mut orders = Orders::default();
    for stem in stems {
        let mut layer = read_layer(&stem, names, weights, &config)?;
        if let Some(order) = &layer.order {
            layer.order_name = Some(orders.name(names, &stem, order));
        }
        put(names, &stem, "qweight", Repacked::new(layer))?;
    }
    Ok(())
}

/// The settings in `quantize_config.json`, which early GPTQ tools wrote next to config.json.
fn from_quantize_config(config_json: &Path, tensor: &str) -> Result<GptqConfig, Error> {
    let path = config_json.with_file_name("quantize_config.json");
    let json = super::read_text(&path).map_err(|error| {
        let message =
            format!("has no `quantization_config`, but `{tensor}` is there; quantize_config.json: {error}");
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
    let parts = ["qweight", "scales", "qzeros", "g_idx"].map(|leaf| take(names, weights, stem, leaf));
    Layer::new(parts, config)
        .map_err(|(leaf, message)| Error::Weight { name: format!("{stem}.{leaf}"), message })
}

#[cfg(test)]
mod tests;
