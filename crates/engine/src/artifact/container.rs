//! The bytes of an artifact: a preamble, sections from multiples of 64 bytes on, and a header that tells them apart.
//!
//! ```text
//!  0  magic             8 bytes
//!  8  format version    u32, little-endian as every number
//! 12  check             the first 4 bytes of the blake3 digest of bytes 0..12 and 16..64
//! 16  header's offset   u64, a multiple of 64
//! 24  header's length   u64; the header ends the file
//! 32  header's digest   blake3
//! 64  sections          zeros between them
//!     header            [`Header`] in postcard
//! ```
//!
//! Each section has a checksum in the header, XXH3 of 128 bits: it tells damage, and at memory speed, since loading
//! waits for it. Deliberate changes are not detected: they can include the header and its checksum. The header is last,
//! so that sections can be written before the checksums of those behind them are known.

use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::ArtifactFault;
use crate::KernelSettings;

/// The first bytes: no text begins so, and a transfer that changes line ends breaks them.
pub(super) const MAGIC: [u8; 8] = *b"\x93PeriMEF";
/// Raised when the preamble or the header change shape.
pub(super) const FORMAT: u32 = 6;
/// Bytes of the preamble.
pub(crate) const PREAMBLE: usize = 64;
/// A cache line, and the widest vector register: where sections begin.
pub(crate) const ALIGNMENT: usize = 64;

/// Longer sections are checked piece by piece, so that several threads can.
const PIECE: usize = 256 << 10;

/// The checksum of a section.
pub(crate) type Checksum = u128;

/// What an artifact holds, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// The crate that wrote it, and its version.
    pub(crate) maker: String,
    /// The device it was compiled for: its name, and its target.
    pub(crate) device: String,
    pub(crate) target: String,
    /// What the session was set to.
    pub(crate) settings: KernelSettings,
    /// What it was compiled from, for an entry of a compile cache; else empty.
    pub(crate) key: String,
    /// The section with what its exporter attached.
    pub(crate) attachment: Option<u32>,
    pub(crate) models: Vec<ModelRecord>,
    pub(crate) weights: Vec<WeightRecord>,
    /// In file order, without gaps but for alignment.
    pub(crate) sections: Vec<SectionRecord>,
}

/// One compiled graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelRecord {
    pub(crate) name: String,
    /// The section with the graph's text.
    pub(crate) graph: u32,
    /// The sections with the constants that are kept apart from the text.
    pub(crate) constants: Vec<u32>,
}

/// A weight in one layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WeightRecord {
    pub(crate) source: SourceRecord,
    /// The type in the graph, as text.
    pub(crate) ty: String,
    /// The device's layout, if not as graphs describe it.
    pub(crate) layout: Option<String>,
    pub(crate) section: u32,
}

/// What a stored weight is a weight of.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum SourceRecord {
    /// A name in the weights registry.
    Named(String),
    /// A constant, by the section that holds it as graphs describe it.
    Constant(u32),
}

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SectionRecord {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) checksum: Checksum,
}

impl SectionRecord {
    /// Its place in the file, which [`read`] has checked.
    pub(super) fn range(&self) -> Range<usize> {
        self.offset as usize..(self.offset + self.len) as usize
    }

    /// Its bytes and the zeros behind it are as they were written.
    pub(super) fn is_intact(&self, file: &[u8]) -> bool {
        let range = self.range();
        let padding = &file[range.end..range.end.next_multiple_of(ALIGNMENT)];
        padding.iter().all(|&byte| byte == 0) && checksum(&file[range]) == self.checksum
    }
}

/// The crate and its version, as artifacts name their maker.
pub(crate) fn maker() -> String {
    format!("perihelion {}", env!("CARGO_PKG_VERSION"))
}

/// The checksum of a section, or of any bytes: XXH3 of 128 bits of them, or of the checksums of their pieces where they
/// are longer than one. Several threads share it, and it does not depend on how many.
pub fn checksum(bytes: &[u8]) -> u128 {
    match bytes.len() {
        0..=PIECE => XxHash3_128::oneshot(bytes),
        _ => {
            let pieces: Vec<Checksum> = bytes.par_chunks(PIECE).map(XxHash3_128::oneshot).collect();
            let pieces: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_le_bytes()).collect();
            XxHash3_128::oneshot(&pieces)
        }
    }
}

