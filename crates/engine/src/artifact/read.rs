//! Artifacts into graphs and weights.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use graph::Graph;
use graph::ops::CustomOps;
use tensor::Bytes;

use super::container::{self, Header, MAGIC, SourceRecord, maker};
use crate::custom::{self, Extensions};
use crate::{ArtifactFault, Device, Error, KernelSettings};

/// A file of compiled models, mapped into memory. Clones share the mapping.
///
/// Overwriting the file in place, rather than replacing it as an export does, is an error of the calls of its models.
#[derive(Clone)]
pub struct Artifact {
    shared: Arc<MappedArtifact>,
}

struct MappedArtifact {
    path: PathBuf,
    file: Bytes,
    header: Header,
    /// The sections that were found to be what was written.
    verified: Vec<AtomicBool>,
}

/// A compiled graph in an artifact.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ArtifactModel<'a> {
    /// The graph's name.
    pub name: &'a str,
    /// Bytes of its text.
    pub text: usize,
    /// How many constants are kept apart from the text, and their bytes.
    pub constants: usize,
    /// Bytes of these constants.
    pub constant_bytes: usize,
}

/// A weight in an artifact.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ArtifactWeight<'a> {
    /// Its name in the registry, or `None` for a constant of a graph.
    pub name: Option<&'a str>,
    /// Its type in the graph.
    pub ty: &'a str,
    /// The device's layout, if not as graphs describe it.
    pub layout: Option<&'a str>,
    /// Bytes it takes.
    pub bytes: usize,
}

