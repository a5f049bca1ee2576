//! An upstream of fixed capacity: so many workers, one queue, first in first out, lognormal service.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::LocalSet;
use tollgate::base::clock::{Clock, Nanos};

use crate::common::ok;
use crate::draw::Draw;

/// Deviation of the logarithm of how long requests are served.
const SPREAD: f64 = 0.5;

/// What an upstream can do.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub workers: usize,
    /// That a request is served for in the mean.
    pub millis: f64,
}

impl Capacity {
    /// Requests a second.
    pub const fn rate(self) -> f64 {
        self.workers as f64 * 1_000.0 / self.millis
    }
}

/// See the file. Stops when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    /// Requests that are served or wait.
    open: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(capacity: Capacity, seed: u64) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let counted = open.clone();
        let running = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let listening = LocalSet::new();
            listening.spawn_local(async move {
                let workshop = Rc::new(Workshop::new(capacity, seed, counted));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::task::spawn_local(serve(stream, workshop.clone()));
                }
            });
            // It says nothing, it goes.
            let _ = runtime.block_on(listening.run_until(stopped));
        });
        Server {
            address,
            open,
            stop: Some(stop),
            running: Some(running),
        }
    }

    /// Requests that are served or wait.
    pub fn open(&self) -> usize {
        self.open.load(Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            running.join().unwrap();
        }
    }
}

async fn serve(mut stream: TcpStream, workshop: Rc<Workshop>) {
    stream.set_nodelay(true).unwrap();
    let mut heard = Vec::new();
    loop {
        while !heard.ends_with(b"\r\n\r\n") {
            match stream.read_buf(&mut heard).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        heard.clear();
        tokio::select! {
            () = workshop.serve() => {}
            // Whoever leaves the queue makes room for those behind.
            _ = stream.read_buf(&mut heard) => return,
        }
        if stream.write_all(ok("done").as_bytes()).await.is_err() {
            return;
        }
    }
}

struct Workshop {
    clock: Clock,
    millis: f64,
    /// One permit for each idle worker; it is fair.
    workers: Semaphore,
    /// Since when each of them is idle, or from when on.
    idle: RefCell<BinaryHeap<Reverse<Nanos>>>,
    draw: RefCell<Draw>,
    open: Arc<AtomicUsize>,
}

impl Workshop {
    fn new(capacity: Capacity, seed: u64, open: Arc<AtomicUsize>) -> Workshop {
        let clock = Clock::system();
        let idle = (0..capacity.workers)
            .map(|_| Reverse(clock.now()))
            .collect();
        Workshop {
            clock,
            millis: capacity.millis,
            workers: Semaphore::new(capacity.workers),
            idle: RefCell::new(idle),
            draw: RefCell::new(Draw::new(seed)),
            open,
        }
    }

    /// Waits for a worker and for its work. That begins when the worker was ready for it and not when a
    /// timer has fired, or a coarse timer would take from the capacity.
    async fn serve(&self) {
        self.open.fetch_add(1, Relaxed);
        let _open = Leaving(|| {
            self.open.fetch_sub(1, Relaxed);
        });
        let arrived = self.clock.now();
        let Ok(_worker) = self.workers.acquire().await else {
            return;
        };
        let Reverse(ready) = self.idle.borrow_mut().pop().unwrap_or(Reverse(arrived));
        let millis = self.draw.borrow_mut().lognormal(self.millis, SPREAD);
        let end = ready.max(arrived).after(Nanos((millis * 1e6) as u64));
        // Work that was begun is done, whoever waits for it.
        let _work = Leaving(|| self.idle.borrow_mut().push(Reverse(end)));
        tokio::time::sleep(end.since(self.clock.now()).into()).await;
    }
}

/// What is done at the end, also at an early one.
struct Leaving<F: Fn()>(F);

impl<F: Fn()> Drop for Leaving<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
