//! The layer, its service and its future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::admission::{Decided, Later, Outcome, Ticket, Verdict};
use super::candidate::{Basis, Candidate, Denied, Ended, Failed};
use super::headers::Headers;
use super::settle::Settle;
use crate::http::head::Fields;
use crate::limit::pressure::{Permit, Shed};

/// Puts [`Throttle`] around a service.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThrottleLayer;

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttle<S>;

    fn layer(&self, inner: S) -> Throttle<S> {
        Throttle { inner }
    }
}

/// Decides about each request, calls the inner service with those admitted, adds the rate-limit
/// headers to its answers and settles what was reserved.
#[derive(Clone, Copy, Debug)]
pub struct Throttle<S> {
    inner: S,
}

impl<R, S> Service<R> for Throttle<S>
where
    R: Candidate,
    S: Service<R::Admitted, Response: Settle> + Clone,
    S::Error: for<'v> From<Denied<'v, R>> + Failed,
{
    type Response = <S::Response as Settle>::Settling;
    type Error = S::Error;
    type Future = Deciding<R, S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Deciding<R, S> {
        let permit = match request.enter() {
            Ok(permit) => permit,
            Err(shed) => return Deciding::shed(request, shed),
        };
        let mut decided = Decided::default();
        let admission = request.admission();
        match admission.decide(&request.ask(), request.ahead(), &mut decided) {
            None => self.proceed(request, permit, &decided.verdict, decided.ticket),
            Some(verdict) => {
                if let Some(permit) = &permit {
                    permit.waits(true);
                }
                // The one that is ready goes, as tower asks; a new one will be polled.
                let inner = self.inner.clone();
                let ready = Throttle {
                    inner: std::mem::replace(&mut self.inner, inner),
                };
                let next = Some((request, permit, ready));
                Deciding::Asking { verdict, next }
            }
        }
    }
}

impl<S> Throttle<S> {
    /// Goes on with what was decided.
    fn proceed<R>(
        &mut self,
        request: R,
        permit: Option<Permit>,
        verdict: &Verdict,
        mut ticket: Ticket,
    ) -> Deciding<R, S>
    where
        R: Candidate,
        S: Service<R::Admitted, Response: Settle> + Clone,
        S::Error: for<'v> From<Denied<'v, R>> + Failed,
    {
        request.note(verdict);
        if !verdict.admitted {
            if !ticket.is_settled() {
                // Shadow limits have reserved; what other limits refuse uses nothing of them either.
                ticket.settle(Outcome::Unsent, request.ask().now);
            }
            return Deciding::denied(request, verdict, None);
        }
        if let Some(stake) = ticket.stake() {
            request.stakes(stake);
        }
        if let Some(permit) = &permit {
            permit.enters(verdict.borrows(request.ask().rules));
            // The upstream has nothing to do with it before it is sent.
            permit.waits(verdict.delay.0 > 0);
        }
        let style = request.header_style();
        let pass = Pass {
            headers: Headers::of(verdict, request.ask().rules, style),
            ticket,
            basis: request.basis(),
        };
        let delay = verdict.delay;
        let admitted = request.admitted(verdict, permit);
        if delay.0 > 0 {
            let sleep = Box::pin(tokio::time::sleep(delay.into()));
            // The one that is ready goes, as tower asks; a new one will be polled.
            let inner = self.inner.clone();
            let ready = std::mem::replace(&mut self.inner, inner);
            // Boxed, for it is rare, and the future of every request would be as large.
            let next = Some(Box::new((admitted, ready, pass)));
            return Deciding::Delayed { sleep, next };
        }
        Deciding::Running {
            future: self.inner.call(admitted),
            pass: Some(pass),
        }
    }
}

/// What an admitted request carries until its answer.
pub struct Pass<B> {
    headers: Headers,
    ticket: Ticket,
    basis: B,
}

