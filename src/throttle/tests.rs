//! A refusal that stands is held against the decision that it saves: two gateways are asked the same, and one of them
//! knows its clients.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use super::RateLimitHeaders;
use super::admission::{
    Admission, AdmissionOutcome, AdmissionRequest, PreparedDecision, RequestProgress, Ticket,
    Verdict,
};
use crate::base::clock::{Clock, Nanos};
use crate::base::random::Dice;
use crate::http::head::Fields;
use crate::identity::{self, ClientIdentity, Identifier, Keyer};
use crate::limit::{
    Algorithm, Disclose, Identity, LimitName, LimitReading, RateLimit, Rule, Rules, ThrottleMode,
};
use crate::route::HeaderStyle;
use crate::store::{MemoryStore, Settings};

fn rule(dice: &mut Dice, index: usize) -> Arc<Rule> {
    let rates = dice.choose(&["2/s", "3/s,5/m", "5/m", "4/s,9/m", "7/d"]);
    let max_delay = Nanos::from_secs(2);
    let limit = RateLimit {
        windows: rates.split(',').map(|rate| rate.parse().unwrap()).collect(),
        algorithm: dice.choose(&[
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
            Algorithm::Gcra { burst: Some(2) },
            Algorithm::LeakyBucket { max_delay },
        ]),
        throttle: dice.choose(&[
            ThrottleMode::Hard,
            ThrottleMode::Hard,
            ThrottleMode::Soft { percent: 50 },
            ThrottleMode::Elastic {
                at_most: 3,
                base: 1,
            },
        ]),
        reserves: dice.below(4) == 0,
        max_multiply: 1,
    };
    let name = LimitName::new(&format!("limit-{index}")).unwrap();
    let by = dice.choose(&[Identity::Ip, Identity::User]);
    Arc::new(Rule {
        shadow: dice.below(8) == 0,
        disclose: match dice.below(8) {
            0 => Disclose::None,
            _ => Disclose::All,
        },
        ..Rule::new(name, index, &[by], limit)
    })
}

/// Two gateways with the same rules.
struct Two {
    rules: Rules,
    knows: Admission,
    forgets: Admission,
    identifier: Identifier,
    /// The clients, each with two connections to the one that knows them.
    clients: Vec<(ClientIdentity, [PreparedDecision; 2])>,
    /// Refusals that stood.
    stood: u32,
    seed: u64,
}

impl Two {
    fn new(seed: u64, dice: &mut Dice) -> Two {
        let most = dice.choose(&[1, 2, 2, 6]);
        let rules: Rules = (0..most).map(|at| rule(dice, at)).collect();
        let admission = || {
            let store = MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap();
            Admission::new(&rules, Arc::new(store), Clock::manual(Nanos::ZERO)).unwrap()
        };
        let (knows, forgets) = (admission(), admission());
        let identifier = Identifier::new(identity::Settings::default(), Keyer::new([7; 16]));
        // Of one address.
        let clients = (0..3).map(|user| {
            let mut who = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
            // Of one no limit by user knows, so that not all apply.
            who.user = (user < 2).then(|| user.to_string().into());
            let ask = AdmissionRequest {
                rules: &rules,
                client: &who,
                identifier: &identifier,
                now: Nanos::ZERO,
                pressure: None,
                reserved_units: &[],
            };
            let ahead = [knows.prepare(&ask), knows.prepare(&ask)];
            (who, ahead)
        });
        Two {
            clients: clients.collect(),
            rules,
            knows,
            forgets,
            identifier,
            stood: 0,
            seed,
        }
    }

