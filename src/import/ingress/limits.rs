//! The limits of an Ingress, as the template of ingress-nginx writes them: `limit_req` with `burst` of the rate times a
//! multiplier and `nodelay`, and `limit_conn`; each by the client's address.

use super::settings::{Annotation, IngressSettings, networks};
use crate::import::model::{
    AlgorithmDraft, AmountDraft, ImportDraft, LimitDraft, RateDraft, ScopeDraft,
};
use crate::import::nginx::key::read_key;
use crate::import::nginx::variables::VariableTable;
use crate::import::report::{Concern, ImportReport};

/// `limit-burst-multiplier` where it is not written.
const DEFAULT_BURST_MULTIPLIER: u64 = 5;

/// Reads the limits of an Ingress.
pub struct LimitReader<'r, 'v> {
    /// All annotations.
    pub list: &'r [Annotation<'v>],
    /// The name of the Ingress.
    pub name: &'r str,
    /// The configuration that is made.
    pub draft: &'r mut ImportDraft,
    /// What becomes of each line.
    pub report: &'r mut ImportReport,
}

impl<'r, 'v> LimitReader<'r, 'v> {
    fn find(&self, name: &str) -> Option<&'r Annotation<'v>> {
        self.list.iter().find(|annotation| annotation.name == name)
    }

    /// The number of an annotation; `None` without it, if it is 0, which is no limit, or if it is no number.
    fn number(&mut self, name: &str) -> Option<(u64, &'r Annotation<'v>)> {
        let annotation = self.find(name)?;
        match annotation.value.trim().parse::<u64>() {
            Ok(0) => {
                self.report.taken(
                    annotation.at,
                    Concern::Limits,
                    &annotation.text,
                    "0 is no limit",
                );
                None
            }
            Ok(number) => Some((number, annotation)),
            Err(_) => {
                self.report.left(
                    annotation.at,
                    Concern::Limits,
                    &annotation.text,
                    "it is no number",
                );
                None
            }
        }
    }

    /// Adds the limits to the draft and to the settings.
    pub fn read(&mut self, settings: &mut IngressSettings) {
        let exempt = self.exempt();
        let multiplier = self.number("limit-burst-multiplier");
        if let Some((_, annotation)) = multiplier {
            self.report
                .taken(annotation.at, Concern::Limits, &annotation.text, "");
        }
        let multiplier = multiplier.map_or(DEFAULT_BURST_MULTIPLIER, |(number, _)| number);
        for (name, seconds) in [("limit-rps", 1), ("limit-rpm", 60)] {
            let Some((number, annotation)) = self.number(name) else {
                continue;
            };
            let burst = number.saturating_mul(multiplier);
            let at_once = u32::try_from(burst.saturating_add(1))
                .ok()
                .filter(|burst| *burst <= 1_000_000_000);
            let (Some(rate), Some(at_once)) = (RateDraft::new(number, seconds), at_once) else {
                let note = "it is more than tollgate counts";
                self.report
                    .left(annotation.at, Concern::Limits, &annotation.text, note);
                continue;
            };
            let note = format!(
                "one request and the burst of {burst} at once, then the rate, as ingress-nginx does"
            );
            self.report
                .taken(annotation.at, Concern::Limits, &annotation.text, &note);
            if !(number * 1_000).is_multiple_of(seconds) {
                let note =
                    "nginx keeps thousandths of a request a second, and so admits somewhat less";
                self.report
                    .changed(annotation.at, Concern::Limits, &annotation.text, note);
            }
            let amount = AmountDraft::Rates(vec![rate]);
            let algorithm = AlgorithmDraft::Gcra { burst: at_once };
            self.add(annotation, amount, algorithm, &exempt, settings);
        }
        if let Some((number, annotation)) = self.number("limit-connections") {
            match u32::try_from(number) {
                Ok(most) if most <= 1_000_000 => {
                    self.report
                        .taken(annotation.at, Concern::Limits, &annotation.text, "");
                    let amount = AmountDraft::Concurrent(most);
                    self.add(
                        annotation,
                        amount,
                        AlgorithmDraft::Sliding,
                        &exempt,
                        settings,
                    );
                }
                _ => self.report.left(
                    annotation.at,
                    Concern::Limits,
                    &annotation.text,
                    "it is more than tollgate counts",
                ),
            }
        }
        self.read_global(settings);
        if !settings.limits.is_empty() {
            self.report.note("Each replica of ingress-nginx counts for itself, and so does each gateway. To share counts write `store: redis://HOST:6379`.");
            self.report.note("A refusal is 429 with `Retry-After`. ingress-nginx answers 503 unless `limit-req-status-code` says otherwise.");
            self.report.note(
                "IPv6: nginx counts each address for itself. tollgate counts a /64 as one client, with budgets for the networks \
                 around it. For the count of nginx write `group: { ipv6: 128 }, parents: false` under `identity: ip`.",
            );
        }
    }

