//! A snapshot of all metrics, as families with a row of samples for each model.

use std::fmt;
use std::sync::Arc;

use pipelines::{BatchStatus, Histogram as StatusHistogram, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

use super::process;
use crate::models::{ModelStatus, ModelWorker, PhaseTimes, STATES};
use crate::operations::memory::ModelMemory;
use crate::state::ServerState;
use crate::telemetry::{Labels, Measures, STAGES};

/// All that a scrape shows.
pub(super) struct Snapshot {
    server: Arc<ServerState>,
    texts: Vec<TextModel>,
    embeddings: Vec<(Labels, BatchStatus)>,
    classifications: Vec<(Labels, BatchStatus)>,
    models: Vec<ModelFigures>,
}

/// Figures of a model, in memory or not.
struct ModelFigures {
    id: String,
    state: &'static str,
    phase_times: PhaseTimes,
    memory: Option<ModelMemory>,
    /// Bytes by part.
    planned: [(&'static str, u64); 2],
}

/// A model that makes text.
struct TextModel {
    labels: Labels,
    status: Status,
    measures: Arc<Measures>,
}

/// The name of a family, its help, and the value of a model.
type Row<S, T> = (&'static str, &'static str, fn(&S) -> T);

const GAUGES: &[Row<Status, f64>] = &[
    ("vllm:num_requests_running", "Requests that run", |status| status.running as f64),
    ("vllm:num_requests_waiting", "Requests that wait for room", |status| status.waiting as f64),
    ("vllm:kv_cache_usage_perc", "Share of the KV cache that requests hold, from 0 to 1", cache_usage),
    ("vllm:gpu_cache_usage_perc", "The same as vllm:kv_cache_usage_perc, under its older name", cache_usage),
    ("peri_num_requests_paused", "Requests whose answers are not read", |status| status.paused as f64),
    ("peri_state_slots_live", "Slots with states of requests that run", |status| {
        (status.num_state_slots - status.free_state_slots) as f64
    }),
    ("peri_state_slots_cached", "Slots with states of earlier requests", |status| {
        status.cached_state_slots as f64
    }),
    ("peri_state_slots_free", "Slots without a state", |status| {
        (status.free_state_slots - status.cached_state_slots) as f64
    }),
    ("peri_queue_tokens", "Tokens that waiting requests have to run", |status| status.queued_tokens as f64),
];

/// The names lack `_total`, which is added to them.
const COUNTERS: &[Row<Status, u64>] = &[
    ("vllm:prompt_tokens", "Tokens of prompts that started", |status| status.prompt_tokens),
    ("vllm:generation_tokens", "Tokens that were made", |status| status.generated_tokens),
    ("vllm:num_preemptions", "How often a request gave its pages back", |status| status.preemptions),
    ("vllm:prefix_cache_queries", "Tokens of prompts that were looked up in the cache", |status| {
        status.prompt_tokens
    }),
    ("vllm:prefix_cache_hits", "Of these, tokens that the cache held", |status| status.cached_tokens),
    ("peri_requests_started", "Requests that started", |status| status.started),
    ("peri_failed_steps", "Steps in which the model could not run a request", |status| status.failed_steps),
    ("peri_restarts", "How often a defect emptied the cache", |status| status.restarts),
];

/// vLLM's bounds of the tokens of a step, as powers of two.
const STEP_TOKENS: &[usize] = &[0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
/// Bounds of the microseconds of a step, as powers of two.
const STEP_MICROS: &[usize] = &[7, 9, 11, 12, 13, 14, 15, 16, 17, 18, 20, 22, 24];

/// Histograms of the model's thread, with their bounds, and the unit of these.
const STEPS: &[(Row<Status, StatusHistogram>, &[usize], f64)] = &[
    (("vllm:iteration_tokens_total", "Tokens of a step", |status| status.step_tokens), STEP_TOKENS, 1.0),
    (
        ("peri_step_prefill_tokens", "Tokens of a step that fill the cache", |status| {
            status.step_prefill_tokens
        }),
        STEP_TOKENS,
        1.0,
    ),
    (("peri_step_seconds", "Time of a step", |status| status.step_micros), STEP_MICROS, 1e-6),
];

const MEASURES: &[Row<Measures, Histogram>] = &[
    ("vllm:time_to_first_token_seconds", "Time to the first token", |m| m.first_token.clone()),
    ("vllm:inter_token_latency_seconds", "Time between two tokens", |m| m.between_tokens.clone()),
    (
        "vllm:time_per_output_token_seconds",
        "The same as vllm:inter_token_latency_seconds, under its older name",
        |m| m.between_tokens.clone(),
    ),
    ("vllm:e2e_request_latency_seconds", "Time of whole requests", |m| m.whole.clone()),
    ("vllm:request_queue_time_seconds", "Time in the queue", |m| m.queue.clone()),
    ("vllm:request_prefill_time_seconds", "Time from the queue to the first token", |m| m.prefill.clone()),
    ("vllm:request_decode_time_seconds", "Time from the first token to the last", |m| m.decode.clone()),
    ("vllm:request_inference_time_seconds", "Time from the queue to the last token", |m| m.inference.clone()),
    ("vllm:request_prompt_tokens", "Tokens of a prompt", |m| m.prompt_tokens.clone()),
    ("vllm:request_generation_tokens", "Tokens of an answer", |m| m.generated_tokens.clone()),
    ("vllm:request_params_n", "Answers that a request asks for", |m| m.n.clone()),
    ("vllm:request_params_max_tokens", "Most tokens that a request asks for", |m| m.max_tokens.clone()),
    ("peri_grammar_compile_seconds", "Time to compile the form of an answer", |m| m.grammars.clone()),
];

const EMBEDDINGS: &[Row<BatchStatus, u64>] = &[
    ("peri_embedding_texts", "Texts that became vectors", |status| status.texts),
    ("peri_embedding_tokens", "Tokens of these texts", |status| status.tokens),
    ("peri_embedding_batches", "Batches of these texts", |status| status.batches),
];
const CLASSIFICATIONS: &[Row<BatchStatus, u64>] = &[
    ("peri_classification_texts", "Texts and pairs that were scored", |status| status.texts),
    ("peri_classification_tokens", "Tokens of these texts", |status| status.tokens),
    ("peri_classification_batches", "Batches of these texts", |status| status.batches),
];

impl ModelFigures {
    fn from_status(status: &ModelStatus) -> ModelFigures {
        ModelFigures {
            id: status.model.id().to_string(),
            state: status.state,
            phase_times: status.phase_times.clone(),
            memory: ModelMemory::from_status(status),
            planned: [
                ("weights", status.model.facts.weight_bytes),
                ("cache", status.model.facts.cache_bytes),
            ],
        }
    }
}

fn cache_usage(status: &Status) -> f64 {
    match status.num_pages {
        0 => 0.0,
        pages => (pages - status.free_pages) as f64 / pages as f64,
    }
}

impl Snapshot {
    pub(super) fn new(server: &Arc<ServerState>) -> Snapshot {
        let (mut texts, mut embeddings, mut classifications) = (Vec::new(), Vec::new(), Vec::new());
        let statuses = server.models.statuses();
        let models = statuses.iter().map(ModelFigures::from_status).collect();
        for status in statuses {
            let (id, Some(loaded)) = (status.model.id(), status.loaded) else { continue };
            let labels = vec![("model_name", id.to_string()), ("engine", "0".to_string())];
            // A model whose thread has ended has no status.
            match loaded.worker() {
                ModelWorker::Text(generator) => texts.extend(generator.status().ok().map(|status| {
                    let measures = server.metrics.model(id, loaded.max_length());
                    TextModel { labels, status, measures }
                })),
                ModelWorker::Embedding(embedder) => {
                    embeddings.extend(embedder.status().ok().map(|status| (labels, status)));
                }
                ModelWorker::Classifier(classifier) => {
                    classifications.extend(classifier.status().ok().map(|status| (labels, status)));
                }
            }
        }
        Snapshot { server: Arc::clone(server), texts, embeddings, classifications, models }
    }

    /// A family with samples of each model that makes text, which may have labels of their own.
    fn family<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, kind): (&str, &str, MetricType),
        samples: impl Fn(&TextModel) -> Vec<(Labels, M)>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for model in &self.texts {
            for (own, sample) in samples(model) {
                let labels: Labels = model.labels.iter().cloned().chain(own).collect();
                sample.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_status(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        for &(name, help, value) in GAUGES {
            self.family(encoder, (name, help, MetricType::Gauge), |model| {
                vec![(Labels::new(), ConstGauge::new(value(&model.status)))]
            })?;
        }
        for &(name, help, value) in COUNTERS {
            self.family(encoder, (name, help, MetricType::Counter), |model| {
                vec![(Labels::new(), ConstCounter::new(value(&model.status)))]
            })?;
        }
        for &((name, help, histogram), exponents, unit) in STEPS {
            self.family(encoder, (name, help, MetricType::Histogram), |model| {
                vec![(Labels::new(), Steps { histogram: histogram(&model.status), exponents, unit })]
            })?;
        }
        for &(name, help, histogram) in MEASURES {
            self.family(encoder, (name, help, MetricType::Histogram), |model| {
                vec![(Labels::new(), histogram(&model.measures))]
            })?;
        }
        Ok(())
    }

    fn encode_labelled(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let success = ("vllm:request_success", "Requests that ended, by reason", MetricType::Counter);
        self.family(encoder, success, |model| {
            let finished = model.status.finished;
            let reasons = [
                ("stop", finished.stop),
                ("length", finished.length),
                ("abort", finished.cancelled),
                ("error", finished.failed + finished.timed_out),
            ];
            let sample = |(reason, count)| (labels([("finished_reason", reason)]), ConstCounter::new(count));
            reasons.map(sample).into()
        })?;
        let cancels = ("peri_cancels", "Answers whose clients left, by stage", MetricType::Counter);
        self.family(encoder, cancels, |model| {
            let counters = STAGES.iter().zip(&model.measures.cancels);
            counters.map(|(stage, counter)| (labels([("stage", stage)]), counter.clone())).collect()
        })?;
        let config = ("vllm:cache_config_info", "Pages of the KV cache", MetricType::Gauge);
        self.family(encoder, config, |model| {
            let (size, pages) = (model.status.page_size.to_string(), model.status.num_pages.to_string());
            vec![(labels([("block_size", &size), ("num_gpu_blocks", &pages)]), ConstGauge::new(1_u64))]
        })?;
        let lora = ("vllm:lora_requests_info", "Adapters, of which there are none", MetricType::Gauge);
        self.family(encoder, lora, |_| {
            let none = [("max_lora", "0"), ("running_lora_adapters", ""), ("waiting_lora_adapters", "")];
            vec![(labels(none), ConstGauge::new(1_u64))]
        })
    }

    fn encode_batches(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let waiting = [
            ("peri_embedding_waiting", "Texts that wait to become vectors"),
            ("peri_classification_waiting", "Texts and pairs that wait to be scored"),
        ];
        let kinds = [(EMBEDDINGS, &self.embeddings), (CLASSIFICATIONS, &self.classifications)];
        for ((name, help), (counters, models)) in waiting.into_iter().zip(kinds) {
            for &(name, help, value) in counters {
                let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                for (labels, status) in models {
                    ConstCounter::new(value(status)).encode(family.encode_family(labels)?)?;
                }
            }
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, status) in models {
                ConstGauge::new(status.waiting as u64).encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }

    /// A gauge with samples of each model, in memory or not, which have a label of their own.
    fn encode_figure<'s>(
        &'s self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, label): (&str, &str, &'static str),
        samples: impl Fn(&'s ModelFigures) -> Vec<(&'static str, f64)>,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for model in &self.models {
            for (own, value) in samples(model) {
                let labels = labels([("model_name", &model.id[..]), (label, own)]);
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }

    fn encode_models(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let state = ("peri_model_state", "1 for the state in which a model is, 0 for the others", "state");
        self.encode_figure(encoder, state, |model| {
            STATES.map(|state| (state, f64::from(u8::from(state == model.state)))).into()
        })?;
        let load = ("peri_model_load_seconds", "Time of the last load of a model, by phase", "phase");
        self.encode_figure(encoder, load, |model| {
            model.phase_times.iter().map(|(phase, time)| (*phase, time.as_secs_f64())).collect()
        })?;
        let memory = ("peri_memory_bytes", "Memory of a model, by part", "part");
        self.encode_figure(encoder, memory, |model| {
            let parts = model.memory.as_ref().map(ModelMemory::parts);
            parts.into_iter().flatten().map(|(part, bytes)| (part, bytes as f64)).collect()
        })?;
        let planned = (
            "peri_planned_memory_bytes",
            "Memory that a model has or will have once loaded, by part",
            "part",
        );
        self.encode_figure(encoder, planned, |model| {
            model.planned.map(|(part, bytes)| (part, bytes as f64)).into()
        })
    }

    fn encode_build(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (name, help) = ("peri_build_info", "The version of the server, with its commit if that is known");
        let labels = labels([("version", &self.server.config.build)]);
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(1_u64).encode(family.encode_family(&labels)?)
    }

    fn encode_http(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = &self.server.metrics;
        let rows = [
            ("peri_http_requests", "Responses, by route and status", &metrics.http_requests),
            ("peri_rejections", "Requests that were refused or failed, by reason", &metrics.rejections),
        ];
        for (name, help, family) in rows {
            family.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let (name, help) = ("peri_refused_connections", "Connections of addresses that had too many");
        metrics.refused_connections.encode(encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Counter,
        )?)
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_status(&mut encoder)?;
        self.encode_labelled(&mut encoder)?;
        self.encode_batches(&mut encoder)?;
        self.encode_models(&mut encoder)?;
        self.encode_http(&mut encoder)?;
        self.encode_build(&mut encoder)?;
        process::encode(&mut encoder)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// A histogram of the model's thread, with bounds that are powers of two of a unit.
struct Steps {
    histogram: StatusHistogram,
    exponents: &'static [usize],
    unit: f64,
}

impl EncodeMetric for Steps {
    fn encode(&self, mut sample: MetricEncoder<'_>) -> fmt::Result {
        let Steps { histogram, exponents, unit } = self;
        let mut below = 0;
        let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(exponents.len() + 1);
        for &exponent in *exponents {
            let count = histogram.at_most(exponent) - below;
            below += count;
            buckets.push(((1_u64 << exponent) as f64 * unit, count));
        }
        buckets.push((f64::INFINITY, histogram.count() - below));
        sample.encode_histogram::<NoLabelSet>(histogram.sum as f64 * unit, histogram.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_string())).into()
}
