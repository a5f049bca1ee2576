//! The composition root: builds all parts of a gateway in order, reloads its configuration, and ends it. It handles no
//! request itself.
//!
//! | file | what it does |
//! |---|---|
//! | `gateway` | defines the type that holds all parts |
//! | `start`, `reload`, `shutdown` | build the parts, replace some of them, and end them, in order |
//! | `config_publisher` | replaces the running configuration at all workers |
//! | `listeners` | builds the settings of the listeners that a reload may change |
//! | `servers` | builds the servers of the upstreams |
//! | `snapshots` | restores counts at the start, and starts and ends the writer of snapshots |
//! | `key_set_fetchers` | starts and ends fetchers of the key sets that verify tokens |
//! | `key_set_fetcher` | fetches one of these sets from its URL, on a thread |
//! | `passed_key_sets` | passes fetched key sets to the process that takes over |
//! | `control` | lets the admin listener read and reload the gateway |
//! | `live_metrics` | computes the metrics that are the state of a part, such as open requests |
//! | `metrics_recorder` | runs the two threads that write the record |
//! | `series_table` | works out what of each metric has changed in a second |
//! | `note_writer` | writes top keys, samples and events into the record |
//! | `order_keeper` | ends what operators have ordered, publishes changes to the workers, and reports them |
//! | `pusher` | starts to send the record to other engines |
//! | `events` | creates the events of the record, such as a reload |
//! | `reload_changes` | lists what a reload has changed |
//! | `reset_warnings` | warns of limits whose counts begin anew at a reload |
//! | `error` | defines why a start or a reload failed |

mod config_publisher;
mod control;
mod error;
mod events;
mod gateway;
mod key_set_fetcher;
mod key_set_fetchers;
mod listeners;
mod live_metrics;
mod metrics_recorder;
mod note_writer;
mod order_keeper;
mod passed_key_sets;
mod pusher;
mod reload;
mod reload_changes;
mod reset_warnings;
mod series_table;
mod servers;
mod shutdown;
mod snapshots;
mod start;

pub use error::Error;
pub use gateway::Gateway;
pub use passed_key_sets::PassedKeySets;
pub use reload::ReloadReport;
pub use reload_changes::ReloadChanges;
