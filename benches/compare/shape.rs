//! How large everything is that a run is made of.

use crate::case::Case;

/// Connections of the client, where nothing else is asked for.
pub const CONNECTIONS: usize = 64;

/// Addresses of the case with many of them.
const ADDRESSES: u64 = 100_000;

/// Sizes of one run. Routes and limits are tollgate's alone.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Policies, of which one is asked for.
    pub routes: usize,
    /// Limits of each.
    pub limits: usize,
    /// Client addresses.
    pub addresses: u64,
    /// Connections of the client.
    pub connections: usize,
    /// Worker processes or threads.
    pub workers: usize,
}

impl Shape {
    /// As a comparison has it.
    pub fn of(case: Case, workers: usize) -> Shape {
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
