//! Credits: whatever happens in between, exactly those that were added are used.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::base::clock::WallOffset;
use crate::limit::{LimitGrant, RuleLimit};
use crate::store::RegisteredLimit;

/// The account of one key, and what the store must say of it.
struct Account {
    memory: MemoryStore,
    registered: RegisteredLimit,
    empty: RuleLimit,
    now: Nanos,
    added: u32,
    used: u32,
    /// The reservations that are not settled.
    open: Vec<u32>,
}

impl Account {
    fn new(reserves: bool) -> Account {
        let memory = store(Settings::MIN_BUDGET_BYTES);
        let empty = RateLimit::of_credits(reserves);
        let registered = memory.register("credits", &empty).unwrap();
        Account {
            memory,
            registered,
            empty: empty.into(),
            now: START,
            added: 0,
            used: 0,
            open: Vec::new(),
        }
    }

    /// The limit of the key, as the last order has made it.
    fn limit(&self) -> RateLimit {
        let grant = LimitGrant {
            times: 1,
            add: self.added,
        };
        self.empty.granted(grant).unwrap().rate().unwrap().clone()
    }

    fn left(&self) -> u32 {
        self.added - self.used - self.open.iter().sum::<u32>()
    }

    /// Asks for so many credits, which are used or reserved if there are as many.
    fn ask(&mut self, cost: u32) -> bool {
        let limit = self.limit();
        let item = LimitItem {
            cost,
            ..item(&limit, self.registered.slot(), 7)
        };
        let (is_admitted, findings) = take(&self.memory, &[item], self.now);
        assert_eq!(is_admitted, cost <= self.left());
        if is_admitted {
            match limit.reserves {
                true => self.open.push(cost),
                false => self.used += cost,
            }
        }
        let finding = &findings[0];
        assert_eq!(
            (finding.quota, finding.remaining),
            (self.added, self.left())
        );
        let expected = match is_admitted {
            true => LimitStanding::Within,
            false => LimitStanding::Refused,
        };
        assert_eq!(finding.standing, expected, "credits may be added later");
        is_admitted
    }

    /// Settles a reservation, of which a part was used.
    fn settle(&mut self, part: u32) {
        let Some(reserved) = self.open.pop() else {
            return;
        };
        let limit = self.limit();
        let item = LimitItem {
            cost: reserved,
            ..item(&limit, self.registered.slot(), 7)
        };
        let used = part % (reserved + 1);
        self.memory.settle(&item, false, used, self.now);
        self.used += used;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn exactly_what_was_added_is_used(
        reserves in any::<bool>(),
        steps in vec((0u32..9, 0u32..50, any::<u32>()), 1..120),
    ) {
        let mut account = Account::new(reserves);
        for (kind, units, second) in steps {
            match kind {
                0 | 1 => account.added += units,
                2 => account.now = account.now.after(Nanos::from_secs(u64::from(second) / 50)),
                // The clock is set to anything from 1970 to 2106.
                3 => {
                    let wall = Nanos::from_secs(u64::from(second)).0.cast_signed();
                    account.memory.set_wall(WallOffset(wall - account.now.0.cast_signed()));
                }
                4 => _ = account.memory.cells.evict_fresh_cells(account.now, u32::MAX),
                5 => account.settle(second),
                _ => _ = account.ask(units),
            }
        }
        let left = account.left();
        prop_assert!(account.ask(left), "what is left is usable");
        prop_assert!(!account.ask(1));
    }
}

#[test]
fn a_rate_of_the_same_name_in_between_frees_no_credits() {
    let memory = store(Settings::MIN_BUDGET_BYTES);
    let empty = RuleLimit::from(RateLimit::of_credits(false));
    let filled = empty.granted(LimitGrant { times: 1, add: 9 }).unwrap();
    let credits = filled.rate().unwrap();
    let take_all = |limit: &RateLimit| {
        let registered = memory.register("limit", limit).unwrap();
        let request = [item(limit, registered.slot(), 1)];
        admitted(&memory, &request, START, 20)
    };
    assert_eq!(take_all(credits), 9);
    assert_eq!(take_all(&limit("5/d", Algorithm::FixedWindow)), 5);
    assert_eq!(take_all(credits), 0);
}

/// What other keys have in the sketch may look like units of the account.
#[test]
fn the_sketch_refuses_no_credits_that_a_cell_counts() {
    let memory = store(Settings::MIN_BUDGET_BYTES);
    let empty = RuleLimit::from(RateLimit::of_credits(false));
    let filled = empty.granted(LimitGrant { times: 1, add: 9 }).unwrap();
    let credits = filled.rate().unwrap();
    let account = memory.register("credits", credits).unwrap();
    let request = [item(credits, account.slot(), 1)];
    let scope_hash = memory.cells.slots.get(account.slot()).unwrap().scope_hash();
    let key_buckets = memory
        .cells
        .table
        .key_buckets(scope_hash, request[0].key, false);
    memory
        .sketch
        .charge_all(START, key_buckets.sketch_hash, 1_000);
    assert!(memory.is_sketch_active(credits, START));
    assert_eq!(admitted(&memory, &request, START, 20), 9);
}

/// The sketch forgets units after a time, so it may not count credits.
#[test]
fn credits_without_room_are_refused() {
    let memory = store(Settings::MIN_BUDGET_BYTES);
    let rate = limit("5/d", Algorithm::FixedWindow);
    let slot = memory.register("many", &rate).unwrap().slot();
    let empty = RuleLimit::from(RateLimit::of_credits(false));
    let filled = empty.granted(LimitGrant { times: 1, add: 9 }).unwrap();
    let credits = filled.rate().unwrap();
    let account = memory.register("credits", credits).unwrap();
    let early = item(credits, account.slot(), 1);
    assert!(take(&memory, &[early], START).0);
    let is_full = |number| {
        let (_, findings) = take(&memory, &[item(&rate, slot, number)], START);
        findings[0].sketched
    };
    let full = (1_000..10_000_000)
        .filter(|number| is_full(*number))
        .nth(20_000);
    assert!(full.is_some(), "the memory is full");
    let later =
        (2..2_000).map(|number| take(&memory, &[item(credits, account.slot(), number)], START));
    let refused: Vec<_> = later.filter(|(is_admitted, _)| !is_admitted).collect();
    assert!(!refused.is_empty());
    assert!(refused.iter().all(|(_, findings)| findings[0].sketched));
    // What was counted before stays.
    let far = START.after(Nanos::from_secs(3 * 366 * 86_400));
    let rest = [item(credits, account.slot(), 1)];
    assert_eq!(admitted(&memory, &rest, far, 20), 8);
}
