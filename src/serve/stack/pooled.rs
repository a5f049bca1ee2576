//! Futures of requests in boxes that all connections of a worker use again: as many requests wait for upstreams at a
//! time, and the allocator keeps only a few boxes of each size at hand.
//!
//! Bound: [`MOST`] empty boxes for each worker, of less than a KiB each.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Empty boxes that a worker keeps.
pub const MOST: usize = 128;

type PooledBox<I, O> = Pin<Box<dyn ReusableBox<I, O>>>;

/// Runs futures that make an `O` of an `I`. All clones share their boxes.
pub struct FuturePool<I, O>(Rc<SharedBoxes<I, O>>);

struct SharedBoxes<I, O> {
    empty: RefCell<Vec<PooledBox<I, O>>>,
    build: Box<dyn Fn() -> PooledBox<I, O>>,
}

impl<I: 'static, O: 'static> FuturePool<I, O> {
    /// For the futures that `make` makes.
    pub fn new<F, M>(make: M) -> FuturePool<I, O>
    where
        F: Future<Output = O> + 'static,
        M: Fn(I) -> F + Copy + 'static,
    {
        FuturePool(Rc::new(SharedBoxes {
            empty: RefCell::default(),
            build: Box::new(move || Box::pin(FutureSlot { future: None, make })),
        }))
    }

    /// What becomes of `input`.
    pub fn run(&self, input: I) -> Pooled<I, O> {
        let SharedBoxes { empty, build } = &*self.0;
        let kept = empty.borrow_mut().pop();
        let mut boxed = kept.unwrap_or_else(build);
        boxed.as_mut().begin(input);
        Pooled {
            boxed: Some(boxed),
            shared: self.0.clone(),
        }
    }
}

impl<I, O> Clone for FuturePool<I, O> {
    fn clone(&self) -> FuturePool<I, O> {
        FuturePool(self.0.clone())
    }
}

/// A future in its box, which it leaves at its end.
pub struct Pooled<I, O> {
    boxed: Option<PooledBox<I, O>>,
    shared: Rc<SharedBoxes<I, O>>,
}

impl<I, O> Pooled<I, O> {
    fn leave(&mut self) {
        let Some(mut boxed) = self.boxed.take() else {
            return;
        };
        boxed.as_mut().clear();
        let mut empty = self.shared.empty.borrow_mut();
        if empty.len() < MOST {
            empty.push(boxed);
        }
    }
}

impl<I, O> Future for Pooled<I, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Some(boxed) = &mut self.boxed else {
            return Poll::Pending;
        };
        let polled = boxed.as_mut().poll(cx);
        if polled.is_ready() {
            self.leave();
        }
        polled
    }
}

impl<I, O> Drop for Pooled<I, O> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A box for one future after the other.
trait ReusableBox<I, O> {
    fn begin(self: Pin<&mut Self>, input: I);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O>;
    fn clear(self: Pin<&mut Self>);
}

pin_project! {
    struct FutureSlot<F, M> {
        #[pin]
        future: Option<F>,
        // Not by a pointer: in one piece with it a future is made in its place.
        make: M,
    }
}

impl<I, F: Future, M: Fn(I) -> F> ReusableBox<I, F::Output> for FutureSlot<F, M> {
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
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use super::*;

    #[derive(Clone, Copy)]
    enum Ends {
        Well,
        Never,
        ByPanic,
    }

    /// Holds what it was given for as long as it lives.
    async fn hold((held, ends): (Rc<()>, Ends)) -> usize {
        match ends {
            Ends::Well => Rc::strong_count(&held),
            Ends::Never => pending().await,
            Ends::ByPanic => panic!("on purpose"),
        }
    }

    #[test]
    fn boxes_are_used_again_and_hold_nothing_between() {
        let pool = FuturePool::new(hold);
        let mut cx = Context::from_waker(Waker::noop());
        let held = Rc::new(());
        let empty = || pool.0.empty.borrow().len();
        let run = |ends| pool.clone().run((held.clone(), ends));
        for round in 0..3 {
            let (mut well, mut never) = (run(Ends::Well), run(Ends::Never));
            assert_eq!(empty(), 0, "{round}");
            assert!(Pin::new(&mut never).poll(&mut cx).is_pending());
            assert_eq!(Pin::new(&mut well).poll(&mut cx), Poll::Ready(3));
            assert_eq!((empty(), Rc::strong_count(&held)), (1, 2));
            assert!(Pin::new(&mut well).poll(&mut cx).is_pending());
            drop((well, never));
            assert_eq!((empty(), Rc::strong_count(&held)), (2, 1));
        }
        let many: Vec<_> = (0..MOST + 10).map(|_| run(Ends::Never)).collect();
        drop(many);
        assert_eq!((empty(), Rc::strong_count(&held)), (MOST, 1));
    }

    #[test]
    fn a_panic_leaves_a_box_that_serves_the_next() {
        let pool = FuturePool::new(hold);
        let mut cx = Context::from_waker(Waker::noop());
        let held = Rc::new(());
        let mut poll = |ends| {
            let mut run = pool.run((held.clone(), ends));
            catch_unwind(AssertUnwindSafe(|| Pin::new(&mut run).poll(&mut cx)))
        };
        assert!(poll(Ends::ByPanic).is_err());
        assert!(matches!(poll(Ends::Well), Ok(Poll::Ready(2))));
        assert_eq!(
            (pool.0.empty.borrow().len(), Rc::strong_count(&held)),
            (1, 1)
        );
    }
}
