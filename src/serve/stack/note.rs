//! The facts about one request that the access log, the metrics and the samples report. The layers fill them in; `observe`
//! reports them at the end.

use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;

use super::outcome::RequestOutcome;
use super::peer::Peer;
use crate::base::clock::Nanos;
use crate::http::head::Head;
use crate::identity::ClientIdentity;
use crate::limit::LimitStanding;
use crate::record::insight::Decision;
use crate::serve::access::WorkerLog;
use crate::serve::http1::repeat::RepeatedFields;
use crate::serve::worker::generation::Generation;
use crate::store::permits::PermitGuard;
use crate::throttle::admission::Holdings;

/// The facts about one request so far. The layers share them, so that they are there even when the client hangs up in the
/// middle.
pub struct RequestNote {
    /// When the request arrived.
    pub at: Nanos,
    /// The method; none if it cannot be read.
    pub method: Option<Method>,
    /// The head, if its target may be logged or sampled.
    pub head: Option<Rc<Head>>,
    /// The path of a request whose head cannot be read.
    pub path: Option<Box<str>>,
    /// What the connection remembers of earlier requests with the same header fields.
    pub repeated: Option<Rc<RepeatedFields>>,
    /// The client's identities; unset if they were not looked for.
    pub who: OnceCell<Rc<ClientIdentity>>,
    /// The index of its route.
    pub route: Cell<Option<usize>>,
    /// The index of the limit that decided, and its standing.
    pub limit: Cell<Option<(usize, LimitStanding)>>,
    /// What that limit found, if the request is sampled.
    pub decision: Cell<Option<Box<Decision>>>,
    /// The shared store was away, so this gateway decided alone.
    pub alone: Cell<bool>,
    /// The server that it was sent to last.
    pub server: RefCell<Option<Arc<str>>>,
    /// Why it was refused or broke off, as the log says it.
    pub reason: Cell<Option<&'static str>>,
    pub(super) status: Cell<u16>,
    pub(super) by_upstream: Cell<bool>,
    pub(super) outcome: Cell<RequestOutcome>,
    pub(super) sent: Cell<u64>,
    /// What its limits hold until it ends.
    pub holdings: RefCell<Option<Holdings>>,
    /// The client has left.
    pub client_left: Cell<bool>,
    /// The other end of its connection.
    pub peer: Rc<Peer>,
    /// The configuration that it is served by.
    pub generation: Rc<Generation>,
    pub(super) access: Rc<WorkerLog>,
}

impl RequestNote {
    /// The client's address, behind trusted proxies.
    pub fn ip(&self) -> IpAddr {
        self.who.get().map_or(self.peer.ip, |who| who.ip)
    }

    /// The same as text, if it is that of the connection.
    pub fn address(&self) -> Option<&str> {
        (self.ip() == self.peer.ip).then_some(&*self.peer.address)
    }

    /// The verified user.
    pub fn user(&self) -> Option<&str> {
        self.who.get()?.user.as_deref()
    }

    /// Status of the response; 0 when the client left before there was one.
    pub fn status(&self) -> u16 {
        self.status.get()
    }

    /// Whether the upstream gave the response, whole or not.
    pub fn by_upstream(&self) -> bool {
        self.by_upstream.get()
    }

    /// How it ended, or [`RequestOutcome::Gone`] so far.
    pub fn outcome(&self) -> RequestOutcome {
        self.outcome.get()
    }

    /// Whether a limit waits for the status or the cost of the response.
    pub fn settles(&self) -> bool {
        let holdings = self.holdings.borrow();
        holdings.as_ref().is_some_and(|holdings| holdings.settles)
    }

    /// The permits that it holds.
    pub fn permits(&self) -> Option<Arc<PermitGuard>> {
        let holdings = self.holdings.borrow();
        holdings
            .as_ref()
            .and_then(|holdings| holdings.permits.clone())
    }

    /// Whether the access log may name the server.
    pub fn wants_server(&self) -> bool {
        self.access.wants_targets()
    }

    /// Bytes of the response's body that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}
