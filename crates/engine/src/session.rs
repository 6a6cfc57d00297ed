//! From graphs to models: compile, init, load.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use graph::{DeviceRef, Graph, Module};

use crate::artifact::{self, Artifact, ExportOptions, StoredWeights};
use crate::bind::{self, Progress, Sources};
use crate::cache::CompileCache;
use crate::custom::Extensions;
use crate::debug::DebugConfig;
use crate::debug::dump::Dump;
use crate::instruments::Instruments;
use crate::passes::{self, Passes};
use crate::{
    Device, Error, KernelSettings, Model, Program, SplitKReductionPrecision, WeightsRegistry, setters,
};

/// Compiles graphs for its devices and makes models of them.
///
/// A session can be used from many threads. What its setters change holds for what is compiled afterwards.
pub struct InferenceSession {
    devices: Vec<Arc<dyn Device>>,
    cache: Option<CompileCache>,
    extensions: Extensions,
    num_threads: usize,
    pub(crate) settings: Mutex<KernelSettings>,
    pub(crate) instruments: Arc<Instruments>,
}

/// The parts of a session to be.
#[derive(Default)]
pub struct Builder {
    devices: Vec<Arc<dyn Device>>,
    cache: Option<CompileCache>,
    extensions: Extensions,
    num_threads: usize,
    host: Option<HostFactory>,
}

/// Makes the host's device with so many threads; 0 means as many as it thinks best.
type HostFactory = Box<dyn FnOnce(usize) -> Arc<dyn Device>>;

/// What can be compiled.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// One graph.
    Graph(&'a Graph),
    /// Several graphs.
    Module(&'a Module),
    /// A file of graph text (`.graph`), with one graph or several; or of compiled models (`.mef`), see [`Artifact`].
    Path(&'a Path),
}

/// How to compile.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// Which passes run. They have run already on what an artifact holds.
    pub passes: Passes,
    /// Whether the session's compile cache is used.
    pub cache: CacheUse,
    /// Libraries of custom ops, besides those of the session.
    pub custom_extensions: Extensions,
}

/// Whether a compile uses the session's cache, if it has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheUse {
    /// Looks for the result there, and else puts it there.
    #[default]
    Use,
    /// Leaves it alone.
    Bypass,
}

/// How to bind weights.
#[derive(Default)]
pub struct InitOptions<'a> {
    /// Whether names in the registry that no model uses are errors. A registry that does not tell its names passes.
    pub strict: bool,
    /// Called after each weight.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

/// Graphs as programs: how they are computed on a device. Is the start of any number of models. Holds no weights, but for
/// those of the artifact it was read from.
#[derive(Clone)]
pub struct CompiledModel {
    device: Arc<dyn Device>,
    /// What the programs were made from.
    graphs: Vec<Arc<Graph>>,
    programs: Vec<Arc<Program>>,
    stored: Option<Arc<StoredWeights>>,
}

impl InferenceSession {
    /// A session on devices, the preferred first. Doubled ones count once.
    ///
    /// # Errors
    /// If there are none.
    pub fn new(devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Result<InferenceSession, Error> {
        InferenceSession::builder().devices(devices).build()
    }

    /// A session made in steps.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The devices, the preferred first.
    pub fn devices(&self) -> &[Arc<dyn Device>] {
        &self.devices
    }

    /// The libraries of custom ops that all graphs are compiled with.
    pub fn custom_extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// How many threads the host computes with; 0 if it chooses itself.
    pub fn num_threads(&self) -> usize {
        self.num_threads
    }

    /// What to check, log and write while models compile and run.
    pub fn debug(&self) -> &DebugConfig {
        &self.instruments.debug
    }

    /// Compiles a graph, a module, or a file of graph text; or reads an artifact.
    ///
    /// # Errors
    /// If it is malformed, needs a device that is not there, or two graphs share a name. If an artifact was altered, or
    /// made by another version or for a target that is not there.
    pub fn compile<'a>(&self, source: impl Into<Source<'a>>) -> Result<CompiledModel, Error> {
        self.compile_with(source, &CompileOptions::default())
    }

