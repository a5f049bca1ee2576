//! What a registry takes from a shared store and gives to it.

use super::tests::{identifier, offender_of, open, order, refresh, registry};
use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::shared_entries::{SharedEntries, StoredEntry};

/// A store of entries in memory, with all values that were ever written.
#[derive(Default)]
pub(super) struct Store(std::collections::BTreeMap<String, String>);

impl Store {
    /// Does with an entry what the real stores do.
    fn write(&mut self, entries: Vec<StoredEntry>) {
        let order = |value: &str| value.get(..30).unwrap_or_default().to_owned();
        for entry in entries {
            let stored = self.0.get(&entry.name).map(|value| order(value));
            let is_newer = stored.as_ref() < Some(&order(&entry.value));
            match entry.is_over {
                true if stored.is_some() && stored <= Some(order(&entry.value)) => {
                    self.0.remove(&entry.name);
                }
                false if is_newer => {
                    self.0.insert(entry.name, entry.value);
                }
                _ => {}
            }
        }
    }

    pub(super) fn values(&self) -> Vec<Vec<u8>> {
        self.0.values().map(|value| value.clone().into()).collect()
    }

    /// Lets a gateway write and read, until it has nothing to write any more.
    pub(super) fn exchange(&mut self, entries: &EntryRegistry) {
        assert!(entries.merge(&self.values()));
        loop {
            let taken = entries.take_unpublished(200);
            if taken.is_empty() {
                break;
            }
            self.write(taken);
        }
        assert!(entries.merge(&self.values()));
    }
}

/// Another gateway with the same clock.
fn other_gateway(clock: &Clock) -> BanRegistry {
    open(None, clock)
}

/// The seconds that the ban of a key still lasts.
fn seconds_left(registry: &BanRegistry, clock: &Clock, key: &str) -> Option<u64> {
    let bans = registry.list();
    let ban = bans.iter().find(|ban| ban.entry.key == key)?;
    Some(ban.entry.until / 1_000 - clock.wall().as_secs())
}

/// The limit of the second gateway does not know yet what was ordered at the first one.
#[test]
fn a_later_ban_by_a_limit_elsewhere_does_not_shorten_an_order() -> Result<(), BanError> {
    let (first, clock) = registry();
    let second = other_gateway(&clock);
    let mut store = Store::default();
    first.ban(order("192.0.2.7", 604_800), &identifier())?;
    clock.advance(Nanos::from_secs(1));
    offender_of(&second, [192, 0, 2, 7], &clock);
    refresh(&second);
    assert_eq!(seconds_left(&second, &clock, "ip=192.0.2.7"), Some(3_600));
    for registry in [&first, &second, &first] {
        store.exchange(registry.entries());
    }
    for registry in [&first, &second] {
        let seconds = seconds_left(registry, &clock, "ip=192.0.2.7");
        assert_eq!(seconds, Some(604_799));
    }
    // Lifted means lifted, whoever has banned.
    second.lift("192.0.2.7", "ann", &identifier())?;
    store.exchange(second.entries());
    store.exchange(first.entries());
    assert!(first.list().is_empty() && second.list().is_empty());
    Ok(())
}

#[test]
fn a_flood_of_offenders_is_shared_bit_by_bit_after_the_orders() -> Result<(), BanError> {
    let (registry, clock) = registry();
    for number in 0..1_000_u32 {
        let [_, _, high, low] = number.to_be_bytes();
        offender_of(&registry, [198, 51, high, low], &clock);
    }
    refresh(&registry);
    registry.ban(order("user=alice", 60), &identifier())?;
    let taken = registry.entries().take_unpublished(200);
    assert_eq!(taken.len(), 21);
    assert_eq!(taken[0].name, "ban user=alice");
    assert!(taken[1..].iter().all(|entry| entry.name.starts_with('~')));
    assert_eq!(registry.entries().take_unpublished(200).len(), 20);
    Ok(())
}

#[test]
fn what_is_beyond_the_bound_leaves_the_store_too() -> Result<(), BanError> {
    let (first, clock) = registry();
    let mut store = Store::default();
    let second = other_gateway(&clock);
    for (registry, network) in [(&first, 10), (&second, 20)] {
        for number in 0..BanRegistry::MAX_BANS as u32 {
            let [_, _, high, low] = number.to_be_bytes();
            offender_of(registry, [100, network, high, low], &clock);
        }
        refresh(registry);
        store.exchange(registry.entries());
    }
    for registry in [&first, &second] {
        store.exchange(registry.entries());
        assert_eq!(registry.list().len(), BanRegistry::MAX_BANS);
    }
    assert!(store.0.len() <= BanRegistry::MAX_BANS, "{}", store.0.len());
    Ok(())
}

