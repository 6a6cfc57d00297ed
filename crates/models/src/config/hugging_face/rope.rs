//! The rotary embeddings of a `config.json`, in each of the ways in which files have said them.

use graph::ops::RopeStyle;
use serde::Deserialize;
use serde_json::Value;

use super::super::{RopeConfig, Scaling};
use crate::Temperature;

/// The keys about rotation. Older files keep base and scaling apart; newer ones have both in `rope_parameters`, and
/// one such object for each kind of layer if the kinds differ. (`rope_scaling` is in the place of `rope_parameters` if a
/// file has it; see [`super::ConfigKeys`].)
#[derive(Deserialize)]
pub(super) struct RopeKeys {
    rope_theta: Option<f64>,
    rope_local_base_freq: Option<f64>,
    partial_rotary_factor: Option<f64>,
    rope_parameters: Option<Value>,
    rope_interleave: Option<bool>,
    original_max_position_embeddings: Option<usize>,
    attn_scale: Option<f32>,
    floor_scale: Option<usize>,
}

impl RopeKeys {
    /// The embedding of heads of a size, and that of layers with a window, whose heads have a size of their own, if it is
    /// another.
    pub(super) fn read(
        &self,
        [head_dim, local_head_dim]: [usize; 2],
        context: usize,
    ) -> Result<(RopeConfig, Option<RopeConfig>), String> {
        let theta = self.rope_theta.unwrap_or(10000.0);
        let read = |rope, theta| self.one(rope, theta, head_dim, context);
        let read_local = |rope, theta| self.one(rope, theta, local_head_dim, context);
        let rope = self.rope_parameters.as_ref();
        let kinds = ["full_attention", "sliding_attention"].map(|kind| rope.and_then(|rope| rope.get(kind)));
        let (rope, local) = match (kinds, self.rope_local_base_freq) {
            // The scaling is that of the other layers.
            ([None, None], Some(local)) => (read(rope, theta)?, read_local(None, local)?),
            ([None, None], None) => return Ok((read(rope, theta)?, None)),
            ([full, local], theta_of_local) => {
                (read(full, theta)?, read_local(local, theta_of_local.unwrap_or(theta))?)
            }
        };
        let local = Some(local).filter(|local| *local != rope);
        Ok((rope, local))
    }

    /// Reads the temperature, whose keys lie among those of the rotation. `context` is the longest sequence.
    pub(super) fn temperature(&self, context: usize) -> Option<Temperature> {
        if let (Some(growth), Some(context)) = (self.attn_scale, self.floor_scale) {
            return Some(Temperature { growth, context, offset: 1 });
        }
        let number = |key: &str| self.rope_parameters.as_ref()?.get(key)?.as_f64();
        let growth = number("llama_4_scaling_beta").filter(|&growth| growth != 0.0)?;
        let context = number("original_max_position_embeddings").map_or(context, |context| context as usize);
        Some(Temperature { growth: growth as f32, context, offset: 0 })
    }

    /// The order of dims, if it is not the family's.
    pub(super) fn style(&self) -> Option<RopeStyle> {
        (self.rope_interleave == Some(false)).then_some(RopeStyle::HalfSplit)
    }

    /// How many pairs turn by time, height and width.
    pub(super) fn sections(&self) -> Result<Option<[usize; 3]>, String> {
        let Some(sections) = self.rope_parameters.as_ref().and_then(|rope| rope.get("mrope_section")) else {
            return Ok(None);
        };
        let counts = serde_json::from_value(sections.clone());
        counts
            .map(Some)
            .map_err(|_| format!("`mrope_section` is {sections}, expected three numbers of pairs"))
    }

