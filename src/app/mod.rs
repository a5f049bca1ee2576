//! The composition root: builds everything in order, changes what runs, and stops it.

mod anew;
mod changes;
mod control;
mod counts;
mod entrances;
mod error;
mod events;
mod figures;
mod gateway;
mod pushing;
mod recording;
mod reload;
mod servers;
mod shutdown;
mod start;
mod witness;

pub use changes::Changes;
pub use error::Error;
pub use gateway::App;
pub use reload::Reloaded;
