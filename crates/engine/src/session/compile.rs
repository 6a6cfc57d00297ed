//! Graphs become programs: checked, optimized and lowered, or found in the cache; or read from an artifact.

use std::collections::BTreeSet;
use std::sync::Arc;

use graph::{DeviceRef, Graph, Op};
use tensor::MAX_RANK;

use super::source::{is_artifact, read_module};
use super::{GraphSource, InferenceSession};
use crate::artifact::{Artifact, StoredWeights};
use crate::custom::Extensions;
use crate::debug::dump::Dump;
use crate::passes::{self, Passes};
use crate::place::{Devices, Placement, device_ref};
use crate::{CompiledModel, Device, Error, KernelSettings, Reproducible, Target};

/// Reads an artifact, for the first of some devices that can run it.
pub(super) type ReadArtifact<'a> =
    dyn Fn(&Artifact, &Extensions, &[Arc<dyn Device>]) -> Result<CompiledModel, Error> + 'a;

/// How to compile.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// Which passes run. They have run already on what an artifact holds.
    pub passes: Passes,
    /// Whether the session's compile cache is used.
    pub cache: CacheUse,
    /// Libraries of custom ops, besides those of the session.
    pub custom_extensions: Extensions,
    /// Where models compute the same bits, if not where the session says. Artifacts have a setting of their own.
    pub reproducible: Option<Reproducible>,
    /// Whether quantized weights are multiplied with activations as they are, if not as the session says. Artifacts have a
    /// setting of their own.
    pub exact_activations: Option<bool>,
    /// The kind of machine to compile for, attached or not; `None` is the session's preferred device. What is compiled for a
    /// machine that is not here can be printed and exported, with weights too. An artifact is read as such a machine would.
    pub target: Option<Target>,
    /// Where nodes run, if the session has a device with memory of its own. Artifacts do not hold it.
    pub placement: Placement,
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

