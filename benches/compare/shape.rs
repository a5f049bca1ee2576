//! The sizes of a run: routes, limits, addresses, connections and workers.

use crate::case::Case;

/// The connections of the client in a comparison.
pub const CONNECTIONS: usize = 64;

/// The client addresses of the case with many of them.
const ADDRESSES: u64 = 100_000;

/// The sizes of one run. Only tollgate has several routes and limits.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of policies. All requests match the first one.
    pub routes: usize,
    /// The number of limits of each policy.
    pub limits: usize,
    /// The number of client addresses.
    pub addresses: u64,
    /// The number of the client's connections.
    pub connections: usize,
    /// The number of worker processes or threads.
    pub workers: usize,
}

impl Shape {
    /// The sizes of a comparison.
    pub fn for_case(case: Case, workers: usize) -> Shape {
        Shape {
            routes: 1,
            limits: 2,
            addresses: if case == Case::Addresses {
                ADDRESSES
            } else {
                1
            },
            connections: CONNECTIONS,
            workers,
        }
    }
}