    /// [`InferenceSession::compile`] with options.
    ///
    /// # Errors
    /// As there, and if the options name a pass that does not exist.
    pub fn compile_with<'a>(
        &self,
        source: impl Into<Source<'a>>,
        options: &CompileOptions,
    ) -> Result<CompiledModel, Error> {
        self.compile_by(source.into(), options, &|artifact, extensions| self.read(artifact, extensions))
    }

    /// Binds weights to the one model that was compiled.
    ///
    /// # Errors
    /// If there are several, or a weight is missing or not what the graph expects.
    pub fn init(&self, compiled: &CompiledModel, weights: &dyn WeightsRegistry) -> Result<Model, Error> {
        self.init_with(compiled, weights, InitOptions::default())
    }

    /// [`InferenceSession::init`] with options.
    ///
    /// # Errors
    /// As there, and as the options ask.
    pub fn init_with(
        &self,
        compiled: &CompiledModel,
        weights: &dyn WeightsRegistry,
        options: InitOptions<'_>,
    ) -> Result<Model, Error> {
        let models = self.init_all_with(one_model("init", compiled)?, weights, options)?;
        Ok(models.into_values().next().expect("one program makes one model"))
    }

    /// Binds weights to each model that was compiled. Gives them by name.
    ///
    /// # Errors
    /// If a weight is missing or not what a graph expects.
    pub fn init_all(
        &self,
        compiled: &CompiledModel,
        weights: &dyn WeightsRegistry,
    ) -> Result<BTreeMap<String, Model>, Error> {
        self.init_all_with(compiled, weights, InitOptions::default())
    }

    /// [`InferenceSession::init_all`] with options.
    ///
    /// # Errors
    /// As there, and as the options ask.
    pub fn init_all_with(
        &self,
        compiled: &CompiledModel,
        weights: &dyn WeightsRegistry,
        options: InitOptions<'_>,
    ) -> Result<BTreeMap<String, Model>, Error> {
        if options.strict {
            let unused = bind::unused_names(compiled.programs(), weights);
            if !unused.is_empty() {
                return Err(Error::UnknownWeights { names: unused.join(", ") });
            }
        }
        bind::check_unused(compiled.programs(), weights)?;
        let mut ignore = |_| ();
        let progress = options.progress.unwrap_or(&mut ignore);
        let sources = Sources { registry: weights, stored: compiled.stored.as_deref() };
        let models = compiled.graphs.iter().zip(&compiled.programs).map(|(graph, program)| {
            let bound = bind::bind(program, sources, progress)?;
            let (graph, program) = (Arc::clone(graph), Arc::clone(program));
            Ok((program.name().to_string(), Model::new(graph, program, bound, Arc::clone(&self.instruments))))
        });
        models.collect()
    }

    /// Compiles one graph and binds its weights.
    ///
    /// # Errors
    /// As [`InferenceSession::compile`] and [`InferenceSession::init`].
    pub fn load<'a>(
        &self,
        source: impl Into<Source<'a>>,
        weights: &dyn WeightsRegistry,
    ) -> Result<Model, Error> {
        self.load_with(source, weights, &CompileOptions::default())
    }

    /// [`InferenceSession::load`] with options for the compile.
    ///
    /// # Errors
    /// As there, and as the options ask.
    pub fn load_with<'a>(
        &self,
        source: impl Into<Source<'a>>,
        weights: &dyn WeightsRegistry,
        options: &CompileOptions,
    ) -> Result<Model, Error> {
        let compiled = self.compile_to_bind(source.into(), options)?;
        let models = self.init_all(one_model("load", &compiled)?, weights)?;
        Ok(models.into_values().next().expect("one program makes one model"))
    }

    /// Compiles graphs and binds their weights. Gives the models by name.
    ///
    /// # Errors
    /// As [`InferenceSession::compile`] and [`InferenceSession::init_all`].
    pub fn load_all<'a>(
        &self,
        source: impl Into<Source<'a>>,
        weights: &dyn WeightsRegistry,
    ) -> Result<BTreeMap<String, Model>, Error> {
        self.load_all_with(source, weights, &CompileOptions::default())
    }

    /// [`InferenceSession::load_all`] with options for the compile.
    ///
    /// # Errors
    /// As there, and as the options ask.
    pub fn load_all_with<'a>(
        &self,
        source: impl Into<Source<'a>>,
        weights: &dyn WeightsRegistry,
        options: &CompileOptions,
    ) -> Result<BTreeMap<String, Model>, Error> {
        self.init_all(&self.compile_to_bind(source.into(), options)?, weights)
    }

    /// Compiles what will be bound at once: the weights that an artifact holds are checked while it is lowered.
    fn compile_to_bind(&self, source: Source<'_>, options: &CompileOptions) -> Result<CompiledModel, Error> {
        self.compile_by(source, options, &|artifact, extensions| {
            std::thread::scope(|scope| {
                // Those that are used are asked for again, and then their fault is told.
                scope.spawn(|| artifact.verify());
                self.read(artifact, extensions)
            })
        })
    }

    /// Compiles graphs, or reads them with `read` where they are compiled.
    fn compile_by(
        &self,
        source: Source<'_>,
        options: &CompileOptions,
        read: &dyn Fn(&Artifact, &Extensions) -> Result<CompiledModel, Error>,
    ) -> Result<CompiledModel, Error> {
        if let Some(name) = options.passes.unknown() {
            let known: Vec<&str> = passes::PASSES.iter().map(|pass| pass.name).collect();
            return Err(Error::UnknownPass { name: name.to_string(), known: known.join(", ") });
        }
        let extensions = self.extensions.with(&options.custom_extensions)?;
        let parsed;
        let graphs = match source {
            Source::Graph(graph) => std::slice::from_ref(graph),
            Source::Module(module) => &module.graphs,
            Source::Path(path) if is_artifact(path) => return read(&Artifact::open(path)?, &extensions),
            Source::Path(path) => {
                parsed = read_module(path)?;
                &parsed.graphs
            }
        };
        check_names(graphs)?;
        let settings = self.kernel_settings();
        // Who watches a graph on its way wants it to go that way.
        let watched = self.debug().pre_jit() || self.debug().ir_output_dir().is_some();
        match &self.cache {
            Some(cache) if options.cache == CacheUse::Use && !watched => {
                let device = extensions.used_by(graphs).on(&self.devices[0]);
                let key = cache.key(graphs, &options.passes, &settings, &*device);
                let make = || self.build(graphs, options, &extensions, &settings);
                cache.find_or_make(&key, &|entry| self.read(entry, &extensions), &make)
            }
            _ => self.build(graphs, options, &extensions, &settings),
        }
    }

    fn build(
        &self,
        graphs: &[Graph],
        options: &CompileOptions,
        extensions: &Extensions,
        settings: &KernelSettings,
    ) -> Result<CompiledModel, Error> {
        let located = |error: Error| if settings.source_tracebacks { error.located() } else { error };
        let optimized = graphs.iter().map(|graph| self.optimize(graph, options, extensions, settings));
        let optimized = optimized.collect::<Result<_, _>>().map_err(located)?;
        let device = extensions.used_by(graphs).on(&self.devices[0]);
        let compiled = CompiledModel::lower(device, optimized, settings).map_err(located)?;
        let directory = self.debug().ir_output_dir();
        compiled
            .programs()
            .try_for_each(|program| Dump::new(program.name(), directory.clone()).program(program))?;
        Ok(compiled)
    }

    fn optimize(
        &self,
        graph: &Graph,
        options: &CompileOptions,
        extensions: &Extensions,
        settings: &KernelSettings,
    ) -> Result<Graph, Error> {
        graph.verify()?;
        self.check_devices(graph)?;
        let mut graph = graph.clone();
        extensions.adopt(&mut graph)?;
        let mut dump = Dump::new(graph.name(), self.debug().ir_output_dir());
        dump.graph("input", &graph)?;
        if settings.per_tensor_fp8_quantize {
            passes::quantize_fp8(&mut graph);
            dump.graph("quantize_fp8", &graph)?;
        }
        if settings.split_k_reduction_precision == SplitKReductionPrecision::Output {
            passes::split_products(&mut graph);
            dump.graph("split_products", &graph)?;
        }
        passes::run(&mut graph, &options.passes, &mut |pass, graph| dump.graph(pass, graph))?;
        graph.verify().unwrap_or_else(|error| panic!("passes keep graphs well formed: {error}\n{graph}"));
        if self.debug().pre_jit() {
            return Err(Error::CompilationStopped { graph: graph.name().to_string() });
        }
        Ok(graph)
    }

    /// The compiled model of an artifact.
    fn read(&self, artifact: &Artifact, extensions: &Extensions) -> Result<CompiledModel, Error> {
        let extended: Vec<Arc<dyn Device>> =
            self.devices.iter().map(|device| extensions.on(device)).collect();
        let chosen = artifact.choose(&extended)?;
        let position = extended.iter().position(|device| Arc::ptr_eq(device, chosen));
        let device = &self.devices[position.expect("chosen among these")];
        let (graphs, constants) = artifact.graphs()?;
        check_names(&graphs)?;
        for graph in &graphs {
            graph.verify()?;
            self.check_devices(graph)?;
            extensions.check_all(graph)?;
        }
        let device = extensions.used_by(&graphs).on(device);
        let settings = artifact.settings().watched_as(&self.kernel_settings());
        let compiled = CompiledModel::lower(device, graphs, &settings)?;
        Ok(CompiledModel { stored: artifact.stored_weights(constants)?.map(Arc::new), ..compiled })
    }

    /// Values live in host memory so far, whatever computes them, also in the graphs that nodes run.
    fn check_devices(&self, graph: &Graph) -> Result<(), Error> {
        let regions = graph.nodes().flat_map(|(_, node)| node.op.regions());
        regions.into_iter().try_for_each(|region| self.check_devices(region))?;
        let values =
            graph.nodes().flat_map(|(_, node)| &node.outputs).chain(graph.inputs().iter().map(|i| &i.value));
        match values.copied().find(|&value| graph.ty(value).device != DeviceRef::Cpu) {
            None => Ok(()),
            Some(value) => {
                let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
                let (ty, names) = (graph.ty(value), names.join(", "));
                let message = format!("a value is {ty}, but the session's devices are: {names}");
                Err(Error::compile(graph, graph.node_of(value), message))
            }
        }
    }
}

