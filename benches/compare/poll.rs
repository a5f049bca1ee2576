//! Waiting for sockets with epoll, as client, upstream and floor do.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use tollgate::base::clock::Nanos;

/// Sockets to read from, each with a token.
pub struct Poll(OwnedFd);

/// The sockets that have become readable.
pub type Events = Vec<epoll::Event>;

impl Poll {
    /// A poll without sockets.
    pub fn new() -> io::Result<Poll> {
        Ok(Poll(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Watches a socket until it is closed.
    pub fn add(&self, socket: impl AsFd, token: u64) -> io::Result<()> {
        let token = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.0, socket, token, epoll::EventFlags::IN)?)
    }

    /// Fills `events`. Returns false if nothing became readable within the timeout.
    pub fn wait(&self, events: &mut Events, timeout: Nanos) -> io::Result<bool> {
        let timeout = Timespec {
            tv_sec: (timeout.0 / 1_000_000_000) as i64,
            tv_nsec: (timeout.0 % 1_000_000_000) as _,
        };
        events.clear();
        events.reserve(256);
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.0, spare, Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(failure) => Err(failure.into()),
        }
    }
}
