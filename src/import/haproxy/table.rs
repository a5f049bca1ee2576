//! Tables that count, and the limits that comparisons of their counters become.
//!
//! A rate over a period keeps the counts of the current and of the previous period (`freq_ctr.h`). Its value is the current
//! count, and the part of the previous one that has not yet passed. It counts every tracked request, also a refused one.

use std::collections::{HashMap, HashSet};

use super::backend::parse_millis;
use super::notes;
use super::sample::{SampleExpression, parse_sample};
use super::syntax::ConfigLine;
use crate::import::model::{
    AmountDraft, ClientsDraft, IdentityDrafts, ImportDraft, LimitDraft, RateDraft, ScopeDraft,
};
use crate::import::report::{Concern, ImportReport, Origin};
use crate::import::write::rate_text;

/// A table with its counters.
#[derive(Clone, Debug, Default)]
struct StickTable {
    /// Its name in the configuration.
    name: String,
    /// Counters with their periods in milliseconds.
    stores: HashMap<String, Option<u64>>,
    /// The number of characters of a key, if keys are texts.
    key_length: Option<usize>,
    origin: Origin,
    text: String,
}

/// How requests are counted for a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedKey {
    /// The table.
    pub table: String,
    /// The expression that is the key.
    pub key: String,
    /// Whether connections are counted, and not requests.
    pub is_of_connections: bool,
    /// Whether `src` is the address of a proxy that the source takes for that of the client.
    pub is_proxy_address: bool,
}

/// What a limit is made of. Equal ones are one limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableLimitKey {
    /// The table.
    pub table: String,
    /// The expression that is the key.
    pub key: String,
    /// What is counted, as `http_req_rate`.
    pub what: String,
    /// The largest number that is not above the bound.
    pub most: u64,
    /// Lists of addresses that it is for; empty for all.
    pub only: Vec<usize>,
    /// Tests of what requests must have, or must not have.
    pub present: Vec<(usize, bool)>,
    /// Lists of addresses that it does not count.
    pub exempt: Vec<usize>,
}

/// A limit, and what the line that refuses says of it.
#[derive(Clone, Debug)]
pub struct TableLimit {
    /// Its index in the draft.
    pub limit: usize,
    /// What differs from HAProxy.
    pub note: String,
    /// What differs in the key.
    pub key_notes: Vec<String>,
}

/// All tables, and the limits made so far.
#[derive(Debug, Default)]
pub struct StickTables {
    tables: HashMap<String, StickTable>,
    made: HashMap<TableLimitKey, Result<TableLimit, String>>,
    used: HashSet<String>,
}

impl StickTables {
    /// Reads a `stick-table` of a section, or a `table` of a section `peers`.
    pub fn add(&mut self, name: &str, line: &ConfigLine, first: usize, report: &mut ImportReport) {
        let (at, text) = (line.origin, &line.text);
        if line.has_variable || line.is_conditional {
            return report.left(at, Concern::Limits, text, notes::VARIABLE);
        }
        let mut table = StickTable {
            name: name.to_owned(),
            origin: at,
            text: text.clone(),
            ..StickTable::default()
        };
        let mut words = line.rest(first).iter().map(String::as_str).peekable();
        let mut has_peers = false;
        while let Some(word) = words.next() {
            match word {
                "type" => match words.next() {
                    Some("string" | "binary") => {
                        table.key_length = Some(32);
                        if words.peek() == Some(&"len") {
                            words.next();
                            table.key_length = words.next().and_then(|length| length.parse().ok());
                        }
                    }
                    _ => table.key_length = None,
                },
                "peers" => {
                    words.next();
                    has_peers = true;
                }
                "store" => {
                    let mut depth = 0_usize;
                    let list = words.next().unwrap_or("");
                    let is_end = |c: char| {
                        match c {
                            '(' => depth += 1,
                            ')' => depth = depth.saturating_sub(1),
                            _ => {}
                        }
                        c == ',' && depth == 0
                    };
                    for counter in list.split(is_end) {
                        let (name, period) = match counter.split_once('(') {
                            Some((name, period)) => {
                                (name, parse_millis(period.trim_end_matches(')')))
                            }
                            None => (counter, None),
                        };
                        table.stores.insert(name.to_owned(), period);
                    }
                }
                _ => {}
            }
        }
        report.taken(at, Concern::Limits, text, "");
        if has_peers {
            let note = "each gateway counts for itself until `store: redis://HOST:6379` is in the gateway file; so several admit more";
            report.changed(at, Concern::Limits, text, note);
        }
        self.tables.insert(name.to_owned(), table);
    }

