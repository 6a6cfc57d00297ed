//! Buffers over files, as NumPy's `memmap` makes them, and over page-locked memory.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::ptr::NonNull;
use std::str::FromStr;

use memmap2::{MmapMut, MmapOptions};

use super::Buffer;
use super::memory::Memory;
use crate::{AlignedBytes, DType, Error, Shape};

/// What becomes of a mapped file when its buffer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MapMode {
    /// `c`: the file stays as it is; pages are copied as they are written.
    #[default]
    CopyOnWrite,
    /// `r`: the file stays as it is; the buffer is a copy of it.
    Read,
    /// `r+`: the file is written.
    ReadWrite,
}

impl Buffer {
    /// A buffer over a part of a file, from byte `offset` on. Modes `c` and `r+` read nothing before it is looked at.
    ///
    /// In mode `r+` a file that ends before the part does is made longer, by zeros. Overwriting a mapped file in
    /// place changes the buffer, and truncating it while it is in use ends the process with a bus error.
    /// Replacing it by renaming is harmless. Two buffers mapped `r+` over the same part must not be used at once.
    ///
    /// # Errors
    /// If the file cannot be opened, is no regular file, or ends before the part does.
    pub fn mmap(
        path: impl AsRef<Path>,
        dtype: DType,
        shape: impl Into<Shape>,
        offset: u64,
        mode: MapMode,
    ) -> Result<Buffer, Error> {
        let (path, shape) = (path.as_ref(), shape.into());
        let len = dtype.bytes_for_shape(&shape).filter(|&len| isize::try_from(len).is_ok());
        let len = len.ok_or_else(|| Error::file(path, format!("{dtype}{shape} is not a possible array")))?;
        let file = open(path, mode)?;
        ensure_length(path, &file, offset, len, mode)?;
        let memory = match mode {
            _ if len == 0 => Memory::aligned(AlignedBytes::zeroed(0)),
            MapMode::Read => Memory::aligned(read(file, offset, len).map_err(Error::io(path))?),
            MapMode::CopyOnWrite | MapMode::ReadWrite => {
                map(&file, offset, len, mode).map_err(Error::io(path))?
            }
        };
        Ok(Buffer::over(dtype, shape, memory))
    }

    /// A buffer of zeros in page-locked memory, from which devices copy without a detour.
    ///
    /// # Errors
    /// If the system grants the process no more such memory, and as [`Buffer::try_zeros`].
    pub fn pinned(dtype: DType, shape: impl Into<Shape>) -> Result<Buffer, Error> {
        let shape = shape.into();
        let memory = pinned(dtype.expect_bytes(&shape)?)?;
        Ok(Buffer::over(dtype, shape, memory))
    }
}

fn open(path: &Path, mode: MapMode) -> Result<File, Error> {
    // Asked before opening: to open a named pipe is to wait for its other end.
    if !path.metadata().map_err(Error::io(path))?.is_file() {
        return Err(Error::file(path, "no regular file"));
    }
    OpenOptions::new().read(true).write(mode == MapMode::ReadWrite).open(path).map_err(Error::io(path))
}

fn ensure_length(path: &Path, file: &File, offset: u64, len: usize, mode: MapMode) -> Result<(), Error> {
    let size = file.metadata().map_err(Error::io(path))?.len();
    match offset.checked_add(len as u64) {
        Some(end) if end <= size => Ok(()),
        Some(end) if mode == MapMode::ReadWrite => file.set_len(end).map_err(Error::io(path)),
        _ => Err(Error::file(path, format!("{len} bytes from byte {offset} on, in a file of {size} bytes"))),
    }
}

fn read(mut file: File, offset: u64, len: usize) -> std::io::Result<AlignedBytes> {
    let mut bytes = AlignedBytes::try_zeroed(len).map_err(std::io::Error::other)?;
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn map(file: &File, offset: u64, len: usize, mode: MapMode) -> std::io::Result<Memory> {
    let mut options = MmapOptions::new();
    options.offset(offset).len(len);
    // SAFETY: that no program truncates or overwrites a file in use is the one thing every program that maps files relies
    // on, and the documentation of `Buffer::mmap` says so.
    let map =
        unsafe { if mode == MapMode::ReadWrite { options.map_mut(file) } else { options.map_copy(file) } }?;
    Ok(over(map))
}

/// Page-locked zeros.
fn pinned(len: usize) -> Result<Memory, Error> {
    let locked = |len| {
        let map = MmapMut::map_anon(len)?;
        lock(&map)?;
        Ok(map)
    };
    let fail = |error: std::io::Error| Error::Memory { bytes: len, message: error.to_string() };
    let mut memory = match len {
        0 => Memory::aligned(AlignedBytes::zeroed(0)),
        len => over(locked(len).map_err(fail)?),
    };
    memory.pinned = true;
    Ok(memory)
}

/// Keeps a mapping in memory until it is dropped.
#[cfg(unix)]
fn lock(map: &MmapMut) -> std::io::Result<()> {
    map.lock()
}

/// Keeps a mapping in memory until it is dropped. Windows lets a process lock as much as its minimum working set, which
/// grows when that is too small.
#[cfg(windows)]
fn lock(map: &MmapMut) -> std::io::Result<()> {
    use std::sync::{Mutex, PoisonError};

    use windows_sys::Win32::Foundation::ERROR_WORKING_SET_QUOTA;
    use windows_sys::Win32::System::Memory::VirtualLock;
    use windows_sys::Win32::System::Threading::{
        GetCurrentProcess, GetProcessWorkingSetSize, SetProcessWorkingSetSize,
    };

    // Another thread must not lock what this one makes room for.
    static GROWING: Mutex<()> = Mutex::new(());
    let _growing = GROWING.lock().unwrap_or_else(PoisonError::into_inner);
    let check = |success: i32| match success {
        0 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: the pages are those of `map`.
    let lock = || check(unsafe { VirtualLock(map.as_ptr().cast(), map.len()) });
    match lock() {
        Err(error) if error.raw_os_error() == Some(ERROR_WORKING_SET_QUOTA as i32) => {
            let (mut least, mut most) = (0, 0);
            // SAFETY: the handle of this process is always valid, and both numbers may be written.
            check(unsafe { GetProcessWorkingSetSize(GetCurrentProcess(), &mut least, &mut most) })?;
            let more = map.len().next_multiple_of(1 << 16);
            // SAFETY: as above.
            check(unsafe { SetProcessWorkingSetSize(GetCurrentProcess(), least + more, most + more) })?;
            lock()
        }
        result => result,
    }
}

fn over(mut map: MmapMut) -> Memory {
    let (data, len) = (NonNull::from(&mut map[..]).cast(), map.len());
    // SAFETY: the mapping is of `len` bytes, may be written, lives until it is dropped, and is reached only so.
    unsafe { Memory::foreign(data, len, Box::new(map)) }
}

impl FromStr for MapMode {
    type Err = Error;

    /// From NumPy's names: `c`, `r`, `r+`.
    fn from_str(name: &str) -> Result<MapMode, Error> {
        [MapMode::CopyOnWrite, MapMode::Read, MapMode::ReadWrite]
            .into_iter()
            .find(|mode| mode.to_string() == name)
            .ok_or_else(|| Error::MapMode(name.to_string()))
    }
}

impl fmt::Display for MapMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MapMode::CopyOnWrite => "c",
            MapMode::Read => "r",
            MapMode::ReadWrite => "r+",
        })
    }
}
