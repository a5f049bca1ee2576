//! The outermost layer: stamps the time once, counts and logs every request whatever happens to it,
//! and turns refusals into answers.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::future::Either;
use http::Method;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::body::{self, Relay, ReplyBody, RequestBody};
use super::ending::Ending;
use super::left::{self, Rest};
use super::peer::Peer;
use super::refusal::Refusal;
use super::sampling;
use super::source::Source;
use super::unreadable::Unreadable;
use crate::base::clock::Nanos;
use crate::base::telemetry::Metric;
use crate::http::head::{Head, Response};
use crate::identity::Who;
use crate::limit::{Rule, Standing};
use crate::record::insight::Decision;
use crate::serve::access::{self, WorkerLog};
use crate::serve::http1::repeat::Block;
use crate::serve::stack::outcome::Outcome;
use crate::serve::worker::generation::Generation;
use crate::store::permits::Taken;
use crate::throttle::Settling;
use crate::throttle::admission::{Stake, Verdict};

/// A request as it came in; small, for every layer hands it on.
pub struct Arrival {
    /// Its head.
    pub head: Rc<Head>,
    /// Its body.
    pub body: RequestBody,
    /// Where it comes from.
    pub source: Source,
    /// What was made of the same fields before.
    pub known: Option<Rc<Block>>,
    /// What the record will say of it.
    pub note: Rc<Note>,
}

/// What is known of one request so far. Shared by the layers, so that it is there even when the
/// client hangs up in the middle.
pub struct Note {
    /// When the request arrived.
    pub at: Nanos,
    /// Its method; none when it cannot be read.
    pub method: Option<Method>,
    /// Its head; only when its target may be logged or be in an example.
    pub head: Option<Rc<Head>>,
    /// The path, where the head cannot be read.
    pub path: Option<Box<str>>,
    /// What was made of the same fields before.
    pub known: Option<Rc<Block>>,
    /// Who asks; nobody, when that was not looked at.
    pub who: OnceCell<Rc<Who>>,
    /// Its route, by index.
    pub route: Cell<Option<usize>>,
    /// The limit that spoke, by index, and what it said.
    pub limit: Cell<Option<(usize, Standing)>>,
    /// What that limit said, when the request is to be an example.
    pub decision: Cell<Option<Box<Decision>>>,
    /// Its limits were decided without the store that gateways share.
    pub alone: Cell<bool>,
    /// The server it went to, and whether one was tried.
    pub server: RefCell<Option<Arc<str>>>,
    /// Why it was not served.
    pub reason: Cell<Option<&'static str>>,
    status: Cell<u16>,
    by_upstream: Cell<bool>,
    outcome: Cell<Outcome>,
    sent: Cell<u64>,
    /// What hangs on its end.
    pub stake: RefCell<Option<Stake>>,
    /// Its client has left.
    pub left: Cell<bool>,
    /// The connection it came over.
    pub peer: Rc<Peer>,
    /// The running policies it is served by.
    pub generation: Rc<Generation>,
    access: Rc<WorkerLog>,
}

impl Note {
    /// Counts and remembers what admission decided.
    pub fn decided(&self, verdict: &Verdict, rules: &[Arc<Rule>], who: &Rc<Who>, now: Nanos) {
        let generation = &self.generation;
        let mut within = true;
        for finding in &verdict.findings {
            let rule = &rules[finding.rule];
            let counters = &generation.rules[rule.index];
            within &= finding.reading.standing == Standing::Within;
            match (finding.reading.standing, rule.shadow) {
                (Standing::Within, _) => counters.within.increment(1),
                (Standing::Over, _) => counters.over.increment(1),
                (_, true) => counters.shadow_refused.increment(1),
                (_, false) => counters.refused.increment(1),
            }
            if generation.facts.is_some() {
                let recent = &self.peer.worker.recent;
                sampling::count(recent, generation, who, (rule, finding));
            }
        }
        if !within && generation.facts.is_some() {
            let example = sampling::example(generation, (who, now), verdict, rules);
            self.decision.set(example);
        }
        self.alone.set(verdict.alone);
        if let Some((rule, finding)) = verdict.decider(rules) {
            self.limit.set(Some((rule.index, finding.reading.standing)));
        }
    }

    /// The client behind trusted proxies.
    pub fn ip(&self) -> IpAddr {
        self.who.get().map_or(self.peer.ip, |who| who.ip)
    }

    /// The same as text, where that is known.
    pub fn address(&self) -> Option<&str> {
        (self.ip() == self.peer.ip).then_some(&*self.peer.address)
    }

    /// The verified user.
    pub fn user(&self) -> Option<&str> {
        self.who.get()?.user.as_deref()
    }

