//! Repeated refusals say what a new decision would say: two gateways decide about the same requests, and one of them
//! prepares its decisions.

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
    Algorithm, Disclose, HeaderStyle, Identity, LimitFinding, LimitName, RateLimit, Rule,
    RuleLimit, Rules, ThrottleMode,
};
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
        max_plan_factor: 1,
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

/// Two gateways with the same rules. The first prepares its decisions, and the second makes each anew.
struct GatewayPair {
    rules: Rules,
    with_prepared: Admission,
    without_prepared: Admission,
    identifier: Identifier,
    /// The clients, each with the prepared decisions of two connections to the first gateway.
    clients: Vec<(ClientIdentity, [PreparedDecision; 2])>,
    /// How many refusals were repeated.
    repeated_count: u32,
    seed: u64,
}

impl GatewayPair {
    fn new(seed: u64, dice: &mut Dice) -> GatewayPair {
        let rule_count = dice.choose(&[1, 2, 2, 6]);
        let rules: Rules = (0..rule_count).map(|index| rule(dice, index)).collect();
        let admission = || {
            let store = MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap();
            Admission::new(&rules, Arc::new(store), Clock::manual(Nanos::ZERO)).unwrap()
        };
        let (with_prepared, without_prepared) = (admission(), admission());
        let identifier = Identifier::new(identity::Settings::default(), Keyer::new([7; 16]));
        // All clients have the same address.
        let clients = (0..3).map(|user| {
            let mut client = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
            // The last client has no user, so that limits by user do not apply to it.
            client.user = (user < 2).then(|| user.to_string().into());
            let request = AdmissionRequest {
                rules: &rules,
                client: &client,
                identifier: &identifier,
                now: Nanos::ZERO,
                pressure: None,
                reserved_units: &[],
            };
            let prepared = [
                with_prepared.prepare(&request),
                with_prepared.prepare(&request),
            ];
            (client, prepared)
        });
        GatewayPair {
            clients: clients.collect(),
            rules,
            with_prepared,
            without_prepared,
            identifier,
            repeated_count: 0,
            seed,
        }
    }

    /// Decides about one request on both gateways, and compares what they say. Returns their tickets.
    fn decide_twice(
        &mut self,
        client_index: usize,
        connection_index: usize,
        now: Nanos,
    ) -> [Ticket; 2] {
        let (client, prepared) = &self.clients[client_index];
        let request = AdmissionRequest {
            rules: &self.rules,
            client,
            identifier: &self.identifier,
            now,
            pressure: None,
            reserved_units: &[],
        };
        let prepared = &prepared[connection_index];
        let decide = |admission: &Admission, prepared: Option<&PreparedDecision>| {
            let mut outcome = AdmissionOutcome::default();
            assert!(admission.decide(&request, prepared, &mut outcome).is_none());
            (outcome.verdict, outcome.ticket)
        };
        let (verdict, ticket) = decide(&self.with_prepared, Some(prepared));
        self.repeated_count += u32::from(verdict.is_repeated);
        let (expected, unprepared_ticket) = decide(&self.without_prepared, None);
        assert_eq!(
            self.visible_parts(&verdict),
            self.visible_parts(&expected),
            "seed {}",
            self.seed
        );
        for (rule_finding, expected_finding) in verdict.findings.iter().zip(&expected.findings) {
            if verdict.is_admitted || !rule_finding.finding.standing.admits() {
                assert_eq!(
                    rule_finding.finding, expected_finding.finding,
                    "seed {}",
                    self.seed
                );
            }
        }
        if verdict.is_repeated {
            let mut later = verdict.clone();
            let elapsed = Nanos(verdict.seconds_unchanged_for(&self.rules).0 - 1);
            for rule_finding in &mut later.findings {
                let LimitFinding { wait, reset, .. } = &mut rule_finding.finding;
                (*wait, *reset) = (wait.since(elapsed), reset.since(elapsed));
            }
            assert_eq!(
                self.visible_parts(&later),
                self.visible_parts(&verdict),
                "seed {}",
                self.seed
            );
        }
        [ticket, unprepared_ticket]
    }

