//! Counts that several gateways share.
//!
//! | file | what it is |
//! |---|---|
//! | `gateway` | the shared store as the workers of one gateway use it |
//! | `plan` | how one limit is shared: asked for each time, or granted in advance |
//! | `item` | one limit's part of one request |
//! | `pending` | decisions that are made, and those that wait for the store |
//! | `call` | what a store is asked, and what it replies |
//! | `decider` | decides, as far as that needs no store |
//! | `store_calls` | what the decider asks the store, and what it makes of replies |
//! | `alone` | how it decides without the store |
//! | `give_backs` | units to give back once the store is shared |
//! | `ledger`, `ledger_entry` | what this gateway knows of each counter |
//! | `breaker` | whether the store is asked |
//! | `share` | what may be admitted without it |
//! | `recovery` | the way back to a store that was away |
//! | `backend` | Redis or memcached behind one type |
//! | `keeper` | the thread that keeps in touch with the store |

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