impl Builder {
    /// Adds a device behind those given before.
    pub fn device(mut self, device: Arc<dyn Device>) -> Builder {
        if !self.devices.iter().any(|other| is_same(other, &device)) {
            self.devices.push(device);
        }
        self
    }

    /// Adds devices behind those given before.
    pub fn devices(self, devices: impl IntoIterator<Item = Arc<dyn Device>>) -> Builder {
        devices.into_iter().fold(self, Builder::device)
    }

    /// Compiles all graphs with libraries of custom ops.
    pub fn custom_extensions(mut self, extensions: Extensions) -> Builder {
        self.extensions = extensions;
        self
    }

    /// How many threads the host computes with; 0 lets it choose.
    pub fn num_threads(mut self, threads: usize) -> Builder {
        self.num_threads = threads;
        self
    }

    /// How to make the host's device, which becomes the last if none of those given is one.
    pub fn host(mut self, make: impl FnOnce(usize) -> Arc<dyn Device> + 'static) -> Builder {
        self.host = Some(Box::new(make));
        self
    }

    /// Keeps what is compiled in a cache. Without one, which is what a session starts with, nothing is written.
    pub fn compile_cache(mut self, cache: impl Into<Option<CompileCache>>) -> Builder {
        self.cache = cache.into();
        self
    }

