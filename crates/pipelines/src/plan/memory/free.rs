//! What memory the system leaves this process: the machine, the control groups around it (a container), and its own
//! limits.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Bytes that this process may still take: what the machine has available, or less where a control group (a container)
/// or a limit of the process (`ulimit -v`) says so. `None` where the system does not say.
pub fn available() -> Option<u64> {
    if cfg!(target_os = "linux") {
        System(Path::new("/")).available()
    } else {
        Some(engine::devices::host_stats()?.free_memory)
    }
}

/// Bytes that the control groups around this process (a container) allow it; `None` without a limit.
pub fn limit() -> Option<u64> {
    System(Path::new("/")).limit()
}

/// Where the kernel's files are: below `/`, or in a test's folder.
struct System<'p>(&'p Path);

/// A control group that accounts for memory, and the names that its version has for the same.
struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// What a version of control groups calls its files.
struct Files {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: pages of files that count as used, but are given back under pressure.
    inactive: &'static str,
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", used: "memory.usage_in_bytes", inactive: "total_inactive_file " };
const VERSION_2: Files = Files { limit: "memory.max", used: "memory.current", inactive: "inactive_file " };

/// What version 1 says where there is no limit is near this, by the size of its pages.
const NO_LIMIT: u64 = i64::MAX as u64 - (1 << 20);

/// Limits of a process, and how much of each it has taken.
const OWN_LIMITS: [(&str, &str); 2] = [("Max address space", "VmSize:"), ("Max data size", "VmData:")];

impl System<'_> {
    fn available(&self) -> Option<u64> {
        let machine = kilobytes(&self.read("proc/meminfo")?, "MemAvailable:")?;
        let groups = self.groups();
        let around = groups.iter().filter_map(Group::available);
        Some(around.chain(self.own_limits()).fold(machine, u64::min))
    }

    fn limit(&self) -> Option<u64> {
        self.groups().iter().filter_map(Group::limit).min()
    }

    /// What the limits of the process itself leave.
    fn own_limits(&self) -> Vec<u64> {
        let limits = self.read("proc/self/limits").unwrap_or_default();
        let status = self.read("proc/self/status").unwrap_or_default();
        let left = |(name, taken): (&str, &str)| {
            let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
            // The soft limit comes first; `unlimited` is no number.
            let limit: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(limit.saturating_sub(kilobytes(&status, taken)?))
        };
        OWN_LIMITS.into_iter().filter_map(left).collect()
    }

    /// The groups of this process that account for memory, each with those around it, as far as they are mounted.
    fn groups(&self) -> Vec<Group> {
        let own = self.read("proc/self/cgroup").unwrap_or_default();
        let mounts = self.read("proc/self/mountinfo").unwrap_or_default();
        mounts.lines().filter_map(Mount::read).flat_map(|mount| self.groups_in(&mount, &own)).collect()
    }

    fn groups_in(&self, mount: &Mount, own: &str) -> Vec<Group> {
        let Some((files, path)) = own.lines().find_map(|line| mount.path_of(line)) else { return Vec::new() };
        let top = self.below(&mount.point);
        // A group outside of what is mounted, as other namespaces name it, is seen as the top of it.
        let inside = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        let folder = if plain { top.join(inside) } else { top.clone() };
        let around = folder.ancestors().take_while(|folder| folder.starts_with(&top));
        around.map(|folder| Group { folder: folder.to_path_buf(), files }).collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.0.join(path)).ok()
    }

    fn below(&self, path: &Path) -> PathBuf {
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }
}

/// A hierarchy of control groups that is mounted.
struct Mount {
    /// Which group is at the mount point.
    root: PathBuf,
    point: PathBuf,
    files: &'static Files,
}

impl Mount {
    /// A line of `/proc/self/mountinfo`, if it is of groups that may account for memory:
    /// `36 35 0:30 ROOT POINT OPTIONS… - TYPE SOURCE OPTIONS`.
    fn read(line: &str) -> Option<Mount> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let files = match (kind.next()?, kind.nth(1)?) {
            ("cgroup2", _) => &VERSION_2,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => &VERSION_1,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3).map(|field| PathBuf::from(unescaped(field)));
        Some(Mount { root: fields.next()?, point: fields.next()?, files })
    }

    /// The path of the process's group, if a line of `/proc/self/cgroup` is of this hierarchy: `4:cpu,memory:/path` in
    /// version 1, `0::/path` in version 2.
    fn path_of<'l>(&self, line: &'l str) -> Option<(&'static Files, &'l str)> {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_second = number == "0" && controllers.is_empty();
        let is_first = controllers.split(',').any(|controller| controller == "memory");
        let is_own = if std::ptr::eq(self.files, &VERSION_2) { is_second } else { is_first };
        is_own.then_some((self.files, path))
    }
}

