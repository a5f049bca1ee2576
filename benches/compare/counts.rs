//! The figures that are counted and not timed: calls into the kernel, by perf's tracepoint, and instructions in user
//! space, by callgrind. Both slow the proxy down, so they have runs of their own.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tollgate::base::clock::{Clock, Nanos};

use crate::Failure;
use crate::case::Case;
use crate::cpu::Cores;
use crate::load::{Client, Until};
use crate::options::Subject;
use crate::proxy::{Proxy, Under, signal};
use crate::shape::Shape;

/// The requests of the two runs under callgrind. In the difference of the two, start and end of the process cancel out.
const CALLGRIND_REQUESTS: [u64; 2] = [3_000, 13_000];

/// The requests whose calls into the kernel are counted.
const TRACED_REQUESTS: u64 = 30_000;

/// Calls into the kernel per request.
pub fn syscalls(proxy: &Proxy, client: &mut Client, clock: &Clock) -> Result<f64, Failure> {
    let file = proxy.folder().join("perf");
    let processes: Vec<_> = proxy.processes()?.iter().map(u32::to_string).collect();
    let mut perf = Command::new("perf")
        .args(["stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-o"])
        .arg(&file)
        .args(["-p", &processes.join(",")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| format!("cannot start perf: {e}"))?;
    let counted = wait_until_counting(&mut perf, clock)
        .and_then(|()| client.run(clock, Until::Sent(TRACED_REQUESTS)));
    signal(perf.id(), Signal::INT);
    perf.wait()?;
    let responses = counted?.responses;
    let text = fs::read_to_string(&file)?;
    let count = text
        .lines()
        .filter(|line| line.contains("sys_enter"))
        .find_map(|line| line.split(',').next()?.parse::<f64>().ok())
        .ok_or(format!("perf counted nothing:\n{text}"))?;
    Ok(count / responses as f64)
}

/// Waits until perf has opened its counters, and 200 ms longer for it to switch them on.
fn wait_until_counting(perf: &mut Child, clock: &Clock) -> Result<(), Failure> {
    let end = clock.now().after(Nanos::from_secs(10));
    let descriptors = format!("/proc/{}/fd", perf.id());
    while clock.now() < end {
        if let Some(status) = perf.try_wait()? {
            return Err(format!("perf ended with {status}: it needs root and tracefs").into());
        }
        let open = fs::read_dir(&descriptors)?
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
            .any(|target| target.to_string_lossy().contains("perf_event"));
        std::thread::sleep(Duration::from_millis(200));
        if open {
            return Ok(());
        }
    }
    Err("perf does not begin to count".into())
}

/// Instructions in user space per request: the difference between a longer and a shorter run. None for Envoy.
pub fn instructions(
    subject: Subject,
    case: Case,
    upstream: SocketAddr,
    cores: &Cores,
) -> Result<Option<f64>, Failure> {
    // Envoy under valgrind is not tried: it is large, and brings an allocator of its own.
    if subject == Subject::Envoy {
        return Ok(None);
    }
    let clock = Clock::system();
    let shape = Shape::for_case(case, 1);
    let mut totals = Vec::new();
    for requests in CALLGRIND_REQUESTS {
        let mut proxy = Proxy::start(subject, case, upstream, shape, cores, Under::Callgrind)?;
        let mut client = Client::new(proxy.address(), case, &shape)?;
        client.run(&clock, Until::Sent(requests))?;
        // A proxy that drains would wait for open connections.
        drop(client);
        proxy.stop();
        totals.push(count_instructions(proxy.folder())?);
    }
    let difference = totals[1] - totals[0];
    Ok(Some(
        difference / (CALLGRIND_REQUESTS[1] - CALLGRIND_REQUESTS[0]) as f64,
    ))
}

/// The instructions of all processes of a proxy, by callgrind's files in its folder.
fn count_instructions(folder: &Path) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("callgrind.") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let totals = text.lines().find_map(|line| line.strip_prefix("totals:"));
        sum += totals
            .unwrap_or("0")
            .trim()
            .parse::<f64>()
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if sum == 0.0 {
        return Err("callgrind counted nothing".into());
    }
    Ok(sum)
}
