//! CPU time as the kernel counts it, and which core runs what. Run time in `schedstat` is in
//! nanoseconds; the machine's total in `/proc/stat` is in ticks, so it serves only to see that
//! something else was running.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;

/// Which cores run the proxy and which the client and the upstream.
pub struct Cores {
    all: CpuSet,
    parts: Option<(CpuSet, CpuSet)>,
    count: usize,
}

impl Cores {
    /// Gives the proxy the first `workers` cores and client and upstream the last one; where there
    /// are too few cores everything runs everywhere.
    pub fn divide(workers: usize) -> Result<Cores, Failure> {
        let all = sched_getaffinity(None)?;
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|&core| all.is_set(core))
            .collect();
        let parts = match usable.split_last() {
            Some((&last, rest)) if rest.len() >= workers => {
                Some((set(&rest[..workers]), set(&[last])))
            }
            _ => None,
        };
        Ok(Cores {
            all,
            parts,
            count: usable.len(),
        })
    }

    /// Binds the calling thread, and what it starts from now on, to the client's core.
    pub fn pin_client(&self) -> io::Result<()> {
        let cores = self.parts.as_ref().map_or(&self.all, |(_, client)| client);
        Ok(sched_setaffinity(None, cores)?)
    }

    /// Runs `start` on the proxy's cores: a child process inherits them.
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

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for &core in cores {
        set.set(core);
    }
    set
}

/// How much CPU time everyone had used at one moment, in nanoseconds.
pub struct Snapshot {
    /// Monotonic time.
    pub at: Nanos,
    /// The proxy's processes.
    pub proxy: u64,
    /// Client and upstream, which run in this process, and proxies whose turn it is not.
    pub own: u64,
    /// The whole machine.
    pub machine: u64,
}

impl Snapshot {
    /// Reads all counters of the processes of every proxy; the one at `turn` is measured.
    pub fn take(proxies: &[Vec<u32>], turn: usize, clock: &Clock) -> Result<Snapshot, Failure> {
        let (mut proxy, mut own) = (0, process_run_time("self")?);
        for (place, processes) in proxies.iter().enumerate() {
            for process in processes {
                let run_time = process_run_time(&process.to_string())?;
                if place == turn {
                    proxy += run_time;
                } else {
                    own += run_time;
                }
            }
        }
        Ok(Snapshot {
            at: clock.now(),
            proxy,
            own,
            machine: machine_run_time()?,
        })
    }
}

/// Run time of all threads of a process.
fn process_run_time(process: &str) -> Result<u64, Failure> {
    let tasks = format!("/proc/{process}/task");
    let mut sum = 0;
    for task in fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))? {
        let path = task?.path().join("schedstat");
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        sum += field::<u64>(&text, 0).ok_or(format!("{}: not understood", path.display()))?;
    }
    Ok(sum)
}

/// Memory of processes in bytes, pages that they share divided among them.
pub fn resident(processes: &[u32]) -> Result<u64, Failure> {
    let mut sum = 0;
    for process in processes {
        let path = format!("/proc/{process}/smaps_rollup");
        let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kibibytes = line.and_then(|rest| field::<u64>(rest, 0));
        sum += kibibytes.ok_or(format!("{path}: not understood"))? * 1024;
    }
    Ok(sum)
}

/// Run time of everything on the machine, what other guests took from it included.
fn machine_run_time() -> Result<u64, Failure> {
    /// `user nice system irq softirq steal`, counted from the word `cpu`.
    const BUSY: [usize; 6] = [1, 2, 3, 6, 7, 8];
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: u64 = BUSY
        .iter()
        .filter_map(|&index| field::<u64>(line, index))
        .sum();
    Ok(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

/// A process and everything it started that is still there.
pub fn family(root: u32) -> Result<Vec<u32>, Failure> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // A process that ended meanwhile has no parent to tell.
        let Ok(stat) = fs::read_to_string(format!("/proc/{process}/stat")) else {
            continue;
        };
        // The name stands in brackets and may hold anything; state and parent follow it.
        let parent = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| field::<u32>(rest, 1));
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

/// The word at `index` as a number.
fn field<T: std::str::FromStr>(text: &str, index: usize) -> Option<T> {
    text.split_whitespace().nth(index)?.parse().ok()
}
