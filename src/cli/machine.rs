//! What a configuration needs of the machine that it is checked on: files and folders, addresses, names, descriptors,
//! memory. Nothing that is made to find out is left behind.

mod cgroup;
mod files;
mod network;

use std::sync::Arc;

use crate::base::clock::Clock;
use crate::policy::diagnostic::{Diagnostic, Excerpt};
use crate::policy::{Filled, Loaded, Severity, Source};
use crate::serve::worker::listen;
use crate::store::{redis, shared};

/// Certificates that expire sooner than after so many days are told of.
const DAYS: u64 = 14;

/// Whether others are asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Names are looked up and the store is connected to.
    Online,
    /// Only this machine is looked at.
    Offline,
}

/// Everything that a run would stumble over.
pub fn tries(loaded: &Loaded, config: &str, reach: Reach) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config);
    files::tries(&mut findings, loaded);
    network::addresses(&mut findings, loaded);
    certificates(&mut findings, loaded, &Clock::system());
    if reach == Reach::Online {
        network::reachable(&mut findings, loaded);
    }
    findings.bounds(loaded);
    findings.all
}

/// What a run is told of: bounds of the process that are narrower than those of the configuration.
pub fn bounds(loaded: &Loaded, config: &str) -> Vec<Diagnostic> {
    let mut findings = Findings::new(loaded, config);
    findings.bounds(loaded);
    findings.all
}

/// Gathers what is to be said, and finds where in the gateway file it belongs.
struct Findings<'l> {
    file: Arc<str>,
    text: &'l str,
    filled: &'l [Filled],
    all: Vec<Diagnostic>,
}