pin_project! {
    /// The future of [`Throttle`].
    #[project = DecidingProject]
    #[allow(missing_docs)]
    pub enum Deciding<R: Candidate, S: Service<R::Admitted>> {
        Denied { error: Option<S::Error> },
        Asking { verdict: Later, next: Option<(R, Option<Permit>, Throttle<S>)> },
        Delayed { sleep: Pin<Box<tokio::time::Sleep>>, next: Option<Box<(R::Admitted, S, Pass<R::Basis>)>> },
        Running { #[pin] future: S::Future, pass: Option<Pass<R::Basis>> },
    }
}

impl<R, S> Deciding<R, S>
where
    R: Candidate,
    S: Service<R::Admitted>,
    S::Error: for<'v> From<Denied<'v, R>>,
{
    fn denied(request: R, verdict: &Verdict, shed: Option<Shed>) -> Deciding<R, S> {
        let denied = Denied {
            request,
            verdict,
            shed,
        };
        Deciding::Denied {
            error: Some(S::Error::from(denied)),
        }
    }

    /// Takes nothing of any limit. A request that a limit refuses is told so all the same, for to come back
    /// sooner would not help it.
    #[cold]
    fn shed(request: R, shed: Shed) -> Deciding<R, S> {
        let verdict = request.admission().peek(&request.ask());
        if verdict.admitted {
            request.gives_way(&shed);
            return Deciding::denied(request, &verdict, Some(shed));
        }
        request.note(&verdict);
        Deciding::denied(request, &verdict, None)
    }
}

impl<R, S> Future for Deciding<R, S>
where
    R: Candidate,
    S: Service<R::Admitted, Response: Settle> + Clone,
    S::Error: for<'v> From<Denied<'v, R>> + Failed,
{
    type Output = Result<<S::Response as Settle>::Settling, S::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project() {
                DecidingProject::Denied { error } => {
                    return error.take().map_or(Poll::Pending, |e| Poll::Ready(Err(e)));
                }
                DecidingProject::Asking { verdict, next } => {
                    let (verdict, ticket) = ready!(verdict.as_mut().poll(cx));
                    let Some((request, permit, mut throttle)) = next.take() else {
                        return Poll::Pending;
                    };
                    let next = throttle.proceed(request, permit, &verdict, ticket);
                    self.set(next);
                }
                DecidingProject::Delayed { sleep, next } => {
                    ready!(sleep.as_mut().poll(cx));
                    let Some(next) = next.take() else {
                        return Poll::Pending;
                    };
                    let (admitted, mut inner, pass) = *next;
                    let future = inner.call(admitted);
                    self.set(Deciding::Running {
                        future,
                        pass: Some(pass),
                    });
                }
                DecidingProject::Running { future, pass } => {
                    let result = ready!(future.poll(cx));
                    return match pass.take() {
                        Some(pass) => Poll::Ready(pass.finish(result)),
                        None => Poll::Pending,
                    };
                }
            }
        }
    }
}

impl<B: Basis> Pass<B> {
    fn finish<A: Settle, E: Failed>(mut self, result: Result<A, E>) -> Result<A::Settling, E> {
        let mut answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let fields = &Fields::default();
                let outcome = match error.ended() {
                    Ended::Unsent => Some(Outcome::Unsent),
                    Ended::Answered(status) => Some(Outcome::Answered {
                        status,
                        fields,
                        bodiless: true,
                    }),
                    Ended::Unknown => None,
                };
                if let Some(outcome) = outcome.filter(|_| !self.ticket.is_settled()) {
                    self.ticket.settle(outcome, self.basis.clock().now());
                }
                return Err(error);
            }
        };
        if !self.ticket.is_settled() {
            let outcome = Outcome::Answered {
                status: answer.status(),
                fields: answer.fields(),
                bodiless: answer.is_bodiless(),
            };
            self.ticket.settle(outcome, self.basis.clock().now());
        }
        answer.tell(&self.headers, self.basis.rules());
        let clock = self.basis.clock();
        let left = (!self.ticket.is_empty()).then(|| (self.ticket, clock.clone()));
        Ok(answer.settling(left))
    }
}