impl Group {
    fn limit(&self) -> Option<u64> {
        self.number(self.files.limit).filter(|&limit| limit < NO_LIMIT)
    }

    /// What the limit leaves; `None` without one.
    fn available(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.number(self.files.used)?);
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let files = stat.lines().find_map(|line| line.strip_prefix(self.files.inactive)?.parse::<u64>().ok());
        Some(limit.saturating_sub(used.saturating_sub(files.unwrap_or(0))))
    }

    fn number(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok()
    }
}

/// The number behind a name, such as `MemAvailable:   24012 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A path of `mountinfo`, in which blanks and backslashes are octal numbers: `\040`.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_string(), |field, (code, plain)| field.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a system of these files leaves, and allows.
    fn system(files: &[(&str, &str)]) -> (Option<u64>, Option<u64>) {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let system = System(folder.path());
        (system.available(), system.limit())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:   24012 kB\n");
    const MACHINE: u64 = 24012 * 1024;

    #[test]
    fn the_machine_says_what_is_free() {
        assert_eq!(system(&[MEMINFO]), (Some(MACHINE), None));
        assert_eq!(system(&[("proc/meminfo", "MemTotal: 9 kB\n")]), (None, None));
        assert!(available().is_some_and(|bytes| bytes > 0), "and this machine can be asked");
    }

    #[test]
    fn groups_of_version_2_limit_what_is_free() {
        let mount = ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
        let own = ("proc/self/cgroup", "1:cpu:/x\n0::/user/app\n");
        let inner = [
            ("sys/fs/cgroup/user/app/memory.max", "max\n"),
            ("sys/fs/cgroup/user/app/memory.current", "5000\n"),
            ("sys/fs/cgroup/user/memory.max", "9000\n"),
            ("sys/fs/cgroup/user/memory.current", "6000\n"),
        ];
        let files = [&[MEMINFO, mount, own][..], &inner].concat();
        assert_eq!(system(&files), (Some(3000), Some(9000)));
        let stat = ("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 500\n");
        assert_eq!(system(&[&files[..], &[stat]].concat()), (Some(3500), Some(9000)));
        // A namespace in which the process's own group is the top.
        let top = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "800\n")];
        let used = ("sys/fs/cgroup/memory.current", "100\n");
        assert_eq!(system(&[&[MEMINFO, mount, used][..], &top].concat()), (Some(700), Some(800)));
    }

    #[test]
    fn groups_of_version_1_limit_what_is_free() {
        let mounts = (
            "proc/self/mountinfo",
            "31 30 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             33 30 0:29 /docker/abc /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory\n",
        );
        let own = ("proc/self/cgroup", "7:cpu:/other\n4:hugetlb,memory:/docker/abc/inner\n");
        let folder = "sys/fs/cgroup/my memory";
        let name = |name: &str| format!("{folder}/{name}");
        let (limit, used) = (name("memory.limit_in_bytes"), name("memory.usage_in_bytes"));
        let (inner, inner_used, stat) =
            (name("inner/memory.limit_in_bytes"), name("inner/memory.usage_in_bytes"), name("memory.stat"));
        let files = [
            MEMINFO,
            mounts,
            own,
            (&limit, "10000\n"),
            (&used, "4000\n"),
            (&stat, "inactive_file 9\ntotal_inactive_file 1000\n"),
            (&inner, "9223372036854771712\n"),
            (&inner_used, "1\n"),
        ];
        assert_eq!(system(&files), (Some(7000), Some(10000)));
        // The group is not below what is mounted: what is mounted is the container's.
        let foreign = ("proc/self/cgroup", "4:memory:/../elsewhere\n");
        let files: Vec<_> = files.into_iter().filter(|file| *file != own).chain([foreign]).collect();
        assert_eq!(system(&files), (Some(7000), Some(10000)));
    }

    #[test]
    fn limits_of_the_process_count() {
        let limits = (
            "proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n\
             Max data size             unlimited            unlimited            bytes     \n\
             Max address space         3072000              unlimited            bytes     \n",
        );
        let status = ("proc/self/status", "Name:\tperi\nVmSize:\t    1000 kB\nVmData:\t    10 kB\n");
        assert_eq!(system(&[MEMINFO, limits, status]), (Some(3_072_000 - 1_024_000), None));
        assert_eq!(system(&[MEMINFO, limits]).0, Some(MACHINE), "how much of it is taken is unknown");
    }
}
