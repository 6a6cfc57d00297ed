//! What can be wrong with arrays, with how they are asked for, and with the files they come from.

use std::path::{Path, PathBuf};

use crate::{DType, Shape};

/// An array cannot be made, viewed, read or written as asked. The message names the two facts that disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes given are not the bytes needed.
    #[error("{dtype}{shape} needs {needed} bytes, got {got}")]
    Bytes {
        /// Of the elements.
        dtype: DType,
        /// The sizes of the axes.
        shape: Box<Shape>,
        /// A number, or words where no number of bytes would do.
        needed: String,
        /// The number of bytes given.
        got: usize,
    },
    /// No array has this dtype and shape.
    #[error("{dtype}{shape} is not a possible array: {reason}")]
    Impossible {
        /// Of the elements.
        dtype: DType,
        /// The sizes of the axes.
        shape: Box<Shape>,
        /// Why there is none.
        reason: String,
    },
    /// A view reaches outside its storage.
    #[error(
        "a view of {shape} with strides {strides:?} at offset {offset} leaves its storage of {len} elements"
    )]
    OutOfBounds {
        /// Of the view.
        shape: Box<Shape>,
        /// Of the view, in elements.
        strides: Vec<isize>,
        /// Of the view's first element, in elements.
        offset: usize,
        /// How many elements are stored.
        len: usize,
    },
    /// Elements that share bytes cannot be viewed with strides.
    #[error("{dtype} is stored in blocks of {block}, which cannot be strided")]
    StridedBlocks {
        /// A block format, or a float of less than a byte.
        dtype: DType,
        /// Elements in one block.
        block: usize,
    },
    /// A buffer is in use in a way that excludes the access asked for.
    #[error("the buffer is being {0} by another call")]
    Busy(&'static str),
    /// A buffer over memory that must not change.
    #[error("the buffer is read-only")]
    ReadOnly,
    /// A view whose elements do not lie in row-major order without gaps.
    #[error("got strides {strides:?}, expected a row-major buffer; .contiguous() makes one")]
    NotContiguous {
        /// In elements.
        strides: Vec<isize>,
    },
    /// The host does not reach the memory of a device.
    #[error("the buffer is on {device}: copy it with `to` first")]
    Far {
        /// The device.
        device: String,
    },
    /// Elements of another type than the one asked for.
    #[error("a {dtype} buffer has no elements of type {asked}")]
    ElementType {
        /// Of the elements.
        dtype: DType,
        /// The type asked for.
        asked: DType,
    },
    /// The value of a buffer that has not exactly one.
    #[error("a single value needs a buffer of one element, but shape {shape} has {count}")]
    NotOneElement {
        /// The sizes of the axes.
        shape: Box<Shape>,
        /// How many elements there are.
        count: usize,
    },
    /// A value that the elements cannot hold.
    #[error("{dtype} cannot hold {value}")]
    Value {
        /// The value, as it prints.
        value: String,
        /// Of the elements.
        dtype: DType,
    },
    /// Positions or ranges that fit no axes.
    #[error("index {position} of {shape}: {message}")]
    Index {
        /// Which index, counted from 0.
        position: usize,
        /// The sizes of the axes.
        shape: Box<Shape>,
        /// What is wrong with it.
        message: String,
    },
    /// Fewer or more indices than the axes ask for.
    #[error("got {got} indices, expected {expected} for {shape}")]
    IndexCount {
        /// How many were given.
        got: usize,
        /// How many are needed, in words.
        expected: String,
        /// The sizes of the axes.
        shape: Box<Shape>,
    },
    /// The same bytes make no array of another type or shape.
    #[error("a view of {from} as {to}: {message}")]
    View {
        /// What is viewed.
        from: String,
        /// What it is to be viewed as.
        to: String,
        /// Why it cannot be.
        message: String,
    },
    /// One buffer cannot be copied into another.
    #[error("copying {from} into {to}: {message}")]
    Copy {
        /// What is copied.
        from: String,
        /// Where it is copied to.
        to: String,
        /// What differs.
        message: String,
    },
    /// A file does not hold what it should, or cannot be read or written.
    #[error("{path}: {message}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A mapped file was written, cut off, or cannot be read any more.
    #[error("{path} changed while it was in use ({message}): load it again", path = path.display())]
    FileChanged {
        /// The file.
        path: PathBuf,
        /// The size before and now, or another sign of the change.
        message: String,
    },
    /// No way to map a file.
    #[error("unknown mapping mode `{0}`; the modes are c, r and r+")]
    MapMode(String),
    /// A label that would name no file inside the output directory.
    #[error("the label `{0}` cannot be a file name: use a relative path without `.` and `..`")]
    Label(String),
    /// A DLPack structure that breaks the protocol, or holds what a buffer cannot.
    #[error("DLPack: {0}")]
    Dlpack(String),
    /// A device that is not there, or cannot be named.
    #[error("{0}")]
    Device(String),
    /// The system refuses so much memory.
    #[error("the system refused {bytes} bytes of memory")]
    OutOfMemory {
        /// How many were asked for.
        bytes: usize,
    },
    /// Memory cannot be had in the way asked for.
    #[error("{bytes} bytes of page-locked memory: {message}")]
    Memory {
        /// How many were asked for.
        bytes: usize,
        /// Why there are none.
        message: String,
    },
}

impl Error {
    /// A failed system call on a file.
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Error {
        move |error| Error::file(path, error.to_string())
    }

    pub(crate) fn file(path: &Path, message: impl Into<String>) -> Error {
        Error::File { path: path.to_path_buf(), message: message.into() }
    }
}

impl DType {
    /// [`DType::bytes_for_shape`], or why there is no such array.
    pub(crate) fn expect_bytes(self, shape: &Shape) -> Result<usize, Error> {
        self.bytes_for_shape(shape).ok_or_else(|| {
            let (row, block) = (shape.last().copied(), self.block().elements);
            let reason = match row.filter(|row| self.is_block() && row.is_multiple_of(block)) {
                None if self.is_block() => {
                    format!("rows of {} do not divide into blocks of {block}", row.unwrap_or(1))
                }
                _ => format!("it has more than {} bytes", usize::MAX),
            };
            Error::Impossible { dtype: self, shape: Box::new(*shape), reason }
        })
    }
}
