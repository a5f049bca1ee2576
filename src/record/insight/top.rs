//! Who is counted most often since the list was taken last, by all workers.
//!
//! Bounds, all in all below 128 KiB: [`STRIPES`] times 8 bytes for each of twice [`WIDTH`] cells, [`KEPT`] names and [`REGISTERS`] bytes.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::distinct::{self, Distinct};
use super::heavy_keeper::HeavyKeeper;
use super::list::{List, Listed};

/// Parts that workers count in without waiting for each other. A part for each worker would not do: a key's count in each
/// is so small that keys that come once wear it down.
pub const STRIPES: usize = 16;
/// Cells in a row of a stripe.
pub const WIDTH: usize = 256;
/// Candidates of a stripe: of the 50 first keys, that more are of one is less likely than one in a thousand.
pub const KEPT: usize = 12;
/// Of a stripe.
pub const REGISTERS: usize = distinct::REGISTERS / STRIPES;

/// Somebody whom a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// The limit.
    pub limit: String,
    /// Who, as operators write it: `ip=203.0.113.9`.
    pub key: String,
}

/// See the module.
pub struct Top {
    stripes: [Mutex<Stripe>; STRIPES],
}

struct Stripe {
    keeper: HeavyKeeper<Key>,
    registers: [u8; REGISTERS],
    total: u64,
}

impl fmt::Debug for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Top(..)")
    }
}

impl Default for Top {
    fn default() -> Top {
        // Its choices are nobody's to guess.
        Top::new(RandomState::new().hash_one(0_u8))
    }
}

impl Top {
    /// `seed` is of its random choices.
    pub fn new(seed: u64) -> Top {
        Top {
            stripes: std::array::from_fn(|number| {
                Mutex::new(Stripe {
                    keeper: HeavyKeeper::new(WIDTH, KEPT, seed.rotate_left(number as u32)),
                    registers: [0; REGISTERS],
                    total: 0,
                })
            }),
        }
    }

    /// Counts a key that came so often, by its hash, which must look random. Asks for its name only if it may be listed.
    pub fn count(&self, hash: u64, times: u32, name: impl FnOnce() -> Key) {
        let (register, rank) = distinct::place(hash);
        let mut stripe = self.stripes[register / REGISTERS].lock();
        stripe.total += u64::from(times);
        let held = &mut stripe.registers[register % REGISTERS];
        *held = rank.max(*held);
        stripe.keeper.count(hash, times, name);
    }

    /// What was counted, of hashes under the secret that `seed` tells. In the `end` it begins anew.
    pub fn list(&self, seed: u64, end: bool) -> List {
        let (mut total, mut keys, mut registers) = (0, Vec::new(), Vec::new());
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            total += stripe.total;
            keys.extend(stripe.keeper.candidates().iter().map(|candidate| Listed {
                key: candidate.name.clone(),
                hash: candidate.hash,
                count: candidate.count,
            }));
            registers.extend(stripe.registers);
            if end {
                stripe.keeper.clear();
                stripe.registers.fill(0);
                stripe.total = 0;
            }
        }
        List::new(total, keys, Distinct::from_registers(&registers), seed)
    }
}
