//! Routes of gateways that have priorities, as matches of policies, of which the most specific one wins.
//!
//! | file | what it is |
//! |---|---|
//! | `region` | the requests that a route takes, and how exactly policies can say that |
//! | `judgement` | which regions become matches, which answer 503, and which are left out |
//! | `cells` | single matches, with those that keep the priorities of routes |

pub mod cells;
pub mod judgement;
pub mod region;
