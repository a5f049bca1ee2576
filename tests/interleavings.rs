//! What can come of several clients that take from shared counters in small steps: every order of their
//! steps is tried. So it is known, not believed, which ways of taking from a store that has no
//! transactions admit too much, lose quota, or are exact.

use std::collections::{BTreeSet, HashSet};

/// What each counter admits.
const QUOTA: u8 = 2;
/// Both counters.
type Counters = [u8; 2];

/// A client: where it is in its program, and what it remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Client {
    /// Clients of different kinds take in another order, or come at another time.
    kind: usize,
    step: u8,
    seen: Counters,
    admitted: Option<bool>,
}

impl Client {
    /// The counter that it takes first, and the other.
    fn order(&self) -> [usize; 2] {
        [self.kind, 1 - self.kind]
    }

    fn ends(&mut self, admitted: bool) {
        self.admitted = Some(admitted);
    }
}

/// One step of a client, which nothing interrupts.
type Program = fn(&mut Client, &mut Counters);

/// How a run can end: how many were admitted, and what the counters say.
type Ends = BTreeSet<(u8, Counters)>;

/// All ends of so many clients, every second of them of the other kind where `kinds` is two.
fn explore(program: Program, clients: usize, kinds: usize) -> Ends {
    let client = |place| Client {
        kind: place % kinds,
        ..Client::default()
    };
    let mut ends = Ends::new();
    let mut met = HashSet::new();
    let mut open = vec![(
        Counters::default(),
        (0..clients).map(client).collect::<Vec<_>>(),
    )];
    while let Some((counters, mut clients)) = open.pop() {
        // Clients of a kind are the same client.
        clients.sort();
        if !met.insert((counters, clients.clone())) {
            continue;
        }
        let mut over = true;
        for place in 0..clients.len() {
            if clients[place].admitted.is_none() {
                let (mut counters, mut clients) = (counters, clients.clone());
                program(&mut clients[place], &mut counters);
                clients[place].step += 1;
                open.push((counters, clients));
                over = false;
            }
        }
        if over {
            let admitted = clients
                .iter()
                .filter(|client| client.admitted == Some(true));
            ends.insert((admitted.count() as u8, counters));
        }
    }
    ends
}

/// The fewest and the most that can be admitted by 3 to 5 clients, and whether the counters always say how
/// many were.
#[track_caller]
fn check(program: Program, kinds: usize, expected: [(u8, u8); 3], counters_true: bool) {
    for (clients, expected) in (3..=5).zip(expected) {
        let ends = explore(program, clients, kinds);
        let admitted = ends.iter().map(|(admitted, _)| *admitted);
        let found = (
            admitted.clone().min().unwrap_or(0),
            admitted.max().unwrap_or(0),
        );
        assert_eq!(found, expected, "{clients} clients: {ends:?}");
        let all_true = ends
            .iter()
            .all(|(admitted, counters)| *counters == [*admitted; 2]);
        assert_eq!(all_true, counters_true, "{clients} clients: {ends:?}");
    }
}

#[test]
fn to_read_then_count_admits_too_much() {
    fn program(client: &mut Client, counters: &mut Counters) {
        match client.step {
            place @ (0 | 1) => client.seen[usize::from(place)] = counters[usize::from(place)],
            2 if client.seen.iter().any(|seen| *seen >= QUOTA) => client.ends(false),
            2 => counters[0] += 1,
            _ => {
                counters[1] += 1;
                client.ends(true);
            }
        }
    }
    check(program, 1, [(2, 3), (2, 4), (2, 5)], true);
}

#[test]
fn to_count_then_take_back_is_exact_on_one_counter() {
    fn program(client: &mut Client, counters: &mut Counters) {
        match client.step {
            0 => {
                counters[0] += 1;
                client.seen[0] = counters[0];
                if client.seen[0] <= QUOTA {
                    client.ends(true);
                }
            }
            _ => {
                counters[0] -= 1;
                client.ends(false);
            }
        }
        // Only one counter is used.
        counters[1] = counters[0];
    }
    check(program, 1, [(2, 2); 3], true);
}

