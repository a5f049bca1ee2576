//! Accounts of credits of whole registries: what several gateways, processes and files know of one is joined, and none is
//! dropped.

use std::path::Path;
use std::sync::Arc;

use super::tests_of_sharing::Store;
use super::*;
use crate::base::clock::{Clock, Nanos};
use crate::store::shared::shared_entries::SharedEntries;

const NOW: Nanos = Nanos::from_secs(1_800_000_000);
const DAY: Nanos = Nanos::from_secs(86_400);

/// A gateway with accounts.
struct AccountGateway {
    entries: Arc<EntryRegistry>,
    grants: GrantRegistry,
    clock: Clock,
}

impl AccountGateway {
    fn open(file: Option<&Path>, clock: &Clock) -> AccountGateway {
        let entries = EntryRegistry::open(file, true, clock.clone());
        let entries = Arc::new(entries.unwrap_or_else(|error| panic!("{error}")));
        AccountGateway {
            grants: GrantRegistry::new(entries.clone()),
            entries,
            clock: clock.clone(),
        }
    }

    fn try_add(&self, key: &str, add: u32, order: Option<&str>) -> Result<u32, GrantOrderError> {
        let added = self.grants.add_credits(NewCredits {
            limit: "prepaid".into(),
            key: key.into(),
            fingerprint: None,
            add,
            order: order.map(str::to_owned),
            reason: String::new(),
            by: "ann".into(),
        });
        added.map(|(account, _)| account.terms.add)
    }

    #[track_caller]
    fn add(&self, key: &str, add: u32) -> u32 {
        let added = self.try_add(key, add, None);
        added.unwrap_or_else(|error| panic!("{error}"))
    }

    fn added(&self, key: &str) -> u32 {
        let account = self.grants.find_account("prepaid", key);
        account.map_or(0, |account| account.terms.add)
    }

    /// Takes over what another process has written to the file. Returns the units of the orders that are reported, sorted.
    fn refresh(&self) -> Vec<i64> {
        let refreshed = self.entries.refresh();
        let orders = refreshed
            .changes
            .into_iter()
            .filter_map(|change| change.order);
        let mut units: Vec<i64> = orders.map(|order| order.units).collect();
        units.sort_unstable();
        units
    }
}

fn clock() -> Clock {
    Clock::manual(NOW)
}

#[test]
fn gateways_with_one_store_know_all_orders() {
    let clock = clock();
    let gateways = [(); 3].map(|()| AccountGateway::open(None, &clock));
    let mut store = Store::default();
    let mut expected = 0;
    // For weeks, so that old orders lose their ids meanwhile.
    for round in 0..40_u32 {
        for (index, gateway) in gateways.iter().enumerate() {
            let add = 1 + round * 3 + index as u32;
            gateway.add("user=alice", add);
            expected += add;
            // One of them has no store in each round.
            if index != round as usize % 3 {
                store.exchange(&gateway.entries);
            }
        }
        clock.advance(DAY);
    }
    for gateway in gateways.iter().chain(&gateways) {
        store.exchange(&gateway.entries);
    }
    for gateway in &gateways {
        assert_eq!(gateway.added("user=alice"), expected);
    }
    let account = gateways[0].grants.find_account("prepaid", "user=alice");
    let terms = account.and_then(|account| account.entry.credit_terms().cloned());
    let terms = terms.unwrap_or_else(|| CreditTerms::new(String::new()));
    assert!(terms.earlier.count > 50, "{terms:?}");
    assert_eq!(terms.earlier.count + terms.orders.len() as u64, 120);
    let reported = gateways.each_ref().map(|gateway| gateway.refresh().len());
    assert_eq!(reported, [120, 120, 120], "each order once");
    // Nothing is written any more where nothing is ordered.
    for gateway in &gateways {
        assert!(gateway.entries.take_unpublished(200).is_empty());
        assert!(gateway.refresh().is_empty());
    }
}

