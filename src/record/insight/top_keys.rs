//! The most frequent keys of all workers: a [`HeavyKeeper`] and a part of a [`DistinctCount`] in each of several
//! stripes.
//!
//! Bounds: [`STRIPE_COUNT`] times 8 bytes for each of twice [`ROW_CELLS`] cells, [`STRIPE_CANDIDATES`] keys and
//! [`STRIPE_REGISTERS`] bytes. With names of up to 200 bytes, all of it is below 128 KiB.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

use parking_lot::Mutex;

use super::distinct_count::{self, DistinctCount};
use super::heavy_keeper::HeavyKeeper;
use super::key_list::{KeyList, ListedKey};
use super::limit_key::LimitKey;

/// The number of stripes. The hash of a key chooses its stripe, and each stripe has a lock, so that workers seldom wait
/// for each other. With one stripe per worker, each would have only a part of a key's count, and rare keys decay a low
/// count more easily.
pub const STRIPE_COUNT: usize = 16;
/// The number of cells in each of the two rows of a stripe; 8 bytes each.
pub const ROW_CELLS: usize = 256;
/// The number of candidates of a stripe. The chance that more of the 50 most frequent keys share a stripe is below one
/// in a thousand.
pub const STRIPE_CANDIDATES: usize = 12;
/// The number of registers of a stripe.
pub const STRIPE_REGISTERS: usize = distinct_count::REGISTER_COUNT / STRIPE_COUNT;

/// The counts of keys since the last [`TopKeys::take_list`].
pub struct TopKeys {
    stripes: [Mutex<Stripe>; STRIPE_COUNT],
}

/// The counts of the keys whose hashes choose this stripe.
struct Stripe {
    /// The most frequent of these keys.
    keeper: HeavyKeeper<LimitKey>,
    /// The part of the registers of a [`DistinctCount`] that these keys choose.
    registers: [u8; STRIPE_REGISTERS],
    /// The sum of the counts of all keys.
    total: u64,
}

impl Stripe {
    /// Forgets all counts of the stripe.
    fn clear(&mut self) {
        self.keeper.clear();
        self.registers.fill(0);
        self.total = 0;
    }
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopKeys(..)")
    }
}

impl Default for TopKeys {
    fn default() -> TopKeys {
        // The seed is secret: a client that guesses the random choices could hide a key.
        TopKeys::new(RandomState::new().hash_one(0_u8))
    }
}

impl TopKeys {
    /// Makes empty counts. `seed` is the seed of the random choices.
    pub fn new(seed: u64) -> TopKeys {
        TopKeys {
            stripes: std::array::from_fn(|index| {
                let stripe_seed = seed.rotate_left(index as u32);
                Mutex::new(Stripe {
                    keeper: HeavyKeeper::new(ROW_CELLS, STRIPE_CANDIDATES, stripe_seed),
                    registers: [0; STRIPE_REGISTERS],
                    total: 0,
                })
            }),
        }
    }

    /// Counts a key `times` times, by its hash, whose bits must look random. Calls `name`, with the lock of a stripe
    /// held, only if the key becomes a candidate for the list.
    pub fn count(&self, hash: u64, times: u32, name: impl FnOnce() -> LimitKey) {
        let (register, rank) = distinct_count::register_and_rank(hash);
        let mut stripe = self.stripes[register / STRIPE_REGISTERS].lock();
        stripe.total += u64::from(times);
        let stored_rank = &mut stripe.registers[register % STRIPE_REGISTERS];
        *stored_rank = rank.max(*stored_rank);
        stripe.keeper.count(hash, times, name);
    }

    /// Lists the most frequent keys. `seed` stands for the secret of the hashes, as in [`KeyList::seed`]. Workers may
    /// count on meanwhile, because the stripes are read one after another.
    pub fn list(&self, seed: u64) -> KeyList {
        self.list_stripes(seed, |_| ())
    }

    /// Lists the most frequent keys as [`TopKeys::list`] does, and clears the counts.
    pub fn take_list(&self, seed: u64) -> KeyList {
        self.list_stripes(seed, Stripe::clear)
    }

    /// Lists the most frequent keys, and calls `after_read` with each stripe while it is still locked, so that no count
    /// is lost between the two.
    fn list_stripes(&self, seed: u64, after_read: impl Fn(&mut Stripe)) -> KeyList {
        let mut total = 0;
        let mut keys = Vec::new();
        let mut registers = Vec::new();
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            total += stripe.total;
            keys.extend(
                stripe
                    .keeper
                    .candidates()
                    .iter()
                    .map(|candidate| ListedKey {
                        key: candidate.name.clone(),
                        hash: candidate.hash,
                        count: candidate.count,
                    }),
            );
            registers.extend(stripe.registers);
            after_read(&mut stripe);
        }
        KeyList::new(total, keys, DistinctCount::from_registers(&registers), seed)
    }
}
