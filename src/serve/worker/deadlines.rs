//! The deadlines of client connections, and of requests over HTTP/2 and HTTP/3, without a timer for each: a worker checks
//! all of them in each [`TICK`].
//!
//! A deadline is kept to within one tick. It counts only time in which the process runs, so that nobody is late because
//! the process was stopped. Nothing is closed here: the clock wakes the connection, whose task calls
//! [`Deadlines::must_close`]. The timeout of a whole request is in `serve/stack/request_deadline.rs`.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::base::clock::{Clock, Nanos};
use crate::store::permits::PermitGuard;

/// How often deadlines are checked.
pub const TICK: Duration = Duration::from_millis(100);

/// The number of ticks in a second.
pub const TICKS_PER_SECOND: u64 = 10;

/// Maximum time that one tick adds to the time of deadlines. However long the process stood still, a connection loses no
/// more than this.
const MAX_TICK_ADVANCE: Nanos = Nanos::from_secs(1);

/// How long the gateway has to send its response to a late body, before the connection is closed without one.
const LATE_BODY_GRACE: Nanos = Nanos::from_secs(1);

/// How long a connection that waits for a request keeps the buffers of the last one. Then an idle connection needs little
/// memory.
const BUFFER_RETENTION_TIME: Duration = Duration::from_secs(1);

/// The value of a deadline that is not set.
const NEVER: u64 = u64::MAX;

/// The coarse clock of one worker, and all connections whose deadlines it checks.
#[derive(Debug)]
pub struct DeadlineClock {
    /// The deadlines that are checked. Those that were dropped leave the list in the next tick.
    connections: RefCell<Vec<Weak<Deadlines>>>,
    /// The gateway's clock at the last tick.
    coarse_now: Cell<Nanos>,
    /// The time of deadlines: each tick adds at most [`MAX_TICK_ADVANCE`].
    deadline_now: Cell<Nanos>,
    clock: Clock,
}

/// The phase of a connection, which has a deadline of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connection waits for the first byte of the next request.
    Idle,
    /// A request's head, or what comes before the first one (PROXY header, handshake, preface), has begun and is
    /// incomplete.
    Header,
    /// A request is open.
    Request,
    /// No request is open on the connection, which has one stream for each. Before the connection closes, the gateway sends GOAWAY.
    IdleMultiplexed,
    /// No request is open. The gateway has closed its sending side, or announced the end by GOAWAY. The
    /// client has not closed its side.
    Linger,
}

/// The deadlines of one connection: one for its phase, and in a request one for each side that it waits for. A request
/// over HTTP/2 or HTTP/3, and a response whose client has left, have deadlines of their own. Each is in nanoseconds of
/// [`DeadlineClock::deadline_now`], or [`NEVER`].
#[derive(Debug)]
pub struct Deadlines {
    phase: Cell<Phase>,
    /// Until when the phase must end.
    phase_deadline: Cell<u64>,
    /// When the connection frees its buffers, if it is still idle.
    buffer_deadline: Cell<u64>,
    /// Whether `buffer_deadline` has passed, and the connection has not freed its buffers yet.
    should_free_buffers: Cell<bool>,
    /// Until when the client must read more of the response.
    write_deadline: Cell<u64>,
    /// Until when the client must send more of the request's body.
    body_deadline: Cell<u64>,
    /// Until when the server must begin its response or send more of it.
    server_deadline: Cell<u64>,
    /// Whether the response has begun, so that the request's body has no deadline of its own any more.
    has_response_begun: Cell<bool>,
    /// How long the head of a request may take.
    header_timeout: Duration,
    /// Whether some deadline had passed at the last tick.
    had_late_deadline: Cell<bool>,
    /// The permits of the open request, where its lease may end before it.
    permits: RefCell<Option<std::sync::Weak<PermitGuard>>>,
    /// Wakes the connection's task.
    waker: RefCell<Option<Waker>>,
    deadline_clock: Rc<DeadlineClock>,
}

impl DeadlineClock {
    /// A clock without connections.
    pub fn new(clock: Clock) -> Rc<DeadlineClock> {
        Rc::new(DeadlineClock {
            connections: RefCell::new(Vec::new()),
            coarse_now: Cell::new(clock.now()),
            deadline_now: Cell::new(Nanos::ZERO),
            clock,
        })
    }

    /// The time of the last tick, which costs no system call.
    pub fn coarse_now(&self) -> Nanos {
        self.coarse_now.get()
    }

