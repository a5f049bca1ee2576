//! Deadlines without a timer for each request: a worker looks at all its connections ten times a
//! second. A deadline is kept to within one tick, [`TICK`], of the time that the process runs.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::base::clock::{Clock, Nanos};

/// How often deadlines are looked at.
pub const TICK: Duration = Duration::from_millis(100);

/// The most that a tick adds to the time of deadlines: however long the process stood still, only those shorter than
/// this end by it.
const LEAP: Nanos = Nanos::from_secs(1);

/// How long a request has to answer that its body is late, before the connection is closed.
const GRACE: Nanos = Nanos::from_secs(1);

/// How long a connection that waits for a request keeps the room it used for the last one.
const ROOMY: Duration = Duration::from_secs(1);

const NEVER: u64 = u64::MAX;

/// All guarded connections of one worker, and its coarse clock.
#[derive(Debug)]
pub struct Guards {
    list: RefCell<Vec<Weak<Guard>>>,
    coarse: Cell<Nanos>,
    /// What deadlines are counted in: time without what exceeds [`LEAP`].
    now: Cell<Nanos>,
    clock: Clock,
}

/// Where a connection is between two requests. Spans come from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the first byte of the next request.
    Idle,
    /// Before the end of a request's head.
    Header,
    /// In a request.
    Request,
    /// Without a request, where the end is told before the connection closes.
    Rest,
    /// After the last response, before the client closes.
    Linger,
}

/// The deadlines of one connection: that of its phase, and in a request those of what it waits for.
#[derive(Debug)]
pub struct Guard {
    phase: Cell<Phase>,
    phase_ends: Cell<u64>,
    /// The connection has waited for [`ROOMY`].
    room_ends: Cell<u64>,
    rests: Cell<bool>,
    /// The client takes something of the response.
    write_ends: Cell<u64>,
    /// The client sends the next piece of the request's body.
    body_ends: Cell<u64>,
    /// The server begins its response or goes on with it.
    server_ends: Cell<u64>,
    /// The response has begun: the request's body has no deadline of its own any more.
    answering: Cell<bool>,
    header: Duration,
    waker: RefCell<Option<Waker>>,
    guards: Rc<Guards>,
}

impl Guards {
    /// No connection yet.
    pub fn new(clock: Clock) -> Rc<Guards> {
        Rc::new(Guards {
            list: RefCell::new(Vec::new()),
            coarse: Cell::new(clock.now()),
            now: Cell::new(Nanos::ZERO),
            clock,
        })
    }

    /// Time as of the last tick.
    pub fn coarse(&self) -> Nanos {
        self.coarse.get()
    }

