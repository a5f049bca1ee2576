//! Receives the signals of a running process, and names the action that each of them requests. `run.rs` performs the
//! actions.

use std::io;

use nix::sys::signal::{SigSet, Signal as SignalNumber};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// SIGHUP: reload the configuration and reopen the access log.
    Reload,
    /// SIGUSR1: reopen the access log.
    Reopen,
    /// SIGUSR2: start a process that takes over.
    Replace,
    /// SIGCHLD: look at a child process that has ended.
    ChildEnded,
    /// SIGTERM, SIGINT or SIGQUIT: end the process.
    End,
}

/// Blocks all signals that the gateway handles, in the thread that creates this value and until that thread drops it.
///
/// The kernel drops a signal to the first process of a container if the process neither handles nor blocks it.
pub struct BlockedSignals(SigSet);

impl BlockedSignals {
    /// Blocks the signals with one system call and without a runtime, so that this can be the first step of a process.
    /// The value must be dropped before another thread starts, because threads inherit the blocked signals.
    pub fn new() -> BlockedSignals {
        let handled_signals = [
            SignalNumber::SIGTERM,
            SignalNumber::SIGINT,
            SignalNumber::SIGQUIT,
            SignalNumber::SIGHUP,
            SignalNumber::SIGUSR1,
            SignalNumber::SIGUSR2,
            SignalNumber::SIGCHLD,
        ];
        let handled_signals: SigSet = handled_signals.into_iter().collect();
        // Blocking cannot fail for a valid set.
        let _ = handled_signals.thread_block();
        BlockedSignals(handled_signals)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let _ = self.0.thread_unblock();
    }
}

/// The handlers of all signals. A signal that comes before [`Signals::next`] is called waits for that call; several of
/// one kind count as one.
pub struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    child: Signal,
    end: EndSignals,
}

/// The handlers of SIGTERM, SIGINT and SIGQUIT, which end the process.
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// Sets the handlers, and unblocks the signals. Must be called inside a runtime, in the thread that blocked them.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn new(blocked_signals: Option<BlockedSignals>) -> io::Result<Signals> {
        let signals = Signals {
            end: EndSignals::new()?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            child: signal(SignalKind::child())?,
        };
        drop(blocked_signals);
        Ok(signals)
    }

    /// Waits for the next signal. Cancelling the future loses no signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.user1.recv() => SignalEvent::Reopen,
            _ = self.user2.recv() => SignalEvent::Replace,
            _ = self.child.recv() => SignalEvent::ChildEnded,
            () = self.end.next() => SignalEvent::End,
        }
    }

    /// Waits for a signal that ends the process. Other signals stay pending.
    pub async fn next_end(&mut self) {
        self.end.next().await;
    }
}

impl EndSignals {
    /// Sets the handlers. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// The system refuses a handler.
    pub fn new() -> io::Result<EndSignals> {
        Ok(EndSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for one of the signals. Cancelling the future loses no signal.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}
