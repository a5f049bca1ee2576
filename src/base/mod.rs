//! What every module stands on.
//!
//! | module | what it is |
//! |---|---|
//! | `clock` | time as a value, from the machine or from a test |
//! | `random` | randomness as an argument |
//! | `suggest` | the nearest known word for an unknown one |
//! | `telemetry` | every metric and label by name; logging |
//! | `varint` | integers of seven bits a byte |

pub mod clock;
pub mod random;
pub mod suggest;
pub mod telemetry;
pub mod varint;
