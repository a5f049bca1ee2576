//! Samples: single requests as examples of decisions, and each worker's choice of which ones to keep. Nothing of a body
//! is kept. `serve/stack/sampling.rs` makes the samples.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

use crate::base::clock::Nanos;

/// One request and how it ended. Method, path and user are texts that a client chose, and must be escaped where they
/// are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestSample {
    /// When the request came, in seconds since 1970, to the millisecond.
    pub at: f64,
    /// The name of the route; `None` if no route matched.
    pub route: Option<String>,
    /// The method as the client wrote it, cut if it is long.
    pub method: String,
    /// The path, without credentials; at most [`MAX_SAMPLE_PATH_BYTES`] bytes.
    pub path: Option<String>,
    /// The status of the response; 0 if there was none.
    pub status: u16,
    /// How the request ended: `admitted`, `refused`, `shed`, `denied`, `rejected`, `failed` or `gone`.
    pub outcome: String,
    /// `gateway` or `upstream`: who made the response.
    pub origin: String,
    /// The address by which the client was identified.
    pub ip: String,
    /// The verified user; `None` for an anonymous client.
    pub user: Option<String>,
    /// The limit because of which the request is a sample, and its decision. `None` if the request is a sample because
    /// of how it ended.
    #[serde(flatten)]
    pub limit: Option<Box<LimitDecision>>,
    /// Seconds from the end of the head of the request to the end of the request.
    pub seconds: f64,
}

/// The decision of a limit about a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitDecision {
    /// The name of the limit.
    pub limit: String,
    /// The standing: `over`, `refused` or `unsatisfiable`, or `shadow_refused` or `try_refused` for a limit in shadow mode or a candidate rate that would
    /// refuse. A request within its limits is no sample of a limit.
    pub standing: String,
    /// The key that the limit counted, as operators write it.
    pub key: String,
    /// The units that the limit grants in a window, or the most open requests.
    pub quota: u64,
    /// The window, as policies write it; `None` for a limit on open requests.
    pub window: Option<String>,
    /// The units that remain of `quota`.
    pub remaining: u64,
    /// Seconds after which the client may try again; `None` for an admitted request, or if a wait would not help.
    pub retry_after: Option<u64>,
}

/// The most bytes of the path of a sample. Longer paths are cut.
pub const MAX_SAMPLE_PATH_BYTES: usize = 256;

/// A class of samples, of which a worker keeps a few in each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleClass {
    /// The number of an outcome, or, above those, of a standing of the limit that decided.
    pub kind_number: u8,
    /// The index of the limit that decided, among the rules; `None` for a class of an outcome.
    pub rule_index: Option<usize>,
}

/// The most samples of one class that a worker keeps in a second, so that frequent classes leave room for rare ones.
const MAX_SAMPLES_PER_CLASS: u32 = 2;
/// The most samples that a worker keeps in a second, so that their cost is negligible beside that of the requests.
const MAX_SAMPLES_PER_SECOND: u32 = 24;

/// The nanoseconds of a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// One worker's choice of samples: few enough to cost nothing, and some of each class.
#[derive(Debug, Default)]
pub struct Sampler {
    /// The second whose samples are counted below, by the clock of the gateway.
    second: Cell<u64>,
    /// The number of samples of that second.
    sample_count: Cell<u32>,
    /// The number of samples of each class in that second, at most [`MAX_SAMPLES_PER_SECOND`] classes.
    counts_by_class: RefCell<Vec<(SampleClass, u32)>>,
    /// The class that had no room last in that second. Under load most requests are of this class.
    full_class: Cell<Option<SampleClass>>,
}

impl Sampler {
    /// Whether the second of `now` has room for one more sample. If that second is another one, its counts begin at
    /// zero.
    #[inline]
    pub fn has_room(&self, now: Nanos) -> bool {
        let second = now.0 / NANOS_PER_SECOND;
        if self.second.replace(second) != second {
            self.begin_second();
        }
        self.sample_count.get() < MAX_SAMPLES_PER_SECOND
    }

    #[cold]
    fn begin_second(&self) {
        self.sample_count.set(0);
        self.counts_by_class.borrow_mut().clear();
        self.full_class.set(None);
    }

    /// Whether a request of this class becomes a sample. If it does, it is counted.
    #[inline]
    pub fn choose(&self, class: SampleClass, now: Nanos) -> bool {
        self.has_room(now) && self.full_class.get() != Some(class) && self.count_sample(class)
    }

    /// Counts a sample of this class, if the class has room.
    fn count_sample(&self, class: SampleClass) -> bool {
        let mut counts_by_class = self.counts_by_class.borrow_mut();
        let class_index = counts_by_class
            .iter()
            .position(|(counted_class, _)| *counted_class == class)
            .unwrap_or_else(|| {
                counts_by_class.push((class, 0));
                counts_by_class.len() - 1
            });
        let (_, class_count) = &mut counts_by_class[class_index];
        if *class_count >= MAX_SAMPLES_PER_CLASS {
            self.full_class.set(Some(class));
            return false;
        }
        *class_count += 1;
        self.sample_count.set(self.sample_count.get() + 1);
        true
    }
}
