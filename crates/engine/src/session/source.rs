//! What can be compiled: graphs, modules, and files of either or of compiled models.

use std::path::Path;

use graph::{Graph, Module};

use crate::{Artifact, Error};

/// What can be compiled.
#[derive(Debug, Clone, Copy)]
pub enum GraphSource<'a> {
    /// One graph.
    Graph(&'a Graph),
    /// Several graphs.
    Module(&'a Module),
    /// A file of graph text (`.graph`), with one graph or several; or of compiled models (`.mef`), see [`Artifact`].
    Path(&'a Path),
}

impl<'a> From<&'a Graph> for GraphSource<'a> {
    fn from(graph: &'a Graph) -> GraphSource<'a> {
        GraphSource::Graph(graph)
    }
}

impl<'a> From<&'a Module> for GraphSource<'a> {
    fn from(module: &'a Module) -> GraphSource<'a> {
        GraphSource::Module(module)
    }
}

impl<'a> From<&'a Path> for GraphSource<'a> {
    fn from(path: &'a Path) -> GraphSource<'a> {
        GraphSource::Path(path)
    }
}

impl<'a> From<&'a std::path::PathBuf> for GraphSource<'a> {
    fn from(path: &'a std::path::PathBuf) -> GraphSource<'a> {
        GraphSource::Path(path)
    }
}

impl<'a> From<&'a str> for GraphSource<'a> {
    fn from(path: &'a str) -> GraphSource<'a> {
        GraphSource::Path(Path::new(path))
    }
}

/// Whether a file is, or says it is, an artifact.
pub(super) fn is_artifact(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "mef") || Artifact::is_one(path)
}

/// The graphs of a file of graph text.
pub(super) fn read_module(path: &Path) -> Result<Module, Error> {
    let fail = |message: String| Error::File { path: path.to_path_buf(), message };
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("graph") => {
            let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            Module::parse(&text).map_err(|error| fail(error.to_string()))
        }
        _ => Err(fail("expected a file of graph text (.graph) or of compiled models (.mef)".to_string())),
    }
}