impl<'l> Findings<'l> {
    fn new(loaded: &'l Loaded, config: &str) -> Findings<'l> {
        let mut files = loaded.ruleset.files.iter();
        let text = files.find(|(path, _)| path == config);
        Findings {
            file: config.into(),
            text: text.map_or("", |(_, text)| text),
            filled: &loaded.filled,
            all: Vec::new(),
        }
    }

    /// Says something of `value`, which stands behind the field `field` of the gateway file, or which is its default.
    fn say(
        &mut self,
        severity: Severity,
        (field, value): (&str, &str),
        message: String,
        help: &str,
    ) {
        let lines = self.lines(field);
        let first = lines.first().copied();
        // In ASCII, so that each is one byte.
        let parts = |c: char| c.is_ascii_whitespace() || "\"'[]{},".contains(c);
        let holds = |(line, number): (&'l str, u32)| {
            let at = line.rfind(value).filter(|_| !value.is_empty())?;
            let start = line[..at].rfind(parts).map_or(0, |before| before + 1);
            let end = line[at..].find(parts).map_or(line.len(), |more| at + more);
            let (before, width) = (&line[..start], &line[start..end]);
            Some((line, number, before.chars().count(), width.chars().count()))
        };
        let place = lines.into_iter().find_map(holds);
        let place = place.or_else(|| first.map(|(line, number)| (line, number, 0, field.len())));
        let (line, number, before, width) = place.unwrap_or(("", 1, 0, 1));
        let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let column = to_u32(before).saturating_add(1);
        self.all.push(Diagnostic {
            severity,
            file: self.file.clone(),
            line: number,
            column,
            message,
            help: Some(help.to_owned()),
            excerpt: place.map(|_| Excerpt::cut(line, column, to_u32(width))),
        });
    }

    /// The lines of a field of the gateway file with their numbers, from 1.
    fn lines(&self, field: &str) -> Vec<(&'l str, u32)> {
        let lines = self.text.lines().zip(1..);
        let begins = |line: &str| {
            let rest = line.trim_start_matches(['"', '\'']).strip_prefix(field);
            rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'']).starts_with(':'))
        };
        let mut lines = lines.skip_while(|(line, _)| !begins(line));
        let first = lines.next();
        let inside = lines.take_while(|(line, _)| !line.starts_with(|c: char| c.is_alphanumeric()));
        first.into_iter().chain(inside).collect()
    }

    /// How a value of a field is shown: as the file has it where something was filled in, which may be a secret.
    /// Where `part` of the value stands in the file, nothing was filled in there.
    fn shown(&self, field: &str, value: &str, part: &str) -> String {
        let lines = self.lines(field);
        let stands = |text: &str| lines.iter().any(|(line, _)| line.contains(text));
        let here = |line| lines.is_empty() || lines.iter().any(|(_, number)| *number == line);
        let filled = || self.filled.iter().filter(|one| here(one.line()));
        if stands(value) || filled().next().is_none() {
            return value.to_owned();
        }
        match filled().find_map(|one| one.shown(value)) {
            Some(shown) => shown,
            None if stands(part) => value.to_owned(),
            None => String::from("a value that is filled in"),
        }
    }

    fn error(&mut self, place: (&str, &str), message: String, help: &str) {
        self.say(Severity::Error, place, message, help);
    }

    fn warn(&mut self, place: (&str, &str), message: String, help: &str) {
        self.say(Severity::Warning, place, message, help);
    }

    fn bounds(&mut self, loaded: &Loaded) {
        let room = listen::room();
        if let Some(total) = loaded.ruleset.connections.total
            && total > room
        {
            let total = total.to_string();
            let message = format!(
                "{} connections need more file descriptors than this process may have, which are enough for {room}",
                self.shown("connections", &total, &total)
            );
            let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`), or lower `total`";
            self.warn(("connections", &total), message, help);
        } else if room < FEW_CONNECTIONS {
            let message =
                format!("the file descriptors of this process are enough for {room} connections");
            let help = "raise the limit where the gateway is started (`LimitNOFILE=` of a unit, `ulimit -n`, `--ulimit nofile=`)";
            self.warn(("connections", ""), message, help);
        }
        let process = &loaded.process;
        let ledger = process.shared.as_ref().map_or(0, |shared| shared.ledger);
        let budget = (process.store_budget + ledger) as u64;
        if let Some(most) = cgroup::memory_limit()
            && budget >= most
        {
            let message = format!(
                "counts may take {} MiB, and all of this process may take {} MiB: it would be killed",
                budget >> 20,
                most >> 20
            );
            let help = "write `store: { memory: … }` with about half of it, or raise the limit of the container or the unit";
            self.warn(("store", "memory"), message, help);
        }
    }
}

/// Fewer connections than that are worth a word.
const FEW_CONNECTIONS: usize = 200;

fn certificates(findings: &mut Findings<'_>, loaded: &Loaded, clock: &Clock) {
    let now = clock.wall();
    let entrances = loaded.ruleset.entrances.iter();
    for source in entrances.flat_map(|entrance| &entrance.certificates) {
        let Source::Files(certificate) = source else {
            continue;
        };
        let name = certificate.names.first();
        let name = name.map_or_else(String::new, |name| format!(" of `{name}`"));
        let day = |at: std::time::Duration| {
            let at = std::time::UNIX_EPOCH.checked_add(at);
            at.map_or_else(String::new, httpdate::fmt_http_date)
        };
        let (from, until) = (certificate.from, certificate.until);
        let (what, help) = if until <= now {
            (
                format!("expired on {}", day(until)),
                "renew it; clients refuse it",
            )
        } else if from > now {
            let help = "look at the clock of this machine; clients refuse it until then";
            (format!("is not valid before {}", day(from)), help)
        } else if (until - now).as_secs() / 86_400 < DAYS {
            (format!("expires on {}", day(until)), "renew it")
        } else {
            continue;
        };
        findings.warn(
            ("listen", "cert"),
            format!("the certificate{name} {what}"),
            help,
        );
    }
}

/// Host and port of each server of a store, as [`shared::Place`] has them.
fn hosts_of(place: &shared::Place) -> Vec<(String, u16)> {
    match place {
        shared::Place::Redis(redis) => redis.address.hosts.clone(),
        shared::Place::Memcached(memcached) => {
            // Each has a port.
            let servers = memcached.servers.iter();
            let hosts = servers.map(|server| redis::host(server, 0));
            hosts.filter_map(Result::ok).collect()
        }
    }
}
