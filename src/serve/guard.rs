//! Deadlines without a timer for each request: a worker looks at all its connections ten times a
//! second. A deadline is kept to within one tick, [`TICK`].

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::clock::{Clock, Nanos};

/// How often deadlines are looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// How long a request has to answer that its body is late, before the connection is closed.
const GRACE: Nanos = Nanos::from_secs(1);

const NEVER: u64 = u64::MAX;

/// All guarded connections of one worker, and its coarse clock.
#[derive(Debug)]
pub struct Guards {
    list: RefCell<Vec<Weak<Guard>>>,
    now: Cell<Nanos>,
    clock: Clock,
}

/// What a connection waits for. The span allowed comes from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The first byte of the next request.
    Idle,
    /// The rest of a request's head.
    Header,
    /// The gateway itself: no deadline.
    Busy,
    /// The next piece of a request body.
    Body,
    /// The upstream's server, to begin its answer or to go on with it.
    Server,
    /// The client to close, after the last answer.
    Linger,
}

/// The deadlines of one connection: that of its phase, and that of a write the client does not
/// take.
#[derive(Debug)]
pub struct Guard {
    phase: Cell<Phase>,
    phase_ends: Cell<u64>,
    write_ends: Cell<u64>,
    header: Cell<Duration>,
    waker: RefCell<Option<Waker>>,
    guards: Rc<Guards>,
}

/// A phase that goes on later.
#[derive(Clone, Copy, Debug)]
pub struct Interrupted {
    phase: Phase,
    ends: u64,
}

impl Guards {
    /// No connection yet.
    pub fn new(clock: Clock) -> Rc<Guards> {
        let now = Cell::new(clock.now());
        Rc::new(Guards {
            list: RefCell::new(Vec::new()),
            now,
            clock,
        })
    }

    /// Time as of the last tick.
    pub fn coarse(&self) -> Nanos {
        self.now.get()
    }

    /// A guard for a new connection, waiting for its first request.
    pub fn watch(self: &Rc<Self>, idle: Duration) -> Rc<Guard> {
        let guard = Rc::new(Guard {
            phase: Cell::new(Phase::Idle),
            phase_ends: Cell::new(NEVER),
            write_ends: Cell::new(NEVER),
            header: Cell::new(Duration::ZERO),
            waker: RefCell::new(None),
            guards: self.clone(),
        });
        guard.enter(Phase::Idle, idle);
        self.list.borrow_mut().push(Rc::downgrade(&guard));
        guard
    }

    /// Moves the coarse clock on and wakes every connection with a deadline that has passed.
    pub fn tick(&self) {
        let now = self.clock.now();
        self.now.set(now);
        self.list.borrow_mut().retain(|guard| {
            let Some(guard) = guard.upgrade() else {
                return false;
            };
            if guard.late(now) {
                guard.wake();
            }
            true
        });
    }

    /// Wakes every connection, so that each sees that the worker is draining.
    pub fn wake_all(&self) {
        for guard in self.list.borrow().iter().filter_map(Weak::upgrade) {
            guard.wake();
        }
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.list
            .borrow()
            .iter()
            .filter(|guard| guard.strong_count() > 0)
            .count()
    }

    fn deadline(&self, span: Duration) -> u64 {
        self.now.get().after(span.into()).0
    }
}

impl Guard {
    /// Starts a phase that may last `span`.
    pub fn enter(&self, phase: Phase, span: Duration) {
        self.phase.set(phase);
        self.phase_ends.set(self.guards.deadline(span));
    }

    /// Starts a phase without a deadline.
    pub fn busy(&self) {
        self.phase.set(Phase::Busy);
        self.phase_ends.set(NEVER);
    }

    /// Starts a phase in the middle of another one, which [`Guard::resume`] goes on with.
    pub fn interrupt(&self, phase: Phase, span: Duration) -> Interrupted {
        let before = Interrupted {
            phase: self.phase.get(),
            ends: self.phase_ends.get(),
        };
        self.enter(phase, span);
        before
    }

    /// Goes back to the phase that was interrupted by `phase`, unless another one has begun.
    pub fn resume(&self, phase: Phase, before: Interrupted) {
        if self.phase.get() == phase {
            self.phase.set(before.phase);
            self.phase_ends.set(before.ends);
        }
    }

    /// How long heads may take from here on.
    pub fn allow_header(&self, span: Duration) {
        self.header.set(span);
    }

    /// Bytes came in: the first ones of a request start its head's deadline.
    pub fn received(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Header, self.header.get());
        }
    }

    /// A write waits for the client; the deadline runs from the first wait.
    pub fn write_waits(&self, span: Duration) {
        if self.write_ends.get() == NEVER {
            self.write_ends.set(self.guards.deadline(span));
        }
    }

    /// The client took something.
    pub fn wrote(&self) {
        self.write_ends.set(NEVER);
    }

    /// What the connection waits for.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Whether the deadline of `phase` has passed; for the request that is in that phase.
    pub fn phase_expired(&self, phase: Phase) -> bool {
        self.phase.get() == phase && self.phase_ends.get() <= self.guards.now.get().0
    }

    /// Whether the whole connection must end: the client is idle, slow with a message, or does not
    /// read. Remembers whom to wake.
    pub fn must_close(&self, cx: &Context<'_>) -> bool {
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(cx.waker()))
        {
            *waker = Some(cx.waker().clone());
        }
        let now = self.guards.now.get().0;
        let ends = match self.phase.get() {
            Phase::Idle | Phase::Header | Phase::Linger => self.phase_ends.get(),
            // The request answers first, if it has not answered yet.
            Phase::Body => self.phase_ends.get().saturating_add(GRACE.0),
            Phase::Busy | Phase::Server => NEVER,
        };
        self.write_ends.get() <= now || ends <= now
    }

    fn late(&self, now: Nanos) -> bool {
        self.phase_ends.get() <= now.0 || self.write_ends.get() <= now.0
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_end_when_their_span_has_passed() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let guards = Guards::new(clock.clone());
        let guard = guards.watch(Duration::from_secs(60));
        guard.allow_header(Duration::from_secs(10));
        let cx = Context::from_waker(Waker::noop());
        guard.received();
        assert_eq!(guard.phase(), Phase::Header);
        clock.advance(Nanos::from_millis(9_900));
        guards.tick();
        assert!(!guard.must_close(&cx));
        clock.advance(Nanos::from_millis(100));
        guards.tick();
        assert!(guard.must_close(&cx));
        guard.busy();
        assert!(!guard.must_close(&cx));
        guard.enter(Phase::Server, Duration::from_secs(1));
        clock.advance(Nanos::from_secs(2));
        guards.tick();
        assert!(guard.phase_expired(Phase::Server) && !guard.must_close(&cx));
        guard.write_waits(Duration::from_secs(3));
        clock.advance(Nanos::from_secs(3));
        guards.tick();
        assert!(guard.must_close(&cx));
        drop(guard);
        guards.tick();
        assert_eq!(guards.open(), 0);
    }
}