    /// A guard for a new connection, waiting for its first request.
    pub fn watch(self: &Rc<Self>, idle: Duration, header: Duration) -> Rc<Guard> {
        let guard = Rc::new(Guard {
            phase: Cell::new(Phase::Idle),
            phase_ends: Cell::new(NEVER),
            room_ends: Cell::new(NEVER),
            rests: Cell::new(false),
            write_ends: Cell::new(NEVER),
            body_ends: Cell::new(NEVER),
            server_ends: Cell::new(NEVER),
            answering: Cell::new(false),
            header,
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
        let passed = now.since(self.coarse.replace(now));
        self.now.set(self.now.get().after(passed.min(LEAP)));
        self.list.borrow_mut().retain(|guard| {
            let Some(guard) = guard.upgrade() else {
                return false;
            };
            let rests = guard.passed(&guard.room_ends);
            if rests {
                guard.room_ends.set(NEVER);
                guard.rests.set(true);
            }
            if rests || guard.late() {
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

    fn deadline(&self, span: Duration) -> u64 {
        self.now.get().after(span.into()).0
    }
}

impl Guard {
    /// Where the connection is.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Starts a phase that may last `span`.
    pub fn enter(&self, phase: Phase, span: Duration) {
        self.phase.set(phase);
        self.phase_ends.set(self.guards.deadline(span));
        self.room_ends.set(match phase {
            Phase::Idle => self.guards.deadline(ROOMY),
            _ => NEVER,
        });
    }

    /// Whether the connection should give up the room it does not need while it waits; says so once.
    pub fn rests(&self) -> bool {
        self.rests.take()
    }

    /// A request begins; it has no deadline of its own.
    pub fn request(&self) {
        self.phase.set(Phase::Request);
        self.answering.set(false);
        let all = [
            &self.phase_ends,
            &self.room_ends,
            &self.body_ends,
            &self.server_ends,
        ];
        all.into_iter().for_each(|ends| ends.set(NEVER));
    }

    /// The phase ends within `span`, if not sooner.
    pub fn hurry(&self, span: Duration) {
        let ends = self.guards.deadline(span);
        self.phase_ends.update(|before| before.min(ends));
    }

    /// Whether the connection was without a request for as long as it may be.
    pub fn has_rested(&self) -> bool {
        self.phase.get() == Phase::Rest && self.passed(&self.phase_ends)
    }

    /// Bytes came in: the first ones of a request start its head's deadline.
    pub fn received(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter(Phase::Header, self.header);
        }
    }

    /// A write waits for the client; the deadline runs from the first wait.
    pub fn write_waits(&self, span: Duration) {
        self.start(&self.write_ends, span);
    }

    /// The client took something.
    pub fn wrote(&self) {
        self.write_ends.set(NEVER);
    }

    /// The response begins: from now on a request whose client and server are both silent is late.
    pub fn answer_begins(&self) {
        self.answering.set(true);
        self.body_ends.set(NEVER);
    }

    /// The request waits for a piece of its body; so long the server is not late.
    pub fn body_waits(&self, span: Duration) {
        if self.answering.get() {
            return;
        }
        self.start(&self.body_ends, span);
        self.server_ends.set(NEVER);
    }

    /// The piece is there, or is no longer needed.
    pub fn body_came(&self) {
        self.body_ends.set(NEVER);
    }

    /// Whether the client is late with its body.
    pub fn body_late(&self) -> bool {
        self.passed(&self.body_ends)
    }

    /// The request waits for the server, which may have made `progress` since it was last asked.
    pub fn server_waits(&self, span: Duration, progress: bool) {
        if self.body_ends.get() == NEVER {
            if progress {
                self.server_ends.set(NEVER);
            }
            self.start(&self.server_ends, span);
        }
    }

    /// The server sent something, or is no longer waited for.
    pub fn server_spoke(&self) {
        self.server_ends.set(NEVER);
    }

    /// Whether the server is late.
    pub fn server_late(&self) -> bool {
        self.passed(&self.server_ends)
    }

    fn start(&self, ends: &Cell<u64>, span: Duration) {
        if ends.get() == NEVER {
            ends.set(self.guards.deadline(span));
        }
    }

    fn passed(&self, ends: &Cell<u64>) -> bool {
        ends.get() <= self.guards.now.get().0
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
        // The request answers first, if it has not answered yet.
        let body_ends = self.body_ends.get().saturating_add(GRACE.0);
        self.passed(&self.write_ends)
            || (self.phase.get() != Phase::Rest && self.passed(&self.phase_ends))
            || body_ends <= self.guards.now.get().0
    }

    fn late(&self) -> bool {
        let all = [
            &self.phase_ends,
            &self.write_ends,
            &self.body_ends,
            &self.server_ends,
        ];
        all.into_iter().any(|ends| self.passed(ends))
    }

    /// Has the connection looked at.
    pub fn wake(&self) {
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
        let pass = |millis: u64| {
            for _ in 0..millis / 100 {
                clock.advance(Nanos::from_millis(100));
                guards.tick();
            }
        };
        let guard = guards.watch(Duration::from_secs(60), Duration::from_secs(10));
        let cx = Context::from_waker(Waker::noop());
        guard.received();
        pass(9_900);
        assert!(!guard.must_close(&cx));
        pass(100);
        assert!(guard.must_close(&cx));
        guard.request();
        assert!(!guard.must_close(&cx));
        guard.server_waits(Duration::from_secs(1), false);
        pass(2_000);
        assert!(guard.server_late() && !guard.must_close(&cx));
        guard.server_waits(Duration::from_secs(1), true);
        assert!(!guard.server_late());
        guard.body_waits(Duration::from_secs(5));
        guard.server_waits(Duration::from_secs(1), false);
        pass(4_000);
        assert!(!guard.server_late() && !guard.body_late());
        pass(1_000);
        assert!(guard.body_late() && !guard.must_close(&cx));
        pass(1_000);
        assert!(guard.must_close(&cx));
        guard.body_came();
        assert!(!guard.must_close(&cx));
        guard.write_waits(Duration::from_secs(3));
        pass(3_000);
        assert!(guard.must_close(&cx));
    }

    #[test]
    fn who_waits_gives_up_room_once() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let guards = Guards::new(clock.clone());
        let guard = guards.watch(Duration::from_secs(60), Duration::from_secs(10));
        let pass = |millis: u64| {
            clock.advance(Nanos::from_millis(millis));
            guards.tick();
            guard.rests()
        };
        assert_eq!([pass(900), pass(100), pass(900)], [false, true, false]);
        guard.request();
        assert!(!pass(900) && !pass(900));
        guard.enter(Phase::Idle, Duration::from_secs(60));
        assert!(!pass(900) && pass(900) && !pass(900));
    }

    #[test]
    fn nobody_is_late_because_the_process_stood_still() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let guards = Guards::new(clock.clone());
        let guard = guards.watch(Duration::from_secs(60), Duration::from_secs(10));
        let cx = Context::from_waker(Waker::noop());
        clock.advance(Nanos::from_secs(3_600));
        guard.request();
        guard.server_waits(Duration::from_secs(2), false);
        guards.tick();
        assert_eq!(guards.coarse(), Nanos::from_secs(3_605));
        assert!(!guard.server_late() && !guard.must_close(&cx));
        clock.advance(LEAP);
        guards.tick();
        assert!(guard.server_late());
    }
}