impl Artifact {
    /// Maps an artifact and checks its header. What the header names is checked when it is used.
    ///
    /// # Errors
    /// If the file cannot be read, is something else, was cut off, or its header was altered.
    pub fn open(path: &Path) -> Result<Artifact, Error> {
        let unreadable = |error: io::Error| match error.kind() {
            io::ErrorKind::OutOfMemory => {
                let bytes = path.metadata().map_or(0, |metadata| metadata.len() as usize);
                Error::OutOfMemory { what: format!("mapping {}", path.display()), bytes }
            }
            _ => Error::File { path: path.into(), message: error.to_string() },
        };
        let file = Bytes::map(path).map_err(unreadable)?;
        let header =
            container::read(&file).map_err(|fault| Error::Artifact { path: path.to_path_buf(), fault })?;
        let verified = header.sections.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Artifact { shared: Arc::new(MappedArtifact { path: path.to_path_buf(), file, header, verified }) })
    }

    /// Whether a file begins as an artifact does.
    pub(crate) fn is_one(path: &Path) -> bool {
        use io::Read;
        let mut head = [0; MAGIC.len()];
        let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
        is_file
            && std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut head).is_ok())
            && head == MAGIC
    }

    /// The crate that made it, and its version.
    pub fn maker(&self) -> &str {
        &self.header().maker
    }

    /// The name of the device that it was compiled for.
    pub fn device(&self) -> &str {
        &self.header().device
    }

    /// What it needs of the device, such as an instruction set.
    pub fn target(&self) -> &str {
        &self.header().target
    }

    /// What the session that compiled it was set to.
    pub fn settings(&self) -> &KernelSettings {
        &self.header().settings
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> usize {
        self.shared.file.len()
    }

    /// How many parts the file has: texts, constants and weights, those that are equal counted once.
    pub fn sections(&self) -> usize {
        self.header().sections.len()
    }

    /// The models, in the order they were compiled.
    pub fn models(&self) -> impl Iterator<Item = ArtifactModel<'_>> {
        self.header().models.iter().map(|model| ArtifactModel {
            name: &model.name,
            text: self.section(model.graph).len(),
            constants: model.constants.len(),
            constant_bytes: model.constants.iter().map(|&section| self.section(section).len()).sum(),
        })
    }

    /// The weights, each in one layout.
    pub fn weights(&self) -> impl Iterator<Item = ArtifactWeight<'_>> {
        self.header().weights.iter().map(|weight| ArtifactWeight {
            name: match &weight.source {
                SourceRecord::Named(name) => Some(name),
                SourceRecord::Constant(_) => None,
            },
            ty: &weight.ty,
            layout: weight.layout.as_deref(),
            bytes: self.section(weight.section).len(),
        })
    }

    /// Checks that every byte is what was written. Loading checks what it uses by itself.
    ///
    /// # Errors
    /// The first part that was altered.
    pub fn verify(&self) -> Result<(), Error> {
        self.verify_sections(&(0..self.header().sections.len() as u32).collect::<Vec<_>>())
    }

    /// The graphs as the passes left them, and the address and section of each constant.
    pub(crate) fn graphs(&self) -> Result<(Vec<Graph>, HashMap<usize, u32>), Error> {
        let models = &self.header().models;
        let sections = models.iter().flat_map(|model| model.constants.iter().chain([&model.graph]));
        self.verify_sections(&sections.copied().collect::<Vec<_>>())?;
        let mut constants = HashMap::new();
        let graphs = models.iter().map(|model| {
            let detached: Vec<Bytes> = model.constants.iter().map(|&section| self.section(section)).collect();
            let addresses = detached.iter().map(|bytes| bytes.as_ptr().addr());
            constants.extend(addresses.zip(model.constants.iter().copied()));
            let malformed =
                |message: String| ArtifactFault::Malformed(format!("graph `{}`: {message}", model.name));
            let text = self.section(model.graph);
            let text = std::str::from_utf8(&text).map_err(|error| malformed(error.to_string()))?;
            let graph =
                Graph::parse_detached(text, &detached).map_err(|error| malformed(error.to_string()))?;
            if graph.name() == model.name {
                Ok(graph)
            } else {
                Err(malformed(format!("its text is of `{}`", graph.name())))
            }
        });
        let graphs = graphs.collect::<Result<_, _>>().map_err(|fault| self.fault(fault))?;
        Ok((graphs, constants))
    }

    /// The device among some that it runs on, with the ops of some extensions.
    pub(crate) fn choose<'d>(
        &self,
        devices: &'d [Arc<dyn Device>],
        extensions: &Extensions,
    ) -> Result<&'d Arc<dyn Device>, Error> {
        let Header { maker: made_by, device, target, .. } = self.header();
        if *made_by != maker() {
            return Err(self.fault(ArtifactFault::Maker { found: made_by.clone(), expected: maker() }));
        }
        let (target, needed) = custom::split_target(target);
        let runs = |other: &&Arc<dyn Device>| other.name() == device && other.runs_target(target);
        let chosen = devices.iter().find(runs).ok_or_else(|| {
            let describe = |device: &Arc<dyn Device>| format!("{} ({})", device.name(), device.target());
            let available = devices.iter().map(describe).collect::<Vec<_>>().join(", ");
            self.fault(ArtifactFault::Target { found: format!("{device} ({target})"), available })
        })?;
        let known = extensions.searched();
        let is_missing = |needed: &&str| known.iter().all(|known| known != needed);
        let missing: Vec<&str> = needed.into_iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(chosen);
        }
        let available = if known.is_empty() { "none".to_string() } else { known.join(", ") };
        Err(self.fault(ArtifactFault::Extensions { missing: missing.join(", "), available }))
    }

    /// A device kept to what the one has that the artifact was made for; `None` if it cannot be.
    pub(crate) fn smallest(&self, device: &Arc<dyn Device>) -> Option<Arc<dyn Device>> {
        device.for_target(&custom::split_target(self.target()).0.parse().ok()?)
    }

    /// The bytes of [`ExportOptions::attachment`](crate::ExportOptions::attachment), if the exporter gave any.
    ///
    /// # Errors
    /// If it was altered.
    pub fn attachment(&self) -> Result<Option<Bytes>, Error> {
        let Some(section) = self.header().attachment else { return Ok(None) };
        self.verify_sections(&[section])?;
        Ok(Some(self.section(section)))
    }

    /// What it is told apart by, as it was exported; of an entry of a compile cache, its key; else empty.
    pub fn key(&self) -> &str {
        &self.header().key
    }

    pub(super) fn verify_sections(&self, sections: &[u32]) -> Result<(), Error> {
        let verified = |&section: &u32| &self.shared.verified[section as usize];
        let unknown: Vec<u32> =
            sections.iter().copied().filter(|section| !verified(section).load(Ordering::Relaxed)).collect();
        match container::first_altered(&self.shared.file, self.header(), &unknown) {
            Some(section) => Err(self.fault(ArtifactFault::Altered { section: self.describe(section) })),
            None => {
                unknown.iter().for_each(|section| verified(section).store(true, Ordering::Relaxed));
                Ok(())
            }
        }
    }

    /// What a section holds, in words.
    fn describe(&self, section: u32) -> String {
        if self.header().attachment == Some(section) {
            return "the attachment".to_string();
        }
        for model in &self.header().models {
            if model.graph == section {
                return format!("the text of graph `{}`", model.name);
            }
            if let Some(index) = model.constants.iter().position(|&other| other == section) {
                return format!("constant @{index} of graph `{}`", model.name);
            }
        }
        let weight = self.header().weights.iter().find(|weight| weight.section == section);
        match weight.map(|weight| (&weight.source, weight.layout.as_deref().unwrap_or(&weight.ty))) {
            Some((SourceRecord::Named(name), form)) => format!("weight `{name}` ({form})"),
            Some((SourceRecord::Constant(_), form)) => format!("a constant ({form})"),
            None => format!("section {section}"),
        }
    }

    pub(super) fn header(&self) -> &Header {
        &self.shared.header
    }

    /// The bytes of a section, where they lie.
    pub(super) fn section(&self, section: u32) -> Bytes {
        let range = self.header().sections[section as usize].range();
        self.shared.file.slice(range).expect("the header was checked")
    }

    pub(super) fn fault(&self, fault: ArtifactFault) -> Error {
        Error::Artifact { path: self.shared.path.clone(), fault }
    }
}

impl fmt::Debug for Artifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Artifact({})", self.shared.path.display())
    }
}
