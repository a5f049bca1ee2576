//! Receives the signals of a running process, and says what each of them asks for. `run.rs` does what they ask for.

use std::io;

use nix::sys::signal::{SigSet, Signal as SignalNumber};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The action that a signal asks for.
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

/// Blocks all signals that the gateway handles, until this value is dropped.
///
/// The kernel drops a signal for the first process of a container if that has no handler for it, unless it is blocked.
pub struct BlockedSignals(SigSet);

impl BlockedSignals {
    /// Blocks the signals with one system call, so that this can be the first step of a process. The value must be
    /// dropped before a thread starts, because threads inherit the mask.
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

/// The handlers of all signals. A signal that comes before [`Signals::next`] is called waits for that call.
pub struct Signals {
    hangup: Signal,
    user1: Signal,
    user2: Signal,
    child: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// Sets the handlers, and unblocks the signals. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// The process has no file descriptors left.
    pub fn new(blocked_signals: Option<BlockedSignals>) -> io::Result<Signals> {
        let signals = Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
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
            () = end_signal(&mut self.terminate, &mut self.interrupt, &mut self.quit) => SignalEvent::End,
        }
    }

    /// Waits for a signal that ends the process. Other signals stay pending.
    pub async fn end(&mut self) {
        end_signal(&mut self.terminate, &mut self.interrupt, &mut self.quit).await;
    }
}

/// Waits for any of the three signals that end the process.
async fn end_signal(terminate: &mut Signal, interrupt: &mut Signal, quit: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        _ = quit.recv() => {}
    }
}