    /// Makes the deadlines of a new connection and checks them in each tick until they are dropped. The connection is
    /// idle: its first request must begin within `idle_timeout`.
    pub fn watch_connection(
        self: &Rc<Self>,
        idle_timeout: Duration,
        header_timeout: Duration,
    ) -> Rc<Deadlines> {
        let deadlines = Rc::new(Deadlines {
            phase: Cell::new(Phase::Idle),
            phase_deadline: Cell::new(NEVER),
            buffer_deadline: Cell::new(NEVER),
            should_free_buffers: Cell::new(false),
            write_deadline: Cell::new(NEVER),
            body_deadline: Cell::new(NEVER),
            server_deadline: Cell::new(NEVER),
            has_response_begun: Cell::new(false),
            header_timeout,
            had_late_deadline: Cell::new(false),
            permits: RefCell::new(None),
            waker: RefCell::new(None),
            deadline_clock: self.clone(),
        });
        deadlines.enter_phase(Phase::Idle, idle_timeout);
        self.connections
            .borrow_mut()
            .push(Rc::downgrade(&deadlines));
        deadlines
    }

    /// Moves the coarse clock on. Wakes every connection with a deadline that has passed, or with buffers to free.
    pub fn tick(&self) {
        let now = self.clock.now();
        let elapsed = now.since(self.coarse_now.replace(now));
        let deadline_now = self.deadline_now.get().after(elapsed.min(MAX_TICK_ADVANCE));
        self.deadline_now.set(deadline_now);
        self.connections.borrow_mut().retain(|deadlines| {
            let Some(deadlines) = deadlines.upgrade() else {
                return false;
            };
            let should_free_buffers = deadlines.has_passed(&deadlines.buffer_deadline);
            if should_free_buffers {
                deadlines.buffer_deadline.set(NEVER);
                deadlines.should_free_buffers.set(true);
            }
            deadlines.end_revoked_request();
            deadlines
                .had_late_deadline
                .set(deadlines.has_late_deadline());
            if should_free_buffers || deadlines.had_late_deadline.get() {
                deadlines.wake();
            }
            true
        });
    }

    /// Wakes every connection, so that each sees that the worker is draining.
    pub fn wake_connections(&self) {
        for deadlines in self.connections.borrow().iter().filter_map(Weak::upgrade) {
            deadlines.wake();
        }
    }

    /// The time of deadlines at `timeout` from now, in nanoseconds.
    fn deadline_after(&self, timeout: Duration) -> u64 {
        self.deadline_now.get().after(timeout.into()).0
    }
}

impl Deadlines {
    /// The current phase of the connection.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// Starts a phase that may last for `timeout`. In [`Phase::Idle`] the buffers are freed after
    /// [`BUFFER_RETENTION_TIME`].
    pub fn enter_phase(&self, phase: Phase, timeout: Duration) {
        // A server may still work for a request that is over. Its permits do not concern the next one.
        self.permits.replace(None);
        self.phase.set(phase);
        self.phase_deadline
            .set(self.deadline_clock.deadline_after(timeout));
        self.buffer_deadline.set(match phase {
            Phase::Idle => self.deadline_clock.deadline_after(BUFFER_RETENTION_TIME),
            _ => NEVER,
        });
    }

    /// Whether the idle connection must free its buffers now. It resets the flag, so it is true at most once in each idle
    /// phase.
    pub fn take_free_buffers_flag(&self) -> bool {
        self.should_free_buffers.take()
    }

    /// Enters [`Phase::Request`]. The phase has no deadline: only the body and the server that it waits for have one.
    pub fn report_request_begun(&self) {
        self.permits.replace(None);
        self.phase.set(Phase::Request);
        self.has_response_begun.set(false);
        let deadlines = [
            &self.phase_deadline,
            &self.buffer_deadline,
            &self.body_deadline,
            &self.server_deadline,
        ];
        deadlines
            .into_iter()
            .for_each(|deadline| deadline.set(NEVER));
    }

    /// Ends the request of this phase when its permits are revoked: see [`PermitGuard::is_revoked`].
    pub fn watch_permits(&self, permits: &Arc<PermitGuard>) {
        *self.permits.borrow_mut() = Some(Arc::downgrade(permits));
    }

