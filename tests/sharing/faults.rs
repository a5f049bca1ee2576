//! What happens to machines and to the network between them.

use super::store::Data;
use super::world::{MILLI, World};

/// What happens to machines.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The store's process dies; it starts again as it was, or empty if so said.
    Down,
    Up(bool),
    /// It stands still; what is asked meanwhile waits.
    Stop,
    Go,
    /// Another process takes over what was copied.
    Copy,
    Switch,
    /// Its clock jumps, in ms.
    Jump(i64),
    Cut(usize),
    Heal(usize),
    Crash(usize),
    /// In ms.
    Pause(usize, u64),
}

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Down | Fault::Stop => self.expect_outage(),
            Fault::Cut(gateway) => self.expect_cut(gateway),
            _ => {}
        }
        match fault {
            Fault::Down => self.store = Err(std::mem::replace(&mut self.store, Err(None)).ok()),
            Fault::Up(empty) => {
                if let Err(data) = &mut self.store {
                    let data = data.take().unwrap_or_default();
                    self.store = Ok(if empty { Data::default() } else { data });
                }
            }
            Fault::Stop => self.stopped = true,
            Fault::Go => {
                self.stopped = false;
                for message in std::mem::take(&mut self.queue) {
                    self.asked(message);
                }
            }
            Fault::Copy => self.copied = self.store.clone().unwrap_or_default(),
            Fault::Switch => self.store = Ok(std::mem::take(&mut self.copied)),
            Fault::Jump(ms) => self.store_clock.0 += ms * MILLI as i64,
            Fault::Cut(gateway) => self.gateways[gateway].cut = true,
            Fault::Heal(gateway) => {
                self.gateways[gateway].cut = false;
                let now = self.now;
                self.tracks
                    .iter_mut()
                    .flatten()
                    .for_each(|track| track.heal(now));
            }
            Fault::Crash(gateway) => self.restart(gateway),
            Fault::Pause(gateway, ms) => self.gateways[gateway].paused = self.now + ms * MILLI,
        }
    }
}
