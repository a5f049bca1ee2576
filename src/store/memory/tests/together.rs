//! The cheap path is held against the call that it saves: two stores are told the same, one takes it where it can.

use super::*;
use crate::base::random::Dice;
use crate::store::memory::fast_path;
use crate::store::memory::fast_path::cell_places::MAX_PLACES;
use crate::store::memory::fast_path::home_bucket::{HomeBucket, HomeLocks};

/// Kinds of limits, so that any two may meet in a request.
fn kinds() -> Vec<RateLimit> {
    let soft = ThrottleMode::Soft { percent: 50 };
    let elastic = ThrottleMode::Elastic {
        at_most: 3,
        base: 1,
    };
    let rates = ["3/s", "5/m", "2/s,9/m", "40/m"];
    let mut all = Vec::new();
    for base in every() {
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

struct Two {
    cheap: MemoryStore,
    whole: MemoryStore,
    limits: Vec<(RateLimit, LimitSlot, usize)>,
    saved: usize,
    /// Those of them in which a key had no cell.
    vacant: usize,
    /// Requests among them that met more than four limits.
    many: usize,
}

impl Two {
    /// In a crowd some buckets are full, so that some cells are in the second of theirs.
    fn new(crowded: bool) -> Two {
        let (cheap, whole) = (store(1 << 20), store(1 << 20));
        if crowded {
            crowd(&cheap, 5, START);
            crowd(&whole, 5, START);
        }
        let limits = kinds().into_iter().enumerate().map(|(number, limit)| {
            // Several have one, as before and after a reload: then one finds the cell of another in its place.
            let (number, scope) = (number / 3, (number / 3).to_string());
            let slot = cheap.register(&scope, &limit).unwrap().slot();
            assert_eq!(whole.register(&scope, &limit).unwrap().slot(), slot);
            (limit, slot, number)
        });
        Two {
            limits: limits.collect(),
            cheap,
            whole,
            saved: 0,
            vacant: 0,
            many: 0,
        }
    }

    fn decide(&mut self, items: &[LimitItem<'_>], now: Nanos, taking: Taking, seed: u64) -> bool {
        let (mut one, mut other) = (SmallVec::new(), SmallVec::new());
        let vacant = items.iter().any(|item| !self.has_cell(item));
        let MemoryStore { cells, sketch, .. } = &self.cheap;
        let places = &self.cheap.cell_places(items);
        let admits = match fast_path::decide(cells, sketch, items, places, now, taking, &mut one) {
            Some(admits) => {
                self.saved += 1;
                self.vacant += usize::from(vacant);
                self.many += usize::from(items.len() > 4);
                admits
            }
            None => {
                assert!(one.is_empty(), "seed {seed}");
                self.cheap.decide_fully(items, now, taking, &mut one)
            }
        };
        let expected = self.whole.decide_fully(items, now, taking, &mut other);
        assert_eq!((admits, &one), (expected, &other), "seed {seed}: {items:?}");
        for item in items {
            let (one, other) = (fresh_at(&self.cheap, item), fresh_at(&self.whole, item));
            assert_eq!(one, other, "seed {seed}: {item:?}");
        }
        admits
    }

    fn has_cell(&self, item: &LimitItem<'_>) -> bool {
        fresh_at(&self.cheap, item).is_some()
    }
}

/// What the entry of a cell says besides where its block is, if there is a cell.
fn fresh_at(memory: &MemoryStore, item: &LimitItem<'_>) -> Option<u64> {
    let Cells { slots, table, .. } = &memory.cells;
    let seed = slots.get(item.slot).unwrap().seed();
    let places = memory.cell_places(std::slice::from_ref(item));
    let place = places[0];
    assert_eq!(
        place.bucket_index,
        table.key_buckets(seed, item.key, false).first_bucket
    );
    let home = HomeBucket::new(table, place.bucket_index, place.mark);
    let locked = HomeLocks::new(table, &places);
    let at = home.find_entry(&locked)?;
    Some(home.entry(at, &locked).state() >> 32)
}

/// A key: mostly one of two, else one that may never have come.
fn drawn_key(dice: &mut Dice) -> u128 {
    match dice.below(3) {
        0 => dice.below(1_000) as u128,
        _ => dice.below(2) as u128,
    }
}

/// Some items of a request. Of one scope it meets one limit.
fn drawn<'a>(
    limits: &'a [(RateLimit, LimitSlot, usize)],
    dice: &mut Dice,
    parents: &'a [ParentNetwork],
) -> Vec<LimitItem<'a>> {
    let mut chosen: Vec<&(RateLimit, LimitSlot, usize)> = Vec::new();
    let most = dice.choose(&[3, 5, MAX_PLACES + 2]);
    for _ in 0..1 + dice.below(most) {
        let one = &limits[dice.below(limits.len())];
        if chosen.iter().all(|other| other.2 != one.2 || *other == one) {
            chosen.push(one);
        }
    }
    let items = chosen.into_iter().map(|(limit, slot, _)| LimitItem {
        cost: [0, 1, 1, 1, 2, 7][dice.below(6)],
        scale: Scale {
            multiply: [1, 1, 1, 4][dice.below(4)],
            lent: [0, 0, 700, 2_000][dice.below(4)],
        },
        is_shadow: dice.below(20) == 0,
        parents: if dice.below(20) == 0 { parents } else { &[] },
        ..item(limit, *slot, drawn_key(dice))
    });
    items.collect()
}

#[test]
fn the_cheap_path_says_and_leaves_what_a_call_does() {
    let parents = [ParentNetwork {
        key: key(77),
        factor: 2,
    }];
    let (mut saved, mut vacant, mut many) = (0, 0, 0);
    for seed in 0..20_u64 {
        let mut dice = Dice((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut two = Two::new(seed % 4 == 0);
        let limits = two.limits.clone();
        // Few of all, so that they are met again.
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
            let items = drawn(limits, &mut dice, &parents);
            let taking = match dice.below(8) {
                0 => Taking::Nothing,
                1 => Taking::Shadows,
                _ => Taking::All,
            };
            let admitted = two.decide(&items, now, taking, seed);
            for item in items.iter().filter(|item| item.limit.reserves) {
                if admitted && taking == Taking::All && dice.below(4) > 0 {
                    let used = dice.below(3) as u32;
                    two.cheap.settle(item, false, used, now);
                    two.whole.settle(item, false, used, now);
                }
            }
        }
        assert!(two.saved > 300, "seed {seed}: {}", two.saved);
        (saved, vacant) = (saved + two.saved, vacant + two.vacant);
        many += two.many;
        for (limit, slot, _) in limits {
            for number in 0..2 {
                let item = item(limit, *slot, number);
                assert_eq!(
                    two.cheap.used_units(&item, now),
                    two.whole.used_units(&item, now),
                    "seed {seed}: {limit:?}"
                );
            }
        }
    }
    assert!(
        saved > 20_000 && vacant > 1_000 && many > 60,
        "{saved}, {vacant}, {many}"
    );
}

#[test]
fn no_item_is_passed_over_however_many_they_are() {
    let memory = store(1 << 20);
    let limit = limit("5/m", Algorithm::SlidingWindow);
    let scopes = (0..MAX_PLACES + 1).map(|n| memory.register(&n.to_string(), &limit).unwrap());
    let slots: Vec<LimitSlot> = scopes.map(|registered| registered.slot()).collect();
    let items: Vec<LimitItem<'_>> = slots.iter().map(|slot| item(&limit, *slot, 1)).collect();
    take(&memory, &items, START);
    for (many, decided) in [(1, true), (MAX_PLACES, true), (MAX_PLACES + 1, false)] {
        let items = &items[..many];
        let (mut readings, MemoryStore { cells, sketch, .. }) = (SmallVec::new(), &memory);
        let places = &memory.cell_places(items);
        let said = fast_path::decide(
            cells,
            sketch,
            items,
            places,
            START,
            Taking::All,
            &mut readings,
        );
        assert_eq!(said, decided.then_some(true), "{many}");
        assert_eq!(readings.len(), if decided { many } else { 0 });
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
                    let item = |n: usize| {
                        let slot = slots[(turn + thread * n) % 3].slot();
                        item(limit, slot, ((turn + n) % 3) as u128)
                    };
                    take(memory, &[item(0), item(1), item(2)], START);
                }
            });
        }
    });
    let items = slots
        .iter()
        .flat_map(|slot| (0..3).map(|n| (slot.slot(), n)));
    let used = items.map(|(slot, n)| memory.used_units(&item(&limit, slot, n), START)[0]);
    assert_eq!(used.sum::<u32>(), 4 * 20_000 * 3);
}
