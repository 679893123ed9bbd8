//! Cores and memory according to the files of Linux. Systems without these files report nothing.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Number of distinct (package, core) pairs of the online CPUs in `/sys`.
pub(super) fn physical_cores() -> Option<usize> {
    let mut cores = HashSet::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let topology = entry.path().join("topology");
        let read = |file: &str| fs::read_to_string(topology.join(file)).ok();
        if let (Some(package), Some(core)) = (read("physical_package_id"), read("core_id")) {
            cores.insert((package, core));
        }
    }
    (!cores.is_empty()).then_some(cores.len())
}

/// Memory available without swapping, within the limits of the control groups. `None` if the system
/// does not report it.
pub(super) fn available_memory_bytes() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let machine = meminfo.lines().find_map(|line| {
        let kib = line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB")?;
        kib.trim().parse::<u64>().ok()
    })? * 1024;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_available_bytes(Path::new("/sys/fs/cgroup"), &groups);
    Some(group.map_or(machine, |group| group.min(machine)))
}

/// Memory that the control groups of this process leave it: the smallest remainder of its group and
/// the groups around it, of version 1 and 2. `groups` is the content of `/proc/self/cgroup`, `root`
/// the folder of the hierarchies.
fn group_available_bytes(root: &Path, groups: &str) -> Option<u64> {
    let hierarchies = groups.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" => Some((["", "unified"].as_slice(), &V2, path)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((["memory"].as_slice(), &V1, path))
            }
            _ => None,
        }
    });
    let remainders = hierarchies.flat_map(|(mounts, files, path)| {
        let folders = mounts.iter().flat_map(move |mount| {
            // A container may see its own group as the root, under another path.
            let inner = Path::new(path.trim_start_matches('/'));
            inner.ancestors().map(move |group| root.join(mount).join(group))
        });
        folders.filter_map(|folder| files.available_bytes(&folder))
    });
    remainders.min()
}

/// The names of a version's files.
struct GroupFiles {
    limit: &'static str,
    usage: &'static str,
    /// The field of `memory.stat` for cached files that were not read lately: the kernel drops them
    /// before it ends a process.
    cache: &'static str,
}

const V1: GroupFiles = GroupFiles {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

const V2: GroupFiles =
    GroupFiles { limit: "memory.max", usage: "memory.current", cache: "inactive_file" };

impl GroupFiles {
    /// The remaining memory of a group in bytes; `None` without a limit.
    fn available_bytes(&self, folder: &Path) -> Option<u64> {
        let text = |file: &str| fs::read_to_string(folder.join(file)).ok();
        let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
        let limit = number(self.limit)?;
        let stat = text("memory.stat").unwrap_or_default();
        let cache =
            stat.lines().find_map(|line| line.strip_prefix(self.cache)?.trim().parse().ok());
        let used = number(self.usage).unwrap_or(0).saturating_sub(cache.unwrap_or(0));
        Some(limit.saturating_sub(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy with these files.
    fn hierarchy(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_on_the_path_of_version_2_counts() {
        let root = hierarchy(&[
            ("memory.stat", "inactive_file 5\n"),
            ("user/memory.max", "1000\n"),
            ("user/memory.current", "700\n"),
            ("user/memory.stat", "anon 500\ninactive_file 100\n"),
            ("user/app/memory.max", "max\n"),
            ("user/app/memory.current", "600\n"),
            ("user/app/run/memory.max", "800\n"),
            ("user/app/run/memory.current", "300\n"),
        ]);
        let available = |groups| group_available_bytes(root.path(), groups);
        assert_eq!(available("0::/user/app/run\n"), Some(400));
        assert_eq!(available("0::/user/app\n"), Some(400));
        assert_eq!(available("0::/\n"), None);
        assert_eq!(available(""), None);
        // A container sees its group as the root.
        let container = hierarchy(&[("memory.max", "50"), ("memory.current", "60")]);
        let available = group_available_bytes(container.path(), "0::/docker/0123\n");
        assert_eq!(available, Some(0));
    }

    #[test]
    fn limits_of_version_1_count() {
        let root = hierarchy(&[
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/a/memory.limit_in_bytes", "1000\n"),
            ("memory/a/memory.usage_in_bytes", "300\n"),
            ("memory/a/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n"),
        ]);
        let groups = "12:cpu,cpuacct:/b\n4:memory:/a/b\n0::/c\n";
        assert_eq!(group_available_bytes(root.path(), groups), Some(900));
    }
}
