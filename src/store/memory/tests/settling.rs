//! Reservations: the units that they hold, how they are settled, and what networks are charged.

use super::*;

fn reserving(base: RateLimit) -> RateLimit {
    RateLimit {
        reserves: true,
        ..base
    }
}

#[test]
fn reservations_hold_until_settled() {
    for base in all_algorithms() {
        let memory = store(1 << 20);
        let limit = reserving(base);
        let slot = memory.register("a", &limit).unwrap().slot();
        let one = [item(&limit, slot, 1)];
        assert_eq!(admitted(&memory, &one, START, 9), 5, "{limit:?}");
        memory.settle(&one[0], false, 0, START);
        assert_eq!(admitted(&memory, &one, START, 9), 1, "{limit:?}");
        for _ in 0..5 {
            memory.settle(&one[0], false, 1, START);
        }
        assert_eq!(admitted(&memory, &one, START, 9), 0, "{limit:?}");
        let later = START.after(Nanos::from_secs(200));
        assert_eq!(admitted(&memory, &one, later, 9), 5, "{limit:?}");
    }
}

#[test]
fn networks_are_charged_what_was_used() {
    let memory = store(1 << 20);
    let limit = reserving(log_limit("5/15m"));
    let slot = memory.register("logins", &limit).unwrap().slot();
    let parents = [ParentNetwork {
        key: key(900),
        factor: 4,
    }];
    let from_key = |number| LimitItem {
        parents: &parents,
        ..item(&limit, slot, number)
    };
    for number in 0..100 {
        assert!(
            take(&memory, &[from_key(number)], START).0,
            "login {number}"
        );
        memory.settle(&from_key(number), false, 0, START);
    }
    for number in 0..20 {
        assert!(
            take(&memory, &[from_key(number)], START).0,
            "failure {number}"
        );
        memory.settle(&from_key(number), false, 1, START);
    }
    let (passed, findings) = take(&memory, &[from_key(300)], START);
    assert!(!passed, "20 failures are the network's budget");
    assert_eq!(findings[0].wait, Nanos::from_secs(45));
    assert!(take(&memory, &[item(&limit, slot, 300)], START).0);
    // More units than were reserved are charged, too.
    let later = START.after(Nanos::from_secs(900));
    assert!(take(&memory, &[from_key(301)], later).0);
    memory.settle(&from_key(301), false, 21, later);
    let (passed, findings) = take(&memory, &[from_key(302)], later);
    assert!(!passed);
    assert_eq!(findings[0].wait, Nanos::from_secs(90));
}

#[test]
fn networks_without_an_entry_are_charged_too() {
    let memory = store(1 << 20);
    let limit = reserving(log_limit("5/15m"));
    let slot = memory.register("logins", &limit).unwrap().slot();
    fill(&memory, START);
    let mut failed = 0;
    for number in 0..100 {
        let parents = [ParentNetwork {
            key: key(900),
            factor: 4,
        }];
        let one = LimitItem {
            parents: &parents,
            ..item(&limit, slot, number)
        };
        let (passed, findings) = take(&memory, &[one], START);
        if passed {
            memory.settle(&one, findings[0].sketched, 1, START);
            failed += 1;
        }
    }
    assert_eq!(failed, 20);
}

#[test]
fn a_short_window_does_not_forget_open_reservations_in_the_sketch() {
    for base in ["5/s", "5/10s"] {
        let memory = store(1 << 20);
        let limit = reserving(log_limit(base));
        let slot = memory.register("a", &limit).unwrap().slot();
        fill(&memory, START);
        let one = [item(&limit, slot, 1)];
        assert!(take(&memory, &one, START).1[0].sketched);
        let open: u32 = (0..30)
            .map(|second| START.after(Nanos::from_secs(second)))
            .map(|now| admitted(&memory, &one, now, 9))
            .sum();
        assert_eq!(open, 4, "{base}: five run at once");
    }
}

#[test]
fn who_took_a_reservation_settles_it() {
    let memory = store(1 << 20);
    let limit = reserving(log_limit("5/m"));
    let slot = memory.register("a", &limit).unwrap().slot();
    fill(&memory, START);
    let one = [item(&limit, slot, 1)];
    let (passed, first) = take(&memory, &one, START);
    assert!(passed && first[0].sketched);
    memory.evict_fresh_cells(START.after(Nanos::from_secs(3 * 7 * 86_400)), usize::MAX);
    let (passed, second) = take(&memory, &one, START);
    assert!(passed && !second[0].sketched, "the key has a cell now");
    memory.settle(&one[0], true, 0, START);
    assert_eq!(
        admitted(&memory, &one, START, 9),
        3,
        "the cell's unit is pending"
    );
}

#[test]
fn old_tickets_settle_in_the_shape_of_today() {
    for base in all_algorithms() {
        let memory = store(1 << 20);
        let before = reserving(base);
        let old = memory.register("a", &before).unwrap();
        let first = item(&before, old.slot(), 1);
        assert_eq!(admitted(&memory, &[first], START, 2), 2);
        let after = reserving(log_limit("5/h"));
        let new = memory.register("a", &after).unwrap();
        let one = [item(&after, new.slot(), 1)];
        assert_eq!(admitted(&memory, &one, START, 1), 1);
        memory.settle(&first, false, 0, START);
        memory.settle(&first, false, 1, START);
        let (_, kept) = take(&memory, &one, START.after(Nanos::from_secs(1_800)));
        assert_eq!(
            kept[0].remaining, 2,
            "{before:?}: the failure counts for an hour"
        );
        // A limit that counts every request has counted the open ones.
        let all = log_limit("5/h");
        let slot = memory.register("a", &all).unwrap().slot();
        let soon = START.after(Nanos::from_secs(1_801));
        assert_eq!(admitted(&memory, &[item(&all, slot, 1)], soon, 9), 2);
        memory.settle(&one[0], false, 1, soon);
        let (_, full) = take(&memory, &[item(&all, slot, 1)], soon);
        assert_eq!(full[0].remaining, 0);
        assert_eq!(memory.usage().key_count, 1);
    }
}
