//! A pool of boxes for the futures of requests, shared by all connections of a worker. Many requests wait for upstreams
//! at the same time, and an allocator keeps only a few free blocks of each size at hand.
//!
//! Bound: [`MAX_EMPTY_BOXES`] for each worker, of less than a KiB each.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Most empty boxes that a worker keeps; more are freed.
pub const MAX_EMPTY_BOXES: usize = 128;

type PooledBox<I, O> = Pin<Box<dyn ReusableBox<I, O>>>;

/// Runs futures that make an `O` of an `I`. Clones share their boxes.
pub struct FuturePool<I, O>(Rc<SharedBoxes<I, O>>);

struct SharedBoxes<I, O> {
    empty: RefCell<Vec<PooledBox<I, O>>>,
    build: Box<dyn Fn() -> PooledBox<I, O>>,
}

impl<I: 'static, O: 'static> FuturePool<I, O> {
    /// A pool for the futures that `make` returns. It holds no box yet.
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

    /// Starts the future for `input`, in a box that is empty or new.
    pub fn run(&self, input: I) -> PooledFuture<I, O> {
        let SharedBoxes { empty, build } = &*self.0;
        let reused = empty.borrow_mut().pop();
        let mut boxed = reused.unwrap_or_else(build);
        boxed.as_mut().start(input);
        PooledFuture {
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

/// A future in a box. The box returns to the pool when the future ends or is dropped.
pub struct PooledFuture<I, O> {
    boxed: Option<PooledBox<I, O>>,
    shared: Rc<SharedBoxes<I, O>>,
}

impl<I, O> PooledFuture<I, O> {
    fn return_box(&mut self) {
        let Some(mut boxed) = self.boxed.take() else {
            return;
        };
        boxed.as_mut().clear();
        let mut empty = self.shared.empty.borrow_mut();
        if empty.len() < MAX_EMPTY_BOXES {
            empty.push(boxed);
        }
    }
}

impl<I, O> Future for PooledFuture<I, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Some(boxed) = &mut self.boxed else {
            return Poll::Pending;
        };
        let polled = boxed.as_mut().poll(cx);
        if polled.is_ready() {
            self.return_box();
        }
        polled
    }
}

impl<I, O> Drop for PooledFuture<I, O> {
    fn drop(&mut self) {
        self.return_box();
    }
}

/// A box that holds one future after another.
trait ReusableBox<I, O> {
    fn start(self: Pin<&mut Self>, input: I);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O>;
    fn clear(self: Pin<&mut Self>);
}

pin_project! {
    struct FutureSlot<F, M> {
        #[pin]
        future: Option<F>,
        // A type parameter and no pointer, so that the compiler builds the future in place.
        make: M,
    }
}

impl<I, F: Future, M: Fn(I) -> F> ReusableBox<I, F::Output> for FutureSlot<F, M> {
    fn start(self: Pin<&mut Self>, input: I) {
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
        let many: Vec<_> = (0..MAX_EMPTY_BOXES + 10)
            .map(|_| run(Ends::Never))
            .collect();
        drop(many);
        assert_eq!((empty(), Rc::strong_count(&held)), (MAX_EMPTY_BOXES, 1));
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
