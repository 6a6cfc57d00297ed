//! What can be wrong with an artifact.

/// Why a file is no artifact that this session can use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactFault {
    /// It is something else, whatever its extension says.
    #[error("not an artifact of Perihelion: it {0}")]
    Foreign(String),
    /// Its bytes are laid out in another way.
    #[error("its format version is {found}, but {reader} reads version {expected}; compile the model again")]
    Format {
        /// As the file says.
        found: u32,
        /// What this crate reads.
        expected: u32,
        /// This crate and its version.
        reader: String,
    },
    /// Another version of the engine made it, whose ops and layouts may have other meanings.
    #[error("it was made by {found}, but this is {expected}; compile the model again")]
    Maker {
        /// As the file says.
        found: String,
        /// This crate and its version.
        expected: String,
    },
    /// It needs what the session's devices lack, such as an instruction set.
    #[error("it was compiled for {found}, but this session has {available}; compile the model again")]
    Target {
        /// Device and target as the file says.
        found: String,
        /// The session's devices and their targets.
        available: String,
    },
    /// It needs libraries of custom ops that the session lacks.
    #[error(
        "it needs the extension {missing}, and the session has {available}: load it and give it to the session"
    )]
    Extensions {
        /// Names and versions of those that are missing.
        missing: String,
        /// Those that are there, or `none`.
        available: String,
    },
    /// Its end is missing.
    #[error("truncated: it has {found} bytes, expected {expected}")]
    Truncated {
        /// How many bytes there are.
        found: u64,
        /// How many there were when it was made, or the fewest that any artifact has.
        expected: u64,
    },
    /// Some bytes are not those that were written.
    #[error("altered: {section} is not what was written")]
    Altered {
        /// Which part: the preamble, the header, or a section by its contents.
        section: String,
    },
    /// Its parts contradict each other, although none was altered since it was written.
    #[error("malformed: {0}")]
    Malformed(String),
}

impl ArtifactFault {
    /// Whether the file is whole, but another version of the engine made it.
    pub fn is_another_version(&self) -> bool {
        matches!(self, ArtifactFault::Format { .. } | ArtifactFault::Maker { .. })
    }
}
