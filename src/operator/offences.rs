//! [`OffenceTable`]: the latest refusals of each key of the limits that ban. It is exact for the keys that it has. Where more
//! keys are refused at a time than have room, those are forgotten whose last refusal is the oldest.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::base::clock::Nanos;
use crate::limit::BanPolicy;

/// The number of parts with locks of their own.
const SHARD_COUNT: usize = 16;
/// The number of sets of keys in a part. A key can be in one set only.
const SETS_IN_SHARD: usize = 1_024;
/// The number of keys in a set.
const KEYS_IN_SET: usize = 4;
/// The unit of times: a tenth of a second, of which 32 bits hold 13 years.
const TICK: u64 = 100_000_000;

/// The latest refusals of at most 65,536 keys: 2.5 MiB, and 4 bytes more for each refusal above four. A part takes memory
/// from its first refusal on.
#[derive(Debug)]
pub(super) struct OffenceTable([Mutex<Vec<Offences>>; SHARD_COUNT]);

/// The refusals of one key within the time of its policy, the oldest first.
#[derive(Clone, Debug, Default)]
struct Offences {
    key_hash: u64,
    ticks: SmallVec<[u32; 4]>,
}

impl Default for OffenceTable {
    fn default() -> OffenceTable {
        OffenceTable(std::array::from_fn(|_| Mutex::default()))
    }
}

impl OffenceTable {
    /// Adds a refusal. Returns whether it is the last one before a ban; then the key has none any more.
    pub(super) fn record(&self, key_hash: u64, policy: &BanPolicy, now: Nanos) -> bool {
        let tick = (now.0 / TICK) as u32;
        let within = i32::try_from(policy.within.0 / TICK).unwrap_or(i32::MAX);
        let (Some(shard), set_index) = (
            self.0.get(key_hash as usize % SHARD_COUNT),
            (key_hash as usize / SHARD_COUNT) % SETS_IN_SHARD,
        ) else {
            return false;
        };
        let mut shard = shard.lock();
        if shard.is_empty() {
            shard.resize(SETS_IN_SHARD * KEYS_IN_SET, Offences::default());
        }
        let set = shard.iter_mut().skip(set_index * KEYS_IN_SET);
        let mut place: Option<&mut Offences> = None;
        for offences in set.take(KEYS_IN_SET) {
            if offences.key_hash == key_hash {
                place = Some(offences);
                break;
            }
            let last_tick = |offences: &Offences| offences.ticks.last().copied().unwrap_or(0);
            if place
                .as_ref()
                .is_none_or(|oldest| last_tick(offences) < last_tick(oldest))
            {
                place = Some(offences);
            }
        }
        let Some(offences) = place else {
            return false;
        };
        if offences.key_hash != key_hash {
            *offences = Offences {
                key_hash,
                ticks: SmallVec::new(),
            };
        }
        offences
            .ticks
            // Another worker may have added a later one meanwhile.
            .retain(|earlier| (tick.wrapping_sub(*earlier) as i32) < within);
        offences.ticks.push(tick);
        let is_last = offences.ticks.len() >= policy.refusals as usize;
        if is_last {
            offences.ticks = SmallVec::new();
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BanPolicy = BanPolicy {
        refusals: 3,
        within: Nanos::from_secs(10),
        first: Nanos::from_secs(60),
        up_to: Nanos::from_secs(60),
    };

    #[test]
    fn only_refusals_within_the_time_count() {
        let table = OffenceTable::default();
        let at = |seconds: u64| table.record(7, &POLICY, Nanos::from_secs(1_000 + seconds));
        assert!(!at(0) && !at(9), "two in ten seconds");
        assert!(!at(10), "the first has left");
        assert!(at(11), "three since the ninth second");
        assert!(!at(12) && !at(13) && at(14), "they count anew");
        assert!(
            !at(21) && !at(20) && at(21),
            "one of another worker came late"
        );
    }

    #[test]
    fn a_flood_of_keys_forgets_no_busy_key_and_takes_bounded_memory() {
        let table = OffenceTable::default();
        let mut is_banned = false;
        for number in 0..1_000_000_u64 {
            let now = Nanos::from_millis(1_000_000 + number / 1_000);
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            assert!(!table.record(hash | 1 << 63, &POLICY, now));
            if number % 2_000 == 0 {
                is_banned |= table.record(5, &POLICY, now);
            }
        }
        assert!(is_banned, "it comes often enough");
        let slots: usize = table.0.iter().map(|shard| shard.lock().len()).sum();
        let bytes = slots * size_of::<Offences>();
        println!("{slots} keys take {bytes} bytes");
        assert!(bytes <= 3 << 20, "{bytes}");
    }
}
