//! Reads the memory limit of the control group in which a container or a service manager runs this process.

use std::fs;
use std::path::Path;

/// A limit of this many bytes or more counts as none: version 1 reports about 2^63 bytes if there is no limit.
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Reads the memory limit of this process in bytes, of cgroup version 2 or 1; `None` if there is no limit, or if it
/// cannot be read.
pub fn read_memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    find_memory_limit(Path::new("/sys/fs/cgroup"), &groups)
}

/// Returns the smallest limit in bytes of a group and its ancestors; `None` if there is no limit. `root` is the folder
/// of all groups, and `groups` the text of `/proc/self/cgroup`.
///
/// In a container a path in `groups` may be that of the host, which does not exist there. The limit of the container's
/// group is then at `root`, which is an ancestor of every path.
fn find_memory_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut smallest_limit = None;
    let mut read_limits = |path: &Path, file: &str| {
        for group in path.ancestors().filter(|group| group.starts_with(root)) {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            if let Ok(limit) = text.trim().parse::<u64>() {
                smallest_limit =
                    Some(smallest_limit.map_or(limit, |smallest: u64| smallest.min(limit)));
            }
        }
    };
    for line in groups.lines() {
        // A line is `hierarchy:controllers:path`.
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next().unwrap_or("");
        let path = parts.next().unwrap_or("/");
        let path = path.trim_start_matches('/');
        match controllers {
            "" => read_limits(&root.join(path), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                read_limits(&root.join("memory").join(path), "memory.limit_in_bytes");
            }
            _ => {}
        }
    }
    smallest_limit.filter(|limit| *limit < UNLIMITED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| find_memory_limit(root.path(), groups);
        assert_eq!(limit("0::/\n"), None);
        write("system.slice/memory.max", "2147483648\n");
        write("system.slice/a.service/memory.max", "max\n");
        write("system.slice/b.service/memory.max", "134217728\n");
        assert_eq!(limit("0::/system.slice/a.service\n"), Some(2 << 30));
        assert_eq!(limit("0::/system.slice/b.service\n"), Some(128 << 20));
        assert_eq!(limit("0::/\n"), None);
        // A container sees its own group as the root.
        write("memory.max", "67108864\n");
        assert_eq!(limit("0::/not/seen/from/here\n"), Some(64 << 20));
        write("memory/docker/x/memory.limit_in_bytes", "33554432\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:cpu,memory:/docker/x\n"), Some(32 << 20));
        assert_eq!(limit("5:memory:/\n3:cpu:/docker/x\n"), None);
    }
}
