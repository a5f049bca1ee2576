//! Which server is next, as one worker sees it. Never waits, reads no clock, allocates nothing.
//!
//! | method | what it does |
//! |---|---|
//! | round robin | a counter while all are well and weigh the same, else nginx's smooth weighted round robin |
//! | least requests | the power of two choices: Mitzenmacher 2001; drawn by weight |
//! | hash | rendezvous hashing: Thaler and Ravishankar 1998, with the weights of Schindelhauer and Schomaker 2005. When a server goes only its own keys move, and they come back with it |

use std::cell::Cell;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::endpoint::Endpoint;
use super::health::FULL;
use super::settings::{Balance, Settings};
use crate::base::random::{SplitMix64, mix};

/// What is known of the servers as one of them is chosen.
pub trait ServerView {
    /// It may be asked as if nothing had ever been wrong.
    fn is_plain(&self, server: usize) -> bool;
    /// How much of its weight counts, of [`FULL`]; 0 if it must not be asked.
    fn share(&self, server: usize) -> u32;
    /// Open requests.
    fn open(&self, server: usize) -> u32;
}

/// See the module.
#[derive(Debug)]
pub struct Balancer {
    method: Balance,
    weights: Vec<u32>,
    /// All weigh the same.
    even: bool,
    turn: Cell<usize>,
    /// What smooth round robin owes each server.
    credit: Vec<Cell<i64>>,
    random: SplitMix64,
    /// Of each server's name, and its address if it is one of several: the same in every process.
    hashes: Vec<u64>,
}

impl Balancer {
    /// `seed` makes workers begin at different servers and draw differently.
    pub fn new(settings: &Settings, servers: &[Endpoint], seed: u64) -> Balancer {
        let weight = |server: &Endpoint| settings.servers[server.server].weight;
        let weights: Vec<u32> = servers.iter().map(weight).collect();
        let start = usize::try_from(seed).unwrap_or_default();
        let names = servers.chunk_by(|one, other| one.server == other.server);
        let hashes = names.flat_map(|all| all.iter().map(|server| hash(server, all.len() > 1)));
        Balancer {
            method: settings.balance.clone(),
            even: weights.windows(2).all(|pair| pair[0] == pair[1]),
            turn: Cell::new(start % servers.len().max(1)),
            credit: servers.iter().map(|_| Cell::new(0)).collect(),
            random: SplitMix64::new(seed),
            hashes: hashes.collect(),
            weights,
        }
    }

    /// The next server; `first` as long as none was tried for the same request. Nothing when none may
    /// be asked.
    pub fn next(&self, key: Option<u64>, first: bool, view: &impl ServerView) -> Option<usize> {
        match (&self.method, key) {
            (Balance::Hash(_), Some(key)) => self.highest(key, view),
            (Balance::LeastRequests, _) => self.less_busy(view),
            // Another one's turn would be taken from it.
            _ if !self.even || !first => self.smooth(None, view),
            _ => self.in_turn(view),
        }
    }

    fn in_turn(&self, view: &impl ServerView) -> Option<usize> {
        let turn = self.turn.get();
        let after = turn + 1;
        self.turn
            .set(if after < self.weights.len() { after } else { 0 });
        if view.is_plain(turn) {
            return Some(turn);
        }
        let share = view.share(turn);
        if share > self.below(FULL) {
            return Some(turn);
        }
        // All others share its turn, so that its neighbour does not get all of it.
        self.smooth(Some(turn), view)
            .or_else(|| (share > 0).then_some(turn))
    }

    fn weight(&self, server: usize, view: &impl ServerView) -> u32 {
        let share = if view.is_plain(server) {
            FULL
        } else {
            view.share(server)
        };
        self.weights[server] * share
    }

    fn smooth(&self, except: Option<usize>, view: &impl ServerView) -> Option<usize> {
        let mut sum = 0;
        let mut best: Option<usize> = None;
        for server in (0..self.weights.len()).filter(|server| Some(*server) != except) {
            let weight = i64::from(self.weight(server, view));
            if weight == 0 {
                continue;
            }
            sum += weight;
            let credit = &self.credit[server];
            credit.set(credit.get() + weight);
            if best.is_none_or(|best| self.credit[best].get() < credit.get()) {
                best = Some(server);
            }
        }
        let credit = &self.credit[best?];
        credit.set(credit.get() - sum);
        best
    }

    fn less_busy(&self, view: &impl ServerView) -> Option<usize> {
        let one = self.draw(None, view)?;
        let Some(other) = self.draw(Some(one), view) else {
            return Some(one);
        };
        let weight = |server| u64::from(self.weight(server, view));
        let load = |server, beside| u64::from(view.open(server)) * weight(beside);
        let less = load(other, one) < load(one, other);
        Some(if less { other } else { one })
    }

    /// One by weight, at random.
    fn draw(&self, except: Option<usize>, view: &impl ServerView) -> Option<usize> {
        let all = || (0..self.weights.len()).filter(|server| Some(*server) != except);
        let weight = |server| u64::from(self.weight(server, view));
        let sum = all().map(weight).sum();
        let mut point = self.random.draw().checked_rem(sum)?;
        all().find(|server| {
            let weight = weight(*server);
            let found = point < weight;
            point = point.saturating_sub(weight);
            found
        })
    }

    fn highest(&self, key: u64, view: &impl ServerView) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (server, hash) in self.hashes.iter().enumerate() {
            let weight = self.weight(server, view);
            if weight == 0 {
                continue;
            }
            // Between 0 and 1, and neither.
            let point = ((mix(key ^ hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            let score = f64::from(weight) / -point.ln();
            if best.is_none_or(|(_, best)| score > best) {
                best = Some((server, score));
            }
        }
        best.map(|(server, _)| server)
    }

    fn below(&self, end: u32) -> u32 {
        // The remainder is less than a u32.
        (self.random.draw() % u64::from(end.max(1))) as u32
    }
}

/// A name that leads to one place at a time keeps its keys when it moves.
fn hash(server: &Endpoint, one_of_several: bool) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(server.name.as_bytes());
    if let Some(address) = server.address.as_ref().filter(|_| one_of_several) {
        hasher.write(address.to_string().as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
