//! Files that were made to hurt: whatever they hold, loading ends soon, in little memory, with a
//! message. A binary of its own, for it looks at the memory of the whole process; its tests run one
//! at a time, for they share that process unless each gets its own.

// A test that cannot be set up has failed.
#![allow(clippy::expect_used)]

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tollgate::policy;

const GATEWAY: &str = "listen: 127.0.0.1:8080\nupstreams:\n  shop: http://127.0.0.1:9001\n";
const MIB: usize = 1024 * 1024;

/// The process, for one test alone.
struct Alone {
    _one: MutexGuard<'static, ()>,
    /// Its memory when the test began, in bytes.
    before: usize,
}

impl Alone {
    fn new() -> Alone {
        static ONE: Mutex<()> = Mutex::new(());
        // A test that failed leaves nothing behind that matters to the next.
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        // The peak of earlier tests is forgotten (proc_pid_clear_refs(5)).
        fs::write("/proc/self/clear_refs", "5").expect("the peak is forgotten");
        Alone {
            _one: one,
            before: peak(),
        }
    }

    /// The most memory above that since then, in bytes.
    fn grown(&self) -> usize {
        peak().saturating_sub(self.before)
    }
}

/// The most memory that the process had since its peak was last forgotten, in bytes.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let line = line.expect("a peak").trim().trim_end_matches(" kB");
    line.parse::<usize>().expect("a number") * 1024
}

/// Processor time of the process: unlike time on the wall it does not grow with what else runs here.
fn spent() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("figures");
    // Behind the name, which may hold anything: proc_pid_stat(5), fields 14 and 15.
    let fields = stat.rsplit(") ").next().expect("fields").split(' ');
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

/// Loads a configuration with this policy; it must end in a message, soon.
fn check(what: &str, policy: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("policies")).expect("a folder");
    fs::write(folder.path().join("tollgate.yaml"), GATEWAY).expect("written");
    fs::write(folder.path().join("policies/api.yaml"), policy).expect("written");
    let start = spent();
    let loaded = policy::load(&folder.path().join("tollgate.yaml"));
    let took = spent() - start;
    let said = loaded
        .err()
        .unwrap_or_else(|| panic!("{what} was loaded"))
        .to_string();
    assert!(said.len() < 64 * 1024, "{what}: {} bytes said", said.len());
    assert!(
        !said.chars().any(|c| c.is_control() && c != '\n'),
        "{what}: {said}"
    );
    // Builds without optimisation are slow; what is meant is that nothing explodes.
    assert!(took < Duration::from_secs(5), "{what} took {took:?}");
    println!("{what}: {took:?}, {} MiB", peak() / MIB);
    said
}

fn bomb() -> String {
    let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for i in 1..40 {
        let inner = vec![format!("*a{}", i - 1); 9].join(",");
        text.push_str(&format!("a{i}: &a{i} [{inner}]\n"));
    }
    text
}

/// The check itself can fail, and does not for what another test took.
#[test]
fn what_was_taken_is_seen_once() {
    {
        let alone = Alone::new();
        let taken = vec![1_u8; 200 * MIB];
        assert_eq!(std::hint::black_box(&taken).len(), 200 * MIB);
        drop(taken);
        assert!(alone.grown() > 150 * MIB, "{} MiB", alone.grown() / MIB);
    }
    let grown = Alone::new().grown();
    assert!(grown < MIB, "{grown} bytes");
}