    /// Ends the phase if its request has lost its permits. A request that has ended has none.
    fn end_revoked_request(&self) {
        let permits = &mut *self.permits.borrow_mut();
        match permits.as_ref().map(std::sync::Weak::upgrade) {
            None => {}
            Some(Some(guard)) if guard.is_revoked() => {
                self.phase_deadline
                    .set(self.deadline_clock.deadline_now.get().0);
            }
            Some(Some(_)) => {}
            Some(None) => *permits = None,
        }
    }

    /// Moves the end of the phase to `timeout` from now, unless the phase ends sooner already.
    pub fn shorten_phase(&self, timeout: Duration) {
        let deadline = self.deadline_clock.deadline_after(timeout);
        self.phase_deadline
            .update(|phase_deadline| phase_deadline.min(deadline));
    }

    /// Whether the connection of HTTP/2 or HTTP/3 has been without a request for the idle timeout.
    pub fn has_idle_timeout_passed(&self) -> bool {
        self.phase.get() == Phase::IdleMultiplexed && self.has_passed(&self.phase_deadline)
    }

    /// Reports that the client has sent bytes. The first ones of a request start the deadline of its head.
    pub fn report_bytes_received(&self) {
        if self.phase.get() == Phase::Idle {
            self.enter_phase(Phase::Header, self.header_timeout);
        }
    }

    /// Reports that a write waits for the client. The deadline runs from the first report since the last progress.
    pub fn report_write_stalled(&self, send_timeout: Duration) {
        self.start_deadline(&self.write_deadline, send_timeout);
    }

    /// Reports that the client has read something.
    pub fn report_write_progress(&self) {
        self.write_deadline.set(NEVER);
    }

    /// Reports that the response begins. From now on the request is late only if client and server are both silent.
    pub fn report_response_begun(&self) {
        self.has_response_begun.set(true);
        self.body_deadline.set(NEVER);
    }

    /// Starts the deadline for the next piece of the request's body, unless it runs already. Meanwhile the server cannot be
    /// late. Does nothing once the response has begun.
    pub fn await_body(&self, idle_timeout: Duration) {
        if self.has_response_begun.get() {
            return;
        }
        self.start_deadline(&self.body_deadline, idle_timeout);
        self.server_deadline.set(NEVER);
    }

    /// Reports that the awaited piece of the request's body has arrived, or is no longer needed.
    pub fn report_body_arrived(&self) {
        self.body_deadline.set(NEVER);
    }

    /// Whether the client is late with its body.
    pub fn is_body_late(&self) -> bool {
        self.has_passed(&self.body_deadline)
    }

    /// Starts the deadline of the server, or starts it again if the server has made progress since the last call. Does
    /// nothing while the client's body is awaited.
    pub fn await_server(&self, timeout: Duration, has_progress: bool) {
        if self.body_deadline.get() == NEVER {
            if has_progress {
                self.server_deadline.set(NEVER);
            }
            self.start_deadline(&self.server_deadline, timeout);
        }
    }

    /// Reports that the server has sent something, or is no longer waited for.
    pub fn report_server_responded(&self) {
        self.server_deadline.set(NEVER);
    }

    /// Whether the server is late with its response.
    pub fn is_server_late(&self) -> bool {
        self.has_passed(&self.server_deadline)
    }

    /// Sets `deadline` to `timeout` from now, unless it is set already.
    fn start_deadline(&self, deadline: &Cell<u64>, timeout: Duration) {
        if deadline.get() == NEVER {
            deadline.set(self.deadline_clock.deadline_after(timeout));
        }
    }

    fn has_passed(&self, deadline: &Cell<u64>) -> bool {
        deadline.get() <= self.deadline_clock.deadline_now.get().0
    }

    /// The output of `future`; `None` if the connection must end first: see [`Deadlines::must_close`].
    #[inline]
    pub async fn run<F: Future>(&self, mut future: Pin<&mut F>) -> Option<F::Output> {
        poll_fn(|cx| match self.must_close(cx) {
            true => Poll::Ready(None),
            false => future.as_mut().poll(cx).map(Some),
        })
        .await
    }

    /// Whether the whole connection must end: the client is idle, late with a head or a body, or does not read. Registers
    /// the task to be woken when a deadline passes.
    #[inline]
    pub fn must_close(&self, cx: &Context<'_>) -> bool {
        let is_registered = match &*self.waker.borrow() {
            Some(registered) => registered.will_wake(cx.waker()),
            None => false,
        };
        if !is_registered {
            self.register_waker(cx);
        }
        // Deadlines pass in ticks only, so most calls need not look at each.
        self.had_late_deadline.get() && self.has_connection_deadline_passed()
    }

