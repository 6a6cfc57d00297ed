//! `peri bench`.

use crate::support::{peri, storyteller};

const SMALL: [&str; 9] =
    ["bench", "--prompt", "4,600", "--generate", "3", "--batch", "2", "--repetitions", "2"];

#[test]
fn json_has_every_figure() {
    let outcome = peri(&[&SMALL[..], &["--json", &storyteller()]].concat());
    assert_eq!(
        outcome.stderr,
        "peri: pp600 is left out: it needs 601 tokens, but the model's context holds 512\n"
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
fn the_default_output_is_a_table() {
    let text = peri(&SMALL).text();
    assert!(text.starts_with("storyteller on cpu ("), "{text}");
    for part in ["pp4", "tg3", "b2", "tok/s", "median", "peak memory"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn bench_respects_length_memory_and_strategy() {
    let bench = |more: &[&str]| peri(&[&SMALL[..], &["--json"], more].concat());
    let short = bench(&["--max-length", "4"]);
    for part in
        ["pp4 is left out: it needs 5 tokens, but max_length is 4", "b2 is left out: it needs 41 tokens"]
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
    assert!(
        shared.code == Some(2) && shared.stderr.contains("shared by the cache strategy paged only"),
        "{shared:?}"
    );
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

/// One small measurement, with further arguments.
fn tiny(more: &[&str]) -> crate::support::Outcome {
    let arguments = ["bench", "-p", "4", "-n", "2", "--batch", "2", "-r", "1"];
    peri(&[&arguments[..], more].concat())
}

#[test]
fn every_figure_says_what_it_was_measured_on() {
    let lines = tiny(&["--json", "--threads", "1"]).json_lines();
    for line in &lines {
        assert_eq!((&line["encoding"], &line["parameters"]), (&"q4_k".into(), &7_344_384.into()), "{line}");
        assert!(line["size_bytes"].as_u64().unwrap() > 4_000_000, "{line}");
        assert_eq!((&line["threads"], &line["depth"]), (&1.into(), &0.into()), "{line}");
        assert_eq!(line["version"], env!("CARGO_PKG_VERSION"));
        let date = line["date"].as_str().unwrap();
        assert!(date.len() == 20 && date.ends_with('Z') && date.as_bytes()[10] == b'T', "{date}");
    }
    let table = tiny(&[]).text();
    for part in
        ["q4_k, ", "MiB, 7.34 M parameters", "threads", &format!("peri {}", env!("CARGO_PKG_VERSION"))]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn depths_and_threads_are_swept() {
    let lines = tiny(&["-o", "json", "--threads", "1,2", "--depth", "0,70"]).json_lines();
    let find = |metric: &str, threads: u64| {
        let is = |line: &&serde_json::Value| line["metric"] == metric && line["threads"] == threads;
        lines.iter().find(is).unwrap_or_else(|| panic!("no {metric} on {threads} threads in {lines:#?}"))
    };
    for threads in [1, 2] {
        for metric in ["load", "pp4", "tg2", "b2", "pp4 @ d70", "tg2 @ d70", "time to first token, 4 @ d70"] {
            assert!(find(metric, threads)["median"].as_f64().unwrap() > 0.0, "{metric}");
        }
        assert_eq!(find("tg2 @ d70", threads)["depth"], 70);
    }
    assert!(!lines.iter().any(|line| line["metric"] == "b2 @ d70"));
    let deep = tiny(&["--depth", "600"]);
    assert!(deep.stderr.contains("pp4 @ d600 is left out: it needs 605 tokens"), "{deep:?}");
}

#[test]
fn output_is_markdown_or_csv() {
    let markdown = tiny(&["-o", "md"]).text();
    assert!(markdown.starts_with("| model | encoding | size | parameters | threads | test |"), "{markdown}");
    assert!(markdown.contains("| storyteller | q4_k | 4.44 MiB | 7.34 M |"), "{markdown}");
    let csv = tiny(&["-o", "csv"]).text();
    let mut rows = csv.lines();
    let columns = rows.next().unwrap().split(',').count();
    assert!(columns == 16 && rows.clone().any(|row| row.contains(",tg2,tok/s,")), "{csv}");
    let quoted = "\"time to first token, 4\"";
    assert!(rows.clone().any(|row| row.contains(quoted)), "{csv}");
    assert!(rows.all(|row| row.replace(quoted, "").split(',').count() == columns), "{csv}");
    let both = tiny(&["-o", "csv", "--json"]);
    assert_eq!(both.code, Some(2), "{both:?}");
}
