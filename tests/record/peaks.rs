//! The highest second of ten years, from wherever one looks.

use super::random::Random;
use super::{MIDNIGHT, numbers, open, second};

const YEARS: u64 = 10 * 365 * 86_400;

/// Ten years in which something happened now and then, and in one second more than ever.
fn decade(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let record = open(folder.path());
    let numbers = numbers(&record, 1);
    let height = 1_000 + random.below(1 << 30);
    let mut hours: Vec<u64> = (0..150).map(|_| random.below(YEARS / 3_600)).collect();
    hours.sort_unstable();
    hours.dedup();
    let chosen = random.below(hours.len() as u64) as usize;
    let (mut burst, mut total) = (0, 0);
    for (place, hour) in hours.iter().enumerate() {
        let hour = MIDNIGHT + hour * 3_600;
        let at = hour + random.below(3_600);
        // Around it there was traffic too.
        for near in at.saturating_sub(20).max(hour)..(at + 20).min(hour + 3_600) {
            let peak = near == at && place == chosen;
            let value = if peak { height } else { random.below(900) };
            if peak {
                burst = near;
            }
            total += value;
            record.add(second(near, &numbers, [value]));
        }
        record.write_pending().unwrap();
    }
    let end = MIDNIGHT + YEARS + 7_200;
    record.add(second(end, &numbers, [0]));
    record.write_pending().unwrap();
    let look = |from: u64, to: u64, most: usize| {
        let grid = record.finest_grid(from, to, most).unwrap();
        let found = record.read(&grid, &numbers).unwrap();
        let column = &found.columns[&numbers[0]];
        let highest = column.maxima.iter().max();
        assert_eq!(
            highest,
            Some(&height),
            "{from} to {to}, {grid:?}, seed {seed}"
        );
        let bucket = (burst - grid.from) / grid.step_seconds;
        assert_eq!(
            column.maxima[bucket as usize], height,
            "{grid:?}, seed {seed}"
        );
        column.sums.iter().sum::<u64>()
    };
    for _ in 0..200 {
        let [back, on] = [(); 2].map(|()| {
            let scale = 1 + random.below(28);
            random.below(1 << scale)
        });
        let most = [2, 30, 600, 1_200, 11_000][random.below(5) as usize];
        look(burst.saturating_sub(back), burst + 1 + on, most);
    }
    for most in [2, 100, 1_200, 11_000] {
        assert_eq!(look(MIDNIGHT, end + 1, most), total, "{most}, seed {seed}");
    }
}

#[test]
fn the_highest_second_of_ten_years_is_seen_from_everywhere() {
    for seed in 1..=3 {
        decade(seed);
    }
}
