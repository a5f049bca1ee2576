//! A pool of boxes for the futures of requests, shared by all connections of a worker. Many requests wait for upstreams at
//! the same time, and an allocator keeps only a few free blocks of each size at hand.
//!
//! Bound: [`MAX_EMPTY_BOXES`] for each worker, of less than a KiB each, which a test in `forward.rs` holds.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Maximum number of empty boxes that a worker keeps. Further boxes are freed: a burst of requests must not hold memory for
/// ever.
pub const MAX_EMPTY_BOXES: usize = 128;

/// A box for futures that take an input `I` and have the output `O`.
type PooledBox<I, O> = Pin<Box<dyn ReusableBox<I, O>>>;

/// Runs futures that take an input `I` and have the output `O`. Clones share their boxes.
pub struct FuturePool<I, O>(Rc<SharedBoxes<I, O>>);

/// The boxes of a pool that hold no future now.
struct SharedBoxes<I, O> {
    empty_boxes: RefCell<Vec<PooledBox<I, O>>>,
    /// Builds a box when none is empty.
    build_box: Box<dyn Fn() -> PooledBox<I, O>>,
}

impl<I: 'static, O: 'static> FuturePool<I, O> {
    /// A pool for the futures that `make_future` returns. It holds no box yet.
    pub fn new<F, M>(make_future: M) -> FuturePool<I, O>
    where
        F: Future<Output = O> + 'static,
        M: Fn(I) -> F + Copy + 'static,
    {
        FuturePool(Rc::new(SharedBoxes {
            empty_boxes: RefCell::default(),
            build_box: Box::new(move || {
                Box::pin(FutureSlot {
                    future: None,
                    make_future,
                })
            }),
        }))
    }

    /// Starts the future for `input`, in a box that is empty or new.
    pub fn run(&self, input: I) -> PooledFuture<I, O> {
        let SharedBoxes {
            empty_boxes,
            build_box,
        } = &*self.0;
        let reused_box = empty_boxes.borrow_mut().pop();
        let mut future_box = reused_box.unwrap_or_else(build_box);
        future_box.as_mut().start(input);
        PooledFuture {
            future_box: Some(future_box),
            shared_boxes: self.0.clone(),
        }
    }
}

impl<I, O> Clone for FuturePool<I, O> {
    fn clone(&self) -> FuturePool<I, O> {
        FuturePool(self.0.clone())
    }
}

/// A future in a box. The box returns to the pool when the future ends or is dropped. A future that has ended stays
/// pending if it is polled again.
pub struct PooledFuture<I, O> {
    future_box: Option<PooledBox<I, O>>,
    shared_boxes: Rc<SharedBoxes<I, O>>,
}

impl<I, O> PooledFuture<I, O> {
    fn return_box(&mut self) {
        let Some(mut future_box) = self.future_box.take() else {
            return;
        };
        future_box.as_mut().clear();
        let mut empty_boxes = self.shared_boxes.empty_boxes.borrow_mut();
        if empty_boxes.len() < MAX_EMPTY_BOXES {
            empty_boxes.push(future_box);
        }
    }
}

impl<I, O> Future for PooledFuture<I, O> {
    type Output = O;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let Some(future_box) = &mut self.future_box else {
            return Poll::Pending;
        };
        let polled = future_box.as_mut().poll(cx);
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
    /// Puts the future for `input` into the box.
    fn start(self: Pin<&mut Self>, input: I);
    /// Polls the future; pending if the box is empty.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O>;
    /// Drops the future.
    fn clear(self: Pin<&mut Self>);
}

pin_project! {
    /// The content of a box: a future, or space for one.
    struct FutureSlot<F, M> {
        #[pin]
        future: Option<F>,
        // This is a type parameter and no pointer, so that the compiler builds the future in place.
        make_future: M,
    }
}

impl<I, F: Future, M: Fn(I) -> F> ReusableBox<I, F::Output> for FutureSlot<F, M> {
    fn start(self: Pin<&mut Self>, input: I) {
        let mut this = self.project();
        this.future.set(Some((this.make_future)(input)));
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

    /// How a future of the tests ends.
    #[derive(Clone, Copy)]
    enum FutureEnd {
        Regular,
        Never,
        Panic,
    }

    /// Holds its input for as long as the future lives.
    async fn hold((held, end): (Rc<()>, FutureEnd)) -> usize {
        match end {
            FutureEnd::Regular => Rc::strong_count(&held),
            FutureEnd::Never => pending().await,
            FutureEnd::Panic => panic!("on purpose"),
        }
    }

    #[test]
    fn boxes_are_used_again_and_hold_nothing_between() {
        let pool = FuturePool::new(hold);
        let mut cx = Context::from_waker(Waker::noop());
        let held = Rc::new(());
        let empty_count = || pool.0.empty_boxes.borrow().len();
        let run = |end| pool.clone().run((held.clone(), end));
        for round in 0..3 {
            let (mut regular, mut never) = (run(FutureEnd::Regular), run(FutureEnd::Never));
            assert_eq!(empty_count(), 0, "{round}");
            assert!(Pin::new(&mut never).poll(&mut cx).is_pending());
            assert_eq!(Pin::new(&mut regular).poll(&mut cx), Poll::Ready(3));
            assert_eq!((empty_count(), Rc::strong_count(&held)), (1, 2));
            assert!(Pin::new(&mut regular).poll(&mut cx).is_pending());
            drop((regular, never));
            assert_eq!((empty_count(), Rc::strong_count(&held)), (2, 1));
        }
        let many_futures: Vec<_> = (0..MAX_EMPTY_BOXES + 10)
            .map(|_| run(FutureEnd::Never))
            .collect();
        drop(many_futures);
        assert_eq!(empty_count(), MAX_EMPTY_BOXES);
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn a_panic_leaves_a_box_that_serves_the_next() {
        let pool = FuturePool::new(hold);
        let mut cx = Context::from_waker(Waker::noop());
        let held = Rc::new(());
        let mut poll = |end| {
            let mut run = pool.run((held.clone(), end));
            catch_unwind(AssertUnwindSafe(|| Pin::new(&mut run).poll(&mut cx)))
        };
        assert!(poll(FutureEnd::Panic).is_err());
        assert!(matches!(poll(FutureEnd::Regular), Ok(Poll::Ready(2))));
        assert_eq!(pool.0.empty_boxes.borrow().len(), 1);
        assert_eq!(Rc::strong_count(&held), 1);
    }
}
