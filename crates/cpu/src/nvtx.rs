//! NVTX ranges, which Nsight Systems draws next to the work of GPUs: through NVIDIA's library, where it is installed.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::sync::OnceLock;

use engine::Marker;
use libloading::Library;

/// The names of the library, as the CUDA toolkit installs it: from version 13 on, and before.
const NAMES: &[&str] = match cfg!(windows) {
    true => &["nvToolsExt64_1.dll"],
    false => &["libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1", "libnvToolsExt.so"],
};

/// `nvtxRangePushA`: begins a range on this thread; gives its depth, or less than 0.
type RangePush = unsafe extern "C" fn(*const c_char) -> c_int;
/// `nvtxRangePop`: ends the range that began last on this thread.
type RangePop = unsafe extern "C" fn() -> c_int;

/// The functions of the library. Without a tool that listens they return at once.
pub(crate) struct Nvtx {
    range_push: RangePush,
    range_pop: RangePop,
    /// Keeps the functions where they are.
    _library: Library,
}

impl Nvtx {
    /// The library of this machine, looked for once and never unloaded.
    pub(crate) fn installed() -> Option<&'static Nvtx> {
        static INSTALLED: OnceLock<Option<Nvtx>> = OnceLock::new();
        INSTALLED.get_or_init(|| NAMES.iter().find_map(Nvtx::load)).as_ref()
    }

    fn load(name: impl AsRef<OsStr>) -> Option<Nvtx> {
        // SAFETY: loading runs the initializers of a library that the machine's owner installed under NVIDIA's name.
        let library = unsafe { Library::new(name.as_ref()) }.ok()?;
        // SAFETY: the types are those of nvToolsExt.h.
        let functions = unsafe {
            let push = library.get::<RangePush>(b"nvtxRangePushA").ok()?;
            let pop = library.get::<RangePop>(b"nvtxRangePop").ok()?;
            (*push, *pop)
        };
        Some(Nvtx { range_push: functions.0, range_pop: functions.1, _library: library })
    }
}

impl Marker for Nvtx {
    fn push(&self, name: &str) {
        // A range that was not pushed would leave its pop without a partner.
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the text ends with 0, and the library copies it.
        unsafe { (self.range_push)(name.as_ptr()) };
    }

    fn pop(&self) {
        // SAFETY: it takes nothing, and says by a number when there is no range.
        unsafe { (self.range_pop)() };
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// Stands for NVIDIA's library: counts, and keeps the first letter of the last name.
    const SOURCE: &str = "
        static int depth, first;
        int nvtxRangePushA(const char* name) { first = name[0]; return depth++; }
        int nvtxRangePop(void) { return --depth; }
        int state(void) { return depth * 1000 + first; }
    ";

    /// A folder with the source and the library made of it; `None`, with a word to the reader, without a compiler.
    fn stand_in(test: &str) -> Option<(PathBuf, PathBuf, PathBuf)> {
        let folder = std::env::temp_dir().join(format!("perihelion-nvtx-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, built) = (folder.join("nvtx.c"), folder.join("libnvtx.so"));
        std::fs::write(&source, SOURCE).unwrap();
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&built).arg(&source).status();
        if !compiled.is_ok_and(|status| status.success()) {
            eprintln!("skipped: there is no C compiler");
            return None;
        }
        Some((folder, source, built))
    }

    /// Names the file that a child must find.
    const EXPECTED: &str = "PERIHELION_TEST_NVTX";

    #[test]
    fn child_that_looks_for_the_library() {
        if std::env::var_os(EXPECTED).is_some() {
            assert!(Nvtx::installed().is_some());
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_library_is_found_under_each_name() {
        let Some((folder, _, built)) = stand_in("names") else { return };
        for name in NAMES {
            let place = folder.join(name.replace('.', "-"));
            std::fs::create_dir_all(&place).unwrap();
            std::fs::copy(&built, place.join(name)).unwrap();
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["nvtx::tests::child_that_looks_for_the_library", "--exact"]);
            // Where the system's loader looks is fixed when a process starts.
            let output = child.env("LD_LIBRARY_PATH", &place).env(EXPECTED, name).output().unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn ranges_reach_the_library() {
        let Some((folder, source, built)) = stand_in("ranges") else { return };
        let nvtx = Nvtx::load(&built).unwrap();
        // SAFETY: the function above, by its own type.
        let state = *unsafe { nvtx._library.get::<unsafe extern "C" fn() -> c_int>(b"state") }.unwrap();
        nvtx.push("linear");
        nvtx.push("a\0b");
        // SAFETY: it takes nothing and reads two numbers.
        assert_eq!(unsafe { state() }, 2000);
        nvtx.pop();
        nvtx.push("matmul");
        // SAFETY: as above.
        assert_eq!(unsafe { state() }, 2000 + i32::from(b'm'));
        assert!(Nvtx::load(folder.join("absent.so")).is_none() && Nvtx::load(&source).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