    /// The embedding that an object says, with the keys around it for what it leaves out.
    fn one(
        &self,
        rope: Option<&Value>,
        theta: f64,
        head_dim: usize,
        context: usize,
    ) -> Result<RopeConfig, String> {
        let rope = rope.filter(|rope| !rope.is_null());
        let number = |key: &str| rope.and_then(|rope| rope.get(key)).and_then(Value::as_f64);
        let rotary = number("partial_rotary_factor").or(self.partial_rotary_factor).unwrap_or(1.0);
        let theta = number("rope_theta").unwrap_or(theta);
        if rope.and_then(kind_of) == Some("proportional") {
            let factor = number("factor").unwrap_or(1.0);
            if !(factor.is_finite() && factor > 0.0 && (0.0..=1.0).contains(&rotary)) {
                return Err(format!("a share of {rotary} of pairs cannot turn {factor} times as slowly"));
            }
            let pairs = (head_dim as f64 * rotary / 2.0) as usize;
            let scaling = Some(Scaling::Proportional { pairs, factor });
            return Ok(RopeConfig { theta, dims: head_dim, scaling, ..RopeConfig::default() });
        }
        let scaling = match rope {
            None => None,
            Some(rope) => scaling(rope, context, self.original_max_position_embeddings)?,
        };
        let [factors, long_factors] = match (scaling, rope) {
            (Some(Scaling::LongRope { .. }), Some(rope)) => {
                [Some(factors(rope, "short_factor")?), Some(factors(rope, "long_factor")?)]
            }
            _ => [None, None],
        };
        let dims = (head_dim as f64 * rotary) as usize;
        if rope.and_then(kind_of) == Some("ntk") {
            let factors = Some(ntk_factors(dims, number("factor"), number("mixed_b"))?);
            return Ok(RopeConfig { theta, dims, factors, ..RopeConfig::default() });
        }
        // A stretch of the base that no length changes.
        let theta = match number("alpha") {
            Some(alpha) if dims > 2 => theta * alpha.powf(dims as f64 / (dims as f64 - 2.0)),
            _ => theta,
        };
        Ok(RopeConfig { theta, dims, scaling, factors, long_factors, ..RopeConfig::default() })
    }
}

/// The kind of scaling that an object names.
fn kind_of(rope: &Value) -> Option<&str> {
    rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str)
}

/// What `ntk` of GTE divides the frequency of each pair by: `factor^((i + 1)^b / pairs^b)`, with `b` = 1 unless the
/// file says it. Its code always stretches, since tables are made for `factor` times the context.
fn ntk_factors(dims: usize, factor: Option<f64>, b: Option<f64>) -> Result<Vec<f32>, String> {
    let factor = factor.ok_or("the rope scaling lacks `factor`")?;
    if !(factor.is_finite() && factor >= 1.0) {
        return Err(format!("the rope scaling's factor is {factor}, expected at least 1"));
    }
    let (pairs, b) = ((dims / 2) as f64, b.unwrap_or(1.0));
    let of_pair = |pair: usize| factor.powf(((pair + 1) as f64 / pairs).powf(b)) as f32;
    Ok((0..dims / 2).map(of_pair).collect())
}

/// One of LongRoPE's lists.
fn factors(rope: &Value, key: &str) -> Result<Vec<f32>, String> {
    let list = rope.get(key).and_then(Value::as_array);
    let numbers = list.and_then(|list| list.iter().map(|value| Some(value.as_f64()? as f32)).collect());
    numbers.ok_or_else(|| format!("the rope scaling lacks `{key}`, a list of numbers"))
}

