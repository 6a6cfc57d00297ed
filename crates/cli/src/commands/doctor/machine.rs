//! Facts about the processor, memory and environment. Unknown facts are `None`.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs;

/// Prefixes of the variables to show.
const PREFIXES: &[&str] =
    &["HF_", "HUGGING_FACE_", "HUGGINGFACE_", "TRANSFORMERS_OFFLINE", "PERI_", "PERIHELION_"];
/// Parts of the names of secret variables. Variables that name files are not secret.
const SECRETS: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "KEY"];
/// Shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// The processor's cores, and those this process may use.
pub(super) struct Cores {
    /// Cores this process can use at once.
    pub(super) usable: Option<usize>,
    /// Cores without hyper-threads.
    pub(super) physical: Option<usize>,
    /// The numbers of the cores this process may run on, such as `0-3,8`.
    pub(super) allowed: Option<String>,
    /// The CPU time the control groups allow, in cores.
    pub(super) quota: Option<f64>,
}

impl Cores {
    pub(super) fn detect() -> Cores {
        let info = read("/proc/cpuinfo").unwrap_or_default();
        let status = read("/proc/self/status").unwrap_or_default();
        let groups = read("/proc/self/cgroup").unwrap_or_default();
        Cores {
            usable: std::thread::available_parallelism().ok().map(usize::from),
            physical: physical_cores(&info),
            allowed: value(&status, "Cpus_allowed_list").map(str::to_string),
            quota: group_quota(&groups),
        }
    }

    /// A summary.
    pub(super) fn words(&self) -> String {
        let mut words = vec![self.usable.map_or("unknown".to_string(), |cores| format!("{cores} usable"))];
        words.extend(self.physical.map(|cores| format!("{cores} physical in the machine")));
        words.extend(self.allowed.as_ref().map(|list| format!("allowed on {list}")));
        words.extend(self.quota.map(|cores| format!("time of {cores:.2} allowed")));
        words.join(", ")
    }
}

/// The kernel version.
pub(super) fn kernel() -> Option<String> {
    Some(read("/proc/sys/kernel/osrelease")?.trim().to_string())
}

/// The policy for transparent huge pages: `always`, `madvise` or `never`.
pub(super) fn huge_pages() -> Option<String> {
    bracketed(&read("/sys/kernel/mm/transparent_hugepage/enabled")?)
}

/// The instruction sets of this machine that kernels can use.
pub(super) fn instruction_sets() -> Vec<&'static str> {
    macro_rules! found {
        ($is_detected:ident $($name:tt)*) => {
            [$(($name, std::arch::$is_detected!($name))),*]
        };
    }
    #[cfg(target_arch = "x86_64")]
    let sets = found!(is_x86_feature_detected "sse4.2" "avx" "f16c" "fma" "avx2" "avxvnni" "avx512f"
        "avx512bw" "avx512vl" "avx512dq" "avx512vnni" "avx512bf16" "avx512fp16");
    #[cfg(target_arch = "aarch64")]
    let sets = found!(is_aarch64_feature_detected "neon" "fp16" "dotprod" "bf16" "i8mm" "sve" "sve2");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let sets: [(&str, bool); 0] = [];
    sets.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

/// The environment variables that concern this program, without secrets.
pub(super) fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let ours = all.filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        PREFIXES.iter().any(|prefix| name.starts_with(prefix)).then(|| {
            let secret = SECRETS.iter().any(|word| name.contains(word)) && !name.ends_with("_PATH");
            let value = value.to_string_lossy();
            let shown =
                if secret && !is_switch(&name) { HIDDEN.to_string() } else { without_secrets(&value) };
            (name, shown)
        })
    });
    ours.collect()
}

/// An address without user and password; other texts unchanged.
pub(super) fn without_secrets(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_string() };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => address.to_string(),
    }
}

/// Whether a variable with a secret's name is only a switch.
fn is_switch(name: &str) -> bool {
    name.contains("_DISABLE_")
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The first value after a name and a colon.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// The word in brackets: `always [madvise] never`.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// The pairs of socket and core in `/proc/cpuinfo`.
fn physical_cores(info: &str) -> Option<usize> {
    let cores: HashSet<(&str, &str)> = info
        .split("\n\n")
        .filter_map(|part| Some((value(part, "physical id")?, value(part, "core id")?)))
        .collect();
    (!cores.is_empty()).then_some(cores.len())
}

/// The lowest quota of the process's control group (version 2) and its parents, in cores.
fn group_quota(groups: &str) -> Option<f64> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = std::path::Path::new("/sys/fs/cgroup");
    let folder = root.join(path);
    let around = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let quotas = around.filter_map(|folder| quota(&fs::read_to_string(folder.join("cpu.max")).ok()?));
    quotas.reduce(f64::min)
}

/// The quota in `cpu.max`: a time per period, or `max`.
fn quota(text: &str) -> Option<f64> {
    let (time, period) = text.trim().split_once(' ')?;
    let (time, period) = (time.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (period > 0.0).then_some(time / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        assert_eq!(bracketed("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!(bracketed("nothing"), None);
        assert_eq!(quota("150000 100000\n"), Some(1.5));
        assert_eq!((quota("max 100000\n"), quota("1 0"), quota("")), (None, None, None));
        let info = "physical id\t: 0\ncore id\t\t: 1\n\nphysical id\t: 0\ncore id\t\t: 1\n\nphysical id : 1\ncore id : 1\n";
        assert_eq!(physical_cores(info), Some(2));
        assert_eq!(physical_cores("model name : x\n"), None);
        assert_eq!(value("Cpus_allowed_list:\t0-1\n", "Cpus_allowed_list"), Some("0-1"));
    }

    #[test]
    fn secrets_are_hidden() {
        let given = [
            ("HF_TOKEN", "hf_abc"),
            ("HUGGING_FACE_HUB_TOKEN", "hf_abc"),
            ("HF_TOKEN_PATH", "tokens/one"),
            ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
            ("HF_ENDPOINT", "https://ada:secret@hub.example/x@y"),
            ("PERI_MAX_LENGTH", "9"),
            ("PATH", "bin"),
        ];
        let shown = variables(given.iter().map(|(name, value)| (name.into(), value.into())));
        let shown: Vec<(&str, &str)> = shown.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let expected = [
            ("HF_ENDPOINT", "https://(hidden)@hub.example/x@y"),
            ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
            ("HF_TOKEN", HIDDEN),
            ("HF_TOKEN_PATH", "tokens/one"),
            ("HUGGING_FACE_HUB_TOKEN", HIDDEN),
            ("PERI_MAX_LENGTH", "9"),
        ];
        assert_eq!(shown, expected);
    }
}
