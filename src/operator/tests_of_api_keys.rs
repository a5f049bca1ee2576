//! API keys of a whole registry: a revocation is final, wherever it comes from, and what is kept can be read again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::identity::api_keys::ApiKeys;
use crate::identity::plan::Plan;
use crate::identity::{Settings as IdentitySettings, user};
use crate::store::shared::shared_entries::SharedEntries;

const NOW: Nanos = Nanos::from_secs(1_000_000);
const DAY_MILLIS: u64 = 86_400_000;

/// A gateway with API keys.
struct KeyGateway {
    entries: Arc<EntryRegistry>,
    keys: ApiKeyRegistry,
}

impl KeyGateway {
    fn open(file: Option<&Path>, clock: &Clock) -> KeyGateway {
        let entries = EntryRegistry::open(file, true, clock.clone());
        let entries = Arc::new(entries.unwrap_or_else(|error| panic!("{error}")));
        KeyGateway {
            keys: ApiKeyRegistry::new(entries.clone()),
            entries,
        }
    }

    /// Adds a key that ends after so many days, and returns its entry.
    fn add(&self, days: Option<u64>) -> OperatorEntry {
        let new_key = new_key(days.map(|days| Duration::from_secs(days * 86_400)));
        let added = self.keys.add(new_key, &settings());
        added.unwrap_or_else(|error| panic!("{error}")).listed.entry
    }

    /// Takes over an entry of the store.
    fn take(&self, entry: &OperatorEntry) {
        assert!(self.entries.merge(&[entry.to_stored_value().into_bytes()]));
    }

    fn entry(&self, id: &str) -> Option<OperatorEntry> {
        let state = self.entries.lock();
        let slot = state.entries.get(EntryKind::ApiKey, id);
        slot.map(|slot| slot.entry.clone())
    }

    fn is_revoked(&self, id: &str) -> bool {
        self.entry(id).is_some_and(|entry| entry.is_revoked)
    }
}

fn new_key(duration: Option<Duration>) -> NewApiKey {
    NewApiKey {
        user: "alice".into(),
        plan: None,
        identities: Default::default(),
        duration,
        name: String::new(),
        by: "test".into(),
    }
}

/// Keys at run time verify, and there is a plan whose name is too long for an entry.
fn settings() -> IdentitySettings {
    let keys = ApiKeys::default().with_runtime_keys(true);
    let mut settings = IdentitySettings {
        user_sources: vec![user::Settings::ApiKeys(keys.into())],
        ..IdentitySettings::default()
    };
    settings.plan.plans = vec![Plan {
        name: "p".repeat(257),
        plan_factor: 1,
        priority: None,
    }];
    settings
}

fn gateway() -> (KeyGateway, Clock) {
    let clock = Clock::manual(NOW);
    (KeyGateway::open(None, &clock), clock)
}

/// Whoever can write to the store has the entry from before the revocation.
#[test]
fn a_later_change_does_not_bring_a_revoked_key_back() -> Result<(), ApiKeyError> {
    for days in [None, Some(90)] {
        let (gateway, _) = gateway();
        let former = gateway.add(days);
        gateway.keys.revoke(&former.key, "ann")?;
        gateway.entries.take_unpublished(200);
        for ahead_millis in [3_600_000, 2 * DAY_MILLIS] {
            let back = OperatorEntry {
                changed_at: former.changed_at + ahead_millis,
                ..former.clone()
            };
            gateway.take(&back);
            assert!(gateway.is_revoked(&former.key) && gateway.keys.list().is_empty());
            // The store gets the revocation in its place.
            let taken = gateway.entries.take_unpublished(200);
            let value = back.to_stored_value();
            let has_removal = taken
                .iter()
                .any(|entry| entry.is_over && entry.value == value);
            let mut revocations = taken.iter().filter(|entry| !entry.is_over);
            let revocation = revocations.next().map(|entry| entry.value.clone());
            let revocation = revocation.unwrap_or_else(|| panic!("{days:?} {ahead_millis}"));
            assert!(revocation.contains("\"is_revoked\":true"), "{revocation}");
            assert!(has_removal || revocation > value, "{revocation}");
            // Another gateway sees both in either order.
            let parsed = OperatorEntry::parse_stored_value(&revocation);
            let parsed = parsed.unwrap_or_else(|| panic!("{revocation}"));
            for changes in [[&parsed, &back], [&back, &parsed]] {
                let mut map = EntryMap::default();
                for change in changes {
                    map.merge(change.clone());
                }
                let held = map.get(EntryKind::ApiKey, &former.key);
                assert!(held.is_some_and(|slot| slot.entry.is_revoked));
            }
        }
    }
    Ok(())
}