    /// Status of the answer; 0 when the client left before there was one.
    pub fn status(&self) -> u16 {
        self.status.get()
    }

    /// Whether the upstream gave the answer, whole or not.
    pub fn by_upstream(&self) -> bool {
        self.by_upstream.get()
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        self.outcome.get()
    }

    /// Limits wait for what the response says.
    pub fn settles(&self) -> bool {
        let stake = self.stake.borrow();
        stake.as_ref().is_some_and(|stake| stake.settles)
    }

    /// The permits of the request.
    pub fn permits(&self) -> Option<Arc<Taken>> {
        let stake = self.stake.borrow();
        stake.as_ref().and_then(|stake| stake.permits.clone())
    }

    /// Whether the log will name the server.
    pub fn wants_server(&self) -> bool {
        self.access.wants_targets()
    }

    /// Bytes of the answer's body that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    fn write(&self) {
        let now = self.generation.clock.now();
        let counters = self.generation.route_counters(self.route.get());
        counters.outcomes[self.outcome.get() as usize].increment(1);
        counters.took.observe(now.since(self.at));
        counters.bytes.increment(self.sent());
        sampling::tell(self, now);
        access::log(&self.access, self, now);
    }
}

/// Writes the note when the last part of the request is gone.
struct Recording(Rc<Note>);

impl Drop for Recording {
    fn drop(&mut self) {
        self.0.write();
    }
}

/// Puts [`Record`] around the stack.
#[derive(Clone)]
pub struct RecordLayer {
    /// Where requests are logged.
    pub access: Rc<WorkerLog>,
}

impl<S> Layer<S> for RecordLayer {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record {
            inner,
            access: self.access.clone(),
        }
    }
}

/// See [`RecordLayer`].
#[derive(Clone)]
pub struct Record<S> {
    inner: S,
    access: Rc<WorkerLog>,
}

/// A request before it is stamped.
pub struct Fresh {
    /// Its head.
    pub head: Result<Rc<Head>, Box<Unreadable>>,
    /// Where it comes from.
    pub source: Source,
    /// The connection it came over.
    pub peer: Rc<Peer>,
    /// The policies it is served by.
    pub generation: Rc<Generation>,
    /// What was made of the same fields before.
    pub known: Option<Rc<Block>>,
}

impl<S> Service<Fresh> for Record<S>
where
    S: Service<Arrival, Response = Response<Settling<Relay>>, Error = Refusal>
        + Service<Ending, Response = Response<Settling<Relay>>, Error = Refusal>,
{
    type Response = Response<Recorded>;
    type Error = Infallible;
    type Future = Recorder<Either<<S as Service<Arrival>>::Future, <S as Service<Ending>>::Future>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, fresh: Fresh) -> Self::Future {
        let Fresh {
            head,
            source,
            peer,
            generation,
            known,
        } = fresh;
        source.guard().request();
        let at = generation.clock.now();
        let example = || generation.facts.is_some() && generation.sampler.has_room(at);
        let wanted = self.access.wants_targets() || example();
        let (head, mut unreadable) = match head {
            Ok(head) => (head, None),
            Err(unreadable) => (Rc::default(), Some(unreadable)),
        };
        let (method, path) = match &mut unreadable {
            None => (Some(head.method.clone()), None),
            Some(unreadable) => (unreadable.line.method.take(), unreadable.line.path.take()),
        };
        let note = Rc::new(Note {
            at,
            method,
            head: (wanted && unreadable.is_none()).then(|| head.clone()),
            path,
            known: known.clone(),
            who: OnceCell::new(),
            route: Cell::new(None),
            limit: Cell::new(None),
            decision: Cell::new(None),
            alone: Cell::new(false),
            server: RefCell::new(None),
            reason: Cell::new(None),
            status: Cell::new(0),
            by_upstream: Cell::new(false),
            outcome: Cell::new(Outcome::Gone),
            sent: Cell::new(0),
            stake: RefCell::new(None),
            left: Cell::new(false),
            peer,
            generation,
            access: self.access.clone(),
        });
        let recording = Some(Recording(note.clone()));
        let arrival = Arrival {
            head,
            body: RequestBody::new(&source, &note.generation),
            source,
            known,
            note,
        };
        // Each is made where it is handed back, for it is large.
        match unreadable {
            None => Recorder {
                future: Either::Left(self.inner.call(arrival)),
                recording,
            },
            Some(unreadable) => Recorder {
                future: Either::Right(self.inner.call(Ending::unrouted(
                    arrival,
                    unreadable.why,
                    at,
                ))),
                recording,
            },
        }
    }
}