/// Counts on one after the other, and leaves counted what the second refuses.
fn count_both(client: &mut Client, counters: &mut Counters) {
    let counter = client.order()[usize::from(client.step)];
    counters[counter] += 1;
    match (client.step, counters[counter] <= QUOTA) {
        (_, false) => client.ends(false),
        (1, true) => client.ends(true),
        _ => {}
    }
}

#[test]
fn without_taking_back_quota_is_lost() {
    check(count_both, 1, [(2, 2); 3], false);
    // Where not all take in the same order it can be all of it.
    check(count_both, 2, [(1, 2), (0, 2), (0, 2)], false);
}

/// What the memcached store does: counts on both, whatever they say, then takes back where one refuses.
fn reserve_both(client: &mut Client, counters: &mut Counters) {
    let counter = client.order()[usize::from(client.step % 2)];
    match client.step {
        0 | 1 => {
            counters[counter] += 1;
            client.seen[counter] = counters[counter];
            if client.step == 1 && client.seen.iter().all(|seen| *seen <= QUOTA) {
                client.ends(true);
            }
        }
        step => {
            counters[counter] -= 1;
            if step == 3 {
                client.ends(false);
            }
        }
    }
}

#[test]
fn to_reserve_both_then_take_back_is_never_too_much_and_may_be_too_few() {
    check(reserve_both, 1, [(1, 2), (0, 2), (0, 2)], true);
    check(reserve_both, 2, [(1, 2), (0, 2), (0, 2)], true);
}

/// Counts only where there is room, and takes back on the first what the second refuses.
fn reserve_if_room(client: &mut Client, counters: &mut Counters) {
    let [first, second] = client.order();
    match client.step {
        0 if counters[first] < QUOTA => counters[first] += 1,
        0 => client.ends(false),
        1 if counters[second] < QUOTA => {
            counters[second] += 1;
            client.ends(true);
        }
        1 => {}
        _ => {
            counters[first] -= 1;
            client.ends(false);
        }
    }
}

#[test]
fn to_reserve_where_there_is_room_is_exact_in_one_order() {
    check(reserve_if_room, 1, [(2, 2); 3], true);
    check(reserve_if_room, 2, [(1, 2), (0, 2), (0, 2)], true);
}

#[test]
fn one_script_is_exact() {
    fn program(client: &mut Client, counters: &mut Counters) {
        let room = counters.iter().all(|counter| *counter < QUOTA);
        if room {
            counters.iter_mut().for_each(|counter| *counter += 1);
        }
        client.ends(room);
    }
    check(program, 1, [(2, 2); 3], true);
}

/// The counters are two buckets of one window here, and clients of the second kind are stamped after the
/// edge between them. Each counts in its own bucket, then reads those that it looks at.
fn across_an_edge(client: &mut Client, counters: &mut Counters, looks_ahead: bool) {
    let [own, other] = client.order();
    match client.step {
        0 => {
            counters[own] += 1;
            client.seen[own] = counters[own];
        }
        1 => {
            if looks_ahead || other < own {
                client.seen[other] = counters[other];
            }
            if client.seen[0] + client.seen[1] <= QUOTA {
                client.ends(true);
            }
        }
        _ => {
            counters[own] -= 1;
            client.ends(false);
        }
    }
}

/// Why the store reads a bucket that is yet to come: who was stamped before its edge may come late.
#[test]
fn who_looks_back_only_admits_too_much_at_the_edge_of_buckets() {
    let (behind, ahead): (Program, Program) = (
        |client, counters| across_an_edge(client, counters, false),
        |client, counters| across_an_edge(client, counters, true),
    );
    for clients in 3..=5 {
        let most = |program| {
            explore(program, clients, 2)
                .into_iter()
                .map(|(admitted, _)| admitted)
                .max()
        };
        assert!(most(behind) > Some(QUOTA), "{clients} clients");
        assert_eq!(most(ahead), Some(QUOTA), "{clients} clients");
        for (admitted, counters) in explore(ahead, clients, 2) {
            assert_eq!(counters[0] + counters[1], admitted);
        }
    }
}
