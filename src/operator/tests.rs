//! Bans of a whole registry, in time that the tests move.

use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::identity::plan::Plan;
use crate::identity::{
    ClientIdentity, IdentificationStage, Identifier, Keyer, Settings as IdentitySettings,
};
use crate::limit::{BanPolicy, Identity, LimitName, Rate, RateLimit, Rule};

pub(super) fn identifier() -> Identifier {
    let mut settings = IdentitySettings::default();
    settings.plan.plans = vec![Plan {
        name: "free".into(),
        plan_factor: 1,
        priority: None,
    }];
    Identifier::new(settings, Keyer::new([3; 16]))
}

pub(super) fn registry() -> (BanRegistry, Clock) {
    let clock = Clock::manual(Nanos::from_secs(1_000_000));
    (open(None, &clock), clock)
}

/// The bans in this file.
pub(super) fn open(file: Option<&std::path::Path>, clock: &Clock) -> BanRegistry {
    let entries = EntryRegistry::open(file, true, clock.clone());
    BanRegistry::new(entries.unwrap_or_else(|error| panic!("{error}")).into())
}

pub(super) fn refresh(registry: &BanRegistry) -> Vec<EntryChange> {
    registry.ban_offenders();
    let refreshed = registry.entries().refresh();
    registry.publish(&refreshed, 1, identifier);
    refreshed.changes
}

pub(super) fn order(key: &str, seconds: u64) -> NewBan {
    NewBan {
        key: key.into(),
        duration: std::time::Duration::from_secs(seconds),
        reason: String::new(),
        by: "test".into(),
    }
}

/// Bans whoever is refused once, for an hour.
const POLICY: BanPolicy = BanPolicy {
    refusals: 1,
    within: Nanos::from_secs(60),
    first: Nanos::from_secs(3_600),
    up_to: Nanos::from_secs(3_600),
};

fn rule(key: &[Identity]) -> Rule {
    let rate = "1/h".parse::<Rate>();
    let rate = rate.unwrap_or_else(|error| panic!("{error}"));
    let name = LimitName::new("few").unwrap_or_else(|error| panic!("{error}"));
    Rule::new(name, 0, key, RateLimit::hard(rate))
}

/// A limit with this key refuses this client. The next refresh bans it.
fn refuse(registry: &BanRegistry, key: &[Identity], client: &ClientIdentity, clock: &Clock) {
    let (rule, identifier) = (rule(key), identifier());
    let Some(key) = identifier.key(client, &rule.key) else {
        panic!("the client has no key");
    };
    registry.report_refusal((&rule, &POLICY), key, client, &identifier, clock.now());
}

/// A limit refuses this address.
pub(super) fn offender_of(registry: &BanRegistry, address: [u8; 4], clock: &Clock) {
    let client = ClientIdentity::new(address.into());
    refuse(registry, &[Identity::Ip], &client, clock);
}

fn keys(registry: &BanRegistry) -> Vec<String> {
    let bans = registry.list().into_iter();
    bans.map(|ban| ban.entry.key).collect()
}

/// Such a key is lifted as it is listed, because nobody knows the address.
#[test]
fn keys_that_show_only_a_hash_are_lifted_as_they_are_listed() -> Result<(), BanError> {
    let (registry, clock) = registry();
    let long_name = "n".repeat(OperatorEntry::MAX_KEY_BYTES);
    for user in ["ann@example.com", &long_name] {
        let mut client = ClientIdentity::new([192, 0, 2, 7].into());
        client.user = Some(user.into());
        refuse(&registry, &[Identity::User], &client, &clock);
        refresh(&registry);
        let listed = keys(&registry);
        let [key] = listed.as_slice() else {
            panic!("{user} is not banned");
        };
        assert!(key.starts_with("user=#"), "{key}");
        let index = registry.index();
        let stage = IdentificationStage::Whole;
        let found = index.find_client(&client, &identifier(), stage, clock.now());
        assert!(found.is_some(), "{key}");
        registry.lift(key, "ann\u{7}", &identifier())?;
        assert!(registry.list().is_empty());
        let lifted = refresh(&registry).remove(0);
        assert_eq!(lifted.kind, ChangeKind::Revoked);
        assert_eq!(lifted.entry.by, "ann ", "no control characters");
    }
    Ok(())
}

#[test]
fn a_refusal_by_the_plan_alone_bans_nobody() {
    let (registry, clock) = registry();
    let mut client = ClientIdentity::new([192, 0, 2, 7].into());
    client.plan = Some(0);
    refuse(
        &registry,
        &[Identity::User, Identity::Plan],
        &client,
        &clock,
    );
    refresh(&registry);
    assert!(registry.list().is_empty());
}

#[test]
fn one_key_is_banned_once_however_it_is_written() -> Result<(), BanError> {
    let (registry, _) = registry();
    for key in ["user=a,ip=192.0.2.7", "ip=192.0.2.7,user=a"] {
        registry.ban(order(key, 60), &identifier())?;
    }
    assert_eq!(keys(&registry), ["ip=192.0.2.7,user=a"]);
    for network in ["2002:c000:200::/40", "2001:0:1::/48"] {
        let outcome = registry.ban(order(network, 60), &identifier());
        assert!(matches!(outcome, Err(BanError::Tunnels(_))), "{network}");
    }
    Ok(())
}

/// Also where a key has other parts, its address must be clear.
#[test]
fn the_address_matters_to_bans_of_keys_with_an_address() -> Result<(), BanError> {
    let (registry, _) = registry();
    registry.ban(order("user=a", 60), &identifier())?;
    refresh(&registry);
    assert!(!registry.index().needs_address());
    registry.ban(order("ip=192.0.2.7,user=a", 60), &identifier())?;
    refresh(&registry);
    assert!(registry.index().needs_address());
    Ok(())
}

#[test]
fn a_ban_begins_and_ends_once() -> Result<(), BanError> {
    let (registry, clock) = registry();
    assert_eq!(registry.version(), 0, "without bans there is no index");
    assert!(refresh(&registry).is_empty());
    assert_eq!(registry.version(), 0);
    registry.ban(order("192.0.2.7", 10), &identifier())?;
    let kinds =
        |changes: Vec<EntryChange>| changes.iter().map(|change| change.kind).collect::<Vec<_>>();
    assert_eq!(kinds(refresh(&registry)), [ChangeKind::Ordered]);
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
    assert_eq!(kinds(refresh(&registry)), [ChangeKind::Ended]);
    assert!(registry.index().is_empty());
    Ok(())
}
