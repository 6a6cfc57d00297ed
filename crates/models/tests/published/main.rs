//! The shapes of published models: what their `config.json` says, in the words in which it was published, and the
//! number of weights that they are known to have.

mod table;

use std::collections::HashSet;
use std::path::Path;

use perihelion_models::{
    Architecture, Attention, Config, Decoder, Encoder, EncoderArchitecture, EncoderConfig, Mixer, Model,
    Norms, Rope, Scaling, WeightTypes,
};
use serde::Deserialize;
use serde_json::Value;
use tensor::DType;

/// A file of `tests/published`, or of its folder of encoders.
#[derive(Deserialize)]
struct Published {
    name: String,
    /// The number of weights.
    parameters: usize,
    /// The context that it is known for.
    context: usize,
    /// A chat template of the shared test data that comes from this model or its family.
    template: Option<String>,
    /// The weights that architectures look for because no configuration says whether a checkpoint has them.
    #[serde(default)]
    weights: HashSet<String>,
    /// Its `config.json`, less what no family reads.
    config: Value,
}

fn published() -> Vec<Published> {
    files_of("tests/published")
}

fn encoders() -> Vec<Published> {
    files_of("tests/published/encoders")
}

fn files_of(folder: &str) -> Vec<Published> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

/// The weights that a checkpoint has: those of all layers are said of the first.
struct Stored(HashSet<String>);

impl WeightTypes for Stored {
    fn dtype(&self, name: &str) -> Option<DType> {
        let as_first = |part: &str| if part.parse::<usize>().is_ok() { "0" } else { part }.to_string();
        let first = name.split('.').map(as_first).collect::<Vec<_>>().join(".");
        self.0.contains(&first).then_some(DType::BF16)
    }
}

impl Published {
    fn open(&self) -> (Config, Decoder) {
        let config = Config::from_hugging_face("config.json", &self.config.to_string());
        let config = config.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let architecture = Architecture::from_hugging_face(&config.architecture).unwrap();
        let ropes = Rope::all(&config, graph::ops::RopeStyle::HalfSplit).unwrap();
        // None of them has a key that belongs to another family.
        assert_eq!(config.ignored_keys, [""; 0], "{}", self.name);
        let decoder = (architecture.decoder)(&config, ropes, &Stored(self.weights.clone()));
        (config, decoder)
    }