    fn ask(&mut self, client: usize, connection: usize, now: Nanos) -> [Ticket; 2] {
        let (who, ahead) = &self.clients[client];
        let ask = AdmissionRequest {
            rules: &self.rules,
            client: who,
            identifier: &self.identifier,
            now,
            pressure: None,
            reserved_units: &[],
        };
        let ahead = &ahead[connection];
        let decide = |admission: &Admission, ahead: Option<&PreparedDecision>| {
            let mut decided = AdmissionOutcome::default();
            assert!(admission.decide(&ask, ahead, &mut decided).is_none());
            (decided.verdict, decided.ticket)
        };
        let (verdict, ticket) = decide(&self.knows, Some(ahead));
        self.stood += u32::from(verdict.is_repeated);
        let (expected, other) = decide(&self.forgets, None);
        assert_eq!(
            self.told(&verdict),
            self.told(&expected),
            "seed {}",
            self.seed
        );
        for (one, other) in verdict.findings.iter().zip(&expected.findings) {
            if verdict.is_admitted || !one.reading.standing.admits() {
                assert_eq!(one.reading, other.reading, "seed {}", self.seed);
            }
        }
        if verdict.is_repeated {
            let mut later = verdict.clone();
            let passed = Nanos(verdict.seconds_unchanged_for(&self.rules).0 - 1);
            for finding in &mut later.findings {
                let LimitReading { wait, reset, .. } = &mut finding.reading;
                (*wait, *reset) = (wait.since(passed), reset.since(passed));
            }
            assert_eq!(self.told(&later), self.told(&verdict), "seed {}", self.seed);
        }
        [ticket, other]
    }

    /// What is told of it, to clients and others.
    fn told(&self, verdict: &Verdict) -> impl PartialEq + std::fmt::Debug {
        let (mut fields, rules) = (Fields::default(), &self.rules);
        RateLimitHeaders::new(verdict, rules, HeaderStyle::Both).write(&mut fields, rules);
        let promised = verdict.disclosed(rules).map(|finding| {
            let (rule, reading) = (&rules[finding.rule_index], &finding.reading);
            let window = rule.limit.window(reading.window).unwrap().window();
            format!(
                "\"{}\";q={};w={}",
                rule.name,
                reading.quota,
                window.ceil_secs()
            )
        });
        let promised = promised.collect::<Vec<_>>().join(", ");
        assert_eq!(
            fields.text("ratelimit-policy").unwrap_or_default(),
            promised
        );
        let mut lines = Vec::new();
        fields.write_lines(&mut lines);
        let each = verdict.findings.iter();
        let each = each.map(|finding| (finding.rule_index, finding.key, finding.reading.standing));
        (
            (
                verdict.is_admitted,
                verdict.deciding,
                verdict.retry_after_secs(rules),
            ),
            each.collect::<Vec<_>>(),
            String::from_utf8(lines),
        )
    }

    fn forget(&self, dice: &mut Dice) {
        let rule = &dice.choose(&self.rules.iter().collect::<Vec<_>>());
        let (who, _) = &self.clients[dice.below(3)];
        let Some(key) = self.identifier.key(who, &rule.key) else {
            return;
        };
        for admission in [&self.knows, &self.forgets] {
            let slot = admission.slot(rule).unwrap();
            admission.store().forget_key(slot, key);
        }
    }
}

#[test]
fn a_refusal_that_stands_is_what_would_be_decided() {
    let mut stood = 0;
    for seed in 1..=400 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut two = Two::new(seed, dice);
        let mut now = Nanos::from_secs(90_000);
        let mut open = Vec::new();
        for _ in 0..400 {
            now = now.after(match dice.below(40) {
                0 => Nanos(dice.below(70_000_000_000) as u64),
                1..=8 => Nanos(dice.below(900_000_000) as u64),
                _ => Nanos(dice.below(3_000_000) as u64),
            });
            let client = dice.below(3).min(dice.below(3));
            open.push(two.ask(client, dice.below(2), now));
            if dice.below(3) == 0 {
                for mut ticket in open.drain(..).flatten() {
                    ticket.settle(RequestProgress::Unsent, now);
                }
            }
            if dice.below(50) == 0 {
                two.forget(dice);
            }
        }
        stood += two.stood;
    }
    assert!(stood > 20_000, "{stood}");
}
