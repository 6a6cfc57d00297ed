//! `peri bench`.

use crate::support::{peri, storyteller};

const SMALL: [&str; 9] =
    ["bench", "--prompt", "4,600", "--generate", "3", "--batch", "2", "--repetitions", "2"];

#[test]
fn json_has_every_figure() {
    let outcome = peri(&[&SMALL[..], &["--json", &storyteller()]].concat());
    assert_eq!(
        outcome.stderr,
        "peri: pp600 is left out: it needs 601 tokens, and the model's context holds 512\n"
    );
    let lines = outcome.json_lines();
    let metrics: Vec<&str> = lines.iter().map(|line| line["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["load", "pp4", "time to first token, 4", "tg3", "b2", "peak memory"]);
    for line in &lines {
        let repeated = !["load", "peak memory"].contains(&line["metric"].as_str().unwrap());
        assert_eq!(line["values"].as_array().unwrap().len(), if repeated { 2 } else { 1 }, "{line}");
        assert!(line["median"].as_f64().unwrap() > 0.0 && line["best"].as_f64().unwrap() > 0.0, "{line}");
        assert_eq!(line["model"], "model.gguf");
        assert!(line["device"].as_str().unwrap().starts_with("cpu ("), "{line}");
    }
}

#[test]
fn a_table_by_default() {
    let text = peri(&SMALL).text();
    assert!(text.starts_with("storyteller on cpu ("), "{text}");
    for part in ["pp4", "tg3", "b2", "tok/s", "median", "peak memory"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn settings_are_obeyed() {
    let bench = |more: &[&str]| peri(&[&SMALL[..], &["--json"], more].concat());
    let short = bench(&["--max-length", "4"]);
    for part in
        ["pp4 is left out: it needs 5 tokens, and max_length is 4", "b2 is left out: it needs 41 tokens"]
    {
        assert!(short.stderr.contains(part), "{short:?}");
    }
    let refused = bench(&["--max-length", "64", "--gpu-memory-utilization", "0.0000001"]);
    assert_eq!(refused.code, Some(4), "{refused:?}");
    for strategy in ["naive", "continuous"] {
        assert_eq!(bench(&["--cache-strategy", strategy]).code, Some(0));
    }
    let shared = ["bench", "--shared-prefix", "16", "--concurrency", "2", "--cache-strategy", "naive"];
    let shared = peri(&shared);
    assert!(shared.code == Some(2) && shared.stderr.contains("only paged shares prefixes"), "{shared:?}");
}

#[test]
fn profiles_name_kernels() {
    let text = peri(&["bench", "--profile", "--prompt", "5"]).text();
    let (prefill, decode) = text.split_once("decode after 5 tokens").unwrap();
    assert!(prefill.contains("prompt of 5 tokens"));
    for part in [prefill, decode] {
        assert!(
            part.contains("linear") && part.contains("paged_attention") && part.contains(" % "),
            "{part}"
        );
    }
    let outcome = peri(&["bench", "--profile", "--prompt", "512"]);
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("the model's context holds 512; give a smaller --prompt"), "{outcome:?}");
}