    /// The session.
    ///
    /// # Errors
    /// If there are no devices, or the environment holds settings that cannot be.
    pub fn build(self) -> Result<InferenceSession, Error> {
        let Builder { mut devices, cache, extensions, num_threads, host } = self;
        for device in devices.iter_mut().filter(|device| num_threads > 0 && device.is_host()) {
            if let Some(other) = device.with_threads(num_threads) {
                *device = other;
            }
        }
        if let Some(make) = host.filter(|_| !devices.iter().any(|device| device.is_host())) {
            devices.push(make(num_threads));
        }
        if devices.is_empty() {
            return Err(Error::NoDevice);
        }
        let settings = Mutex::new(setters::from_environment(&|name| std::env::var(name).ok())?);
        let instruments = Arc::new(Instruments::new()?);
        Ok(InferenceSession { devices, cache, extensions, num_threads, settings, instruments })
    }
}

/// Whether two handles are one device. A machine has one host, whatever its threads.
fn is_same(a: &Arc<dyn Device>, b: &Arc<dyn Device>) -> bool {
    Arc::ptr_eq(a, b) || (a.is_host() && b.is_host() && a.name() == b.name() && a.target() == b.target())
}

impl CompiledModel {
    /// The names of the models.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.programs.iter().map(|program| program.name())
    }

    /// The programs, in the order of the graphs.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        self.programs.iter().map(|program| &**program)
    }

    /// Writes an artifact without weights, see [`Artifact`]. The file is there whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn export_mef(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.export_mef_with(path, ExportOptions::default())
    }

    /// [`CompiledModel::export_mef`] with options, such as weights to pack and store.
    ///
    /// # Errors
    /// As there, if a weight is missing or not what the graph expects, or the device stores no packed weights.
    pub fn export_mef_with(&self, path: impl AsRef<Path>, options: ExportOptions<'_>) -> Result<(), Error> {
        artifact::export(path.as_ref(), &self.contents(options.key), self.stored.as_deref(), options)
    }

    /// What an artifact holds of it.
    pub(crate) fn contents<'a>(&'a self, key: &'a str) -> artifact::Contents<'a> {
        let models = self.graphs.iter().zip(&self.programs).map(|(graph, program)| (&**graph, &**program));
        artifact::Contents { device: &*self.device, key, models: models.collect() }
    }

    /// The compiled model of verified graphs, after the passes.
    fn lower(
        device: Arc<dyn Device>,
        graphs: Vec<Graph>,
        settings: &KernelSettings,
    ) -> Result<CompiledModel, Error> {
        let programs =
            graphs.iter().map(|graph| Program::new(graph, Arc::clone(&device), settings).map(Arc::new));
        let programs = programs.collect::<Result<_, _>>()?;
        let graphs = graphs.into_iter().map(Arc::new).collect();
        Ok(CompiledModel { device, graphs, programs, stored: None })
    }
}