    fn encoder(&self) -> Encoder {
        let json = self.config.to_string();
        let read = || {
            let config = Config::from_hugging_face("config.json", &json)?;
            let architecture = EncoderArchitecture::from_hugging_face(&config.architecture).unwrap();
            let own = EncoderConfig::from_hugging_face("config.json", &json)?;
            architecture.build(&config, &own, &Stored(self.weights.clone()))
        };
        read().unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn open(name: &str) -> (Config, Decoder) {
    let published = published().into_iter().find(|published| published.name == name);
    published.unwrap_or_else(|| panic!("no file for {name}")).open()
}

#[test]
fn published_models_have_their_size() {
    for published in published() {
        let (config, decoder) = published.open();
        assert_eq!(
            Model::from(decoder).parameters().unwrap().all,
            published.parameters,
            "{}",
            published.name
        );
        assert_eq!(config.context_length, published.context, "{}", published.name);
    }
}

#[test]
fn published_encoders_have_their_size() {
    for published in encoders() {
        let model = Model::from(published.encoder());
        assert_eq!(model.parameters().unwrap().all, published.parameters, "{}", published.name);
        assert_eq!(model.context_length, published.context, "{}", published.name);
    }
}

fn attention(decoder: &Decoder, layer: usize) -> Attention {
    let Mixer::Attention(attention) = decoder.layers[layer].mixer else {
        panic!("layer {layer} has no attention")
    };
    attention
}

/// The windows of a model's layers, from the first on.
fn windows(decoder: &Decoder) -> Vec<Option<usize>> {
    (0..decoder.layers.len()).map(|layer| attention(decoder, layer).window).collect()
}

#[test]
fn windows_are_where_they_belong() {
    let none =
        ["Llama 3.1 8B", "Mistral 7B v0.3", "Mistral NeMo 12B", "Qwen 2.5 0.5B", "Qwen 3 8B", "SmolLM3 3B"];
    for name in none.into_iter().chain(["EXAONE 4 1.2B", "Phi-4", "Gemma 2B", "Granite 3.3 2B", "OLMo 2 7B"])
    {
        assert!(windows(&open(name).1).iter().all(Option::is_none), "{name}");
    }
    assert_eq!(windows(&open("Phi-3 mini 4K").1), [Some(2047); 32]);
    assert_eq!(windows(&open("Ministral 8B").1), [Some(32768); 36]);
    for (name, window, every) in [
        ("Gemma 2 2B", 4096, 2),
        ("Gemma 3 1B", 512, 6),
        ("Gemma 3 27B", 1024, 6),
        ("OLMo 3 7B", 4096, 4),
        ("EXAONE 4 32B", 4096, 4),
    ] {
        let found = windows(&open(name).1);
        let expected = (1..=found.len()).map(|layer| (layer % every != 0).then_some(window));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn layers_turn_positions_as_they_should() {
    let (config, decoder) = open("OLMo 3 7B");
    assert!(matches!(config.rope.scaling, Some(Scaling::Yarn { .. })));
    assert_eq!((decoder.ropes.len(), decoder.ropes[1].scale), (2, 1.0));
    assert_eq!(attention(&decoder, 2).rope, Some(1));
    assert_eq!(attention(&decoder, 3).rope, Some(0));
    let (config, decoder) = open("Gemma 3 4B");
    assert_eq!((config.rope.theta, config.local_rope.unwrap().theta), (1e6, 1e4));
    assert_eq!(decoder.ropes[0].inverse_frequencies[0], 0.125);
    assert_eq!(decoder.ropes[1].inverse_frequencies[0], 1.0);
    let turned = |name: &str| -> Vec<bool> {
        let decoder = open(name).1;
        (0..decoder.layers.len()).map(|layer| attention(&decoder, layer).rope.is_some()).collect()
    };
    assert_eq!(turned("EXAONE 4 1.2B"), [true; 30]);
    assert_eq!(turned("EXAONE 4 32B"), [true, true, true, false].repeat(16));
    assert_eq!(turned("SmolLM3 3B"), [true, true, true, false].repeat(9));
    assert_eq!(open("Phi-4 mini").0.rope.dims, 96);
}

#[test]
fn delta_nets_are_where_they_belong() {
    for (name, value_heads) in [("Qwen 3.5 0.8B", 16), ("Qwen 3.5 27B", 48), ("Qwen3-Next 80B-A3B", 32)] {
        let decoder = open(name).1;
        let layers = decoder.layers.len();
        for (index, layer) in decoder.layers.iter().enumerate() {
            match layer.mixer {
                Mixer::GatedDelta(delta) => assert_eq!(delta.value_heads, value_heads, "{name}"),
                Mixer::Attention(attention) => {
                    assert!(attention.gate.is_some() && index % 4 == 3, "{name}: {index}")
                }
                other => panic!("{name}: {other:?} at {index}"),
            }
        }
        let state = decoder.state();
        assert_eq!(state.per_token[0].layers, layers / 4, "{name}");
        // The last three inputs of the convolution, and a matrix for each value head.
        let of_layer = (2 * 16 + value_heads) * 128 * 3 + value_heads * 128 * 128;
        assert_eq!(state.bytes_per_slot(), 4 * (layers - layers / 4) * of_layer, "{name}");
    }
}

/// Layers that read the keys of others keep none; those without window may have larger heads.
#[test]
fn shared_keys_are_kept_once() {
    let kept = |name: &str| -> Vec<[usize; 3]> {
        let caches = open(name).1.state().per_token;
        caches.iter().map(|cache| [cache.layers, cache.kv_heads, cache.head_dim]).collect()
    };
    assert_eq!(kept("Gemma 3n E2B"), [[20, 2, 256]]);
    assert_eq!(kept("Gemma 4 E4B"), [[20, 2, 256], [4, 2, 512]]);
    assert_eq!(kept("Gemma 4 31B"), [[50, 16, 256], [10, 4, 512]]);
    let (_, decoder) = open("Gemma 4 E2B");
    // 15 layers have keys of their own, of which every fifth sees everything.
    assert_eq!([15, 18, 19].map(|layer| attention(&decoder, layer).keys_of), [Some(13), Some(13), Some(14)]);
}

#[test]
fn state_spaces_are_where_they_belong() {
    let kinds = |name: &str| -> String {
        let letter = |mixer: &Mixer| match mixer {
            Mixer::Attention(_) => '*',
            Mixer::ShortConvolution(_) => 'c',
            Mixer::StateSpace(_) => 'M',
            Mixer::ChannelStateSpace(_) => 'm',
            Mixer::SideBySide(..) => '+',
            Mixer::GatedDelta(_) => 'd',
            Mixer::Latent(_) => 'l',
            Mixer::None => '-',
        };
        open(name).1.layers.iter().map(|layer| letter(&layer.mixer)).collect()
    };
    assert_eq!(kinds("LFM2 1.2B"), "cc*cc*cc*c*c*c*c");
    assert_eq!(kinds("Mamba 130M"), "m".repeat(24));
    assert_eq!(kinds("Mamba-Codestral 7B"), "M".repeat(64));
    assert_eq!(kinds("Granite 4.0 H Tiny"), "MMMMM*MMMM".repeat(4));
    assert_eq!(kinds("Granite 4.0 Micro"), "*".repeat(40));
    assert_eq!(kinds("Falcon-H1 0.5B"), "+".repeat(36));
    assert_eq!(kinds("Jamba v0.1"), "mmmm*mmm".repeat(4));
    let nano = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
    assert_eq!(kinds("Nemotron Nano 9B v2"), nano);
    let nano = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME".replace('E', "-");
    assert_eq!(kinds("Nemotron 3 Nano 30B A3B"), nano);
    assert_eq!(kinds("LFM2 8B A1B"), "cc*ccc*ccc*ccc*ccc*cc*cc");
    // Three inputs of the convolution, and 128 states of each channel.
    let state = open("Mamba-Codestral 7B").1.state();
    assert_eq!((state.per_token.len(), state.bytes_per_token(DType::F32)), (0, 0));
    assert_eq!(state.bytes_per_slot(), 4 * 64 * ((8192 + 2 * 8 * 128) * 3 + 8192 * 128));
}

#[test]
fn gemma_scales_what_it_should() {
    let scale = |name: &str| attention(&open(name).1, 0).scale;
    assert_eq!(scale("Gemma 2B"), 1.0 / 16.0);
    assert_eq!(scale("Gemma 2 27B"), 1.0 / 12.0);
    assert_eq!(scale("Gemma 3 27B"), 1.0 / 168f32.sqrt());
    let (_, decoder) = open("Gemma 2 2B");
    assert_eq!((decoder.embedding_scale, decoder.logit_softcap), (48.0, Some(30.0)));
    assert_eq!(attention(&decoder, 0).softcap, Some(50.0));
    assert!(matches!(decoder.layers[0].norms, Norms::Sandwich { .. }));
    let (_, decoder) = open("Gemma 3 4B");
    assert_eq!((decoder.logit_softcap, attention(&decoder, 0).softcap), (None, None));
}
