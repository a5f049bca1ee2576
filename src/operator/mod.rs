//! What operators order at run time, beside the files: bans, grants, accounts of credits and API keys. Each order is an entry. Entries are
//! kept on the disk and shared by gateways, and no order of their arrival changes the result. One registry holds the entries of all
//! kinds; a view for each kind gives orders and builds an index of its own.
//!
//! | module | content |
//! |---|---|
//! | `entry` | one entry, its bounds and its text |
//! | `entry_terms` | what only entries of one kind have |
//! | `credit_terms` | the orders of an account of credits |
//! | `entry_map` | all entries; the newest change of a key wins, and accounts are joined |
//! | `entry_file` | the file that keeps entries over restarts |
//! | `entry_registry` | all entries of the gateway, its file, and what it shares with others |
//! | `registry_state` | what the registry of entries holds behind its lock |
//! | `ban_index` | finds the ban of an address or of an identified client |
//! | `api_key_registry`, `new_api_key` | the view of API keys, and how they are made |
//! | `api_key_id` | the ids by which operators name API keys |
//! | `ban_registry` | the view of bans, and what workers see of them |
//! | `grant_registry` | the view of grants and accounts |
//! | `account_orders` | orders about accounts of credits |
//! | `offences` | counts the refusals of limits that ban |
//! | `settings` | where entries are kept, and what banned clients get |
//! | `tokens` | who the operators are, and what each may do |
//! | `error` | why an order is refused |
//!
//! Bounds: [`EntryGroup::max_entries`] of each group of kinds, each entry of at most 2 KiB, an
//! account of credits of at most 130 KiB.

mod account_orders;
mod api_key_id;
mod api_key_registry;
mod ban_index;
mod ban_registry;
mod credit_terms;
mod entry;
mod entry_file;
mod entry_map;
mod entry_registry;
mod entry_terms;
mod error;
mod grant_registry;
mod new_api_key;
mod offences;
mod registry_state;
mod settings;
mod tokens;

pub use account_orders::{HeldOrder, NewCredits};
pub use api_key_id::{find_named_id, is_id};
pub use api_key_registry::{AddedApiKey, ApiKeyRegistry, ListedApiKey};
pub use ban_index::{ActiveBan, BanIndex};
pub use ban_registry::{BanRegistry, ListedBan, NewBan};
pub use credit_terms::{CreditOrder, CreditTerms, EarlierOrders};
pub use entry::{EntryGroup, EntryKind, OperatorEntry, SlotKey};
pub use entry_file::EntryFile;
pub use entry_map::EntryMap;
pub use entry_registry::{EntryRegistry, RefreshedEntries};
pub use entry_terms::{ApiKeyTerms, EntryTerms, GrantTerms};
pub use error::{ApiKeyError, BanError, GrantOrderError};
pub use grant_registry::{GrantRegistry, ListedGrant, NewGrant};
pub use new_api_key::NewApiKey;
pub use registry_state::{ChangeKind, EntryChange};
pub use settings::{BanResponse, Settings};
pub use tokens::{OperatorToken, OperatorTokens, Right, TokenError};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_accounts;
#[cfg(test)]
mod tests_of_api_keys;
#[cfg(test)]
mod tests_of_sharing;
