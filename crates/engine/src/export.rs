//! Compiled models into artifacts.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use graph::Graph;
use tensor::Tensor;

use crate::artifact::{
    ALIGNMENT, Header, ModelRecord, PREAMBLE, SectionRecord, SourceRecord, StoredWeights, WeightRecord,
    address, maker, preamble,
};
use crate::bind::{self, Progress};
use crate::bound_weight::BoundWeight;
use crate::plan::{WeightSlot, WeightSource};
use crate::{AtomicFile, Device, Error, KernelSettings, Program, WeightsRegistry, checksum};

/// What an artifact holds besides compiled graphs.
#[derive(Default)]
pub struct ExportOptions<'a> {
    /// Where to find the weights that are to be stored, packed for the device; those that the compiled model's own
    /// artifact holds need not be there. `None` stores no weights: each init then takes them from a registry.
    pub weights: Option<&'a dyn WeightsRegistry>,
    /// What the file is told apart by, for those who would not take it for another: [`Artifact::key`](crate::Artifact::key).
    pub key: &'a str,
    /// Bytes for those who read the file, such as what the model was made from: [`Artifact::attachment`](crate::Artifact::attachment).
    pub attachment: Option<&'a [u8]>,
    /// Called after each weight, for one model after another.
    pub progress: Option<&'a mut dyn FnMut(Progress)>,
}

/// What every artifact of a compiled model holds.
pub(crate) struct Contents<'a> {
    pub(crate) device: &'a dyn Device,
    /// The key of a compile cache entry, or a name that the exporting program chose; else empty.
    pub(crate) key: &'a str,
    pub(crate) models: Vec<(&'a Graph, &'a Program)>,
}

/// Writes an artifact, with weights if the options say so, and waits for the disk.
pub(crate) fn export(
    path: &Path,
    contents: &Contents<'_>,
    stored: Option<&StoredWeights>,
    options: ExportOptions<'_>,
) -> Result<(), Error> {
    let mut ignore = |_| ();
    let progress = options.progress.unwrap_or(&mut ignore);
    let file = write(path, contents, |writer| {
        if let Some(bytes) = options.attachment {
            writer.header.attachment = Some(writer.section(bytes)?);
        }
        let Some(registry) = options.weights else { return Ok(()) };
        for (_, program) in &contents.models {
            let missing = writer.missing(program);
            let sink = &mut |slot: usize, weight: BoundWeight| writer.weight(program, slot, &weight);
            bind::bind_each(program, &missing, bind::Sources { registry, stored }, progress, sink)?;
        }
        Ok(())
    })?;
    file.commit().map_err(failed(path))
}

/// Writes an artifact of graphs, and what `weights` adds to it.
pub(crate) fn write(
    path: &Path,
    contents: &Contents<'_>,
    weights: impl FnOnce(&mut Writer<'_>) -> Result<(), Error>,
) -> Result<AtomicFile, Error> {
    let mut writer = Writer::create(path, contents)?;
    for (graph, _) in &contents.models {
        writer.model(graph)?;
    }
    weights(&mut writer)?;
    writer.finish()
}

/// An artifact that is being written.
pub(crate) struct Writer<'p> {
    path: &'p Path,
    file: AtomicFile,
    header: Header,
    /// Where the next section goes.
    position: u64,
    /// Equal contents are stored once.
    known: HashMap<blake3::Hash, u32>,
    /// By the address of its bytes: the section of a constant.
    constants: HashMap<usize, u32>,
    /// The constants, so that no other data comes to lie at their addresses.
    kept: Vec<Tensor>,
}