pin_project! {
    /// The future of [`Record`].
    pub struct Recorder<F> {
        #[pin]
        future: F,
        recording: Option<Recording>,
    }
}

impl<F> Recorder<F> {
    /// The client has left, or is taken to have for this reason: the request is on record now. Gives what hangs on its
    /// end, for which it must go on.
    pub fn leave(self: Pin<&mut Self>, reason: &'static str) -> Option<Stake> {
        let recording = self.project().recording.take()?;
        let note = &recording.0;
        note.left.set(true);
        note.reason.set(Some(reason));
        note.stake.borrow().clone()
    }
}

impl<F> Future for Recorder<F>
where
    F: Future<Output = Result<Response<Settling<Relay>>, Refusal>>,
{
    type Output = Result<Response<Recorded>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        let recording = this.recording.take();
        let note = recording.as_ref().map(|recording| &recording.0);
        let answer = match result {
            Ok(answer) => {
                if let Some(note) = note {
                    note.outcome.set(Outcome::Admitted);
                    note.by_upstream.set(true);
                }
                answer.map(ReplyBody::Relayed)
            }
            Err(refusal) => {
                if let Some(note) = note {
                    note.outcome.set(refusal.outcome());
                    note.reason.set(refusal.reason());
                    // The client need not have read it.
                    if let Some(stake) = &mut *note.stake.borrow_mut() {
                        stake.permits = None;
                    }
                }
                refusal.answer().map(ReplyBody::own)
            }
        };
        if let Some(note) = note {
            let status = answer.head.status.as_u16();
            note.status.set(status);
            let counters = note.generation.route_counters(note.route.get());
            counters.answered(status, note.by_upstream());
        }
        Poll::Ready(Ok(answer.map(|inner| Recorded { inner, recording })))
    }
}

/// The body of an answer; when it is gone the request is over.
pub struct Recorded {
    inner: ReplyBody,
    recording: Option<Recording>,
}

impl Recorded {
    /// The answer to what was no request.
    pub fn unrecorded(inner: ReplyBody) -> Recorded {
        Recorded {
            inner,
            recording: None,
        }
    }

    /// What an upstream sends, without a record.
    pub fn into_relayed(mut self) -> Option<Settling<Relay>> {
        match self.inner.take() {
            ReplyBody::Relayed(body) => Some(body),
            ReplyBody::Own(_) => None,
        }
    }

    /// The gateway says it itself, without a look at the request's body.
    pub fn is_own(&self) -> bool {
        matches!(self.inner, ReplyBody::Own(_))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let ReplyBody::Relayed(body) = &self.inner else {
            return;
        };
        let Some(Recording(note)) = self.recording.as_ref().filter(|_| !body.is_end_stream())
        else {
            return;
        };
        // A tunnel ends with either side.
        if note.reason.get().is_some() || note.status() == 101 {
            return;
        }
        // To HEAD the body is not sent.
        if note.method != Some(Method::HEAD) {
            note.reason.set(Some(body::CLIENT_LEFT));
        }
        if body.open().is_none() {
            return;
        }
        if let ReplyBody::Relayed(mut body) = self.inner.take() {
            let (peer, worker) = (&note.peer, &note.peer.worker);
            let guard = worker.guards.watch(peer.idle, peer.header);
            guard.request();
            body.inner_mut().detach(guard);
            left::go_on(Rest::of(body), note.permits(), &worker.left);
        }
    }
}

impl Body for Recorded {
    type Data = Bytes;
    type Error = body::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, body::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(Recording(note)) = &this.recording {
            match &frame {
                Some(Ok(frame)) => {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    note.sent.set(note.sent.get() + bytes);
                }
                Some(Err(error)) => broke(note, &mut this.inner, error),
                None => {}
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Where the gateway waits no longer the server may work on: permits stay out.
#[cold]
fn broke(note: &Note, body: &mut ReplyBody, error: &body::Error) {
    let reason = error.reason();
    note.reason.set(Some(reason));
    if !error.is_client_gone() {
        note.outcome.set(Outcome::Failed);
    }
    if let (true, Some(route)) = (error.is_upstream_failure(), note.route.get()) {
        let upstream = note.generation.ruleset.routes[route].upstream;
        let name = &note.generation.pools[upstream].settings().name;
        let counter = note.peer.failures(Metric::UpstreamErrors, name, reason);
        counter.increment(1);
    }
    if matches!(error, body::Error::Upstream(_)) {
        return;
    }
    if let Some(permits) = note.permits()
        && let ReplyBody::Relayed(mut body) = body.take()
    {
        let rest = Rest::Body(body.inner_mut().take());
        left::go_on(rest, Some(permits), &note.peer.worker.left);
    }
}
