//! What a running process is told by signals.

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

/// All signals that mean something wait in the kernel until this is dropped. The kernel drops a signal that has no
/// handler and comes to the first process of a container, but not one that waits.
pub struct BlockedSignals(SigSet);

impl BlockedSignals {
    /// One system call, so that it can stand before all else. To be dropped before a thread is started, which would
    /// go on blocking them.
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
        // It fails for no set of signals.
        let _ = all.thread_block();
        BlockedSignals(all)
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let _ = self.0.thread_unblock();
    }
}

/// Handlers of all signals that mean something. What comes before anyone asks waits.
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
    /// Sets the handlers, which then get what waited. Needs a runtime.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left.
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

    /// The next one. None is lost when this is given up.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.reopen.recv() => SignalEvent::Reopen,
            _ = self.replace.recv() => SignalEvent::Replace,
            _ = self.child.recv() => SignalEvent::ChildEnded,
            () = end(&mut self.terminate, &mut self.interrupt, &mut self.quit) => SignalEvent::End,
        }
    }

    /// Waits until the process is told to end; others keep waiting.
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
