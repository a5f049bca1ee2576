//! Used credits stay used over restarts, whatever the store and the policies are in between.

use super::*;

const ADDED: u32 = 1_000;

/// A limit whose keys have [`ADDED`] credits.
fn credits() -> RateLimit {
    let limit = RuleLimit::from(RateLimit::of_credits(false));
    let grant = LimitGrant {
        times: 1,
        add: ADDED,
    };
    limit.granted(grant).unwrap().rate().unwrap().clone()
}

/// Uses one credit of each key.
fn use_one_of_each(subject: &TestStore) {
    for number in 0..KEYS {
        let (limit, slot) = &subject.limits[0];
        let item = LimitItem {
            limit,
            slot: *slot,
            key: key(number),
            cost: 1,
            scale: Scale::plan(1),
            is_shadow: false,
            parents: &[],
        };
        assert!(subject.memory.take(&[item], START, &mut SmallVec::new()));
    }
}

fn assert_used(subject: &TestStore, used: u32) {
    for number in 0..KEYS {
        let (_, finding) = subject.peek(0, number, Scale::plan(1), START);
        assert_eq!(finding.remaining, ADDED - used, "{number}");
    }
}

/// A store with the counts of another one.
fn restart(before: &TestStore, budget: usize, limits: &[RateLimit]) -> TestStore {
    let after = TestStore::new(budget, limits);
    let file = before.snapshot(&Clock::manual(START));
    let loaded = load_snapshot(&file[..], &after.memory, START).unwrap();
    assert_eq!((loaded.dropped_count, loaded.lost_credit_count), (0, 0));
    after
}

/// In a larger table each entry has copies, which are never fresh and lag behind.
#[test]
fn used_credits_outlive_changes_of_the_memory() {
    let limits = [credits()];
    let mut subject = TestStore::new(1 << 20, &limits);
    use_one_of_each(&subject);
    let budgets = [8 << 20, 1 << 20, 4 << 20, 2 << 20, 8 << 20, 1 << 20];
    for (used, budget) in (2..).zip(budgets) {
        subject = restart(&subject, budget, &limits);
        use_one_of_each(&subject);
        assert_used(&subject, used);
    }
}

#[test]
fn used_credits_outlive_a_process_without_their_limit() {
    let limits = [credits()];
    let before = TestStore::new(1 << 20, &limits);
    use_one_of_each(&before);
    let without = restart(&before, 1 << 20, &[]);
    let again = restart(&without, 1 << 20, &limits);
    assert_used(&again, 1);
    // In the meantime the name was that of a rate.
    let rate = RateLimit::hard("5/m".parse().unwrap());
    let with_rate = restart(&again, 1 << 20, &[rate]);
    assert!(with_rate.peek(0, 1, Scale::plan(1), START).0);
    assert_used(&restart(&with_rate, 1 << 20, &limits), 1);
}
