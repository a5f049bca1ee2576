//! The keys that all workers have counted most often since the last list.
//!
//! Bounds, all in all below 128 KiB: [`STRIPES`] times 8 bytes for each of twice [`WIDTH`] cells, [`KEPT`] keys and [`REGISTERS`] bytes.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

use parking_lot::Mutex;

use super::distinct::{self, DistinctCount};
use super::heavy_keeper::HeavyKeeper;
use super::key::LimitKey;
use super::list::{KeyList, ListedKey};

/// Parts with a lock each, so that workers seldom wait for each other. A part for each worker would not do: a key's count in
/// each would be so small that keys that come once wear it down.
pub const STRIPES: usize = 16;
/// Cells in a row of a stripe.
pub const WIDTH: usize = 256;
/// Candidates of a stripe. The chance that more of the first 50 keys share a stripe is below one in a thousand.
pub const KEPT: usize = 12;
/// Registers of a stripe.
pub const REGISTERS: usize = distinct::REGISTERS / STRIPES;

/// See the module.
pub struct TopKeys {
    stripes: [Mutex<Stripe>; STRIPES],
}

struct Stripe {
    keeper: HeavyKeeper<LimitKey>,
    registers: [u8; REGISTERS],
    total: u64,
}

impl fmt::Debug for TopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TopKeys(..)")
    }
}

impl Default for TopKeys {
    fn default() -> TopKeys {
        // Clients must not be able to guess the random choices.
        TopKeys::new(RandomState::new().hash_one(0_u8))
    }
}

impl TopKeys {
    /// An empty sketch; `seed` is that of its random choices.
    pub fn new(seed: u64) -> TopKeys {
        TopKeys {
            stripes: std::array::from_fn(|number| {
                Mutex::new(Stripe {
                    keeper: HeavyKeeper::new(WIDTH, KEPT, seed.rotate_left(number as u32)),
                    registers: [0; REGISTERS],
                    total: 0,
                })
            }),
        }
    }

    /// Counts a key `times` times, by its hash, which must be spread evenly. Calls `name` only if the key may be listed.
    pub fn count(&self, hash: u64, times: u32, name: impl FnOnce() -> LimitKey) {
        let (register, rank) = distinct::place(hash);
        let mut stripe = self.stripes[register / REGISTERS].lock();
        stripe.total += u64::from(times);
        let held = &mut stripe.registers[register % REGISTERS];
        *held = rank.max(*held);
        stripe.keeper.count(hash, times, name);
    }

    /// The list of what was counted; `seed` names the secret of the hashes. Clears the counts if it is the `end` of the minute.
    pub fn list(&self, seed: u64, end: bool) -> KeyList {
        let (mut total, mut keys, mut registers) = (0, Vec::new(), Vec::new());
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
            if end {
                stripe.keeper.clear();
                stripe.registers.fill(0);
                stripe.total = 0;
            }
        }
        KeyList::new(total, keys, DistinctCount::from_registers(&registers), seed)
    }
}
