//! What compiling makes: programs for a device, and the start of any number of models.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use graph::Graph;

use crate::artifact::StoredWeights;
use crate::export::{self, ExportOptions};
use crate::place::Devices;
use crate::{Device, Error, KernelSettings, Program};

/// Graphs as programs: how they are computed on a device. Is the start of any number of models. Holds no weights, but for
/// those of the artifact it was read from.
#[derive(Clone)]
pub struct CompiledModel {
    pub(crate) devices: Devices,
    /// What the programs were made from.
    pub(crate) graphs: Vec<Arc<Graph>>,
    pub(crate) programs: Vec<Arc<Program>>,
    pub(crate) stored: Option<Arc<StoredWeights>>,
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

    /// The kind of machine that it was compiled for, as artifacts state it: of CPUs the text of a [`Target`](crate::Target),
    /// and the names of extensions that it needs.
    pub fn target(&self) -> String {
        self.devices.host.target()
    }

    /// Writes an artifact without weights, see [`Artifact`](crate::Artifact). The file is there whole or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn export_mef(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.export_mef_with(path, ExportOptions::default())
    }

    /// [`CompiledModel::export_mef`] with options, such as weights to pack and store.
    ///
    /// # Errors
    /// As [`CompiledModel::export_mef`], if a weight is missing or not what the graph expects, or the device stores no packed weights.
    pub fn export_mef_with(&self, path: impl AsRef<Path>, options: ExportOptions<'_>) -> Result<(), Error> {
        export::export(path.as_ref(), &self.contents(options.key), self.stored.as_deref(), options)
    }

    /// What an artifact holds of it.
    pub(crate) fn contents<'a>(&'a self, key: &'a str) -> export::Contents<'a> {
        let models = self.graphs.iter().zip(&self.programs).map(|(graph, program)| (&**graph, &**program));
        export::Contents { device: &*self.devices.host, key, models: models.collect() }
    }

    /// The compiled model of verified graphs, after the passes.
    pub(crate) fn lower(
        devices: Devices,
        graphs: Vec<Graph>,
        settings: &KernelSettings,
    ) -> Result<CompiledModel, Error> {
        let programs =
            graphs.iter().map(|graph| Program::new(graph, devices.clone(), settings).map(Arc::new));
        let programs = programs.collect::<Result<_, _>>()?;
        let graphs = graphs.into_iter().map(Arc::new).collect();
        Ok(CompiledModel { devices, graphs, programs, stored: None })
    }

    /// Lowers the same graphs for another host.
    pub(crate) fn lowered_for(
        self,
        host: Arc<dyn Device>,
        settings: &KernelSettings,
    ) -> Result<CompiledModel, Error> {
        let devices = Devices { host, ..self.devices };
        let lower = |graph: &Arc<Graph>| Program::new(graph, devices.clone(), settings).map(Arc::new);
        let programs = self.graphs.iter().map(lower).collect::<Result<_, _>>()?;
        Ok(CompiledModel { devices, programs, ..self })
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