/// The first of some sections that is not as it was written. Reads them all, with several threads where there is
/// much to read: little is not to wait for threads that are busy.
pub(super) fn first_altered(file: &[u8], header: &Header, sections: &[u32]) -> Option<u32> {
    let altered = |section: &&u32| !header.sections[**section as usize].is_intact(file);
    let bytes: u64 = sections.iter().map(|&section| header.sections[section as usize].len).sum();
    if bytes <= PIECE as u64 {
        sections.iter().find(altered).copied()
    } else {
        sections.par_iter().find_first(altered).copied()
    }
}

/// The first bytes of a file that ends with `header` at `offset`.
pub(crate) fn preamble(offset: u64, header: &[u8]) -> [u8; PREAMBLE] {
    let mut bytes = [0; PREAMBLE];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[16..24].copy_from_slice(&offset.to_le_bytes());
    bytes[24..32].copy_from_slice(&(header.len() as u64).to_le_bytes());
    bytes[32..].copy_from_slice(blake3::hash(header).as_bytes());
    let check = check(&bytes);
    bytes[12..16].copy_from_slice(&check);
    bytes
}

/// The header of a file. Every place it names is inside the file, and every number it gives is in range.
pub(super) fn read(file: &[u8]) -> Result<Header, ArtifactFault> {
    let preamble = read_preamble(file)?;
    let offset = field(preamble, 16);
    let len = field(preamble, 24);
    let found = file.len() as u64;
    let malformed = |message: String| ArtifactFault::Malformed(message);
    let expected = offset.checked_add(len).ok_or_else(|| malformed(format!("a header of {len} bytes")))?;
    if found < expected {
        return Err(ArtifactFault::Truncated { found, expected });
    }
    if found > expected {
        return Err(ArtifactFault::Altered { section: format!("the end ({} bytes more)", found - expected) });
    }
    if offset < PREAMBLE as u64 || !offset.is_multiple_of(ALIGNMENT as u64) {
        return Err(malformed(format!("a header at byte {offset}")));
    }
    let bytes = &file[offset as usize..];
    if *blake3::hash(bytes).as_bytes() != preamble[32..] {
        return Err(ArtifactFault::Altered { section: "the header".to_string() });
    }
    let (header, rest): (Header, _) =
        postcard::take_from_bytes(bytes).map_err(|error| malformed(format!("the header: {error}")))?;
    if !rest.is_empty() {
        return Err(malformed(format!("{} bytes behind the header's fields", rest.len())));
    }
    check_sections(&header, offset)?;
    Ok(header)
}

fn read_preamble(file: &[u8]) -> Result<&[u8; PREAMBLE], ArtifactFault> {
    let known = file.len().min(MAGIC.len());
    if file[..known] != MAGIC[..known] {
        return Err(ArtifactFault::Foreign(describe(file)));
    }
    let Some(preamble) = file.first_chunk::<PREAMBLE>() else {
        let (found, expected) = (file.len() as u64, PREAMBLE as u64);
        return Err(ArtifactFault::Truncated { found, expected });
    };
    let format = u32::from_le_bytes(*preamble[8..].first_chunk().expect("in the preamble"));
    if format != FORMAT {
        return Err(ArtifactFault::Format { found: format, expected: FORMAT, reader: maker() });
    }
    if preamble[12..16] != check(preamble) {
        return Err(ArtifactFault::Altered { section: "the preamble".to_string() });
    }
    Ok(preamble)
}