    /// The parts of a verdict that clients and logs see.
    fn visible_parts(&self, verdict: &Verdict) -> impl PartialEq + std::fmt::Debug {
        let (mut fields, rules) = (Fields::default(), &self.rules);
        RateLimitHeaders::new(verdict, rules, HeaderStyle::Both).write(&mut fields, rules);
        let expected_policies = verdict.disclosed(rules).map(|rule_finding| {
            let (rule, finding) = (rule_finding.rule.resolve(rules), &rule_finding.finding);
            let window = rule.limit.window(finding.window).unwrap().window();
            format!(
                "\"{}\";q={};w={}",
                rule.name,
                finding.quota,
                window.ceil_secs()
            )
        });
        let expected_policies = expected_policies.collect::<Vec<_>>().join(", ");
        assert_eq!(
            fields.text("ratelimit-policy").unwrap_or_default(),
            expected_policies
        );
        let mut lines = Vec::new();
        fields.write_lines(&mut lines);
        let each = verdict.findings.iter();
        let each = each.map(|rule_finding| {
            (
                rule_finding.rule.index,
                rule_finding.key,
                rule_finding.finding.standing,
            )
        });
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

    fn forget_some_key(&self, dice: &mut Dice) {
        let rule = &dice.choose(&self.rules.iter().collect::<Vec<_>>());
        let (client, _) = &self.clients[dice.below(3)];
        let Some(key) = self.identifier.key(client, &rule.key) else {
            return;
        };
        for admission in [&self.with_prepared, &self.without_prepared] {
            let slot = admission.slot(rule).unwrap();
            admission.store().forget_key(slot, key);
        }
    }
}

#[test]
fn a_repeated_refusal_is_what_would_be_decided() {
    let mut repeated_count = 0;
    for seed in 1..=400 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut pair = GatewayPair::new(seed, dice);
        let mut now = Nanos::from_secs(90_000);
        let mut open_tickets = Vec::new();
        for _ in 0..400 {
            now = now.after(match dice.below(40) {
                0 => Nanos(dice.below(70_000_000_000) as u64),
                1..=8 => Nanos(dice.below(900_000_000) as u64),
                _ => Nanos(dice.below(3_000_000) as u64),
            });
            let client = dice.below(3).min(dice.below(3));
            open_tickets.push(pair.decide_twice(client, dice.below(2), now));
            if dice.below(3) == 0 {
                for mut ticket in open_tickets.drain(..).flatten() {
                    ticket.settle(RequestProgress::Unsent, now);
                }
            }
            if dice.below(50) == 0 {
                pair.forget_some_key(dice);
            }
        }
        repeated_count += pair.repeated_count;
    }
    assert!(repeated_count > 20_000, "{repeated_count}");
}

/// A limit with candidate rates beside it, and in another gateway a limit with those rates alone, which refuses.
#[test]
fn a_candidate_decides_as_if_it_were_the_limit() {
    let (mut refused_by_one, mut refused_by_both) = (0, 0);
    for seed in 1..=300 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let live = rule(dice, 0);
        let RuleLimit::Rate(live_limit) = &live.limit else {
            unreachable!()
        };
        let candidate_limit = |rates: &str| RateLimit {
            windows: rates.split(',').map(|rate| rate.parse().unwrap()).collect(),
            reserves: false,
            // When a fixed window begins depends on the scope and on the store.
            algorithm: match live_limit.algorithm {
                Algorithm::FixedWindow => Algorithm::SlidingWindow,
                algorithm => algorithm,
            },
            ..live_limit.clone()
        };
        let tried = candidate_limit(dice.choose(&["1/s", "4/s,6/m", "6/m", "9/2s", "3/s,8/m"]));
        let with_limit = |index: usize, limit: &RateLimit, is_candidate: bool| {
            Arc::new(Rule {
                index,
                scope: match is_candidate {
                    true => [&live.scope, Rule::CANDIDATE_SUFFIX].concat(),
                    false => live.scope.clone(),
                },
                limit: RuleLimit::Rate(limit.clone()),
                shadow: is_candidate,
                is_candidate,
                ..(*live).clone()
            })
        };
        let beside: Rules = [
            with_limit(
                0,
                &candidate_limit(dice.choose(&["2/s", "5/m", "3/s,9/m"])),
                false,
            ),
            with_limit(1, &tried, true),
        ]
        .into_iter()
        .collect();
        let alone: Rules = [with_limit(0, &tried, false)].into_iter().collect();
        let identifier = Identifier::new(identity::Settings::default(), Keyer::new([7; 16]));
        let admission = |rules: &Rules| {
            let store = MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap();
            Admission::new(rules, Arc::new(store), Clock::manual(Nanos::ZERO)).unwrap()
        };
        let (admission_beside, admission_alone) = (admission(&beside), admission(&alone));
        let mut now = Nanos::from_secs(90_000);
        for _ in 0..300 {
            now = now.after(match dice.below(40) {
                0 => Nanos(dice.below(70_000_000_000) as u64),
                1..=20 => Nanos(dice.below(900_000_000) as u64),
                _ => Nanos(dice.below(3_000_000) as u64),
            });
            let mut client = ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
            client.user = Some(dice.below(2).to_string().into());
            let decide = |admission: &Admission, rules: &Rules| {
                let mut outcome = AdmissionOutcome::default();
                let request = AdmissionRequest {
                    rules,
                    client: &client,
                    identifier: &identifier,
                    now,
                    pressure: None,
                    reserved_units: &[],
                };
                assert!(admission.decide(&request, None, &mut outcome).is_none());
                outcome.verdict
            };
            let said = decide(&admission_beside, &beside);
            let expected = decide(&admission_alone, &alone);
            let [said_standing, expected_standing] =
                [&said.findings[1], &expected.findings[0]].map(|found| found.finding.standing);
            assert_eq!(said_standing, expected_standing, "seed {seed}");
            match (said.is_admitted, expected.is_admitted) {
                (true, true) => {}
                (false, false) => refused_by_both += 1,
                _ => refused_by_one += 1,
            }
        }
    }
    assert!(
        refused_by_one > 5_000 && refused_by_both > 5_000,
        "{refused_by_one} {refused_by_both}"
    );
}
