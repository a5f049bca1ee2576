//! What happens to machines and to the network between them.

use super::store::Data;
use super::world::{MILLI, Question, World};

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
    /// Under sentinels: another server leads with what was copied, and the one that stands still takes itself for the
    /// master. When it goes on it executes what lies in its socket, then it follows.
    Promote,
    Wake,
    /// It goes on first; another server has copied half of what it executes, and leads.
    Fork,
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
            Fault::Promote => self.promote(),
            Fault::Wake => self.wake(),
            Fault::Fork => {
                let half = self.queue.len() / 2;
                for message in self.queue.drain(..half).collect::<Vec<_>>() {
                    self.execute(message);
                }
                self.copied = self.store.clone().unwrap_or_default();
                self.promote();
                self.wake();
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

    fn promote(&mut self) {
        let copied = std::mem::take(&mut self.copied);
        self.former = std::mem::replace(&mut self.store, Ok(copied)).ok();
        self.master += 1;
        self.stopped = false;
    }

    fn wake(&mut self) {
        // Who asked sentinels for the master waits no longer.
        self.queue
            .retain(|message| !matches!(message.question, Question::Meet));
        for message in std::mem::take(&mut self.queue) {
            self.execute(message);
        }
        self.former = None;
    }
}