/// Sections lie one behind another from the preamble to the header, and every reference to a section names one that exists.
fn check_sections(header: &Header, end: u64) -> Result<(), ArtifactFault> {
    let malformed = |message: String| Err(ArtifactFault::Malformed(message));
    let mut next = PREAMBLE as u64;
    for (index, section) in header.sections.iter().enumerate() {
        let SectionRecord { offset, len, .. } = *section;
        if offset != next {
            return malformed(format!("section {index} is at byte {offset}, expected {next}"));
        }
        match offset.checked_add(len).and_then(|end| end.checked_next_multiple_of(ALIGNMENT as u64)) {
            Some(behind) if behind <= end => next = behind,
            _ => return malformed(format!("section {index} of {len} bytes reaches behind byte {end}")),
        }
    }
    if next != end {
        return malformed(format!("the sections end at byte {next}, expected {end}"));
    }
    let of_models = header.models.iter().flat_map(|model| model.constants.iter().chain([&model.graph]));
    let of_weights = header.weights.iter().flat_map(|weight| match &weight.source {
        SourceRecord::Named(_) => [None, Some(&weight.section)],
        SourceRecord::Constant(constant) => [Some(constant), Some(&weight.section)],
    });
    let count = header.sections.len();
    let mut named = of_models.chain(of_weights.flatten()).chain(&header.attachment);
    match named.find(|section| **section as usize >= count) {
        None => Ok(()),
        Some(section) => malformed(format!("there is no section {section}, but {count}")),
    }
}

fn check(preamble: &[u8; PREAMBLE]) -> [u8; 4] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&preamble[..12]).update(&preamble[16..]);
    *hasher.finalize().as_bytes().first_chunk().expect("longer than four bytes")
}

fn field(preamble: &[u8; PREAMBLE], offset: usize) -> u64 {
    u64::from_le_bytes(*preamble[offset..].first_chunk().expect("in the preamble"))
}