    /// Remembers the task to wake.
    #[cold]
    fn register_waker(&self, cx: &Context<'_>) {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
    }

    /// Whether a deadline has passed that ends the whole connection.
    #[cold]
    fn has_connection_deadline_passed(&self) -> bool {
        // The request sees `is_body_late` first and responds, which ends the body's deadline.
        let close_at = self.body_deadline.get().saturating_add(LATE_BODY_GRACE.0);
        self.has_passed(&self.write_deadline)
            || (self.phase.get() != Phase::IdleMultiplexed && self.has_passed(&self.phase_deadline))
            || close_at <= self.deadline_clock.deadline_now.get().0
    }

    /// Whether any deadline of the connection has passed.
    fn has_late_deadline(&self) -> bool {
        let deadlines = [
            &self.phase_deadline,
            &self.write_deadline,
            &self.body_deadline,
            &self.server_deadline,
        ];
        deadlines
            .into_iter()
            .any(|deadline| self.has_passed(deadline))
    }

    /// Wakes the connection, so that it checks its deadlines.
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
    fn phases_end_when_their_time_is_over() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let deadline_clock = DeadlineClock::new(clock.clone());
        let advance = |millis: u64| {
            for _ in 0..millis / 100 {
                clock.advance(Nanos::from_millis(100));
                deadline_clock.tick();
            }
        };
        let deadlines =
            deadline_clock.watch_connection(Duration::from_secs(60), Duration::from_secs(10));
        let cx = Context::from_waker(Waker::noop());
        deadlines.report_bytes_received();
        advance(9_900);
        assert!(!deadlines.must_close(&cx));
        advance(100);
        assert!(deadlines.must_close(&cx));
        deadlines.report_request_begun();
        assert!(!deadlines.must_close(&cx));
        deadlines.await_server(Duration::from_secs(1), false);
        advance(2_000);
        assert!(deadlines.is_server_late() && !deadlines.must_close(&cx));
        deadlines.await_server(Duration::from_secs(1), true);
        assert!(!deadlines.is_server_late());
        deadlines.await_body(Duration::from_secs(5));
        deadlines.await_server(Duration::from_secs(1), false);
        advance(4_000);
        assert!(!deadlines.is_server_late() && !deadlines.is_body_late());
        advance(1_000);
        assert!(deadlines.is_body_late() && !deadlines.must_close(&cx));
        advance(1_000);
        assert!(deadlines.must_close(&cx));
        deadlines.report_body_arrived();
        assert!(!deadlines.must_close(&cx));
        deadlines.report_write_stalled(Duration::from_secs(3));
        advance(3_000);
        assert!(deadlines.must_close(&cx));
    }

    #[test]
    fn an_idle_connection_frees_its_buffers_once() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let deadline_clock = DeadlineClock::new(clock.clone());
        let deadlines =
            deadline_clock.watch_connection(Duration::from_secs(60), Duration::from_secs(10));
        let frees_buffers_after = |millis: u64| {
            clock.advance(Nanos::from_millis(millis));
            deadline_clock.tick();
            deadlines.take_free_buffers_flag()
        };
        assert_eq!(
            [
                frees_buffers_after(900),
                frees_buffers_after(100),
                frees_buffers_after(900)
            ],
            [false, true, false]
        );
        deadlines.report_request_begun();
        assert!(!frees_buffers_after(900) && !frees_buffers_after(900));
        deadlines.enter_phase(Phase::Idle, Duration::from_secs(60));
        assert!(!frees_buffers_after(900) && frees_buffers_after(900) && !frees_buffers_after(900));
    }

    #[test]
    fn nobody_is_late_because_the_process_stood_still() {
        let clock = Clock::manual(Nanos::from_secs(5));
        let deadline_clock = DeadlineClock::new(clock.clone());
        let deadlines =
            deadline_clock.watch_connection(Duration::from_secs(60), Duration::from_secs(10));
        let cx = Context::from_waker(Waker::noop());
        clock.advance(Nanos::from_secs(3_600));
        deadlines.report_request_begun();
        deadlines.await_server(Duration::from_secs(2), false);
        deadline_clock.tick();
        assert_eq!(deadline_clock.coarse_now(), Nanos::from_secs(3_605));
        assert!(!deadlines.is_server_late() && !deadlines.must_close(&cx));
        clock.advance(MAX_TICK_ADVANCE);
        deadline_clock.tick();
        assert!(deadlines.is_server_late());
    }
}