/// While one takes over from the other.
#[test]
fn processes_with_one_file_know_all_orders() -> std::io::Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("orders");
    let clock = clock();
    let first = AccountGateway::open(Some(&path), &clock);
    first.add("user=alice", 1);
    assert_eq!(first.refresh(), [1]);
    let second = AccountGateway::open(Some(&path), &clock);
    assert!(second.refresh().is_empty(), "it was on the disk");
    assert_eq!(second.add("user=alice", 20), 21);
    first.add("user=alice", 300);
    assert_eq!(second.add("user=alice", 4_000), 4_321);
    first.refresh();
    assert_eq!(first.added("user=alice"), 4_321);
    assert_eq!(second.refresh(), [20, 300, 4_000]);
    // Each of them publishes what it has learnt.
    let published = second.entries.take_unpublished(9).pop();
    let published = published.and_then(|stored| OperatorEntry::parse_stored_value(&stored.value));
    let terms = published.and_then(|entry| entry.credit_terms().cloned());
    assert_eq!(terms.map(|terms| terms.added()), Some(4_321));
    drop((first, second));
    assert_eq!(
        AccountGateway::open(Some(&path), &clock).added("user=alice"),
        4_321
    );
    Ok(())
}

#[test]
fn what_a_clock_that_is_far_ahead_has_written_hides_nothing() {
    let gateway = AccountGateway::open(None, &clock());
    let ahead = AccountGateway::open(None, &Clock::manual(NOW.after(DAY).after(DAY)));
    let mut store = Store::default();
    gateway.add("user=alice", 30);
    store.exchange(&gateway.entries);
    store.exchange(&ahead.entries);
    assert_eq!(ahead.add("user=alice", 5), 35);
    store.exchange(&ahead.entries);
    store.exchange(&gateway.entries);
    assert_eq!(gateway.added("user=alice"), 30);
    // Orders still come to others by the store.
    assert_eq!(gateway.add("user=alice", 100), 130);
    store.exchange(&gateway.entries);
    let third = AccountGateway::open(None, &clock());
    store.exchange(&third.entries);
    assert_eq!(third.added("user=alice"), 130);
    // When the time has come, it counts.
    gateway.clock.advance(Nanos::from_secs(86_401));
    store.exchange(&ahead.entries);
    store.exchange(&gateway.entries);
    assert_eq!(gateway.added("user=alice"), 135);
}

/// Whoever can write to the store must neither hide orders of today nor move credits to another key.
#[test]
fn forged_accounts_of_a_store_take_no_credits() {
    let gateway = AccountGateway::open(None, &clock());
    gateway.add("user=alice", 30);
    let account = gateway.grants.find_account("prepaid", "user=alice");
    let Some(entry) = account.map(|account| account.entry) else {
        panic!("no account");
    };
    let forge = |through: u64, hash: Option<&str>| {
        let mut forged = entry.clone();
        forged.changed_at += 1;
        forged.hash = hash.map(str::to_owned);
        if let Some(EntryTerms::Credit(terms)) = &mut forged.terms {
            terms.earlier.through = through;
            terms.orders.retain(|order| order.at > through);
        }
        vec![forged.to_stored_value().into_bytes()]
    };
    let ahead = gateway.entries.wall_millis() + 3_600_000;
    assert!(gateway.entries.merge(&forge(ahead, None)));
    assert_eq!(gateway.added("user=alice"), 30);
    let written = gateway.entries.take_unpublished(9);
    let is_over: Vec<bool> = written.iter().map(|stored| stored.is_over).collect();
    assert_eq!(
        is_over,
        [true, false],
        "what hides it leaves, and it comes back"
    );
    assert!(
        gateway
            .entries
            .merge(&forge(0, Some("000102030405060708090a0b0c0d0e0f")))
    );
    let account = gateway.grants.find_account("prepaid", "user=alice");
    assert_eq!(account.map(|account| account.entry.hash), Some(None));
}