impl<'p> Writer<'p> {
    fn create(path: &'p Path, contents: &Contents<'_>) -> Result<Writer<'p>, Error> {
        let header = Header {
            maker: maker(),
            device: contents.device.name().to_string(),
            target: contents.device.target(),
            settings: contents
                .models
                .first()
                .map_or_else(KernelSettings::default, |(_, model)| model.settings),
            key: contents.key.to_string(),
            attachment: None,
            models: Vec::new(),
            weights: Vec::new(),
            sections: Vec::new(),
        };
        let mut file = AtomicFile::create(path).map_err(failed(path))?;
        file.write_all(&[0; PREAMBLE]).map_err(failed(path))?;
        let position = PREAMBLE as u64;
        let (known, constants, kept) = Default::default();
        Ok(Writer { path, file, header, position, known, constants, kept })
    }

    fn model(&mut self, graph: &Graph) -> Result<(), Error> {
        let (text, constants) = graph.detached_text();
        let mut sections = Vec::with_capacity(constants.len());
        for constant in &constants {
            let section = self.section(constant.bytes())?;
            self.constants.insert(address(constant), section);
            sections.push(section);
        }
        self.kept.extend(constants);
        let graph_section = self.section(text.as_bytes())?;
        self.header.models.push(ModelRecord {
            name: graph.name().to_string(),
            graph: graph_section,
            constants: sections,
        });
        Ok(())
    }

    /// The slots of a program that an artifact with weights holds, and this one does not hold yet. A weight that the
    /// program reads both as graphs describe it and packed, such as a tied embedding, is stored once, as graphs describe
    /// it, and packed when the artifact is loaded.
    pub(crate) fn missing(&self, program: &Program) -> Vec<usize> {
        let known: HashSet<(&SourceRecord, &Option<String>)> =
            self.header.weights.iter().map(|known| (&known.source, &known.layout)).collect();
        let is_read_plain = |slot: &WeightSlot| {
            let same = |other: &&WeightSlot| {
                other.source.name() == slot.source.name() && other.ty.here() == slot.ty.here()
            };
            program.weights.iter().filter(same).any(|other| other.packing.is_none())
        };
        let is_missing = |slot: &WeightSlot| match self.source(slot) {
            // Graphs hold what is not packed.
            Some(SourceRecord::Constant(_)) if slot.packing.is_none() => false,
            Some(SourceRecord::Named(_)) if slot.packing.is_some() && is_read_plain(slot) => false,
            Some(source) => !known.contains(&(&source, &slot.packing)),
            None => false,
        };
        (0..program.weights.len()).filter(|&slot| is_missing(&program.weights[slot])).collect()
    }

    /// Adds a weight of a program.
    pub(crate) fn weight(
        &mut self,
        program: &Program,
        slot: usize,
        weight: &BoundWeight,
    ) -> Result<(), Error> {
        let slot = &program.weights[slot];
        let source = self.source(slot).expect("asked for by `missing`");
        let section = match weight {
            BoundWeight::Raw(tensor) => self.section(tensor.bytes())?,
            BoundWeight::Far(stored) => self.section(&stored.copied_here()?)?,
            BoundWeight::Packed(packed, _) => {
                let bytes = program.device_of(slot).save_packed(packed).map_err(|message| Error::Weight {
                    name: slot.source.name().unwrap_or("a constant").to_string(),
                    message: format!("storing as {}: {message}", packed.layout),
                })?;
                self.section(&bytes)?
            }
        };
        let (ty, layout) = (slot.ty.here().to_string(), slot.packing.clone());
        self.header.weights.push(WeightRecord { source, ty, layout, section });
        Ok(())
    }

    /// What a slot's weight is called in the artifact; `None` for constants so small that texts hold them.
    fn source(&self, slot: &WeightSlot) -> Option<SourceRecord> {
        match &slot.source {
            WeightSource::Named(name) => Some(SourceRecord::Named(name.clone())),
            WeightSource::Constant(constant) if !constant.is_contiguous() => None,
            WeightSource::Constant(constant) => {
                self.constants.get(&address(constant)).map(|&section| SourceRecord::Constant(section))
            }
        }
    }

    fn section(&mut self, bytes: &[u8]) -> Result<u32, Error> {
        let index = u32::try_from(self.header.sections.len()).expect("fewer than 2^32 sections");
        match self.known.entry(blake3::Hasher::new().update_rayon(bytes).finalize()) {
            Entry::Occupied(known) => return Ok(*known.get()),
            Entry::Vacant(entry) => entry.insert(index),
        };
        let padding = bytes.len().next_multiple_of(ALIGNMENT) - bytes.len();
        self.put(bytes)?;
        self.put(&[0; ALIGNMENT][..padding])?;
        let (offset, len) = (self.position, bytes.len() as u64);
        self.header.sections.push(SectionRecord { offset, len, checksum: checksum(bytes) });
        self.position += len + padding as u64;
        Ok(index)
    }

    /// The file, whole but still without its name.
    fn finish(mut self) -> Result<AtomicFile, Error> {
        let header = postcard::to_stdvec(&self.header).expect("headers are numbers and text");
        self.put(&header)?;
        self.file.seek(SeekFrom::Start(0)).map_err(failed(self.path))?;
        self.put(&preamble(self.position, &header))?;
        Ok(self.file)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.file.write_all(bytes).map_err(failed(self.path))
    }
}

/// Tells which file could not be written.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |error| Error::Write { path: path.to_path_buf(), message: error.to_string() }
}