    /// The networks that the limits do not count.
    fn exempt(&mut self) -> Vec<String> {
        let mut exempt = Vec::new();
        for name in ["limit-whitelist", "limit-allowlist"] {
            let Some(annotation) = self.find(name) else {
                continue;
            };
            let (networks, others) = networks(annotation.value);
            exempt.extend(networks);
            match others.is_empty() {
                true => self
                    .report
                    .taken(annotation.at, Concern::Limits, &annotation.text, ""),
                false => {
                    let note = "not all of it are networks; the others are counted";
                    self.report
                        .changed(annotation.at, Concern::Limits, &annotation.text, note);
                }
            }
        }
        exempt
    }

    fn read_global(&mut self, settings: &mut IngressSettings) {
        let Some((number, annotation)) = self.number("global-rate-limit") else {
            return;
        };
        let find = |name: &str| self.list.iter().find(|annotation| annotation.name == name);
        let (window, key) = (
            find("global-rate-limit-window"),
            find("global-rate-limit-key"),
        );
        let ignored = find("global-rate-limit-ignored-cidrs");
        let seconds = window.and_then(|window| parse_seconds(window.value));
        let rate = seconds.and_then(|seconds| RateDraft::new(number, seconds));
        let Some(rate) = rate else {
            let note = "its window is no time from 1s";
            return self
                .report
                .left(annotation.at, Concern::Limits, &annotation.text, note);
        };
        let key_text = key.map_or("$remote_addr", |key| key.value);
        let read = read_key(
            key_text,
            &VariableTable::default(),
            &mut self.draft.identities,
        );
        let read = match read {
            Ok(read) => read,
            Err(reason) => {
                return self
                    .report
                    .left(annotation.at, Concern::Limits, &annotation.text, &reason);
            }
        };
        let note = "gateways share it by `store: redis://HOST:6379`; no window exceeds it, where ingress-nginx estimates";
        self.report
            .changed(annotation.at, Concern::Limits, &annotation.text, note);
        for other in [window, key, ignored].into_iter().flatten() {
            self.report.taken(
                other.at,
                Concern::Limits,
                &other.text,
                &read.differences.join("; "),
            );
        }
        let exempt = ignored
            .map(|ignored| networks(ignored.value).0)
            .unwrap_or_default();
        for case in read.cases {
            let index = self.draft.add_limit(LimitDraft {
                name: format!("{} global", self.name),
                origins: vec![annotation.at],
                key: case.parts,
                amount: AmountDraft::Rates(vec![rate]),
                exempt: exempt.clone(),
                scope: ScopeDraft::Listed,
                ..LimitDraft::default()
            });
            settings.limits.push(index);
        }
    }

    fn add(
        &mut self,
        annotation: &Annotation<'_>,
        amount: AmountDraft,
        algorithm: AlgorithmDraft,
        exempt: &[String],
        settings: &mut IngressSettings,
    ) {
        let kind = annotation.name.trim_start_matches("limit-");
        let index = self.draft.add_limit(LimitDraft {
            name: format!("{} {kind}", self.name),
            origins: vec![annotation.at],
            key: vec!["ip".into()],
            amount,
            algorithm,
            exempt: exempt.to_vec(),
            scope: ScopeDraft::Listed,
            ..LimitDraft::default()
        });
        settings.limits.push(index);
    }
}

/// A time such as `30s`, `2m` or `1h` in seconds.
fn parse_seconds(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)? {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
