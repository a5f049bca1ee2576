//! Tickets of requests that proxies have asked about and serve themselves. A proxy that wants to says how such a request
//! ended, and the ticket settles by that. All workers share them, because the proxy may use another connection.
//!
//! Bounds: [`MAX_TICKETS`], each for [`TICKET_LIFE`]. A ticket that is not settled in that time charges what it reserved.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::rand;

use crate::base::clock::{Clock, Nanos};
use crate::throttle::admission::Ticket;

/// How long a proxy may take to say how a request ended.
pub const TICKET_LIFE: Nanos = Nanos::from_secs(60);

/// Maximum number of tickets, some 50 MB. Beyond it a ticket is dropped, and charges what it reserved.
const MAX_TICKETS: usize = 100_000;

/// A ticket, and the clock of its settlement.
pub struct AskedTicket {
    /// The reservations and the permits.
    pub ticket: Ticket,
    /// The clock that gives the time of the settlement.
    pub clock: Clock,
}

/// The tickets of requests that are served elsewhere, by random numbers.
#[derive(Default)]
pub struct AskedTickets(Mutex<HeldTickets>);

#[derive(Default)]
struct HeldTickets {
    by_number: HashMap<u128, AskedTicket>,
    /// The ends of the tickets, in order; also of settled ones, until they are too many.
    ends: VecDeque<(Nanos, u128)>,
}

impl AskedTickets {
    /// Keeps a ticket. Returns its number; `None` if there is no room or no random number, so that the ticket is dropped.
    pub fn keep(&self, ticket: AskedTicket) -> Option<u128> {
        let mut bytes = [0; 16];
        rand::fill(&mut bytes).ok()?;
        let number = u128::from_be_bytes(bytes);
        let end = ticket.clock.now().after(TICKET_LIFE);
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let held = &mut *held;
        if held.by_number.len() >= MAX_TICKETS {
            return None;
        }
        if held.ends.len() >= 2 * MAX_TICKETS {
            held.ends
                .retain(|(_, number)| held.by_number.contains_key(number));
        }
        held.ends.push_back((end, number));
        held.by_number.insert(number, ticket);
        Some(number)
    }

    /// Takes a ticket out; `None` if it has ended, or was taken before.
    pub fn take(&self, number: u128) -> Option<AskedTicket> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.by_number.remove(&number)
    }

    /// Drops the tickets whose time has passed.
    pub fn end_overdue(&self, now: Nanos) {
        loop {
            let overdue = {
                let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                match held.ends.front() {
                    Some((end, number)) if *end <= now => {
                        let number = *number;
                        held.ends.pop_front();
                        held.by_number.remove(&number)
                    }
                    _ => return,
                }
            };
            // It settles without the lock.
            drop(overdue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_open_tickets_take_room() {
        let tickets = AskedTickets::default();
        let clock = Clock::manual(Nanos::from_secs(1));
        let new = || AskedTicket {
            ticket: Ticket::default(),
            clock: clock.clone(),
        };
        for _ in 0..3 * MAX_TICKETS {
            let number = tickets.keep(new()).unwrap();
            assert!(tickets.take(number).is_some());
        }
        let held = tickets.0.lock().unwrap();
        assert!(held.ends.len() <= 2 * MAX_TICKETS);
        drop(held);

        for _ in 0..MAX_TICKETS {
            assert!(tickets.keep(new()).is_some());
        }
        assert!(tickets.keep(new()).is_none());
        clock.advance(TICKET_LIFE);
        tickets.end_overdue(clock.now());
        assert!(tickets.keep(new()).is_some());
    }
}