#[test]
fn no_file_costs_much() {
    let alone = Alone::new();
    let utf16: Vec<u8> = std::iter::once(0xfeff)
        .chain("match: /\n".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    check("utf-16", &utf16);
    check("invalid utf-8", b"match: /\nupstream: \xff\xfe\n");
    check("nul", b"match: /\0\n");
    check("only nul", &[0; 4096]);
    check("bom", "\u{feff}match: nothing\n".as_bytes());
    check("tabs", b"\tmatch: /\n\tupstream: x\n");
    check("carriage returns", b"match: /\rupstream: x\rfoo: bar\r");
    check("alias bomb", bomb().as_bytes());
    check("self", b"a: &a [*a]\n");
    check(
        "merge bomb",
        b"a: &a {x: 1}\nb: &b {<<: [*a, *a, *a]}\nc: {<<: [*b, *b]}\n",
    );
    for (what, open) in [
        ("lists", "["),
        ("maps", "{a: "),
        ("dashes", "- "),
        ("keys", "? "),
    ] {
        check(what, open.repeat(10_000).as_bytes());
    }
    let steps: String = (0..1_000)
        .map(|i| format!("{}a:\n", " ".repeat(i)))
        .collect();
    check("steps", steps.as_bytes());
    let keys: String = (0..1_000_000).map(|i| format!("k{i}: {i}\n")).collect();
    check("a million keys", keys.as_bytes());
    check("as many keys as fit", &keys.as_bytes()[..MIB - 7]);
    drop(keys);
    check(
        "many commas",
        format!("limits: [{}]", "a,".repeat(MIB / 2 - 16)).as_bytes(),
    );
    check("many anchors", "- &a x\n".repeat(MIB / 8).as_bytes());
    check("ten megabytes", " ".repeat(10 * MIB).as_bytes());
    check(
        "a long word",
        format!("match: {}", "x".repeat(MIB - 16)).as_bytes(),
    );
    check(
        "a long field",
        format!("{}: x", "k".repeat(1000)).as_bytes(),
    );
    check("many lines of nothing", "\n".repeat(MIB).as_bytes());
    check("comments", "# x\n".repeat(MIB / 4).as_bytes());
    check("same field", "match: /\n".repeat(30_000).as_bytes());
    check("quotes", "'".repeat(MIB).as_bytes());
    check(
        "block",
        format!("match: |\n{}", "  x\n".repeat(200_000)).as_bytes(),
    );
    check("directives", "%YAML 1.2\n".repeat(10_000).as_bytes());
    check("documents", "---\n".repeat(100_000).as_bytes());
    check("tags", "- !!binary zzz\n".repeat(1000).as_bytes());
    check("escapes", b"match: \"\\u001b[2J\"\nupstream: \"\\u202e\"\n");
    let grown = alone.grown();
    assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn ten_thousand_routes() {
    let _alone = Alone::new();
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("policies")).expect("a folder");
    let path = folder.path().join("tollgate.yaml");
    let limits = "limits:\n  per-ip: { key: ip, rate: 10/s, routes: each }\n";
    fs::write(&path, format!("{GATEWAY}{limits}")).expect("written");
    for i in 0..10_000 {
        let text = format!(
            "match: GET /r{i}/**\nupstream: shop\nlimits:\n  own: {{ key: ip, rate: 5/m }}\n"
        );
        fs::write(folder.path().join(format!("policies/r{i}.yaml")), text).expect("written");
    }
    let start = spent();
    let loaded = policy::load(&path).unwrap_or_else(|report| panic!("{report}"));
    println!("10,000 routes: {:?}", spent() - start);
    assert_eq!(loaded.ruleset.routes.len(), 10_000);
    // And `per-ip` of requests that take no route.
    assert_eq!(loaded.ruleset.rules.len(), 20_001);
    assert!(!policy::describe(&loaded).is_empty());
}

#[test]
fn ten_thousand_times_the_same_route() {
    let alone = Alone::new();
    let names: Vec<String> = (0..10_000).map(|i| format!("policies/r{i}.yaml")).collect();
    let files = names
        .iter()
        .map(|name| (name.as_str(), "match: /same\nupstream: shop\n"));
    let memory = policy::source::MemoryFiles::new(files.chain([("tollgate.yaml", GATEWAY)]));
    let report = policy::load_from(&memory, Path::new("tollgate.yaml")).expect_err("conflicts");
    assert!(report.to_string().len() < 512 * 1024);
    assert!(report.unlisted_errors > 5_000);
    let grown = alone.grown();
    assert!(grown < 100 * MIB, "{} MiB", grown / MIB);
}

#[test]
fn places_that_are_no_files() {
    let _alone = Alone::new();
    let folder = tempfile::tempdir().expect("a folder");
    for path in [
        "/dev/zero",
        "/dev/null",
        "/",
        "/proc/self/mem",
        "",
        "/nonexistent/x",
    ] {
        assert!(policy::load(Path::new(path)).is_err(), "{path}");
    }
    assert!(policy::load(folder.path()).is_err());
}