#[test]
fn what_no_gateway_has_written_stops_nothing() -> Result<(), BanError> {
    let (first, clock) = registry();
    first.ban(order("user=alice", 60), &identifier())?;
    let mut store = Store::default();
    store.exchange(first.entries());
    let entry = first.list().remove(0).entry;
    let liar = OperatorEntry {
        key: "user=bob".into(),
        ..entry.clone()
    };
    let future = OperatorEntry {
        key: "user=carl".into(),
        changed_at: entry.changed_at + 2 * 86_400_000,
        ..entry.clone()
    };
    let everyone = OperatorEntry {
        key: "ip=0.0.0.0/0".into(),
        ..entry
    };
    let lie = "9".repeat(30) + &liar.to_line();
    let values = [
        b"\xff\xfe".to_vec(),
        b"short".to_vec(),
        lie.clone().into_bytes(),
        future.to_stored_value().into_bytes(),
        everyone.to_stored_value().into_bytes(),
    ];
    let second = other_gateway(&clock);
    assert!(
        second
            .entries()
            .merge(&[store.values(), values.to_vec()].concat())
    );
    refresh(&second);
    let keys: Vec<String> = second.list().into_iter().map(|ban| ban.entry.key).collect();
    assert_eq!(keys, ["user=alice"]);
    // What hides all later changes or bans everybody is removed; what a newer gateway may have written is not.
    let removed: Vec<_> = second.entries().take_unpublished(200);
    let removed: Vec<_> = removed.iter().filter(|entry| entry.is_over).collect();
    let names: Vec<&str> = removed.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["ban user=bob", "ban ip=0.0.0.0/0"]);
    assert_eq!(removed[0].value, lie);
    Ok(())
}

/// The clocks of other gateways may be behind, and then what has ended here still holds there.
#[test]
fn what_has_ended_leaves_the_store_after_a_while_only() -> Result<(), BanError> {
    let (first, clock) = registry();
    first.ban(order("user=alice", 4_000), &identifier())?;
    let mut store = Store::default();
    store.exchange(first.entries());
    let second = other_gateway(&clock);
    // The gateways run for more than an hour then.
    clock.advance(Nanos::from_secs(4_000 + 14 * 60));
    store.exchange(second.entries());
    assert_eq!(store.0.len(), 1, "others may still need it");
    assert!(second.list().is_empty());
    clock.advance(Nanos::from_secs(2 * 60));
    store.exchange(second.entries());
    assert!(store.0.is_empty());
    Ok(())
}

/// A change that does not count must not look as if it did.
#[test]
fn an_order_about_a_key_with_an_impossible_time_is_refused() -> Result<(), BanError> {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("orders");
    let clock = Clock::manual(Nanos::from_secs(1_000_000));
    let open = || open(Some(&path), &clock);
    open().ban(order("user=alice", 60), &identifier())?;
    let entry = open().list().remove(0).entry;
    for changed_at in [u64::MAX, 32_503_680_000_000 - 1] {
        let mut entries = EntryMap::default();
        entries.merge(OperatorEntry {
            changed_at,
            ..entry.clone()
        });
        let _ = std::fs::remove_file(&path);
        let saved = EntryFile::new(&path)
            .and_then(|mut file| file.save(&mut entries, &mut std::collections::BTreeSet::new()));
        assert!(saved.is_ok());
        let registry = open();
        let outcome = registry.lift("user=alice", "ann", &identifier());
        match changed_at {
            // Such a line of the file counts as damaged.
            u64::MAX => assert!(matches!(outcome, Err(BanError::NotBanned(_)))),
            _ => {
                assert!(matches!(outcome, Err(BanError::Superseded(_))));
                let again = registry.ban(order("user=alice", 90), &identifier());
                assert!(matches!(again, Err(BanError::Superseded(_))));
            }
        }
    }
    Ok(())
}

/// What the store's keeper does for other gateways must not wait either.
#[test]
fn the_store_does_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("orders");
    let clock = Clock::manual(Nanos::from_secs(1_000_000));
    let registry = open(Some(&path), &clock);
    let lock = std::fs::File::create(folder.path().join("orders.lock"));
    let lock = lock.unwrap_or_else(|error| panic!("{error}"));
    assert!(lock.lock().is_ok());
    let registry = &registry;
    std::thread::scope(|scope| {
        let order = scope.spawn(|| registry.ban(order("user=alice", 60), &identifier()));
        // It is taken over at once until the order waits for the disk.
        let keeper = scope.spawn(|| {
            while registry.entries().merge(&[]) {
                std::thread::yield_now();
            }
            registry.entries().take_unpublished(200).len()
        });
        for _ in 0..1_000 {
            if keeper.is_finished() {
                break;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        assert!(keeper.is_finished() && !order.is_finished());
        drop(lock);
        assert!(keeper.join().is_ok_and(|count| count == 0));
        assert!(order.join().is_ok_and(|order| order.is_ok()));
    });
    assert!(registry.entries().merge(&[]));
    assert_eq!(registry.entries().take_unpublished(200).len(), 1);
}

/// Both clocks are right again later, and nothing is lost.
#[test]
fn a_clock_that_is_far_ahead_at_the_start_forgets_nothing() -> Result<(), BanError> {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = folder.path().join("orders");
    let open = |seconds| open(Some(&path), &Clock::manual(Nanos::from_secs(seconds)));
    open(1_000_000).ban(order("user=alice", 3_600), &identifier())?;
    let ahead = open(100_000_000);
    refresh(&ahead);
    assert!(ahead.list().is_empty());
    ahead.ban(order("user=bob", 60), &identifier())?;
    let right = open(1_000_001);
    assert!(right.list().iter().any(|ban| ban.entry.key == "user=alice"));
    Ok(())
}
