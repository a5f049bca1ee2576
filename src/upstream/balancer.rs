//! Chooses the server for the next request of one worker. Here each endpoint counts as a server of its own. A choice never
//! waits and allocates nothing.
//!
//! | method | what it does |
//! |---|---|
//! | round robin | a counter if all weights are equal, else nginx's smooth weighted round robin. The latter also chooses for second attempts, and in place of a server that does not accept its turn |
//! | least requests | the power of two choices: Mitzenmacher 2001; both servers are drawn by weight |
//! | hash | rendezvous hashing: Thaler and Ravishankar 1998, with the weights of Schindelhauer and Schomaker 2005. When a server is removed only its own keys move, and they return with it. Without a key, as round robin |

use std::cell::Cell;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

use super::endpoint::Endpoint;
use super::server_health::FULL_FACTOR;
use super::settings::{BalanceMethod, Settings};
use crate::base::random::{SplitMix64, mix};

/// The servers, as the choice for one request sees them. A server is given by its index among the endpoints.
pub trait ServerView {
    /// Whether the server certainly gets requests by its full weight. It is cheaper than
    /// [`ServerView::weight_factor`], and may be false although the factor is full.
    fn has_full_weight(&self, index: usize) -> bool;
    /// The factor on the server's weight, from 0 to [`FULL_FACTOR`]; 0 if the server must get no request.
    fn weight_factor(&self, index: usize) -> u32;
    /// The number of open requests at the server.
    fn open_requests(&self, index: usize) -> u32;
}

/// Chooses the servers of one upstream for the requests of one worker.
#[derive(Debug)]
pub struct Balancer {
    method: BalanceMethod,
    /// The configured weight of each server, at least 1.
    weights: Vec<u32>,
    /// Whether all servers have the same weight.
    has_equal_weights: bool,
    /// The index of the server whose turn is next in plain round robin.
    next_turn: Cell<usize>,
    /// The current weight of each server in smooth weighted round robin: see [`Balancer::choose_smoothly`].
    current_weights: Vec<Cell<i64>>,
    random: SplitMix64,
    /// The hash of each server, which is the same in every process: see [`hash_endpoint`].
    hashes: Vec<u64>,
}

impl Balancer {
    /// A balancer for these endpoints, which must be in the order of the settings. `seed` makes workers begin at
    /// different servers and draw different numbers.
    pub fn new(settings: &Settings, endpoints: &[Endpoint], seed: u64) -> Balancer {
        let weight = |endpoint: &Endpoint| settings.servers[endpoint.server_index].weight;
        let weights: Vec<u32> = endpoints.iter().map(weight).collect();
        let first_turn = usize::try_from(seed).unwrap_or_default();
        let endpoints_by_name =
            endpoints.chunk_by(|left, right| left.server_index == right.server_index);
        let hashes = endpoints_by_name.flat_map(|of_one_name| {
            let is_one_of_several = of_one_name.len() > 1;
            of_one_name
                .iter()
                .map(move |endpoint| hash_endpoint(endpoint, is_one_of_several))
        });
        Balancer {
            method: settings.balance_method.clone(),
            has_equal_weights: weights.windows(2).all(|pair| pair[0] == pair[1]),
            next_turn: Cell::new(first_turn % endpoints.len().max(1)),
            current_weights: endpoints.iter().map(|_| Cell::new(0)).collect(),
            random: SplitMix64::new(seed),
            hashes: hashes.collect(),
            weights,
        }
    }

    /// Chooses the index of the next server; `None` if no server may get a request. `balance_key` is the hash of
    /// the identities that [`BalanceMethod::Hash`] names. `is_first_attempt` says that no server was tried for the same
    /// request before.
    pub fn choose(
        &self,
        balance_key: Option<u64>,
        is_first_attempt: bool,
        view: &impl ServerView,
    ) -> Option<usize> {
        match (&self.method, balance_key) {
            (BalanceMethod::Hash(_), Some(balance_key)) => self.choose_by_hash(balance_key, view),
            (BalanceMethod::LeastRequests, _) => self.choose_less_busy(view),
            // A second attempt must not take the turn of another request.
            _ if !self.has_equal_weights || !is_first_attempt => self.choose_smoothly(None, view),
            _ => self.choose_in_turn(view),
        }
    }

