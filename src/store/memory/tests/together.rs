//! The fast path decides as a full decision does: two stores get the same requests, and one takes the fast path where it
//! can.

use super::*;
use crate::base::random::Dice;
use crate::store::memory::fast_path;
use crate::store::memory::fast_path::cell_places::MAX_PLACES;
use crate::store::memory::fast_path::home_bucket::{HomeBucket, HomeLocks};

/// Limits of all kinds, any two of which may meet in a request.
fn limit_kinds() -> Vec<RateLimit> {
    let soft = ThrottleMode::Soft { percent: 50 };
    let elastic = ThrottleMode::Elastic {
        at_most: 3,
        base: 1,
    };
    let rates = ["3/s", "5/m", "2/s,9/m", "40/m"];
    let mut all = Vec::new();
    for base in all_algorithms() {
        for rates in rates {
            let base = limit(rates, base.algorithm);
            all.push(base.clone());
            all.push(RateLimit {
                throttle: soft,
                ..base.clone()
            });
            all.push(RateLimit {
                throttle: elastic,
                ..base.clone()
            });
            all.push(RateLimit {
                reserves: true,
                ..base
            });
        }
    }
    all
}

/// Two stores with the same limits, and how often the fast path decided.
struct StorePair {
    /// Takes the fast path where it can.
    fast: MemoryStore,
    /// Makes full decisions only.
    full: MemoryStore,
    /// Each limit with its slot and the number of its scope.
    limits: Vec<(RateLimit, LimitSlot, usize)>,
    /// Requests that the fast path decided about.
    fast_count: usize,
    /// Those of `fast_count` in which a key had no cell.
    vacant_count: usize,
    /// Those of `fast_count` with more than four limits.
    large_count: usize,
}

impl StorePair {
    /// Two stores. If `is_crowded`, some buckets are full, so that some cells are in the second bucket of their key.
    fn new(is_crowded: bool) -> StorePair {
        let (fast, full) = (store(1 << 20), store(1 << 20));
        if is_crowded {
            crowd(&fast, 5, START);
            crowd(&full, 5, START);
        }
        let limits = limit_kinds()
            .into_iter()
            .enumerate()
            .map(|(number, limit)| {
                // Several limits share a scope, as before and after a reload: then one finds the cell of another in its
                // place.
                let (number, scope) = (number / 3, (number / 3).to_string());
                let slot = fast.register(&scope, &limit).unwrap().slot();
                assert_eq!(full.register(&scope, &limit).unwrap().slot(), slot);
                (limit, slot, number)
            });
        StorePair {
            limits: limits.collect(),
            fast,
            full,
            fast_count: 0,
            vacant_count: 0,
            large_count: 0,
        }
    }

    fn decide(&mut self, items: &[LimitItem<'_>], now: Nanos, taking: Taking, seed: u64) -> bool {
        let (mut findings, mut expected_findings) = (SmallVec::new(), SmallVec::new());
        let is_vacant = items.iter().any(|item| !self.has_cell(item));
        let MemoryStore { cells, sketch, .. } = &self.fast;
        let places = &self.fast.cell_places(items);
        let admits =
            match fast_path::decide(cells, sketch, items, places, now, taking, &mut findings) {
                Some(admits) => {
                    self.fast_count += 1;
                    self.vacant_count += usize::from(is_vacant);
                    self.large_count += usize::from(items.len() > 4);
                    admits
                }
                None => {
                    assert!(findings.is_empty(), "seed {seed}");
                    self.fast.decide_fully(items, now, taking, &mut findings)
                }
            };
        let expected = self
            .full
            .decide_fully(items, now, taking, &mut expected_findings);
        assert_eq!(
            (admits, &findings),
            (expected, &expected_findings),
            "seed {seed}: {items:?}"
        );
        for item in items {
            let (fast_state, full_state) =
                (upper_state(&self.fast, item), upper_state(&self.full, item));
            assert_eq!(fast_state, full_state, "seed {seed}: {item:?}");
        }
        admits
    }

    fn has_cell(&self, item: &LimitItem<'_>) -> bool {
        upper_state(&self.fast, item).is_some()
    }
}

/// The upper half of a cell's state, which does not name a block; `None` where there is no cell.
fn upper_state(memory: &MemoryStore, item: &LimitItem<'_>) -> Option<u64> {
    let Cells { slots, table, .. } = &memory.cells;
    let scope_hash = slots.get(item.slot).unwrap().scope_hash();
    let places = memory.cell_places(std::slice::from_ref(item));
    let place = places[0];
    assert_eq!(
        place.bucket_index,
        table.key_buckets(scope_hash, item.key, false).home_bucket
    );
    let home = HomeBucket::new(table, place.bucket_index, place.mark);
    let locked = HomeLocks::new(table, &places);
    let position = home.find_entry(&locked)?;
    Some(home.entry(position, &locked).state() >> 32)
}

/// Draws a key: mostly one of two, else one that may be new.
fn draw_key(dice: &mut Dice) -> u128 {
    match dice.below(3) {
        0 => dice.below(1_000) as u128,
        _ => dice.below(2) as u128,
    }
}

/// Draws the items of a request, at most one limit of each scope.
fn draw_items<'a>(
    limits: &'a [(RateLimit, LimitSlot, usize)],
    dice: &mut Dice,
    parents: &'a [ParentNetwork],
) -> Vec<LimitItem<'a>> {
    let mut chosen: Vec<&(RateLimit, LimitSlot, usize)> = Vec::new();
    let max_items = dice.choose(&[3, 5, MAX_PLACES + 2]);
    for _ in 0..1 + dice.below(max_items) {
        let one = &limits[dice.below(limits.len())];
        if chosen.iter().all(|other| other.2 != one.2 || *other == one) {
            chosen.push(one);
        }
    }
    let items = chosen.into_iter().map(|(limit, slot, _)| LimitItem {
        cost: [0, 1, 1, 1, 2, 7][dice.below(6)],
        scale: Scale {
            plan_factor: [1, 1, 1, 4][dice.below(4)],
            lent: [0, 0, 700, 2_000][dice.below(4)],
        },
        is_shadow: dice.below(20) == 0,
        parents: if dice.below(20) == 0 { parents } else { &[] },
        ..item(limit, *slot, draw_key(dice))
    });
    items.collect()
}

