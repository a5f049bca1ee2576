//! A refusal that stands is held against the decision that it saves: two gateways are asked the same, and one of them
//! knows its clients.

use std::net::Ipv4Addr;

use super::*;
use crate::identity::{self, Keyer};
use crate::limit::{Algorithm, Disclose, Name, Throttle};
use crate::store::Settings;

/// Xorshift: the same seed draws the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn rule(dice: &mut Dice, index: usize) -> Arc<Rule> {
    let rates = dice.of(&["2/s", "3/s,5/m", "5/m", "4/s,9/m"]);
    let max_delay = Nanos::from_secs(2);
    let limit = Limit {
        windows: rates.split(',').map(|rate| rate.parse().unwrap()).collect(),
        algorithm: dice.of(&[
            Algorithm::SlidingLog,
            Algorithm::SlidingWindow,
            Algorithm::MultiLevel,
            Algorithm::FixedWindow,
            Algorithm::Gcra { burst: None },
            Algorithm::LeakyBucket { max_delay },
        ]),
        throttle: dice.of(&[
            Throttle::Hard,
            Throttle::Hard,
            Throttle::Soft { percent: 50 },
            Throttle::Elastic { most: 3, of: 1 },
        ]),
        reserves: dice.below(4) == 0,
        max_multiply: 1,
    };
    let name = Name::new(&format!("limit-{index}")).unwrap();
    let by = dice.of(&[Identity::Ip, Identity::User]);
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
    rules: Vec<Arc<Rule>>,
    knows: Admission,
    forgets: Admission,
    identifier: Identifier,
    /// The clients, each with two connections to the one that knows them.
    clients: Vec<(Who, [Ahead; 2])>,
    /// Refusals that stood.
    stood: u32,
}

impl Two {
    fn new(dice: &mut Dice) -> Two {
        let rules: Vec<_> = (0..=dice.below(2) as usize)
            .map(|at| rule(dice, at))
            .collect();
        let admission = || {
            let store = Memory::new(Settings { budget: 1 << 20 }).unwrap();
            Admission::new(&rules, Arc::new(store), Clock::manual(Nanos::ZERO)).unwrap()
        };
        let (knows, forgets) = (admission(), admission());
        let identifier = Identifier::new(identity::Settings::default(), Keyer::new([7; 16]));
        // Of one address.
        let clients = (0..3).map(|user| {
            let mut who = Who::new(IpAddr::V4(Ipv4Addr::LOCALHOST));
            who.user = Some(user.to_string().into());
            let keys = || {
                let each = rules.iter().map(|rule| identifier.key(&who, &rule.key));
                each.collect()
            };
            let ahead = [knows.ahead(&rules, keys()), knows.ahead(&rules, keys())];
            (who, ahead)
        });
        Two {
            clients: clients.collect(),
            rules,
            knows,
            forgets,
            identifier,
            stood: 0,
        }
    }

    fn ask(&mut self, client: usize, connection: usize, now: Nanos) -> [Ticket; 2] {
        let (who, ahead) = &self.clients[client];
        let ask = Ask {
            rules: &self.rules,
            who,
            identifier: &self.identifier,
            now,
            pressure: None,
        };
        let ahead = &ahead[connection];
        let (verdict, ticket) = self.knows.decide(&ask, Some(ahead)).now().unwrap();
        self.stood += u32::from(verdict.again);
        let (expected, other) = self.forgets.decide(&ask, None).now().unwrap();
        assert_eq!(verdict.admitted, expected.admitted);
        assert_eq!(verdict.deciding, expected.deciding);
        assert_eq!(verdict.findings.len(), expected.findings.len());
        for (one, other) in verdict.findings.iter().zip(&expected.findings) {
            assert_eq!((one.rule, one.key), (other.rule, other.key));
            assert_eq!(one.reading.standing, other.reading.standing);
            if verdict.admitted || !one.reading.standing.admits() {
                assert_eq!(one.reading, other.reading, "{:?}", self.rules[one.rule]);
            }
        }
        let deciders = [&verdict, &expected].map(|verdict| {
            let decider = verdict.disclosed_decider(&self.rules);
            decider.map(|finding| (finding.rule, finding.reading))
        });
        assert_eq!(deciders[0], deciders[1]);
        assert_eq!(self.seconds(&verdict), self.seconds(&expected));
        if verdict.again {
            let mut later = verdict.clone();
            let passed = Nanos(verdict.same_seconds(&self.rules).0 - 1);
            for finding in &mut later.findings {
                let Reading { wait, reset, .. } = &mut finding.reading;
                (*wait, *reset) = (wait.since(passed), reset.since(passed));
            }
            assert_eq!(self.seconds(&later), self.seconds(&verdict));
        }
        [ticket, other]
    }

    /// What clients are told of them.
    fn seconds(&self, verdict: &Verdict) -> [Option<u64>; 2] {
        let decider = verdict.disclosed_decider(&self.rules);
        let reset = |finding: &Finding| {
            let limit = &self.rules[finding.rule].limit;
            limit.seconds(finding.reading.reset)
        };
        [verdict.retry_after(&self.rules), decider.map(reset)]
    }

    fn forget(&self, dice: &mut Dice) {
        let rule = &dice.of(&self.rules.iter().collect::<Vec<_>>());
        let (who, _) = &self.clients[dice.below(3) as usize];
        let key = self.identifier.key(who, &rule.key).unwrap();
        for admission in [&self.knows, &self.forgets] {
            let slot = admission.slot(rule).unwrap();
            admission.store().reset(slot, key);
        }
    }
}

#[test]
fn a_refusal_that_stands_is_what_would_be_decided() {
    let mut stood = 0;
    for seed in 1..=400 {
        let dice = &mut Dice(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut two = Two::new(dice);
        let mut now = Nanos::from_secs(90_000);
        let mut open = Vec::new();
        for _ in 0..400 {
            now = now.after(match dice.below(40) {
                0 => Nanos(dice.below(70_000_000_000)),
                1..=8 => Nanos(dice.below(900_000_000)),
                _ => Nanos(dice.below(3_000_000)),
            });
            let client = dice.below(3).min(dice.below(3)) as usize;
            open.push(two.ask(client, dice.below(2) as usize, now));
            if dice.below(3) == 0 {
                for mut ticket in open.drain(..).flatten() {
                    ticket.settle(Outcome::Unsent, now);
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
