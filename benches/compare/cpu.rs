//! CPU time as the kernel counts it, and the cores that proxy, client and upstream run on. Run time in `schedstat` is
//! in nanoseconds. The machine's total in `/proc/stat` is in ticks, so it only shows whether something else was
//! running.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;

/// The cores that run the proxy, and those that run client and upstream.
pub struct Cores {
    all: CpuSet,
    /// The cores of the proxy, then those of client and upstream. None if they share all cores.
    parts: Option<(CpuSet, CpuSet)>,
    count: usize,
}

impl Cores {
    /// Gives the proxy the first `workers` cores, and client and upstream the last one. With too few cores, everything
    /// runs on all of them.
    pub fn divide(workers: usize) -> Result<Cores, Failure> {
        let all = sched_getaffinity(None)?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&core| all.is_set(core))
            .collect();
        let parts = match usable.split_last() {
            Some((&last, rest)) if rest.len() >= workers => {
                Some((cpu_set(&rest[..workers]), cpu_set(&[last])))
            }
            _ => None,
        };
        Ok(Cores {
            all,
            parts,
            count: usable.len(),
        })
    }

    /// Binds the calling thread to the client's core, and all threads that it starts from now on.
    pub fn pin_client(&self) -> io::Result<()> {
        let cores = self.parts.as_ref().map_or(&self.all, |(_, client)| client);
        Ok(sched_setaffinity(None, cores)?)
    }

    /// Runs `start` on the proxy's cores. A child process that it starts inherits them.
    pub fn on_proxy<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        let cores = self.parts.as_ref().map_or(&self.all, |(proxy, _)| proxy);
        sched_setaffinity(None, cores)?;
        let started = start();
        self.pin_client()?;
        Ok(started)
    }
}

impl std::fmt::Display for Cores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.parts {
            Some(_) => write!(
                f,
                "{} cores, proxy apart from client and upstream",
                self.count
            ),
            None => write!(
                f,
                "{} cores, shared by proxy, client and upstream",
                self.count
            ),
        }
    }
}

fn cpu_set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    set
}

/// The CPU time that was used until one moment, in nanoseconds.
pub struct CpuSnapshot {
    /// Monotonic time.
    pub at: Nanos,
    /// The CPU time of the measured proxy's processes.
    pub proxy: u64,
    /// The CPU time of this process, which runs client and upstream, and of all other proxies.
    pub own: u64,
    /// The CPU time of the whole machine.
    pub machine: u64,
}

impl CpuSnapshot {
    /// Reads the counters of all proxies' processes. The proxy at index `turn` is the measured one.
    pub fn take(proxies: &[Vec<u32>], turn: usize, clock: &Clock) -> Result<CpuSnapshot, Failure> {
        let (mut proxy, mut own) = (0, process_run_time("self")?);
        for (index, processes) in proxies.iter().enumerate() {
            for process in processes {
                let run_time = process_run_time(&process.to_string())?;
                if index == turn {
                    proxy += run_time;
                } else {
                    own += run_time;
                }
            }
        }
        Ok(CpuSnapshot {
            at: clock.now(),
            proxy,
            own,
            machine: machine_run_time()?,
        })
    }
}

/// The run time of all threads of a process, in nanoseconds.
fn process_run_time(process: &str) -> Result<u64, Failure> {
    let tasks = format!("/proc/{process}/task");
    let mut sum = 0;
    for task in fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))? {
        let path = task?.path().join("schedstat");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        sum += parse_word::<u64>(&text, 0).ok_or(format!("{}: not understood", path.display()))?;
    }
    Ok(sum)
}

/// The memory of processes in bytes. Pages that they share are divided among them.
pub fn resident_bytes(processes: &[u32]) -> Result<u64, Failure> {
    let mut sum = 0;
    for process in processes {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kibibytes = line.and_then(|rest| parse_word::<u64>(rest, 0));
        sum += kibibytes.ok_or(format!("{path}: not understood"))? * 1024;
    }
    Ok(sum)
}

/// The run time of the whole machine in nanoseconds, with the time that other guests of the host took from it.
fn machine_run_time() -> Result<u64, Failure> {
    /// `user nice system irq softirq steal`, counted from the word `cpu`.
    const BUSY: [usize; 6] = [1, 2, 3, 6, 7, 8];
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: u64 = BUSY
        .iter()
        .filter_map(|&index| parse_word::<u64>(line, index))
        .sum();
    Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// A process and all of its descendants that are still running.
pub fn process_tree(root: u32) -> Result<Vec<u32>, Failure> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // A process may have ended since it was listed.
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
            continue;
        };
        // The name stands in brackets and may contain anything. State and parent follow it.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| parse_word::<u32>(rest, 1));
        parents.extend(parent.map(|parent| (process, parent)));
    }
    let mut family = vec![root];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(
            parents
                .iter()
                .filter(|(_, parent)| *parent == member)
                .map(|(p, _)| *p),
        );
        next += 1;
    }
    Ok(family)
}

/// Parses the word at `index` as a number.
fn parse_word<T: std::str::FromStr>(text: &str, index: usize) -> Option<T> {
    text.split_whitespace().nth(index)?.parse().ok()
}
