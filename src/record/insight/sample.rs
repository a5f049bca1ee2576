//! Single requests, as examples of what was decided.

use std::cell::{Cell, RefCell};

use serde::{Deserialize, Serialize};

use crate::base::clock::Nanos;

/// One request and what became of it. Everything that a client chose is its own text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it came, in seconds since 1970.
    pub at: f64,
    /// Its route.
    pub route: Option<String>,
    /// Its method.
    pub method: String,
    /// Its path, without credentials; at most [`LONGEST_PATH`] bytes.
    pub path: Option<String>,
    /// The status of its answer; 0 if there was none.
    pub status: u16,
    /// How it ended.
    pub outcome: String,
    /// Who gave the answer.
    pub origin: String,
    /// The client's address.
    pub ip: String,
    /// The verified user.
    pub user: Option<String>,
    /// The limit that decided, and what it said.
    #[serde(flatten)]
    pub limit: Option<Box<Decision>>,
    /// Seconds until it ended.
    pub seconds: f64,
}

/// What a limit said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Its name.
    pub limit: String,
    /// Within, over or refused.
    pub standing: String,
    /// Whom it counted, as operators write it.
    pub key: String,
    /// What it grants in its window.
    pub quota: u64,
    /// The window, as policies write it; of a limit on open requests none.
    pub window: Option<String>,
    /// What is left of it.
    pub remaining: u64,
    /// Seconds that the client was told to wait.
    pub retry_after: Option<u64>,
}

/// Most bytes of a path.
pub const LONGEST_PATH: usize = 256;

/// What samples are told apart by: how a request ended, by its number, and the limit that decided, by its place.
pub type Class = (u8, Option<usize>);

/// Samples of a class that a worker takes in a second.
const OF_CLASS: u32 = 2;
/// Samples that a worker takes in a second.
const OF_ALL: u32 = 24;

/// One worker's choice of samples: so few that they cost nothing, and of each class some.
#[derive(Debug, Default)]
pub struct Sampler {
    second: Cell<u64>,
    taken: Cell<u32>,
    classes: RefCell<Vec<(Class, u32)>>,
}

impl Sampler {
    /// Whether one more may be taken in this second.
    pub fn has_room(&self, now: Nanos) -> bool {
        let second = now.0 / 1_000_000_000;
        if self.second.replace(second) != second {
            self.taken.set(0);
            self.classes.borrow_mut().clear();
        }
        self.taken.get() < OF_ALL
    }

    /// Whether to take this one.
    pub fn takes(&self, class: Class, now: Nanos) -> bool {
        if !self.has_room(now) {
            return false;
        }
        let mut classes = self.classes.borrow_mut();
        let place = classes.iter().position(|(known, _)| *known == class);
        let place = place.unwrap_or_else(|| {
            classes.push((class, 0));
            classes.len() - 1
        });
        let (_, taken) = &mut classes[place];
        if *taken >= OF_CLASS {
            return false;
        }
        *taken += 1;
        self.taken.set(self.taken.get() + 1);
        true
    }
}