#[test]
fn accounts_have_a_bound_in_a_shared_store() {
    let gateway = AccountGateway::open(None, &clock());
    let mut store = Store::default();
    store.exchange(&gateway.entries);
    let mut results = (0..10_000).map(|number| {
        let id = format!("{number:064}");
        gateway.try_add(&format!("user={number:0500}"), 1, Some(&id))
    });
    let refused = results.find_map(Result::err);
    store.exchange(&gateway.entries);
    assert_eq!(refused, Some(GrantOrderError::OrdersFull(8)));
    let bytes: usize = store.values().iter().map(Vec::len).sum();
    let mebibyte = 1024 * 1024;
    assert!((6 * mebibyte..10 * mebibyte).contains(&bytes), "{bytes}");
}

/// Also after years, and by bans, which have a bound of their own.
#[test]
fn no_account_is_dropped() {
    let gateway = AccountGateway::open(None, &clock());
    for number in 0..GrantRegistry::MAX_ACCOUNTS {
        gateway.add(&format!("user={number}"), 1);
    }
    let full = gateway.try_add("user=more", 1, None);
    assert_eq!(full, Err(GrantOrderError::AccountsFull(10_000)));
    assert_eq!(
        gateway.add("user=7", 5),
        6,
        "accounts that there are take orders"
    );
    gateway.clock.advance(Nanos::from_secs(20 * 366 * 86_400));
    gateway.refresh();
    assert_eq!(gateway.grants.list().len(), GrantRegistry::MAX_ACCOUNTS);
    // Two gateways have opened accounts at once.
    let other = AccountGateway::open(None, &gateway.clock);
    for number in 0..2_000 {
        other.add(&format!("user=other-{number}"), 1);
    }
    let mut store = Store::default();
    for gateway in [&gateway, &other, &gateway] {
        store.exchange(&gateway.entries);
    }
    for gateway in [&gateway, &other] {
        assert_eq!(gateway.grants.list().len(), 12_000);
    }
}

#[test]
fn the_largest_account_can_be_kept_and_shared() {
    let clock = clock();
    let gateways = (0..4).map(|number: usize| {
        let gateway = AccountGateway::open(None, &clock);
        for order in 0..CreditTerms::MAX_ORDERS {
            let id = format!("{number:032}{order:032}");
            let added = gateway.try_add("user=alice", 10_000_000, Some(&id));
            assert!(added.is_ok(), "{added:?}");
        }
        let refused = gateway.try_add("user=alice", 1, None);
        assert_eq!(refused, Err(GrantOrderError::TooManyOrders(64)));
        gateway
    });
    let gateways: Vec<AccountGateway> = gateways.collect();
    let mut store = Store::default();
    for gateway in gateways.iter().chain(&gateways) {
        store.exchange(&gateway.entries);
    }
    let values = store.values();
    assert!(values[0].len() < 48 * 1024, "{}", values[0].len());
    let new = AccountGateway::open(None, &clock);
    assert!(new.entries.merge(&values));
    assert_eq!(
        new.added("user=alice"),
        1_000_000_000,
        "no more can be counted"
    );
}

#[test]
fn what_is_left_is_taken_back_with_all_that_was_ordered() {
    let gateway = AccountGateway::open(None, &clock());
    gateway.add("user=alice", 50);
    let find = || gateway.grants.find_account("prepaid", "user=alice");
    let Some(account) = find() else {
        panic!("no account");
    };
    gateway.add("user=alice", 5);
    let stale = gateway.grants.take_credits_back(&account, 50, "ann");
    assert_eq!(stale.err(), Some(GrantOrderError::ChangedMeanwhile));
    let Some(account) = find() else {
        panic!("no account");
    };
    let taken = gateway.grants.take_credits_back(&account, 45, "ann");
    assert_eq!(taken.map(|account| account.terms.add), Ok(10));
    assert_eq!(gateway.refresh(), [-45, 5, 50]);
}