    /// The limit that was made of this, if it was tried before.
    pub fn made(&self, key: &TableLimitKey) -> Option<&Result<TableLimit, String>> {
        self.made.get(key)
    }

    /// Makes a limit for these clients, and remembers it.
    ///
    /// # Errors
    ///
    /// Why it has no counterpart, and the nearest way by hand.
    pub fn make(
        &mut self,
        key: &TableLimitKey,
        counted: &TrackedKey,
        (clients, exempt): (ClientsDraft, Vec<String>),
        draft: &mut ImportDraft,
    ) -> Result<TableLimit, String> {
        let made = self.new_limit(key, counted, (clients, exempt), draft);
        self.made.insert(key.clone(), made.clone());
        made
    }

    fn new_limit(
        &mut self,
        key: &TableLimitKey,
        counted: &TrackedKey,
        (clients, exempt): (ClientsDraft, Vec<String>),
        draft: &mut ImportDraft,
    ) -> Result<TableLimit, String> {
        let table = self.tables.get(&key.table);
        let table = table.ok_or("its table is not there, or not read")?;
        let period = table.stores.get(&key.what);
        let period = *period.ok_or_else(|| format!("its table does not store `{}`", key.what))?;
        let (amount, fields, note) = amount_of(key, counted, period)?;
        let mut key_notes = Vec::new();
        let parts = read_key(counted, &mut draft.identities, &mut key_notes)?;
        let is_text = parts.iter().all(|part| part != "ip" && part != "everyone");
        if let Some(length) = table.key_length.filter(|_| is_text) {
            key_notes.push(format!(
                "HAProxy cuts keys to {length} characters, so that longer ones with the same begin count together; here each whole key \
                 counts for itself, which may admit more"
            ));
        }
        self.used.insert(table.name.clone());
        let what = match key.what.as_str() {
            "http_req_rate" => "requests",
            what => what,
        };
        let limit = draft.add_limit(LimitDraft {
            name: format!("{} {what}", key.table),
            origins: vec![table.origin],
            key: parts,
            clients,
            amount,
            exempt,
            scope: ScopeDraft::Listed,
            fields,
            ..LimitDraft::default()
        });
        Ok(TableLimit {
            limit,
            note,
            key_notes,
        })
    }

    /// Reports the tables that no limit counts by.
    pub fn finish(&self, report: &mut ImportReport) {
        for table in self
            .tables
            .values()
            .filter(|table| !self.used.contains(&table.name))
        {
            let note = "no limit that is taken counts by it";
            report.left(table.origin, Concern::Other, &table.text, note);
        }
    }
}

