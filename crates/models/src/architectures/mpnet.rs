//! MPNet: BERT with relative positions beside the learned ones, and without token types.

use super::EncoderArchitecture;
use super::bert::with_positions_from;
use crate::encoder::{Encoder, RelativeBias};
use crate::{Config, EncoderConfig, Error, WeightTypes};

/// MPNet, as in all-mpnet-base-v2.
pub(crate) const MPNET: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "MPNetModel", gguf: "mpnet", encoder: mpnet };

/// MPNet with a head that fills gaps.
pub(crate) const MPNET_MASKED: EncoderArchitecture =
    EncoderArchitecture { hugging_face: "MPNetForMaskedLM", ..MPNET };

/// The row of a text's first token, whatever the configuration says of padding.
const FIRST: usize = 2;
/// What `transformers` computes with, whatever the size of the table.
const BUCKETS: usize = 32;
const MAX_DISTANCE: usize = 128;

fn mpnet(config: &Config, encoder: &EncoderConfig, weights: &dyn WeightTypes) -> Result<Encoder, Error> {
    if encoder.buckets != BUCKETS {
        let message = format!(
            "`relative_attention_num_buckets` is {}, expected {BUCKETS}, which models were trained with",
            encoder.buckets
        );
        return Err(Error::config(&config.source_name, message));
    }
    let relative_bias = Some(RelativeBias { buckets: BUCKETS, max_distance: MAX_DISTANCE });
    Ok(Encoder { relative_bias, ..with_positions_from(FIRST, config, encoder, weights)? })
}
