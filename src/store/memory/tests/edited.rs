//! Counts under a limit that was edited.

use super::*;

#[test]
fn edited_quotas_keep_counts() {
    for before in all_algorithms() {
        let memory = store(1 << 20);
        let slot = memory.register("a", &before).unwrap().slot();
        assert_eq!(admitted(&memory, &[item(&before, slot, 1)], START, 3), 3);
        let after = RateLimit {
            windows: vec!["4/m".parse().unwrap()],
            ..before.clone()
        };
        let same = before.shape() == after.shape();
        assert_eq!(same, !before.algorithm.is_gcra());
        let kept = memory.register("a", &after).unwrap().slot();
        assert_eq!(kept == slot, same);
        assert!(
            admitted(&memory, &[item(&after, kept, 1)], START, 9) <= 1,
            "{before:?}"
        );
    }
}

/// A key without remaining units has the added units at once, or waits for one unit at the new pace.
#[test]
fn raised_rates_help_at_once() {
    let gcra = |burst| Algorithm::Gcra { burst };
    let leaky = Algorithm::LeakyBucket {
        max_delay: Nanos::ZERO,
    };
    for (algorithm, remaining, wait) in [
        (gcra(None), 990, 0),
        (gcra(Some(3)), 0, 4),
        (leaky, 0, 4),
        (Algorithm::SlidingWindow, 990, 0),
        (Algorithm::FixedWindow, 990, 0),
    ] {
        let limit = |rate: &str| RateLimit {
            algorithm,
            max_plan_factor: 1,
            ..log_limit(rate)
        };
        let (before, after) = (limit("10/h"), limit("1000/h"));
        let memory = store(1 << 20);
        let slot = memory.register("a", &before).unwrap().slot();
        admitted(&memory, &[item(&before, slot, 1)], START, 20);
        let slot = memory.register("a", &after).unwrap().slot();
        let mut findings = smallvec::SmallVec::new();
        memory.take(&[item(&after, slot, 1)], START, &mut findings);
        let (left, waits) = (findings[0].remaining, findings[0].wait.0);
        let taken = u32::from(remaining > 0);
        assert_eq!(left, remaining - taken, "{algorithm:?}");
        assert_eq!(waits.div_ceil(1_000_000_000), wait, "{algorithm:?}");
    }
}

#[test]
fn changed_shapes_never_refill() {
    for before in all_algorithms() {
        for after in all_algorithms()
            .into_iter()
            .chain([log_limit("5/h"), log_limit("2/s,5/m")])
        {
            if before.shape() == after.shape() {
                continue;
            }
            let memory = store(1 << 20);
            let old = memory.register("a", &before).unwrap().slot();
            assert_eq!(admitted(&memory, &[item(&before, old, 1)], START, 3), 3);
            let new = memory.register("a", &after).unwrap().slot();
            assert_ne!(old, new);
            assert_eq!(memory.register("a", &after).unwrap().slot(), new);
            let more = admitted(&memory, &[item(&after, new, 1)], START, 9);
            assert!(more <= 2, "{before:?} to {after:?}: {more}");
            assert_eq!(memory.usage().key_count, 1);
            assert!(take(&memory, &[item(&after, new, 2)], START).0);
            let back = admitted(&memory, &[item(&before, old, 1)], START, 9);
            assert!(back <= 2, "{after:?} back to {before:?}: {back}");
        }
    }
}