/// Some families keep the original context outside the scaling.
fn scaling(rope: &Value, context: usize, original: Option<usize>) -> Result<Option<Scaling>, String> {
    let number = |key: &str| rope.get(key).and_then(Value::as_f64);
    let need = |key: &str| number(key).ok_or(format!("the rope scaling lacks `{key}`"));
    let kind = kind_of(rope).unwrap_or("default");
    let factor = || match need("factor")? {
        factor if factor.is_finite() && factor >= 1.0 => Ok(factor),
        factor => Err(format!("the rope scaling's factor is {factor}, expected at least 1")),
    };
    let original = number("original_max_position_embeddings").or(original.map(|length| length as f64));
    let original_context = original.unwrap_or(context as f64);
    match kind {
        // Positions of text are the same by time, height and width; `ntk` becomes factors of pairs.
        "default" | "mrope" | "ntk" => Ok(None),
        "linear" => Ok(Some(Scaling::Linear { factor: factor()? })),
        "llama3" => Ok(Some(Scaling::Llama3 {
            factor: factor()?,
            low_frequency: need("low_freq_factor")?,
            high_frequency: need("high_freq_factor")?,
            original_context,
        })),
        // Stretches sequences beyond the stated length, and there are none.
        "dynamic" => Ok(None),
        // Phi-3's first files call LongRoPE so.
        "yarn" if rope.get("short_factor").is_none() => {
            let factor =
                if number("factor").is_some() { factor()? } else { context as f64 / original_context };
            let grown = |scale: f64| if factor > 1.0 { 0.1 * scale * factor.ln() + 1.0 } else { 1.0 };
            let given = |key: &str| number(key).filter(|&number| number != 0.0);
            let derived = match (given("mscale"), given("mscale_all_dim")) {
                (Some(scale), Some(all)) => grown(scale) / grown(all),
                _ => grown(1.0),
            };
            Ok(Some(Scaling::Yarn {
                factor,
                original_context,
                beta_fast: given("beta_fast").unwrap_or(32.0),
                beta_slow: given("beta_slow").unwrap_or(1.0),
                truncate: rope.get("truncate").and_then(Value::as_bool).unwrap_or(true),
                attention_factor: number("attention_factor").unwrap_or(derived),
            }))
        }
        // `su` is what LongRoPE was called at first.
        "longrope" | "su" | "yarn" => {
            let stretch = number("factor").unwrap_or(context as f64 / original_context).max(1.0);
            let derived = (1.0 + stretch.ln() / original_context.ln()).sqrt();
            let attention_factor = number("attention_factor").unwrap_or(derived);
            Ok(Some(Scaling::LongRope { original_context: original_context as usize, attention_factor }))
        }
        other => Err(format!(
            "rope scaling `{other}` is not supported; known: default, linear, dynamic, llama3, ntk, yarn, longrope, proportional"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::llama;
    use super::*;
    use crate::{Config, Rope};

    fn read(extra: &str) -> Config {
        Config::from_hugging_face("config.json", &llama(extra)).unwrap()
    }

    fn read_gemma(extra: &str) -> Config {
        let json = llama(extra).replace("LlamaForCausalLM", "Gemma3ForCausalLM");
        Config::from_hugging_face("config.json", &json).unwrap()
    }

    #[test]
    fn kinds_of_layers_have_ropes_of_their_own() {
        let older =
            r#", "rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}"#;
        let newer = r#", "rope_parameters": {
            "full_attention": {"rope_theta": 500000.0, "factor": 8.0, "rope_type": "linear"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}"#;
        let [older, newer] = [older, newer].map(read_gemma);
        assert_eq!(
            (older.rope.theta, older.rope.scaling),
            (500_000.0, Some(Scaling::Linear { factor: 8.0 }))
        );
        let local = older.local_rope.as_ref().unwrap();
        assert_eq!((local.theta, local.scaling), (10_000.0, None));
        assert_eq!((newer.rope, newer.local_rope), (older.rope, older.local_rope));
        assert_eq!(read_gemma(r#", "rope_local_base_freq": 500000.0"#).local_rope, None);
    }

    /// As `transformers` does; an empty one does not count.
    #[test]
    fn rope_scaling_counts_before_rope_parameters() {
        let both = |scaling: &str| {
            read(&format!(
                r#", "rope_parameters": {{"rope_type": "linear", "factor": 2.0}}, "rope_scaling": {scaling}"#
            ))
            .rope
            .scaling
        };
        assert_eq!(both(r#"{"type": "linear", "factor": 4.0}"#), Some(Scaling::Linear { factor: 4.0 }));
        for empty in ["{}", "null"] {
            assert_eq!(both(empty), Some(Scaling::Linear { factor: 2.0 }), "{empty}");
        }
    }

    #[test]
    fn ministral3_in_the_older_style_has_its_rope_and_its_temperature() {
        let scaling = r#", "rope_scaling": {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64,
            "llama_4_scaling_beta": 0.25}"#;
        let json = llama(scaling).replace("LlamaForCausalLM", "Ministral3ForCausalLM");
        let config = Config::from_hugging_face("config.json", &json).unwrap();
        assert!(matches!(config.rope.scaling, Some(Scaling::Yarn { factor: 2.0, .. })));
        let expected = Temperature { growth: 0.25, context: 64, offset: 0 };
        assert_eq!((config.rope.theta, config.temperature), (500_000.0, Some(expected)));
    }

    /// As in the code of gte-base-en-v1.5: a base that is `factor` times as large, and then each frequency divided by
    /// `factor^(2 / dims)`.
    #[test]
    fn ntk_stretches_slow_pairs_most() {
        let read = |rest: &str| {
            let scaling = format!(r#", "rope_scaling": {{"type": "ntk", "factor": 2.0{rest}}}"#);
            Config::from_hugging_face("config.json", &llama(&scaling)).unwrap().rope
        };
        let rope = Rope::new(&read(""), RopeStyle::HalfSplit).unwrap();
        for (pair, frequency) in rope.inverse_frequencies.iter().enumerate() {
            let expected = 1e6f64.powf(-2.0 * pair as f64 / 64.0) / 2f64.powf(2.0 / 64.0);
            assert!((f64::from(*frequency) / expected - 1.0).abs() < 1e-6, "{pair}: {frequency}");
        }
        let mixed = read(r#", "mixed_b": 0.5"#).factors.unwrap();
        assert!((mixed[0] - 2f32.powf((1.0f32 / 32.0).sqrt())).abs() < 1e-6 && mixed[31] == 2.0);
    }

    #[test]
    fn files_say_the_order_and_the_axes_of_pairs() {
        let of = |family: &str, extra: &str| {
            let json = llama(extra).replace("LlamaForCausalLM", family);
            Config::from_hugging_face("config.json", &json)
        };
        let latent = r#", "num_local_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
            "rope_interleave": false"#;
        assert_eq!(of("DeepseekV3ForCausalLM", latent).unwrap().rope.style, Some(RopeStyle::HalfSplit));
        // Only V3 reads it.
        assert_eq!(of("DeepseekV2ForCausalLM", latent).unwrap().rope.style, None);
        let sections = |numbers: &str| {
            let rope = format!(r#", "rope_parameters": {{"rope_theta": 1.5, "mrope_section": {numbers}}}"#);
            of("Qwen2VLForConditionalGeneration", &rope)
        };
        assert_eq!(sections("[8, 12, 12]").unwrap().rope.sections, Some([8, 12, 12]));
        let error = sections("[8]").unwrap_err().to_string();
        assert_eq!(error, "config.json: `mrope_section` is [8], expected three numbers of pairs");
    }

    #[test]
    fn longrope_is_chosen_by_length() {
        let scaling = |rest: &str| {
            let scaling =
                r#", "original_max_position_embeddings": 4096, "rope_scaling": {"type": "longrope""#;
            Config::from_hugging_face("config.json", &llama(&format!("{scaling}{rest}}}")))
        };
        let config = || scaling(r#", "short_factor": [1, 1.5], "long_factor": [2, 3]"#).unwrap();
        let Some(Scaling::LongRope { attention_factor, .. }) = config().rope.scaling else { panic!() };
        // sqrt(1 + ln(32) / ln(4096))
        assert!((attention_factor - 1.190_238_1).abs() < 1e-6, "{attention_factor}");
        for max_length in [None, Some(4096)] {
            let config = config().for_length(max_length);
            assert_eq!((config.context_length, config.rope.factors), (4096, Some(vec![1.0, 1.5])));
        }
        let long = config().for_length(Some(4097));
        assert_eq!((long.context_length, long.rope.factors), (131_072, Some(vec![2.0, 3.0])));
        assert!(scaling("").unwrap_err().to_string().contains("lacks `short_factor`"));
    }

    #[test]
    fn alpha_stretches_the_base() {
        let theta = |alpha: &str| {
            read(&format!(r#", "rope_scaling": {{"type": "dynamic", "factor": 1.0{alpha}}}"#)).rope.theta
        };
        assert_eq!(theta(""), 500_000.0);
        // Heads of 64 dims.
        assert_eq!(theta(r#", "alpha": 1000.0"#), 500_000.0 * 1000f64.powf(64.0 / 62.0));
    }

    #[test]
    fn yarn_says_its_factor_in_many_ways() {
        let yarn = |rest: &str| {
            let keys = r#""type": "yarn", "original_max_position_embeddings": 65536"#;
            read(&format!(r#", "rope_scaling": {{{keys}, {rest}}}"#))
        };
        let factors = |config: &Config| match config.rope.scaling {
            Some(Scaling::Yarn { factor, attention_factor, .. }) => (factor, attention_factor),
            other => panic!("{other:?}"),
        };
        let plain = yarn(r#""factor": 4.0"#);
        assert_eq!((factors(&plain), plain.context_length), ((4.0, 0.1 * 4f64.ln() + 1.0), 262_144));
        assert_eq!(factors(&yarn(r#""factor": null, "attention_factor": 1.5"#)), (2.0, 1.5));
        assert_eq!(factors(&yarn(r#""factor": 4.0, "mscale": 1.0, "mscale_all_dim": 1.0"#)), (4.0, 1.0));
    }
}