impl InferenceSession {
    /// Compiles a graph, a module, or a file of graph text; or reads an artifact.
    ///
    /// # Errors
    /// If it is malformed, needs a device that is not there, or two graphs share a name. If an artifact was altered, or
    /// made by another version or for a target that is not there.
    pub fn compile<'a>(&self, source: impl Into<GraphSource<'a>>) -> Result<CompiledModel, Error> {
        self.compile_with(source, &CompileOptions::default())
    }

    /// [`InferenceSession::compile`] with options.
    ///
    /// # Errors
    /// As [`InferenceSession::compile`], and if the options name a pass that does not exist.
    pub fn compile_with<'a>(
        &self,
        source: impl Into<GraphSource<'a>>,
        options: &CompileOptions,
    ) -> Result<CompiledModel, Error> {
        self.compile_by(source.into(), options, &|artifact, extensions, devices| {
            self.read(artifact, extensions, devices, options.placement)
        })
    }

    /// Compiles graphs, or reads them with `read` where they are compiled.
    pub(super) fn compile_by(
        &self,
        source: GraphSource<'_>,
        options: &CompileOptions,
        read: &ReadArtifact<'_>,
    ) -> Result<CompiledModel, Error> {
        if let Some(name) = options.passes.unknown() {
            let known: Vec<&str> = passes::PASSES.iter().map(|pass| pass.name).collect();
            return Err(Error::UnknownPass { name: name.to_string(), known: known.join(", ") });
        }
        let extensions = self.extensions.with(&options.custom_extensions)?;
        let chosen = options.target.as_ref().map(|target| self.device_for(target)).transpose()?;
        let devices = chosen.as_ref().map_or(&self.devices[..], std::slice::from_ref);
        let parsed;
        let graphs = match source {
            GraphSource::Graph(graph) => std::slice::from_ref(graph),
            GraphSource::Module(module) => &module.graphs,
            GraphSource::Path(path) if is_artifact(path) => {
                return read(&Artifact::open(path)?, &extensions, devices);
            }
            GraphSource::Path(path) => {
                parsed = read_module(path)?;
                &parsed.graphs
            }
        };
        check_names(graphs)?;
        let mut settings = self.kernel_settings();
        settings.reproducible = options.reproducible.unwrap_or(settings.reproducible);
        settings.exact_activations = options.exact_activations.unwrap_or(settings.exact_activations);
        // Who watches a graph on its way wants it to go that way; and entries do not know where nodes were made.
        let watched = self.debug().pre_jit() || self.debug().ir_output_dir().is_some();
        let watched = watched || settings.source_tracebacks;
        match &self.cache {
            Some(cache) if options.cache == CacheUse::Use && !watched && cache.takes(graphs) => {
                let device = extensions.used_by(graphs).on(host(devices), settings.assert_level);
                let key = cache.key(graphs, &options.passes, &settings, &*device);
                let read = |entry: &Artifact| self.read(entry, &extensions, devices, options.placement);
                let make = || self.build(graphs, devices, options, &extensions, &settings);
                cache.find_or_make(&key, &read, &make)
            }
            _ => self.build(graphs, devices, options, &extensions, &settings),
        }
    }

    /// What compiles for a target: see [`Device::for_target`].
    ///
    /// # Errors
    /// If none of the session's devices knows it, with the targets that they know.
    pub fn device_for(&self, target: &Target) -> Result<Arc<dyn Device>, Error> {
        let found = self.devices.iter().find_map(|device| device.for_target(target));
        found.ok_or_else(|| {
            let known = self.devices.iter().flat_map(|device| device.targets());
            let known: Vec<String> = known.map(|target| target.to_string()).collect();
            let expected = match known.is_empty() {
                true => "none: the session's devices compile for themselves alone".to_string(),
                false => format!("one of {}; accelerators are compiled for where they are", known.join(", ")),
            };
            Error::setting("target", &target.to_string(), &expected)
        })
    }

    fn build(
        &self,
        graphs: &[Graph],
        devices: &[Arc<dyn Device>],
        options: &CompileOptions,
        extensions: &Extensions,
        settings: &KernelSettings,
    ) -> Result<CompiledModel, Error> {
        let located = |error: Error| if settings.source_tracebacks { error.located() } else { error };
        let optimized = graphs.iter().map(|graph| self.optimize(graph, options, extensions, settings));
        let optimized = optimized.collect::<Result<_, _>>().map_err(located)?;
        let host = extensions.used_by(graphs).on(host(devices), settings.assert_level);
        let devices = Devices { host, far: far(devices), placement: options.placement };
        let compiled = CompiledModel::lower(devices, optimized, settings).map_err(located)?;
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
        self.check_types(graph)?;
        check_constants(graph)?;
        let mut graph = graph.clone();
        extensions.adopt(&mut graph)?;
        let mut dump = Dump::new(graph.name(), self.debug().ir_output_dir());
        dump.graph("input", &graph)?;
        passes::run(&mut graph, &options.passes, settings, &mut |pass, graph| dump.graph(pass, graph))?;
        graph.verify().unwrap_or_else(|error| panic!("passes keep graphs well formed: {error}\n{graph}"));
        if self.debug().pre_jit() {
            return Err(Error::CompilationStopped { graph: graph.name().to_string() });
        }
        Ok(graph)
    }

    /// Reads the compiled model of an artifact for the first of the devices that can run it, its nodes placed as compiled ones
    /// are.
    pub(super) fn read(
        &self,
        artifact: &Artifact,
        extensions: &Extensions,
        devices: &[Arc<dyn Device>],
        placement: Placement,
    ) -> Result<CompiledModel, Error> {
        let device = artifact.choose(devices, extensions)?;
        let (graphs, constants) = artifact.graphs()?;
        check_names(&graphs)?;
        for graph in &graphs {
            graph.verify()?;
            self.check_types(graph)?;
            extensions.check_all(graph)?;
        }
        let settings = artifact.settings().watched_as(&self.kernel_settings());
        let extensions = extensions.used_by(&graphs);
        let on = |device: &Arc<dyn Device>| extensions.on(device, settings.assert_level);
        let stored = StoredWeights::of(artifact, constants)?.map(Arc::new);
        let devices = Devices { host: on(device), far: far(devices), placement };
        let mut compiled = CompiledModel::lower(devices, graphs, &settings)?;
        if stored
            .as_ref()
            .is_some_and(|stored| compiled.programs().any(|program| stored.lacks_layouts(program)))
        {
            // Kernels of a larger instruction set want other layouts than those that the file holds.
            if let Some(smaller) = artifact.smallest(device) {
                compiled = compiled.lowered_for(on(&smaller), &settings)?;
            }
        }
        Ok(CompiledModel { stored, ..compiled })
    }

    /// Values live on devices of the session and have few axes, also in the graphs that nodes run.
    fn check_types(&self, graph: &Graph) -> Result<(), Error> {
        let regions = graph.nodes().flat_map(|(_, node)| node.op.regions());
        regions.into_iter().try_for_each(|region| self.check_types(region))?;
        let results = graph.nodes().flat_map(|(_, node)| node.outputs.iter().copied());
        for value in graph.inputs().iter().map(|input| input.value).chain(results) {
            let ty = graph.ty(value);
            let is_here =
                |device: &Arc<dyn Device>| device.far().is_some() && device_ref(device.spec()) == ty.device;
            let fault = if ty.device != DeviceRef::Cpu && !self.devices.iter().any(is_here) {
                let names: Vec<&str> = self.devices.iter().map(|device| device.name()).collect();
                let names = names.join(", ");
                format!("but the session's devices are: {names}")
            } else if ty.rank() > MAX_RANK {
                format!("which has {} axes; programs that run have at most {MAX_RANK}", ty.rank())
            } else if let Some(elements) = ty.partial_block() {
                format!(
                    "whose last axis is no multiple of {elements}, so that it does not fill whole bytes: cast it"
                )
            } else {
                continue;
            };
            let message = format!("a value is {ty}, {fault}");
            return Err(Error::compile(graph, graph.node_of(value), message));
        }
        Ok(())
    }
}

/// The device that computes whatever no other one does.
pub(super) fn host(devices: &[Arc<dyn Device>]) -> &Arc<dyn Device> {
    devices.iter().find(|device| device.far().is_none()).unwrap_or(&devices[0])
}

/// The devices with memory of their own.
fn far(devices: &[Arc<dyn Device>]) -> Vec<Arc<dyn Device>> {
    devices.iter().filter(|device| device.far().is_some()).cloned().collect()
}

/// Refuses constants that do not fit into memory: views that repeat elements can be of any size.
fn check_constants(graph: &Graph) -> Result<(), Error> {
    for (_, node) in graph.nodes() {
        if let Op::Constant(constant) = &node.op {
            constant.value.0.try_contiguous()?;
        }
        node.op.regions().into_iter().try_for_each(|region| check_constants(region))?;
    }
    Ok(())
}

fn check_names(graphs: &[Graph]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    match graphs.iter().find(|graph| !names.insert(graph.name())) {
        None => Ok(()),
        Some(graph) => Err(Error::DuplicateModel { name: graph.name().to_string() }),
    }
}
