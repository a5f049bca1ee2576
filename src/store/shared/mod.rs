//! Limits that several gateways share: one gateway's side of a shared store. The part that decides does no I/O and reads no
//! clock; `shared_store` and `store_keeper` call the store for it.
//!
//! | file | what it is |
//! |---|---|
//! | `shared_store` | the shared store as the workers of one gateway use it |
//! | `sharing_plan` | how one limit is shared: by a call for each request, or by leases |
//! | `shared_item` | one limit's part of one request |
//! | `pending_call` | calls whose replies are awaited, and the decisions made of them |
//! | `call` | calls to a store, and its replies |
//! | `decider` | decides about requests, as far as that needs no store |
//! | `store_calls` | the decider's calls to the store, and the decisions made of replies |
//! | `counter_replies` | what replies about single counters mean |
//! | `alone`, `reports` | decisions without the store, and the reports of them |
//! | `give_backs` | units to give back once the store is shared |
//! | `ledger`, `ledger_entry` | what this gateway knows of each counter |
//! | `breaker` | whether the store is called |
//! | `local_share` | the units that this gateway may admit without the store |
//! | `recovery` | the steps back to a store that was away |
//! | `backend` | Redis or memcached behind one type |
//! | `store_keeper` | the thread that watches the store |

mod alone;
mod backend;
pub mod breaker;
pub mod call;
mod counter_replies;
pub mod decider;
pub mod give_backs;
pub mod ledger;
pub mod ledger_entry;
pub mod local_share;
pub mod pending_call;
pub mod recovery;
mod reports;
pub mod shared_item;
mod shared_store;
pub mod sharing_plan;
mod store_calls;
mod store_keeper;

pub use backend::Backend;
pub use shared_store::{Settings, SharedStore, SharedStoreStatus, StoreTally};
pub use store_keeper::StoreKeeper;
