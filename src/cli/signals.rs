//! What a running process is told by signals.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// One that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGHUP: reload the configuration and reopen the access log.
    Reload,
    /// SIGUSR1: reopen the access log.
    Reopen,
    /// SIGUSR2: start another process in the place of this one.
    Replace,
    /// SIGCHLD: a child has ended.
    Child,
    /// SIGTERM, SIGINT or SIGQUIT: end.
    End,
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
    /// Sets the handlers. To be called before anything else: until then a signal ends the process, or is lost if it is
    /// the first of a container. Needs a runtime.
    pub fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            replace: signal(SignalKind::user_defined2())?,
            child: signal(SignalKind::child())?,
        })
    }

    /// The next one. None is lost when this is given up.
    pub async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.hangup.recv() => Told::Reload,
            _ = self.reopen.recv() => Told::Reopen,
            _ = self.replace.recv() => Told::Replace,
            _ = self.child.recv() => Told::Child,
            () = end(&mut self.terminate, &mut self.interrupt, &mut self.quit) => Told::End,
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
