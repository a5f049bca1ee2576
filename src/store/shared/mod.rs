//! Limits that several gateways share: one gateway's side of a shared store. The part that decides does no I/O and reads no
//! clock; `shared_store` and `store_keeper` call the store for it.
//!
//! A gateway decides *alone* where no reply of the store takes part: before the first contact, while the store is away,
//! after a failed call, and partly while the store learns what gateways admitted without it. The units that a gateway then
//! admits are *ungranted*: the store has not granted them, and learns of them by a report. Units that a response uses
//! beyond its reservation are ungranted too.
//!
//! Units that the store granted in advance, and that no request has used yet, are *in hand*.
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
//! | `alone` | decisions without the store, and those with a store that is learning |
//! | `reports` | reports of used units to the store, above all of ungranted units |
//! | `give_backs` | units to give back once the store decides again |
//! | `ledger`, `ledger_entry` | what this gateway knows of each counter |
//! | `breaker` | whether the store is called |
//! | `local_share` | the units that this gateway may admit without the store |
//! | `recovery` | the steps back to a store that was away |
//! | `shared_entries`, `entry_exchange` | entries that gateways share beside counts, such as bans |
//! | `permit_calls`, `permit_lease` | calls about permits of open requests, and the lease under which they count |
//! | `backend` | Redis or memcached behind one type |
//! | `store_keeper` | the thread that watches the store |

mod alone;
mod backend;
pub mod breaker;
pub mod call;
mod counter_replies;
pub mod decider;
mod entry_exchange;
pub mod give_backs;
pub mod ledger;
pub mod ledger_entry;
pub mod local_share;
pub mod pending_call;
mod permit_calls;
pub mod permit_lease;
pub mod recovery;
mod reports;
pub mod shared_entries;
pub mod shared_item;
mod shared_store;
pub mod sharing_plan;
mod store_calls;
mod store_keeper;

pub use backend::Backend;
pub use shared_store::{Settings, SharedStore, SharedStoreStatus, StoreTally};
pub use store_keeper::StoreKeeper;
