//! Compiling and binding in one call.

use std::collections::BTreeMap;

use super::init::one_model;
use super::{CompileOptions, GraphSource, InferenceSession};
use crate::{CompiledModel, Error, Model, WeightsRegistry};

impl InferenceSession {
    /// Compiles one graph and binds its weights.
    ///
    /// # Errors
    /// As [`InferenceSession::compile`] and [`InferenceSession::init`].
    pub fn load<'a>(
        &self,
        source: impl Into<GraphSource<'a>>,
        weights: &dyn WeightsRegistry,
    ) -> Result<Model, Error> {
        self.load_with(source, weights, &CompileOptions::default())
    }

    /// [`InferenceSession::load`] with options for the compile.
    ///
    /// # Errors
    /// As [`InferenceSession::load`], and if the options are invalid.
    pub fn load_with<'a>(
        &self,
        source: impl Into<GraphSource<'a>>,
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
        source: impl Into<GraphSource<'a>>,
        weights: &dyn WeightsRegistry,
    ) -> Result<BTreeMap<String, Model>, Error> {
        self.load_all_with(source, weights, &CompileOptions::default())
    }

    /// [`InferenceSession::load_all`] with options for the compile.
    ///
    /// # Errors
    /// As [`InferenceSession::load_all`], and if the options are invalid.
    pub fn load_all_with<'a>(
        &self,
        source: impl Into<GraphSource<'a>>,
        weights: &dyn WeightsRegistry,
        options: &CompileOptions,
    ) -> Result<BTreeMap<String, Model>, Error> {
        self.init_all(&self.compile_to_bind(source.into(), options)?, weights)
    }

    /// Compiles what will be bound at once: the weights that an artifact holds are checked while it is lowered.
    fn compile_to_bind(
        &self,
        source: GraphSource<'_>,
        options: &CompileOptions,
    ) -> Result<CompiledModel, Error> {
        self.compile_by(source, options, &|artifact, extensions, devices| {
            std::thread::scope(|scope| {
                // Those that are used are asked for again, and then their fault is told.
                scope.spawn(|| artifact.verify());
                self.read(artifact, extensions, devices, options.placement)
            })
        })
    }
}
