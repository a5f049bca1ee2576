//! Places for the futures of requests, used again by all connections of a worker: each future is larger than what the
//! allocator keeps at hand, and as many are open as requests wait for an upstream.
//!
//! Bound: [`MOST`] places that nobody is in.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Places that are kept for later requests.
pub const MOST: usize = 128;

type Boxed<I, O> = Pin<Box<dyn Place<I, O>>>;

/// What becomes of an `I`, an `O`, in places that are shared by all clones.
pub struct Places<I, O>(Rc<Shared<I, O>>);

struct Shared<I, O> {
    free: RefCell<Vec<Boxed<I, O>>>,
    build: Box<dyn Fn() -> Boxed<I, O>>,
}

impl<I: 'static, O: 'static> Places<I, O> {
    /// For the futures that `make` makes.
    pub fn new<F: Future<Output = O> + 'static>(make: fn(I) -> F) -> Places<I, O> {
        Places(Rc::new(Shared {
            free: RefCell::default(),
            build: Box::new(move || Box::pin(Seat { future: None, make })),
        }))
    }

    /// What becomes of `input`.
    pub fn run(&self, input: I) -> Running<I, O> {
        let Shared { free, build } = &*self.0;
        let kept = free.borrow_mut().pop();
        let mut place = kept.unwrap_or_else(build);
        place.as_mut().begin(input);
        Running {
            place: Some(place),
            shared: self.0.clone(),
        }
    }
}

impl<I, O> Clone for Places<I, O> {
    fn clone(&self) -> Places<I, O> {
        Places(self.0.clone())
    }
}

/// A future in its place, which it leaves at its end.
pub struct Running<I, O> {
    place: Option<Boxed<I, O>>,
    shared: Rc<Shared<I, O>>,
}

impl<I, O> Running<I, O> {
    fn leave(&mut self) {
        let Some(mut place) = self.place.take() else {
            return;
        };
        place.as_mut().clear();
        let mut free = self.shared.free.borrow_mut();
        if free.len() < MOST {
            free.push(place);
        }
    }
}

impl<I, O> Future for Running<I, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Some(place) = &mut self.place else {
            return Poll::Pending;
        };
        let polled = place.as_mut().poll(cx);
        if polled.is_ready() {
            self.leave();
        }
        polled
    }
}

impl<I, O> Drop for Running<I, O> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Where a future is, or the last one was.
trait Place<I, O> {
    fn begin(self: Pin<&mut Self>, input: I);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O>;
    fn clear(self: Pin<&mut Self>);
}

pin_project! {
    struct Seat<I, F> {
        #[pin]
        future: Option<F>,
        make: fn(I) -> F,
    }
}

impl<I, F: Future> Place<I, F::Output> for Seat<I, F> {
    fn begin(self: Pin<&mut Self>, input: I) {
        let mut this = self.project();
        this.future.set(Some((this.make)(input)));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match self.project().future.as_pin_mut() {
            Some(future) => future.poll(cx),
            None => Poll::Pending,
        }
    }

    fn clear(self: Pin<&mut Self>) {
        self.project().future.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::task::Waker;

    use super::*;

    /// Holds what it was given for as long as it lives.
    fn hold(input: (Rc<()>, bool)) -> impl Future<Output = usize> {
        async move {
            if input.1 {
                ready(()).await;
            } else {
                std::future::pending::<()>().await;
            }
            Rc::strong_count(&input.0)
        }
    }

    #[test]
    fn a_place_is_used_again_and_holds_nothing_between() {
        let places = Places::new(hold);
        let mut cx = Context::from_waker(Waker::noop());
        let held = Rc::new(());
        let kept = || places.0.free.borrow().len();
        for round in 0..3 {
            let mut first = places.run((held.clone(), true));
            let mut second = places.clone().run((held.clone(), false));
            assert_eq!(kept(), 0, "{round}");
            assert!(Pin::new(&mut second).poll(&mut cx).is_pending());
            assert_eq!(Pin::new(&mut first).poll(&mut cx), Poll::Ready(3));
            assert_eq!((kept(), Rc::strong_count(&held)), (1, 2));
            assert!(Pin::new(&mut first).poll(&mut cx).is_pending());
            drop((first, second));
            assert_eq!((kept(), Rc::strong_count(&held)), (2, 1));
        }
        let many: Vec<_> = (0..MOST + 10)
            .map(|_| places.run((held.clone(), false)))
            .collect();
        drop(many);
        assert_eq!((kept(), Rc::strong_count(&held)), (MOST, 1));
    }
}
