//! A gateway between clients and a server, and what is seen of all three while it runs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;

use crate::client::{Clients, PATIENCE};
use crate::common::{Gateway, raise_descriptor_limit};
use crate::record::{Moment, Record, Span};
use crate::server::{Capacity, Server};
use crate::traffic::{Source, requests};

/// From look to look at the gateway.
const LOOK: Duration = Duration::from_millis(250);

/// Requests a second that may all wait until their clients give up, each with both ends of two connections.
const MOST: u64 = 1_200;

/// See the file.
pub struct Site {
    gateway: Gateway,
    server: Server,
    seed: u64,
}

impl Site {
    /// Each policy is a name and a text.
    pub fn start(
        capacity: Capacity,
        seed: u64,
        gateway: &str,
        policies: &[(&str, String)],
    ) -> Site {
        raise_descriptor_limit(4 * MOST * PATIENCE.as_secs());
        let server = Server::start(capacity, seed);
        let gateway = format!("workers: 1\nadmin: off\n{gateway}");
        let policies = policies.iter().map(|(name, text)| (*name, text.as_str()));
        let policies: Vec<_> = policies.collect();
        Site {
            gateway: Gateway::start(server.address, &gateway, &policies),
            server,
            seed,
        }
    }

    /// Lets traffic flow as `act` says, and says what came of it.
    pub fn run(&self, act: impl AsyncFnOnce(&Traffic<'_>)) -> Record {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let traffic = Traffic {
                clients: Clients::new(self.gateway.address),
                site: self,
                part: Cell::new(0),
                moments: RefCell::default(),
                pauses: RefCell::default(),
            };
            tokio::select! {
                () = act(&traffic) => {}
                () = traffic.watch() => {}
                () = traffic.clients.pauses(&traffic.pauses) => {}
            }
            Record {
                samples: traffic.clients.finish().await,
                moments: traffic.moments.take(),
                pauses: traffic.pauses.take(),
            }
        })
    }

    /// What the gateway says of its only upstream.
    fn gauge(&self, name: &str) -> Option<f64> {
        let text = self.gateway.app.metrics();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let line = lines.find(|rest| rest.starts_with('{'))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// Traffic through a site.
pub struct Traffic<'s> {
    clients: Rc<Clients>,
    site: &'s Site,
    /// Parts that have begun.
    part: Cell<u64>,
    moments: RefCell<Vec<Moment>>,
    pauses: RefCell<Vec<(f64, f64)>>,
}

impl Traffic<'_> {
    /// Lets these sources ask for so many seconds; from when to when that was.
    pub async fn flow(&self, sources: &[Source], seconds: f64) -> Span {
        self.flow_until(sources, seconds, |_| false).await
    }

    /// The same, but ends when what was seen last is as wanted.
    pub async fn flow_until(
        &self,
        sources: &[Source],
        seconds: f64,
        wanted: impl Fn(&Moment) -> bool,
    ) -> Span {
        let from = self.clients.now();
        // Each part has its own requests, whatever was before it.
        let part = self.part.replace(self.part.get() + 1);
        let requests = requests(sources, seconds, self.site.seed << 8 | part);
        let seen = || self.moments.borrow().last().is_some_and(&wanted);
        self.clients.ask(&requests, seconds, seen).await;
        Span {
            from,
            to: self.clients.now(),
        }
    }

    /// Requests of a user that were due in the span and have been served.
    pub fn served(&self, user: usize, span: Span) -> f64 {
        self.clients.served(user, span)
    }

    /// Looks at the gateway again and again.
    async fn watch(&self) {
        let mut open = 0.0;
        loop {
            open += LOOK.as_secs_f64() * (self.site.server.open() as f64 - open);
            self.moments.borrow_mut().push(Moment {
                at: self.clients.now(),
                factor: self.site.gauge("tollgate_elastic_factor"),
                load: self.site.gauge("tollgate_upstream_load"),
                level: self.site.gauge("tollgate_shedding_level"),
                open,
            });
            tokio::time::sleep(LOOK).await;
        }
    }
}
