//! Weights are bound: compiled models become models.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::InferenceSession;
use crate::bind::{self, Progress, Sources};
use crate::{CompiledModel, Device, Error, Model, WeightsRegistry};

/// How to bind weights.
#[derive(Default)]
pub struct InitOptions<'a> {
    /// Whether names in the registry that no model uses are errors. A registry that does not tell its names passes.
    pub strict: bool,
    /// Called after each weight.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

impl InferenceSession {
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
    /// As [`InferenceSession::init`], and if `strict` is set and the registry has unused names.
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

    fn init_all_with(
        &self,
        compiled: &CompiledModel,
        weights: &dyn WeightsRegistry,
        options: InitOptions<'_>,
    ) -> Result<BTreeMap<String, Model>, Error> {
        if !compiled.devices.host.is_compatible() {
            let describe = |device: &Arc<dyn Device>| format!("{} ({})", device.name(), device.target());
            return Err(Error::Elsewhere {
                found: describe(&compiled.devices.host),
                available: self.devices.iter().map(describe).collect::<Vec<_>>().join(", "),
            });
        }
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
}

pub(super) fn one_model<'c>(
    call: &'static str,
    compiled: &'c CompiledModel,
) -> Result<&'c CompiledModel, Error> {
    match compiled.programs.len() {
        1 => Ok(compiled),
        count => Err(Error::NotOneModel { call, count }),
    }
}
