//! `peri plan`.

use serde_json::Value;

use crate::support::{Outcome, peri};

fn json(outcome: Outcome) -> Value {
    serde_json::from_str(&outcome.text()).unwrap()
}

#[test]
fn numbers_are_those_of_the_model() {
    let plan = json(peri(&["plan", "--json", "--kv-cache-page-size", "64", "--cache-strategy", "paged"]));
    assert_eq!((&plan["model"], &plan["architecture"]), (&"storyteller".into(), &"LlamaForCausalLM".into()));
    assert_eq!((&plan["parameters"], &plan["active_parameters"]), (&7_344_384.into(), &7_344_384.into()));
    assert_eq!((&plan["encoding"], &plan["cache_strategy"]), (&"q4_k".into(), &"paged".into()));
    // 2 sides of 8 layers of 4 heads of 32 f32.
    assert_eq!(plan["cache_bytes_per_token"], 2 * 8 * 4 * 32 * 4);
    assert_eq!((&plan["cache_bytes"], &plan["cache_tokens"]), (&(512 * 8192).into(), &512.into()));
    let (weights, packed, mapped) = (
        &plan["weights_bytes"],
        plan["weights_packed_bytes"].as_u64().unwrap(),
        &plan["weights_mapped_bytes"],
    );
    // The embedding is used as stored, and packed as the output.
    assert!(packed > 0 && packed + mapped.as_u64().unwrap() > weights.as_u64().unwrap(), "{plan:#}");
    assert_eq!(plan["total_bytes"].as_u64().unwrap(), weights.as_u64().unwrap() + 512 * 8192);
    assert_eq!(
        (&plan["fits"], &plan["problem"], &plan["bytes_to_fetch"]),
        (&true.into(), &Value::Null, &0.into())
    );
    assert_eq!((&plan["max_length_inferred"], &plan["max_cache_batch_size"]), (&false.into(), &1.into()));
}

#[test]
fn what_does_not_fit_ends_with_its_code_and_says_what_would() {
    let outcome = peri(&["plan", "--json", "--max-cache-batch-size", "1000000000"]);
    assert_eq!(outcome.code, Some(4), "{outcome:?}");
    assert!(outcome.stderr.contains("lower max_cache_batch_size to "), "{}", outcome.stderr);
    let plan: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!((&plan["fits"], &plan["cache_bytes"]), (&false.into(), &Value::Null));
    assert!(outcome.stderr.contains(plan["problem"].as_str().unwrap()), "{plan:#}");
}

#[test]
fn lines_end_with_the_answer() {
    let text = peri(&["plan", "--max-length", "auto"]).text();
    for part in ["architecture          LlamaForCausalLM", "512 (auto-inferred)", "1 (current)", " packed, "]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.lines().last(), Some("fits                  yes"));
}

#[test]
fn encoders_have_no_cache() {
    let Some(model) = testdata::shared("minilm-l6-v2") else { return };
    let plan = json(peri(&["plan", "--json", &model.display().to_string()]));
    assert_eq!((&plan["task"], &plan["cache_bytes_per_token"]), (&"embeddings_generation".into(), &0.into()));
}