/// An operator has revoked it there, whatever the clock says.
#[test]
fn a_revocation_by_a_clock_that_is_far_ahead_counts() -> Result<(), ApiKeyError> {
    for days in [None, Some(90)] {
        let (gateway, clock) = gateway();
        let ahead = KeyGateway::open(None, &Clock::manual(Nanos::from_secs(1_300_000)));
        let entry = gateway.add(days);
        gateway.entries.take_unpublished(200);
        ahead.take(&entry);
        ahead.keys.revoke(&entry.key, "ann")?;
        let revocation = ahead
            .entry(&entry.key)
            .unwrap_or_else(|| panic!("no entry"));
        assert!(!revocation.is_credible(gateway.entries.wall_millis()));
        let stranger = KeyGateway::open(None, &clock);
        for other in [&gateway, &stranger] {
            other.take(&revocation);
            assert!(other.is_revoked(&entry.key));
            let held = other.entry(&entry.key);
            assert!(held.is_some_and(|held| held.is_credible(other.entries.wall_millis())));
            // The store has what is known.
            assert!(other.entries.take_unpublished(200).is_empty());
        }
    }
    Ok(())
}

/// Else programs that make keys without an end would fill the room in the long run.
#[test]
fn a_revoked_key_without_an_end_is_forgotten_after_two_years() -> Result<(), ApiKeyError> {
    let (gateway, clock) = gateway();
    let former = gateway.add(None);
    gateway.keys.revoke(&former.key, "ann")?;
    gateway.take(&former);
    clock.advance(Nanos::from_secs(2 * 365 * 86_400 - 1));
    gateway.entries.refresh();
    assert!(gateway.is_revoked(&former.key));
    clock.advance(Nanos::from_secs(1));
    gateway.entries.refresh();
    assert_eq!(gateway.entry(&former.key), None);
    Ok(())
}

#[test]
fn a_revocation_that_is_not_on_the_disk_says_so() -> Result<(), ApiKeyError> {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let gateway = KeyGateway::open(Some(&folder.path().join("orders")), &Clock::manual(NOW));
    let (first, second) = (gateway.add(None), gateway.add(None));
    assert!(gateway.keys.revoke(&first.key, "ann")?.is_kept);
    // A folder cannot be locked as a file.
    let lock = folder.path().join("orders.lock");
    let replaced = std::fs::remove_file(&lock).and_then(|()| std::fs::create_dir(&lock));
    assert!(replaced.is_ok());
    assert!(!gateway.keys.revoke(&second.key, "ann")?.is_kept);
    Ok(())
}

/// A line that is too long would be lost at the next start.
#[test]
fn what_could_not_be_read_again_is_refused() {
    let (gateway, _) = gateway();
    let with_plan = NewApiKey {
        plan: Some("p".repeat(257)),
        ..new_key(None)
    };
    let refused = gateway.keys.add(with_plan, &settings());
    assert!(matches!(refused, Err(ApiKeyError::TooLong("plan", 256))));
    let mut entry = gateway.add(None);
    entry.changed_at += 1;
    entry.reason = "r".repeat(OperatorEntry::MAX_REASON_BYTES + 1);
    assert_eq!(OperatorEntry::parse(&entry.to_line()), None);
    assert!(!gateway.entries.lock().change(entry));
    let new_grant = NewGrant {
        terms: GrantTerms {
            limit: "l".repeat(257),
            times: 2,
            add: 0,
        },
        key: "user=alice".into(),
        fingerprint: None,
        duration: Duration::from_secs(60),
        reason: String::new(),
        by: "test".into(),
    };
    let refused = GrantRegistry::new(gateway.entries.clone()).grant(new_grant);
    let too_long = GrantOrderError::TooLong("limit", 256);
    assert_eq!(refused.err(), Some(too_long));
}

/// Else a key could stand in the list by the id of another one.
#[test]
fn an_id_belongs_to_the_hash_of_its_key() {
    let (gateway, _) = gateway();
    let (first, second) = (gateway.add(None), gateway.add(None));
    assert!(first.is_possible());
    for id in ["", &second.key] {
        let other = OperatorEntry {
            key: id.into(),
            ..first.clone()
        };
        assert!(!other.is_possible(), "{id}");
    }
}

/// A flood of them would cost an index of all keys each time.
#[test]
fn bans_without_room_concern_no_keys() {
    let (gateway, _) = gateway();
    let publish = |group: EntryGroup| {
        gateway.keys.publish(&RefreshedEntries {
            changes: Vec::new(),
            changed_groups: [group].into(),
        });
        gateway.keys.runtime_keys().version()
    };
    let first = publish(EntryGroup::ApiKeys);
    assert_eq!(publish(EntryGroup::Bans), first);
    assert_eq!(publish(EntryGroup::ApiKeys), first + 1);
}