#[test]
fn the_fast_path_decides_as_a_full_decision() {
    let parents = [ParentNetwork {
        key: key(77),
        factor: 2,
    }];
    let (mut fast_count, mut vacant_count, mut large_count) = (0, 0, 0);
    for seed in 0..20_u64 {
        let mut dice = Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut pair = StorePair::new(seed % 4 == 0);
        let limits = pair.limits.clone();
        // Few of all limits, so that each comes often.
        let first = dice.below(limits.len() - 12);
        let limits = &limits[first..first + 12];
        let mut now = START;
        for _ in 0..9_000 {
            now = Nanos(match dice.below(12) {
                0 => now.0 + dice.below(90_000_000_000) as u64,
                1 => now.0 - dice.below(1_000_000_000) as u64,
                2..6 => now.0 + dice.below(1_000_000_000) as u64,
                _ => now.0 + dice.below(50_000_000) as u64,
            });
            let items = draw_items(limits, &mut dice, &parents);
            let taking = match dice.below(8) {
                0 => Taking::Nothing,
                1 => Taking::Shadows,
                _ => Taking::All,
            };
            let is_admitted = pair.decide(&items, now, taking, seed);
            for item in items.iter().filter(|item| item.limit.reserves) {
                if is_admitted && taking == Taking::All && dice.below(4) > 0 {
                    let used = dice.below(3) as u32;
                    pair.fast.settle(item, false, used, now);
                    pair.full.settle(item, false, used, now);
                }
            }
        }
        assert!(pair.fast_count > 300, "seed {seed}: {}", pair.fast_count);
        (fast_count, vacant_count) = (
            fast_count + pair.fast_count,
            vacant_count + pair.vacant_count,
        );
        large_count += pair.large_count;
        for (limit, slot, _) in limits {
            for number in 0..2 {
                let item = item(limit, *slot, number);
                assert_eq!(
                    pair.fast.used_units(&item, now),
                    pair.full.used_units(&item, now),
                    "seed {seed}: {limit:?}"
                );
            }
        }
    }
    assert!(
        fast_count > 20_000 && vacant_count > 1_000 && large_count > 60,
        "{fast_count}, {vacant_count}, {large_count}"
    );
}

#[test]
fn no_item_is_passed_over_however_many_they_are() {
    let memory = store(1 << 20);
    let limit = limit("5/m", Algorithm::SlidingWindow);
    let scopes =
        (0..MAX_PLACES + 1).map(|number| memory.register(&number.to_string(), &limit).unwrap());
    let slots: Vec<LimitSlot> = scopes.map(|registered| registered.slot()).collect();
    let items: Vec<LimitItem<'_>> = slots.iter().map(|slot| item(&limit, *slot, 1)).collect();
    take(&memory, &items, START);
    for (item_count, decided) in [(1, true), (MAX_PLACES, true), (MAX_PLACES + 1, false)] {
        let items = &items[..item_count];
        let (mut findings, MemoryStore { cells, sketch, .. }) = (SmallVec::new(), &memory);
        let places = &memory.cell_places(items);
        let admits = fast_path::decide(
            cells,
            sketch,
            items,
            places,
            START,
            Taking::All,
            &mut findings,
        );
        assert_eq!(admits, decided.then_some(true), "{item_count}");
        assert_eq!(findings.len(), if decided { item_count } else { 0 });
    }
}

#[test]
fn buckets_are_locked_in_one_order_and_let_go() {
    let memory = store(1 << 20);
    let limit = limit("1000000/h", Algorithm::SlidingWindow);
    let slots = ["a", "b", "c"].map(|scope| memory.register(scope, &limit).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (memory, limit, slots) = (&memory, &limit, &slots);
            scope.spawn(move || {
                for turn in 0..20_000_usize {
                    let item = |number: usize| {
                        let slot = slots[(turn + thread * number) % 3].slot();
                        item(limit, slot, ((turn + number) % 3) as u128)
                    };
                    take(memory, &[item(0), item(1), item(2)], START);
                }
            });
        }
    });
    let items = slots
        .iter()
        .flat_map(|slot| (0..3).map(|number| (slot.slot(), number)));
    let used = items.map(|(slot, number)| memory.used_units(&item(&limit, slot, number), START)[0]);
    assert_eq!(used.sum::<u32>(), 4 * 20_000 * 3);
}
