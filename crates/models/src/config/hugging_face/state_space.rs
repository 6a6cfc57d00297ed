//! The state space in a `config.json`, under the names that [`super::ConfigKeys::gather_state_space`] gives its keys.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::key;
use crate::{StateSpaceConfig, StateSpaceHeads};

/// The keys that need more than a table says.
#[derive(Deserialize)]
struct StateSpaceKeys {
    expand: Option<f64>,
    heads: Option<usize>,
    groups: Option<usize>,
    /// A number, or `auto`.
    head_dim: Option<Value>,
    /// A number, or `auto`.
    step_rank: Option<Value>,
    step_limit: Option<Vec<Value>>,
}

/// The state space of a model of a width; its channels are `expand` times those of the model unless it says them.
pub(super) fn read(keys: &Map<String, Value>, hidden: usize) -> Result<StateSpaceConfig, String> {
    let file: StateSpaceKeys =
        serde_json::from_value(Value::Object(keys.clone())).map_err(|error| error.to_string())?;
    let heads = file.heads.map(|count| StateSpaceHeads { count, groups: file.groups.unwrap_or(1) });
    let rank = number(file.step_rank.as_ref(), "rank of steps")?;
    let mut space = StateSpaceConfig {
        channels: (file.expand.unwrap_or(2.0) * hidden as f64) as usize,
        heads,
        step_rank: if heads.is_some() { 0 } else { rank.unwrap_or(hidden.div_ceil(16)) },
        state_dim: 0,
        conv_width: 4,
        step_limit: file.step_limit()?,
        gate_last: false,
        norm_eps: None,
    };
    key::read_json(&mut space, keys)?;
    let channels = space.channels;
    if let (Some(count), Some(dim)) = (file.heads, number(file.head_dim.as_ref(), "head size")?)
        && count.checked_mul(dim) != Some(channels)
    {
        return Err(format!(
            "{count} heads of {dim} channels are not the {channels} channels of state spaces"
        ));
    }
    Ok(space)
}

impl StateSpaceKeys {
    /// Infinity is no number in JSON: it is written as an object, or read as null.
    fn step_limit(&self) -> Result<[f32; 2], String> {
        let infinite = |value: &Value| {
            value.is_null() || value.get("__float__").and_then(Value::as_str) == Some("Infinity")
        };
        match self.step_limit.as_deref() {
            None => Ok([0.0, f32::INFINITY]),
            Some([least, largest]) => {
                let largest = if infinite(largest) { Some(f64::INFINITY) } else { largest.as_f64() };
                let limit = least.as_f64().zip(largest);
                let limit = limit.map(|(least, largest)| [least as f32, largest as f32]);
                limit.ok_or_else(|| "the limits of steps are no numbers".to_string())
            }
            Some(other) => Err(format!("steps have {} limits, expected 2", other.len())),
        }
    }
}

/// A number, or none for `auto`.
fn number(value: Option<&Value>, what: &str) -> Result<Option<usize>, String> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(word)) if word == "auto" => Ok(None),
        Some(value) => match value.as_u64().and_then(|number| usize::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(format!("the {what} of state spaces is {value}, expected a number or auto")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<StateSpaceConfig, String> {
        super::read(&serde_json::from_str(json).unwrap(), 48)
    }

    #[test]
    fn reads_both_kinds() {
        let heads = read(
            r#"{"heads": 8, "head_dim": "auto", "groups": 2, "state_dim": 5, "step_limit": [0.1, null]}"#,
        );
        let expected = StateSpaceConfig {
            channels: 96,
            heads: Some(StateSpaceHeads { count: 8, groups: 2 }),
            step_rank: 0,
            state_dim: 5,
            conv_width: 4,
            step_limit: [0.1, f32::INFINITY],
            gate_last: false,
            norm_eps: None,
        };
        assert_eq!(heads, Ok(expected));
        let limit = r#"[0.1, {"__float__": "Infinity"}]"#;
        let heads = read(&format!(r#"{{"heads": 8, "groups": 2, "state_dim": 5, "step_limit": {limit}}}"#));
        assert_eq!(heads, Ok(expected));
        let channels =
            read(r#"{"channels": 30, "step_rank": "auto", "state_dim": 16, "conv_width": 3}"#).unwrap();
        assert_eq!((channels.channels, channels.heads, channels.step_rank), (30, None, 3));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |json: &str| read(json).unwrap_err();
        assert_eq!(
            refused(r#"{"heads": 8, "head_dim": 11, "state_dim": 5}"#),
            "8 heads of 11 channels are not the 96 channels of state spaces"
        );
        assert_eq!(refused("{}"), "`state_dim` is missing");
        assert_eq!(
            refused(r#"{"state_dim": 5, "step_rank": -1}"#),
            "the rank of steps of state spaces is -1, expected a number or auto"
        );
        assert_eq!(refused(r#"{"state_dim": 5, "step_limit": [0.0]}"#), "steps have 1 limits, expected 2");
    }
}