impl fmt::Debug for InferenceSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
        write!(f, "InferenceSession({}", names.join(", "))?;
        match self.num_threads {
            0 => f.write_str(")"),
            threads => write!(f, ", num_threads = {threads})"),
        }
    }
}

impl fmt::Display for CompiledModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.programs.iter().try_for_each(|program| program.fmt(f))
    }
}

impl fmt::Debug for CompiledModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompiledModel({})", self.names().collect::<Vec<_>>().join(", "))
    }
}

fn one_model<'c>(call: &'static str, compiled: &'c CompiledModel) -> Result<&'c CompiledModel, Error> {
    match compiled.programs.len() {
        1 => Ok(compiled),
        count => Err(Error::NotOneModel { call, count }),
    }
}

fn check_names(graphs: &[Graph]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    match graphs.iter().find(|graph| !names.insert(graph.name())) {
        None => Ok(()),
        Some(graph) => Err(Error::DuplicateModel { name: graph.name().to_string() }),
    }
}

/// Whether a file is, or says it is, an artifact.
fn is_artifact(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "mef") || Artifact::is_one(path)
}

fn read_module(path: &Path) -> Result<Module, Error> {
    let fail = |message: String| Error::File { path: path.to_path_buf(), message };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph") => {
            let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            Module::parse(&text).map_err(|error| fail(error.to_string()))
        }
        _ => Err(fail("expected a file of graph text (.graph) or of compiled models (.mef)".to_string())),
    }
}

impl<'a> From<&'a Graph> for Source<'a> {
    fn from(graph: &'a Graph) -> Source<'a> {
        Source::Graph(graph)
    }
}

impl<'a> From<&'a Module> for Source<'a> {
    fn from(module: &'a Module) -> Source<'a> {
        Source::Module(module)
    }
}

impl<'a> From<&'a Path> for Source<'a> {
    fn from(path: &'a Path) -> Source<'a> {
        Source::Path(path)
    }
}

impl<'a> From<&'a std::path::PathBuf> for Source<'a> {
    fn from(path: &'a std::path::PathBuf) -> Source<'a> {
        Source::Path(path)
    }
}

impl<'a> From<&'a str> for Source<'a> {
    fn from(path: &'a str) -> Source<'a> {
        Source::Path(Path::new(path))
    }
}

#[cfg(test)]
mod tests {
    use graph::Type;
    use tensor::{Buffer, DType};

    use super::*;
    use crate::testing::{TestDevice, build, f32, session};

    fn named(name: &str) -> Graph {
        build(name, |b| {
            let x = b.input("x", f32(&["n"]));
            Ok(vec![b.add(x, x)?])
        })
    }

    fn message<T>(result: Result<T, Error>) -> String {
        result.err().expect("an error").to_string()
    }

