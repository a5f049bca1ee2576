//! The signals of a running process.

use std::io;

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// SIGHUP: reload the configuration and reopen the access log.
    Reload,
    /// SIGUSR1: reopen the access log.
    Reopen,
    /// SIGUSR2: start another process in the place of this one.
    Replace,
    /// SIGCHLD: a child has ended.
    ChildEnded,
    /// SIGTERM, SIGINT or SIGQUIT: end.
    End,
}

/// Blocks all signals that the gateway handles, until it is dropped.
///
/// The kernel discards a signal to the first process of a container that has no handler for it, but not a blocked one.
pub struct BlockedSignals(SigSet);

impl BlockedSignals {
    /// Makes one system call, so that it can come before all else. Drop it before a thread starts, because threads inherit
    /// the mask.
    pub fn new() -> BlockedSignals {
        let all = [
            Number::SIGTERM,
            Number::SIGINT,
            Number::SIGQUIT,
            Number::SIGHUP,
            Number::SIGUSR1,
            Number::SIGUSR2,
            Number::SIGCHLD,
        ];
        let all: SigSet = all.into_iter().collect();
        // It cannot fail for a valid set.
        let _ = all.thread_block();
        BlockedSignals(all)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let _ = self.0.thread_unblock();
    }
}

/// Handlers of these signals. A signal that comes before [`Signals::next`] is called waits.
pub struct Signals {
    hangup: Signal,
    reopen: Signal,
    replace: Signal,
    child: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// Sets the handlers, which then receive blocked signals. Needs a runtime.
    ///
    /// # Errors
    ///
    /// The process has no file descriptors left.
    pub fn new(blocked: Option<BlockedSignals>) -> io::Result<Signals> {
        let signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            replace: signal(SignalKind::user_defined2())?,
            child: signal(SignalKind::child())?,
        };
        drop(blocked);
        Ok(signals)
    }

    /// Waits for the next signal. Cancelling it loses none.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.reopen.recv() => SignalEvent::Reopen,
            _ = self.replace.recv() => SignalEvent::Replace,
            _ = self.child.recv() => SignalEvent::ChildEnded,
            () = end(&mut self.terminate, &mut self.interrupt, &mut self.quit) => SignalEvent::End,
        }
    }

    /// Waits for a signal that ends the process; others stay pending.
    pub async fn end(&mut self) {
        end(&mut self.terminate, &mut self.interrupt, &mut self.quit).await;
    }
}

async fn end(terminate: &mut Signal, interrupt: &mut Signal, quit: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = quit.recv() => {}
    }
}
