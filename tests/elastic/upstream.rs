//! An upstream that queues like one: workers, a first-in-first-out queue, lognormal service.

use std::collections::VecDeque;

use super::draw::Draw;

/// See the file. `T` is what a request carries.
pub struct Upstream<T> {
    workers: usize,
    busy: usize,
    queue: VecDeque<T>,
}

impl<T> Upstream<T> {
    pub fn new(workers: usize) -> Upstream<T> {
        Upstream {
            workers,
            busy: 0,
            queue: VecDeque::new(),
        }
    }

    /// Takes a request, and gives it back when a worker begins with it at once.
    pub fn arrive(&mut self, request: T) -> Option<T> {
        if self.busy == self.workers {
            self.queue.push_back(request);
            return None;
        }
        self.busy += 1;
        Some(request)
    }

    /// A worker is done; says which request it begins with.
    pub fn done(&mut self) -> Option<T> {
        let next = self.queue.pop_front();
        if next.is_none() {
            self.busy -= 1;
        }
        next
    }

    pub fn busy(&self) -> usize {
        self.busy
    }
}

/// How long requests are served.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Milliseconds.
    pub mean: f64,
    /// Deviation of the logarithm.
    pub spread: f64,
    /// Share of requests that take ten times as long.
    pub long: f64,
}

impl Service {
    /// Nanoseconds, and whether it is one that takes long.
    pub fn draw(&self, draw: &mut Draw) -> (u64, bool) {
        let long = self.long > 0.0 && draw.unit() <= self.long;
        let mean = if long { 10.0 * self.mean } else { self.mean };
        let millis = draw.lognormal(mean, self.spread);
        ((millis * 1_000_000.0) as u64, long)
    }
}
