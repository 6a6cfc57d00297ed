//! Models on a device with memory of its own: what they write is what the CPU writes, to the bit.

use std::sync::Arc;

use far::OneFarDevice;
use perihelion::driver::{DeviceSpec, Platform, cpu};
use perihelion::engine::InferenceSession;
use perihelion::pipelines::config::{Auto, KVCacheStrategy, PipelineConfig};
use perihelion::pipelines::{
    Embedder, EmbeddingModel, EmbeddingParameters, Machine, Plan, Pooling, TextGenerator,
};

use crate::support::{folder, request, storyteller, text};

static PLATFORM: Platform = Platform::new(cpu).with_accelerators(&OneFarDevice);

fn gpu(config: PipelineConfig) -> PipelineConfig {
    config.device_specs(vec![DeviceSpec::accelerator(0).unwrap()])
}

fn plan(config: &PipelineConfig) -> Plan {
    config.plan(Machine { devices: &PLATFORM, free_memory: None }).unwrap()
}

fn session(plan: &Plan) -> InferenceSession {
    InferenceSession::new(plan.config().devices_of(&PLATFORM).unwrap()).unwrap()
}

fn generator(config: &PipelineConfig) -> TextGenerator {
    let plan = plan(config);
    TextGenerator::from_plan(&session(&plan), plan).unwrap()
}

#[test]
fn a_model_writes_the_same_on_a_device_whatever_its_cache() {
    let paged = storyteller().cache_strategy(KVCacheStrategy::Paged).kv_cache_page_size(16_usize);
    let shared = paged.clone().enable_prefix_caching(true).max_cache_batch_size(4);
    let naive = storyteller().cache_strategy(KVCacheStrategy::Naive);
    for config in [storyteller(), naive, paged, shared] {
        let (here, there) = (generator(&config), generator(&gpu(config)));
        assert!(!there.model().model().unwrap().devices()[0].is_host());
        // The second time, a cache that is shared has the prompt.
        for tokens in [24, 9] {
            let [here, there] = [&here, &there].map(|model| model.generate(request(Some(tokens))).unwrap());
            assert_eq!(text(&there), text(&here));
        }
    }
}

#[test]
fn several_texts_at_once_are_those_of_each_alone() {
    let config = storyteller().cache_strategy(KVCacheStrategy::Paged).max_cache_batch_size(8);
    let there = Arc::new(generator(&gpu(config.clone())));
    let tokens = 4..12;
    let together: Vec<_> = tokens
        .clone()
        .map(|count| {
            let there = Arc::clone(&there);
            std::thread::spawn(move || text(&there.generate(request(Some(count))).unwrap()))
        })
        .collect();
    let here = generator(&config);
    for (count, there) in tokens.zip(together) {
        assert_eq!(there.join().unwrap(), text(&here.generate(request(Some(count))).unwrap()));
    }
}

#[test]
fn a_saved_model_runs_on_a_device_and_on_the_cpu() {
    let path = folder("far_artifact").join("model.mef");
    let saving = gpu(storyteller()).save_to_serialized_model_path(path.clone());
    let saved = text(&generator(&saving).generate(request(Some(8))).unwrap());
    let config = storyteller().serialized_model_path(path);
    for config in [config.clone(), gpu(config)] {
        assert_eq!(text(&generator(&config).generate(request(Some(8))).unwrap()), saved);
    }
}

#[test]
fn texts_have_the_same_vectors() {
    let parameters = EmbeddingParameters { pooling: Some(Pooling::Mean), ..EmbeddingParameters::default() };
    let vectors = |config: &PipelineConfig| {
        let plan = plan(config);
        let model = EmbeddingModel::from_plan(&session(&plan), plan, &mut |_| ()).unwrap();
        let embedder = Embedder::new(model.into(), &parameters).unwrap();
        let embeddings = embedder.embed(["The fox", "", "The raven flew away."]).unwrap();
        embeddings.into_iter().map(|embedding| embedding.vector).collect::<Vec<_>>()
    };
    assert_eq!(vectors(&gpu(storyteller())), vectors(&storyteller()));
}

#[test]
fn memory_is_the_devices() {
    let memory = |config: PipelineConfig| plan(&gpu(config)).memory().cloned();
    let open = storyteller().max_cache_batch_size(Auto::Auto);
    let plain = memory(open.clone()).unwrap();
    assert_eq!(plain.free, Some(1 << 30), "as the device says, not as the host");
    assert!(plain.cache <= 1 << 26, "all keys and values lie in one buffer: {plain:?}");
    let few = memory(open.clone().gpu_memory_utilization(0.02)).unwrap();
    assert!(few.weights + few.cache <= (1 << 30) / 50 && few.max_batch < plain.max_batch, "{few:?}");
    let refused = memory(storyteller().gpu_memory_utilization(0.001)).unwrap_err().to_string();
    assert!(refused.contains("1.00 GiB"), "{refused}");
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let config = storyteller().device_specs(vec![DeviceSpec::accelerator(7).unwrap()]);
    let error = config.plan(Machine { devices: &PLATFORM, free_memory: None }).unwrap_err().to_string();
    assert!(error.contains("gpu:7 is not available: found 1 accelerator; counted from 0"), "{error}");
}