    #[test]
    fn modules_hold_several_models() {
        let session = session();
        let module = Module { graphs: vec![named("a"), named("b")] };
        let models = session.load_all(&module, &()).unwrap();
        assert_eq!(models.keys().collect::<Vec<_>>(), ["a", "b"]);
        let y = models["b"].execute(&[Buffer::from_slice([1], &[2f32])]).unwrap();
        assert_eq!(y[0].to_vec::<f32>(), [4.0]);
        let several = "makes one model, but 2 were compiled; use";
        assert_eq!(message(session.load(&module, &())), format!("`load` {several} `load_all`"));
        let compiled = session.compile(&module).unwrap();
        assert_eq!(compiled.names().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(message(session.init(&compiled, &())), format!("`init` {several} `init_all`"));
        let doubled = Module { graphs: vec![named("a"), named("a")] };
        let expected = "two models are named `a`, but models are found by their names";
        assert_eq!(message(session.compile(&doubled)), expected);
        assert!(session.load_all(&Module::default(), &()).unwrap().is_empty());
    }

    #[test]
    fn a_compiled_model_is_the_start_of_many() {
        let session = session();
        let graph = build("g", |b| {
            let x = b.input("x", f32(&["2"]));
            let w = b.weight("w", f32(&["2"]))?;
            Ok(vec![b.add(x, w)?])
        });
        let compiled = session.compile(&graph).unwrap();
        let models = [1f32, 2.0].map(|value| {
            let weight = tensor::Tensor::from_slice([2], &[value; 2]);
            session.init(&compiled, &move |_: &str| Some(weight.clone())).unwrap()
        });
        for (model, expected) in models.iter().zip([1f32, 2.0]) {
            let y = model.execute(&[Buffer::zeros(DType::F32, [2])]).unwrap();
            assert_eq!(y[0].to_vec::<f32>(), [expected; 2]);
        }
    }

    #[test]
    fn devices_count_once() {
        let device: Arc<dyn Device> = Arc::new(TestDevice);
        let session = InferenceSession::new([Arc::clone(&device), device]).unwrap();
        assert_eq!(session.devices().len(), 1);
        assert_eq!(
            message(InferenceSession::new([])),
            "an inference session needs at least one device, got none"
        );
        let mut graph = Graph::new("far");
        let x = graph.input("x", Type { device: DeviceRef::Gpu(0), ..f32(&["2"]) });
        graph.set_outputs(&[x]);
        let expected = "compiling `far`: a value is f32[2] @gpu:0, but the session's devices are: test";
        assert_eq!(message(session.compile(&graph)), expected);
    }

    #[test]
    fn what_is_elsewhere_is_found_in_graphs_within_and_told_by_its_place() {
        let session = session();
        let far = || Type { device: DeviceRef::Gpu(0), ..f32(&["2"]) };
        let mut line = 0;
        let graph = build("g", |b| {
            let (p, x) = (b.input("p", Type::new(DType::Bool, graph::dims![])), b.input("x", f32(&["2"])));
            let then = |b: &mut graph::Builder, x: &[graph::Value]| {
                line = line!() + 1;
                b.weight("far", far())?;
                Ok(x.to_vec())
            };
            b.cond(p, &[x], then, |_, x| Ok(x.to_vec()))
        });
        let expected = "compiling `then`: a value is f32[2] @gpu:0, but the session's devices are: test";
        assert_eq!(message(session.compile(&graph)), expected);
        session.debug().set_source_tracebacks(true);
        let error = message(session.compile(&graph));
        let place = format!("{expected} (built at {}:{line}:", file!());
        assert!(error.starts_with(&place), "{error}");
    }

    #[test]
    fn graph_text_is_read_from_files() {
        let path = std::env::temp_dir().join(format!("perihelion-engine-{}.graph", std::process::id()));
        std::fs::write(&path, named("a").to_string() + &named("b").to_string()).unwrap();
        let compiled = session().compile(&path);
        std::fs::write(&path, "graph g(").unwrap();
        let error = message(session().compile(&path));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(compiled.unwrap().names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(error.starts_with(&format!("reading {}: line 1: ", path.display())), "{error}");
    }

    #[test]
    fn files_that_hold_no_graph_are_named() {
        let session = session();
        let check = |path: &str, expected: &str| assert_eq!(message(session.compile(path)), expected);
        check("a.mef", "reading a.mef: No such file or directory (os error 2)");
        check("a.txt", "reading a.txt: expected a file of graph text (.graph) or of compiled models (.mef)");
        assert!(message(session.compile("no/such.graph")).starts_with("reading no/such.graph: "));
    }

    #[test]
    fn types_cross_threads() {
        fn sent<T: Send + Sync>() {}
        sent::<InferenceSession>();
        sent::<CompiledModel>();
        sent::<Model>();
    }
}
