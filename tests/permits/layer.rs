//! The layer in a service of its own, without a gateway: the permit is out until the body is gone.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame};
use http_body_util::{Full, StreamBody};
use tollgate::base::clock::{Clock, Nanos};
use tollgate::identity::{self, ClientIdentity, Identifier, Keyer};
use tollgate::limit::pressure::UpstreamSlot;
use tollgate::limit::{Concurrency, Identity, LimitName, Rule, Rules};
use tollgate::store::{MemoryStore, Settings};
use tollgate::throttle::admission::{Admission, AdmissionRequest, Verdict};
use tollgate::throttle::{
    AppliedLimits, DecisionObserver, Denied, FailedRequest, SettlingBody, ThrottleLayer,
    ThrottledRequest,
};
use tower::{Layer, Service, service_fn};

/// What requests are decided by: one at a time.
struct Limits {
    rules: Rules,
    admission: Admission,
    identifier: Identifier,
    clock: Clock,
    who: ClientIdentity,
}

impl Limits {
    fn new() -> Arc<Limits> {
        let name = LimitName::new("parallel").unwrap();
        let one = Concurrency::hard(1);
        let rules = Rules::from_iter([Arc::new(Rule::new(name, 0, &[Identity::Ip], one))]);
        let store = Arc::new(
            MemoryStore::new(Settings {
                budget_bytes: 1 << 20,
            })
            .unwrap(),
        );
        let clock = Clock::manual(Nanos::from_secs(90_000));
        Arc::new(Limits {
            admission: Admission::new(&rules, store, clock.clone()).unwrap(),
            rules,
            identifier: Identifier::new(identity::Settings::default(), Keyer::random()),
            clock,
            who: ClientIdentity::new(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        })
    }

    fn out(&self) -> usize {
        self.admission.permits().key_count()
    }
}

impl AppliedLimits for Limits {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }
}

struct Asked(Arc<Limits>);

impl ThrottledRequest for Asked {
    type Admitted = ();
    type Limits = Arc<Limits>;

    fn admission_request(&self) -> AdmissionRequest<'_> {
        AdmissionRequest {
            rules: &self.0.rules,
            client: &self.0.who,
            identifier: &self.0.identifier,
            now: self.0.clock.now(),
            pressure: None,
            reserved_units: &[],
        }
    }

    fn admission(&self) -> &Admission {
        &self.0.admission
    }

    fn limits(&self) -> Arc<Limits> {
        self.0.clone()
    }

    fn into_admitted(self, _: &Verdict, _: Option<UpstreamSlot>) {}
}

impl DecisionObserver for Asked {}

#[derive(Debug, PartialEq)]
enum Failure {
    Limited,
    Broken,
}

impl From<Denied<'_, Asked>> for Failure {
    fn from(_: Denied<'_, Asked>) -> Failure {
        Failure::Limited
    }
}

impl From<Infallible> for Failure {
    fn from(never: Infallible) -> Failure {
        match never {}
    }
}

impl FailedRequest for Failure {}

/// Asks an inner service that is ready at once.
fn ask<B: Body>(
    limits: &Arc<Limits>,
    inner: impl Fn() -> Result<Response<B>, Failure> + Clone,
) -> Result<Response<SettlingBody<B>>, Failure> {
    let service = service_fn(move |()| std::future::ready(inner()));
    let future = ThrottleLayer.layer(service).call(Asked(limits.clone()));
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("it does not wait"),
    }
}

fn poll<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    match pin!(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("it does not wait"),
    }
}

fn fine() -> Result<Response<Full<Bytes>>, Failure> {
    Ok(Response::new(Full::from("fine")))
}

#[test]
fn until_the_body_has_ended_or_is_dropped() {
    let limits = Limits::new();
    let mut answer = ask(&limits, fine).unwrap();
    assert_eq!(limits.out(), 1);
    assert_eq!(ask(&limits, fine).unwrap_err(), Failure::Limited);
    assert!(poll(answer.body_mut()).is_some());
    assert_eq!(limits.out(), 0, "its last frame is out");

    let answer = ask(&limits, fine).unwrap();
    assert_eq!(limits.out(), 1);
    drop(answer);
    assert_eq!(limits.out(), 0);

    let endless = || {
        let frames = std::iter::repeat_with(|| Ok::<_, Failure>(Frame::data(Bytes::from("more"))));
        Ok(Response::new(StreamBody::new(futures_util::stream::iter(
            frames,
        ))))
    };
    let mut answer = ask(&limits, endless).unwrap();
    for _ in 0..1_000 {
        assert!(poll(answer.body_mut()).is_some());
    }
    assert_eq!((limits.out(), ask(&limits, fine).is_err()), (1, true));
    drop(answer);
    assert!(ask(&limits, fine).is_ok());
}

#[test]
fn where_there_is_no_answer() {
    let limits = Limits::new();
    let broken = || Err::<Response<Full<Bytes>>, _>(Failure::Broken);
    assert_eq!(ask(&limits, broken).unwrap_err(), Failure::Broken);
    assert_eq!(limits.out(), 0);

    let panics = || -> Result<Response<Full<Bytes>>, Failure> { panic!("on purpose") };
    assert!(std::panic::catch_unwind(AssertUnwindSafe(|| ask(&limits, panics))).is_err());
    assert_eq!(limits.out(), 0);

    // Nobody waits for it any more.
    let never = service_fn(|()| std::future::pending::<Result<Response<Full<Bytes>>, Failure>>());
    let future = ThrottleLayer.layer(never).call(Asked(limits.clone()));
    assert_eq!(limits.out(), 1);
    drop(future);
    assert_eq!(limits.out(), 0);
}
