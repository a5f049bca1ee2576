//! Limits that several gateways share: one gateway's side of a shared store. The part that decides does no I/O and reads no
//! clock; `gateway` and `keeper` call the store for it.
//!
//! | file | what it is |
//! |---|---|
//! | `gateway` | the shared store as the workers of one gateway use it |
//! | `plan` | how one limit is shared: by a call for each request, or by leases |
//! | `item` | one limit's part of one request |
//! | `pending` | decisions that are made, and calls whose replies are awaited |
//! | `call` | calls to a store, and its replies |
//! | `decider` | decides about requests, as far as that needs no store |
//! | `store_calls` | the decider's calls to the store, and the decisions made of replies |
//! | `alone` | decisions without the store, and the reports of them |
//! | `give_backs` | units to give back once the store is shared |
//! | `ledger`, `ledger_entry` | what this gateway knows of each counter |
//! | `breaker` | whether the store is called |
//! | `share` | the units that this gateway may admit without the store |
//! | `recovery` | the steps back to a store that was away |
//! | `backend` | Redis or memcached behind one type |
//! | `keeper` | the thread that watches the store |

mod alone;
mod backend;
pub mod breaker;
pub mod call;
pub mod decider;
mod gateway;
pub mod give_backs;
pub mod item;
mod keeper;
pub mod ledger;
pub mod ledger_entry;
pub mod pending;
pub mod plan;
pub mod recovery;
pub mod share;
mod store_calls;

pub use backend::Backend;
pub use gateway::{Settings, Shared, Tally};
pub use keeper::StoreKeeper;