/// What a file that is no artifact seems to be.
fn describe(file: &[u8]) -> String {
    const KNOWN: &[(&[u8], &str)] = &[
        (b"PK\x03\x04", "is a zip archive"),
        (b"ML\xefR", "is MLIR bytecode"),
        (b"\x7fELF", "is an ELF library or program"),
        (b"GGUF", "is a GGUF file"),
        (b"\x1f\x8b", "is compressed with gzip"),
        (b"\x28\xb5\x2f\xfd", "is compressed with zstd"),
    ];
    let head = &file[..file.len().min(64)];
    if let Some((_, what)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        return what.to_string();
    }
    let printable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    if head.iter().all(printable) {
        return "is text".to_string();
    }
    format!("begins with the bytes {:02x?}", &head[..head.len().min(8)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with two sections, and its header.
    fn sample() -> (Header, Vec<u8>) {
        let record = |offset, contents: &[u8]| SectionRecord {
            offset,
            len: contents.len() as u64,
            checksum: checksum(contents),
        };
        let header = Header {
            maker: maker(),
            device: "d".to_string(),
            target: "t".to_string(),
            settings: KernelSettings::default(),
            key: String::new(),
            attachment: None,
            models: vec![ModelRecord { name: "m".to_string(), graph: 0, constants: vec![1] }],
            weights: vec![],
            sections: vec![record(64, &[7; 70]), record(192, &[8; 64])],
        };
        let mut body = vec![7; 70];
        body.resize(128, 0);
        body.extend([8; 64]);
        (header.clone(), file(&header, &body))
    }

    fn file(header: &Header, body: &[u8]) -> Vec<u8> {
        let header = postcard::to_stdvec(header).unwrap();
        let preamble = preamble((PREAMBLE + body.len()) as u64, &header);
        [&preamble, body, &header].concat()
    }

    fn fault(file: &[u8]) -> String {
        read(file).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_reads_back() {
        let (header, file) = sample();
        assert_eq!(read(&file), Ok(header.clone()));
        assert_eq!(first_altered(&file, &header, &[0, 1]), None);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (header, file) = sample();
        for bit in 0..file.len() * 8 {
            let mut file = file.clone();
            file[bit / 8] ^= 1 << (bit % 8);
            let body = (64..256).contains(&(bit / 8));
            let read = read(&file);
            assert_eq!(read.is_ok(), body, "bit {bit}");
            if body {
                assert_eq!(first_altered(&file, &header, &[0, 1]), Some((bit / 8 / 192) as u32), "bit {bit}");
            }
        }
    }

    #[test]
    fn truncation_is_named_wherever_it_happens() {
        let (_, file) = sample();
        for len in 0..file.len() {
            let fault = read(&file[..len]).unwrap_err();
            let ArtifactFault::Truncated { found, expected } = fault else { panic!("{len}: {fault}") };
            assert_eq!(found, len as u64);
            assert_eq!(expected, if len < PREAMBLE { PREAMBLE } else { file.len() } as u64);
        }
        let longer = [&file[..], &[0]].concat();
        assert_eq!(fault(&longer), "altered: the end (1 bytes more) is not what was written");
    }

    #[test]
    fn foreign_files_are_named() {
        assert_eq!(fault(b"PK\x03\x04 and more"), "not an artifact of Perihelion: it is a zip archive");
        assert_eq!(fault(b"ML\xefR"), "not an artifact of Perihelion: it is MLIR bytecode");
        assert_eq!(fault(b"module { mo.graph"), "not an artifact of Perihelion: it is text");
        assert_eq!(
            fault(b"\0\x01\x02"),
            "not an artifact of Perihelion: it begins with the bytes [00, 01, 02]"
        );
        let mut newer = sample().1;
        newer[8] = 9;
        let expected = format!(
            "its format version is 9, but {} reads version {FORMAT}; compile the model again",
            maker()
        );
        assert_eq!(fault(&newer), expected);
    }

    /// Files have no names of fields: settings with one more or one less are another format.
    #[test]
    fn settings_of_another_shape_have_another_format() {
        let settings = postcard::to_stdvec(&KernelSettings::default()).unwrap();
        assert_eq!((FORMAT, settings.len()), (6, 13), "raise FORMAT when a field comes or goes");
    }

    /// Headers that were never altered and lie all the same.
    #[test]
    fn a_bit_of_any_piece_changes_the_checksum() {
        let bytes = vec![7; 2 * PIECE + 1];
        for byte in [0, PIECE - 1, PIECE, 2 * PIECE] {
            let mut altered = bytes.clone();
            altered[byte] ^= 0x10;
            assert_ne!(checksum(&altered), checksum(&bytes), "byte {byte}");
        }
        assert_ne!(checksum(&bytes[1..]), checksum(&bytes), "a byte less");
    }

    #[test]
    fn hostile_headers_are_refused() {
        let (good, _) = sample();
        let body = vec![0; 192];
        let check = |change: &dyn Fn(&mut Header), message: &str| {
            let mut header = good.clone();
            change(&mut header);
            assert_eq!(fault(&file(&header, &body)), format!("malformed: {message}"));
        };
        check(&|header| header.sections[1].offset = 64, "section 1 is at byte 64, expected 192");
        check(&|header| header.sections[0].offset = 65, "section 0 is at byte 65, expected 64");
        let behind = "section 1 of 65 bytes reaches behind byte 256";
        check(&|header| header.sections[1].len = 65, behind);
        let huge = format!("section 1 of {} bytes reaches behind byte 256", u64::MAX);
        check(&|header| header.sections[1].len = u64::MAX, &huge);
        check(&|header| header.sections.truncate(1), "the sections end at byte 192, expected 256");
        check(&|header| header.models[0].graph = 2, "there is no section 2, but 2");
        check(&|header| header.models[0].constants.push(u32::MAX), "there is no section 4294967295, but 2");
        let weight = |source, section| WeightRecord { source, ty: String::new(), layout: None, section };
        let missing = "there is no section 9, but 2";
        check(&|header| header.weights.push(weight(SourceRecord::Named("w".into()), 9)), missing);
        check(&|header| header.weights.push(weight(SourceRecord::Constant(9), 0)), missing);
        // A count that the bytes cannot pay for.
        let mut lying = postcard::to_stdvec(&"maker").unwrap();
        lying.extend(postcard::to_stdvec(&("d", "t", "k", u64::MAX)).unwrap());
        let lying = [&preamble(64, &lying)[..], &lying].concat();
        assert!(fault(&lying).starts_with("malformed: the header: "), "{}", fault(&lying));
    }
}
