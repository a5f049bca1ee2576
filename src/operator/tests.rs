//! Bans of a whole registry, in time that the tests move.

use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::identity::{ClientIdentity, Identifier, Keyer, Settings as IdentitySettings};
use crate::limit::{BanPolicy, Identity, LimitName, Rate, RateLimit, Rule};

fn identifier() -> Identifier {
    Identifier::new(IdentitySettings::default(), Keyer::new([3; 16]))
}

fn registry() -> (BanRegistry, Clock) {
    let clock = Clock::manual(Nanos::from_secs(1_000_000));
    let registry = BanRegistry::open(None, true, clock.clone());
    (registry.unwrap_or_else(|error| panic!("{error}")), clock)
}

fn refresh(registry: &BanRegistry) -> Vec<BanChange> {
    registry.refresh(1, identifier)
}

fn order(key: &str, seconds: u64) -> NewBan {
    NewBan {
        key: key.into(),
        duration: std::time::Duration::from_secs(seconds),
        reason: String::new(),
        by: "test".into(),
    }
}

#[test]
fn a_ban_begins_and_ends_once() -> Result<(), BanError> {
    let (registry, clock) = registry();
    assert_eq!(registry.version(), 0, "without bans there is no index");
    assert!(refresh(&registry).is_empty());
    assert_eq!(registry.version(), 0);
    registry.ban(order("192.0.2.7", 10), &identifier())?;
    let kinds =
        |changes: Vec<BanChange>| changes.iter().map(|change| change.kind).collect::<Vec<_>>();
    assert_eq!(kinds(refresh(&registry)), [BanChangeKind::Banned]);
    assert!(refresh(&registry).is_empty());
    let address = "192.0.2.7".parse().unwrap_or([0; 4].into());
    assert!(
        registry
            .index()
            .find_address(address, clock.now())
            .is_some()
    );
    clock.advance(Nanos::from_secs(10));
    // The index knows the end by itself.
    assert!(
        registry
            .index()
            .find_address(address, clock.now())
            .is_none()
    );
    assert_eq!(kinds(refresh(&registry)), [BanChangeKind::Ended]);
    assert!(registry.index().is_empty());
    Ok(())
}

/// What a flood of offenders takes and displaces, without the requests.
#[test]
fn a_million_offenders_displace_no_order_and_take_bounded_memory() -> Result<(), BanError> {
    let (registry, clock) = registry();
    let identifier = identifier();
    for number in 0..100 {
        registry.ban(order(&format!("user=u{number}"), 1_800), &identifier)?;
    }
    let policy = BanPolicy {
        refusals: 1,
        within: Nanos::from_secs(60),
        first: Nanos::from_secs(3_600),
        up_to: Nanos::from_secs(3_600),
    };
    let rate = "1/h"
        .parse::<Rate>()
        .unwrap_or_else(|error| panic!("{error}"));
    let name = LimitName::new("few").unwrap_or_else(|error| panic!("{error}"));
    let rule = Rule::new(name, 0, &[Identity::Ip], RateLimit::hard(rate));
    for number in 0..1_000_000_u32 {
        let client = ClientIdentity::new(number.to_be_bytes().into());
        let Some(key) = identifier.key(&client, &rule.key) else {
            panic!("every client has an address");
        };
        registry.report_refusal((&rule, &policy), key, &client, &identifier, clock.now());
        if number % 50_000 == 0 {
            clock.advance(Nanos::from_millis(200));
            refresh(&registry);
        }
    }
    refresh(&registry);
    let bans = registry.list();
    assert_eq!(bans.len(), EntryMap::MAX_ENTRIES);
    let ordered = bans.iter().filter(|ban| !ban.entry.is_automatic()).count();
    assert_eq!(ordered, 100, "every order is left");
    let bytes: usize = bans.iter().map(|ban| ban.entry.to_line().len()).sum();
    println!(
        "{} bans of a million offenders have {bytes} bytes of text",
        bans.len()
    );
    assert!(bytes < 5 << 20, "{bytes}");
    assert!(registry.ban(order("user=late", 60), &identifier).is_ok());
    refresh(&registry);
    assert_eq!(registry.list().len(), EntryMap::MAX_ENTRIES);
    Ok(())
}
