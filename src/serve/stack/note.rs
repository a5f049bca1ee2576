//! What is known of one request so far. The layers write it down as they find it out; `observe` counts and logs it at the end.

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
use crate::limit::Standing;
use crate::record::insight::Decision;
use crate::serve::access::WorkerLog;
use crate::serve::http1::repeat::RepeatedFields;
use crate::serve::worker::generation::Generation;
use crate::store::permits::Taken;
use crate::throttle::admission::Holdings;

/// What is known of one request so far. Shared by the layers, so that it is there even when the
/// client hangs up in the middle.
pub struct RequestNote {
    /// When the request arrived.
    pub at: Nanos,
    /// Its method; none when it cannot be read.
    pub method: Option<Method>,
    /// Its head; only when its target may be logged or be in an example.
    pub head: Option<Rc<Head>>,
    /// The path, where the head cannot be read.
    pub path: Option<Box<str>>,
    /// What was made of the same fields before.
    pub repeated: Option<Rc<RepeatedFields>>,
    /// Who asks; nobody, when that was not looked at.
    pub who: OnceCell<Rc<ClientIdentity>>,
    /// Its route, by index.
    pub route: Cell<Option<usize>>,
    /// The limit that spoke, by index, and what it said.
    pub limit: Cell<Option<(usize, Standing)>>,
    /// What that limit said, when the request is to be an example.
    pub decision: Cell<Option<Box<Decision>>>,
    /// Its limits were decided without the store that gateways share.
    pub alone: Cell<bool>,
    /// The server it went to, and whether one was tried.
    pub server: RefCell<Option<Arc<str>>>,
    /// Why it was not served.
    pub reason: Cell<Option<&'static str>>,
    pub(super) status: Cell<u16>,
    pub(super) by_upstream: Cell<bool>,
    pub(super) outcome: Cell<RequestOutcome>,
    pub(super) sent: Cell<u64>,
    /// What hangs on its end.
    pub holdings: RefCell<Option<Holdings>>,
    /// Its client has left.
    pub client_left: Cell<bool>,
    /// The connection it came over.
    pub peer: Rc<Peer>,
    /// The running policies it is served by.
    pub generation: Rc<Generation>,
    pub(super) access: Rc<WorkerLog>,
}

impl RequestNote {
    /// The client behind trusted proxies.
    pub fn ip(&self) -> IpAddr {
        self.who.get().map_or(self.peer.ip, |who| who.ip)
    }

    /// The same as text, where that is known.
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

    /// How it ended.
    pub fn outcome(&self) -> RequestOutcome {
        self.outcome.get()
    }

    /// Limits wait for what the response says.
    pub fn settles(&self) -> bool {
        let holdings = self.holdings.borrow();
        holdings.as_ref().is_some_and(|holdings| holdings.settles)
    }

    /// The permits of the request.
    pub fn permits(&self) -> Option<Arc<Taken>> {
        let holdings = self.holdings.borrow();
        holdings
            .as_ref()
            .and_then(|holdings| holdings.permits.clone())
    }

    /// Whether the log will name the server.
    pub fn wants_server(&self) -> bool {
        self.access.wants_targets()
    }

    /// Bytes of the response's body that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}