/// How much a limit admits, its further fields, and what differs.
type TableAmount = (AmountDraft, Vec<(&'static str, String)>, String);

fn amount_of(
    key: &TableLimitKey,
    counted: &TrackedKey,
    period: Option<u64>,
) -> Result<TableAmount, String> {
    let what = key.what.as_str();
    if what == "conn_cur" {
        let most = u32::try_from(key.most).ok().filter(|most| *most > 0);
        let most = most.ok_or("a bound of no connection has no counterpart")?;
        let note = "open requests count, and not connections: one that waits for a request takes no permit";
        return Ok((AmountDraft::Concurrent(most), Vec::new(), note.into()));
    }
    let (extra, count) = match what {
        "http_req_rate" => (0, None),
        // Errors are counted behind the response, so one more is admitted.
        "http_err_rate" => (1, Some("status 400-499")),
        "http_fail_rate" => (1, Some("status 500-599")),
        "bytes_in_rate" => (0, Some("cost bytes in")),
        "bytes_out_rate" => (0, Some("cost bytes out")),
        "conn_rate" | "sess_rate" if !counted.is_of_connections => (0, None),
        "conn_rate" | "sess_rate" | "conn_cnt" | "sess_cnt" => {
            return Err("new connections are not counted; write a limit of requests, or `connections: { per_ip: N }`".into());
        }
        _ => {
            return Err(format!(
                "the counter `{what}` has no counterpart; write a rate with `count`, or `ban`"
            ));
        }
    };
    let millis = period.ok_or_else(|| format!("`{what}` has no period that is read"))?;
    let seconds = millis.div_ceil(1_000);
    let units = key.most.saturating_add(extra);
    let rate = RateDraft::new(units, seconds).ok_or_else(|| {
        format!("{units} in {millis} ms is no rate that tollgate counts; the rule refuses everybody, or nobody")
    })?;
    let text = rate_text(rate);
    let mut note = match what {
        "bytes_in_rate" | "bytes_out_rate" => format!(
            "`rate: {text}`: only bodies count here, and heads do not, so somewhat more is admitted"
        ),
        _ => format!(
            "`rate: {text}`: never more than {units} in any such window. HAProxy counts refused requests too, so a client that does not \
             slow down gets more here; `ban` keeps it out. Only requests of policies with this limit count, and not others of the table"
        ),
    };
    if millis % 1_000 != 0 {
        note += &format!(". The window is {seconds} s in place of {millis} ms, which is stricter");
    }
    let fields = count
        .map(|count| ("count", count.to_owned()))
        .into_iter()
        .collect();
    Ok((AmountDraft::Rates(vec![rate]), fields, note))
}

/// Reads the expression that is the key of a table as the parts of a key.
///
/// # Errors
///
/// Why it has no counterpart, and the nearest way by hand.
fn read_key(
    counted: &TrackedKey,
    identities: &mut IdentityDrafts,
    differences: &mut Vec<String>,
) -> Result<Vec<String>, String> {
    let sample = parse_sample(&counted.key).ok_or("its key is not read")?;
    let is_address = matches!(sample.name.as_str(), "src" | "base32+src" | "url32+src");
    if is_address && counted.is_proxy_address {
        differences.push(
            "the address is that of the peer: behind proxies all their clients count as one, until `trusted_proxies` has their networks".into(),
        );
    }
    match sample.name.as_str() {
        "src" => {
            read_mask(&sample, differences)?;
            Ok(vec!["ip".into()])
        }
        "base32+src" | "url32+src" if sample.converters.is_empty() => {
            differences.push("each URL counts for itself in HAProxy; here all URLs of a policy count together, which is stricter".into());
            Ok(vec!["ip".into(), "route".into()])
        }
        "str" | "int" | "always_true" => Ok(vec!["everyone".into()]),
        "hdr_ip" | "req.hdr_ip" => {
            read_mask(&sample, differences)?;
            address_of_header(&sample, differences)
        }
        "hdr" | "req.hdr" | "req.fhdr" | "fhdr"
            if [
                "x-forwarded-for",
                "x-real-ip",
                "forwarded",
                "cf-connecting-ip",
                "true-client-ip",
                "x-client-ip",
            ]
            .contains(&&*sample.argument(0).to_ascii_lowercase()) =>
        {
            read_mask(&sample, differences)?;
            address_of_header(&sample, differences)
        }
        _ => {
            // Converters that give two keys of one another only by chance.
            let is_kept = |(name, _): &(String, Vec<String>)| {
                matches!(name.as_str(), "sha1" | "sha2" | "digest" | "hex" | "base64")
            };
            if !sample.converters.iter().all(is_kept) {
                return Err(
                    "a converter of its key has no counterpart; count by the whole value".into(),
                );
            }
            let plain = SampleExpression {
                converters: Vec::new(),
                ..sample.clone()
            };
            let place = super::matching::read_place(&plain)
                .filter(|_| !plain.argument(0).eq_ignore_ascii_case("host"))
                .ok_or(
                    "its key has no counterpart; count by `ip`, a header, a cookie or a parameter",
                )?;
            let word = identities.word(&place);
            Ok(vec![word.ok_or("its key cannot become an identity: no request has it, there are too many, or `token` counts another credential already")?])
        }
    }
}

fn address_of_header(
    sample: &SampleExpression,
    differences: &mut Vec<String>,
) -> Result<Vec<String>, String> {
    differences.push(format!(
        "any client can write `{}`; this counts by the address, which `trusted_proxies` name by X-Forwarded-For or Forwarded. Until they \
         are written, all clients of a proxy count as one",
        crate::import::report::printable(sample.argument(0), 40)
    ));
    Ok(vec!["ip".into()])
}

/// Reads `ipmask`, by which networks count together.
fn read_mask(sample: &SampleExpression, differences: &mut Vec<String>) -> Result<(), String> {
    for (name, arguments) in &sample.converters {
        if name != "ipmask" {
            return Err("a converter of its key has no counterpart; count by `ip`".into());
        }
        let ipv4 = arguments.first().map_or("32", String::as_str);
        let ipv6 = arguments.get(1).map_or("128", String::as_str);
        let ipv6_bits = ipv6.parse::<u8>().unwrap_or(0);
        if ipv4 != "32" || ipv6_bits < 64 {
            differences.push(format!(
                "HAProxy counts networks of /{ipv4} and /{ipv6} together; here each IPv4 address and each /64 counts for itself, which \
                 admits more, until `ip: {{ group: {{ ipv4: …, ipv6: … }} }}` is under `identity`"
            ));
        }
    }
    Ok(())
}