    /// Plain round robin. A server with a reduced factor accepts its turn with the probability of its factor in 1024ths. A
    /// turn that it does not accept still comes to it if no other server may get requests.
    fn choose_in_turn(&self, view: &impl ServerView) -> Option<usize> {
        let index = self.next_turn.get();
        let next_index = index + 1;
        let is_last = next_index >= self.weights.len();
        self.next_turn.set(if is_last { 0 } else { next_index });
        if view.has_full_weight(index) {
            return Some(index);
        }
        let factor = view.weight_factor(index);
        if factor > self.random_below(FULL_FACTOR) {
            return Some(index);
        }
        // All other servers share such turns by weight. Otherwise the next server in order would get all of them.
        self.choose_smoothly(Some(index), view)
            .or_else(|| (factor > 0).then_some(index))
    }

    /// The weight of a server for the next request: its configured one, multiplied by its factor.
    fn effective_weight(&self, index: usize, view: &impl ServerView) -> u32 {
        let factor = if view.has_full_weight(index) {
            FULL_FACTOR
        } else {
            view.weight_factor(index)
        };
        self.weights[index] * factor
    }

    /// Smooth weighted round robin, without the server at the index `excluded`. Each server gains its effective weight;
    /// the one with the highest current weight is chosen, and loses the sum of what all gained. `None` if no server may
    /// get requests.
    fn choose_smoothly(&self, excluded: Option<usize>, view: &impl ServerView) -> Option<usize> {
        let mut weight_sum = 0;
        let mut best: Option<usize> = None;
        for index in (0..self.weights.len()).filter(|index| Some(*index) != excluded) {
            let weight = i64::from(self.effective_weight(index, view));
            if weight == 0 {
                continue;
            }
            weight_sum += weight;
            let current_weight = &self.current_weights[index];
            current_weight.set(current_weight.get() + weight);
            if best.is_none_or(|best| self.current_weights[best].get() < current_weight.get()) {
                best = Some(index);
            }
        }
        let current_weight = &self.current_weights[best?];
        current_weight.set(current_weight.get() - weight_sum);
        best
    }

    /// Of two servers drawn by weight, the index of the one with fewer open requests for its weight. `None` if no server
    /// may get requests.
    fn choose_less_busy(&self, view: &impl ServerView) -> Option<usize> {
        let first = self.draw_by_weight(None, view)?;
        let Some(second) = self.draw_by_weight(Some(first), view) else {
            return Some(first);
        };
        let weight = |index| u64::from(self.effective_weight(index, view));
        // Compares open requests per weight without a division: a/b < c/d is a*d < c*b.
        let open_requests = |index| u64::from(view.open_requests(index));
        let is_second_less_busy =
            open_requests(second) * weight(first) < open_requests(first) * weight(second);
        Some(if is_second_less_busy { second } else { first })
    }

    /// The index of a random server other than `excluded`, with a probability by its weight; `None` if no other server
    /// may get requests.
    fn draw_by_weight(&self, excluded: Option<usize>, view: &impl ServerView) -> Option<usize> {
        let candidates = || (0..self.weights.len()).filter(|index| Some(*index) != excluded);
        let weight = |index| u64::from(self.effective_weight(index, view));
        let weight_sum = candidates().map(weight).sum();
        // A random point on the line of all weights; the server in whose stretch it is gets the request.
        let mut point = self.random.draw().checked_rem(weight_sum)?;
        candidates().find(|index| {
            let weight = weight(*index);
            let is_drawn = point < weight;
            point = point.saturating_sub(weight);
            is_drawn
        })
    }

    /// The index of the server with the highest score for this key: its weight divided by the negative logarithm of a
    /// uniform hash of key and server. `None` if no server may get requests.
    fn choose_by_hash(&self, balance_key: u64, view: &impl ServerView) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (index, hash) in self.hashes.iter().enumerate() {
            let weight = self.effective_weight(index, view);
            if weight == 0 {
                continue;
            }
            // The upper 53 bits, which an `f64` holds exactly, as a number above 0 and below 1: its logarithm is finite
            // and not zero.
            let uniform = ((mix(balance_key ^ hash) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            let score = f64::from(weight) / -uniform.ln();
            if best.is_none_or(|(_, best_score)| score > best_score) {
                best = Some((index, score));
            }
        }
        best.map(|(index, _)| index)
    }

    /// A random number from 0 to `end - 1`.
    fn random_below(&self, end: u32) -> u32 {
        // The remainder fits, because it is less than `end`.
        (self.random.draw() % u64::from(end.max(1))) as u32
    }
}

/// Hashes the name of an endpoint, and its address if the name has several. A name with one address keeps its keys when
/// the address changes, because the hash is of the name alone.
fn hash_endpoint(endpoint: &Endpoint, is_one_of_several: bool) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(endpoint.name.as_bytes());
    if let Some(address) = endpoint.address.as_ref().filter(|_| is_one_of_several) {
        hasher.write(address.to_string().as_bytes());
    }
    hasher.finish()
}

#[cfg(test)]
mod tests;
