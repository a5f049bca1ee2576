//! The memory limit of the control group of this process.

use std::fs;
use std::path::Path;

/// The limit in bytes, of cgroup version 2 or 1; `None` without one.
pub fn memory_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limit_in(Path::new("/sys/fs/cgroup"), &groups)
}

/// The same, from a root of the groups and the text of `/proc/self/cgroup`. In a container the path may be that of the
/// host, which does not exist there; its own group is the root then.
fn limit_in(root: &Path, groups: &str) -> Option<u64> {
    let mut least = None;
    let mut look = |path: &Path, file: &str| {
        for group in path.ancestors().filter(|group| group.starts_with(root)) {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            if let Ok(limit) = text.trim().parse::<u64>() {
                least = Some(least.map_or(limit, |least: u64| least.min(limit)));
            }
        }
    };
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or("/"));
        let path = path.trim_start_matches('/');
        match controllers {
            "" => look(&root.join(path), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                look(&root.join("memory").join(path), "memory.limit_in_bytes");
            }
            _ => {}
        }
    }
    // Version 1 reports a huge number if there is no limit.
    least.filter(|limit| *limit < 1 << 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| limit_in(root.path(), groups);
        assert_eq!(limit("0::/\n"), None);
        write("system.slice/memory.max", "2147483648\n");
        write("system.slice/a.service/memory.max", "max\n");
        write("system.slice/b.service/memory.max", "134217728\n");
        assert_eq!(limit("0::/system.slice/a.service\n"), Some(2 << 30));
        assert_eq!(limit("0::/system.slice/b.service\n"), Some(128 << 20));
        assert_eq!(limit("0::/\n"), None);
        // A container's own group is the root of what it sees.
        write("memory.max", "67108864\n");
        assert_eq!(limit("0::/not/seen/from/here\n"), Some(64 << 20));
        write("memory/docker/x/memory.limit_in_bytes", "33554432\n");
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(limit("5:cpu,memory:/docker/x\n"), Some(32 << 20));
        assert_eq!(limit("5:memory:/\n3:cpu:/docker/x\n"), None);
    }
}
