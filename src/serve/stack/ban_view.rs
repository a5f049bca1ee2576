//! [`BanView`]: the bans as one worker sees them. While no ban holds, a request compares two numbers.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;

use super::ban_refusal::{BanRefusal, build_response, seconds_until};
use super::refusal_cache::prepare_for_repetition;
use crate::base::clock::Nanos;
use crate::http::head::{Fields, Response};
use crate::identity::{ClientIdentity, IdentificationStage, Identifier};
use crate::limit::{BanPolicy, Fingerprint, IdentitySet, Rule};
use crate::operator::{ActiveBan, BanIndex, BanRegistry, BanResponse};
use crate::throttle::reject;

/// Maximum number of responses that a worker keeps, one for each number of seconds to wait: a power of two, so that the
/// index of a slot is computed without a division.
const CACHE_SLOTS: usize = 64;

/// The bans as one worker sees them, and its responses to banned clients.
pub struct BanView {
    registry: Arc<BanRegistry>,
    kind: BanResponse,
    /// The version of `index`.
    version: Cell<u64>,
    /// The bans that hold; `None` if there are none.
    index: RefCell<Option<Arc<BanIndex>>>,
    responses: RefCell<Vec<Option<CachedResponse>>>,
}

/// A response that was made for a banned client.
struct CachedResponse {
    seconds: u64,
    is_grpc: bool,
    response: Rc<Response<Bytes>>,
}

impl BanView {
    /// The bans of `registry`, whose clients get responses of this kind.
    pub fn new(registry: &Arc<BanRegistry>, kind: BanResponse) -> BanView {
        BanView {
            registry: registry.clone(),
            kind,
            version: Cell::new(0),
            index: RefCell::default(),
            responses: RefCell::default(),
        }
    }

    /// Calls `find` with the bans that hold; `None` without a call if there are none.
    #[inline]
    fn with_index<T>(&self, find: impl FnOnce(&BanIndex) -> Option<T>) -> Option<T> {
        if self.version.get() != self.registry.version() {
            self.update();
        }
        self.index.borrow().as_deref().and_then(find)
    }

    #[cold]
    fn update(&self) {
        // The version is read first: if another index comes meanwhile, the next request updates again.
        self.version.set(self.registry.version());
        let index = self.registry.index();
        *self.index.borrow_mut() = (!index.is_empty()).then_some(index);
    }

    /// Whether some ban depends on the address, alone or with other identities.
    #[inline]
    pub fn needs_address(&self) -> bool {
        let needs_address = self.with_index(|index| Some(index.needs_address()));
        needs_address.unwrap_or_default()
    }

    /// The version of the bans as of the last look at them.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.get()
    }

    /// The identities by which clients are banned, without networks.
    #[inline]
    pub fn identities(&self) -> IdentitySet {
        let identities = self.with_index(|index| Some(index.identities()));
        identities.unwrap_or_default()
    }

    /// The ban of an address, in the form that limits count.
    pub fn find_address(&self, ip: IpAddr, now: Nanos) -> Option<Arc<ActiveBan>> {
        self.with_index(|index| index.find_address(ip, now).cloned())
    }

    /// The ban of an identified client, by another identity than its address alone.
    #[inline]
    pub fn find_client(
        &self,
        client: &ClientIdentity,
        identifier: &Identifier,
        stage: IdentificationStage,
        now: Nanos,
    ) -> Option<Arc<ActiveBan>> {
        self.with_index(|index| index.find_client(client, identifier, stage, now).cloned())
    }

    /// Counts a refusal of a limit that bans: see [`BanRegistry::report_refusal`].
    pub(super) fn report_refusal(
        &self,
        rule_and_policy: (&Rule, &BanPolicy),
        key: Fingerprint,
        client: &ClientIdentity,
        identifier: &Identifier,
        now: Nanos,
    ) {
        self.registry
            .report_refusal(rule_and_policy, key, client, identifier, now);
    }

    /// The refusal of a request with these header fields, which is counted as a hit of the ban.
    pub(super) fn refuse(&self, ban: Arc<ActiveBan>, fields: &Fields, now: Nanos) -> BanRefusal {
        ban.count_hit();
        let seconds = seconds_until(&ban, now);
        let is_grpc = reject::is_grpc(fields);
        BanRefusal {
            kind: self.kind,
            seconds,
            response: self.response(seconds, is_grpc),
            ban,
        }
    }

    /// The response to a client whose ban ends in this number of seconds, from the cache or newly built.
    fn response(&self, seconds: u64, is_grpc: bool) -> Rc<Response<Bytes>> {
        let mut responses = self.responses.borrow_mut();
        if responses.is_empty() {
            responses.resize_with(CACHE_SLOTS, || None);
        }
        let slot = &mut responses[seconds as usize % CACHE_SLOTS];
        if let Some(cached) = slot
            && cached.seconds == seconds
            && cached.is_grpc == is_grpc
        {
            return cached.response.clone();
        }
        let mut response = build_response(self.kind, seconds, is_grpc);
        prepare_for_repetition(&mut response);
        let response = Rc::new(response);
        *slot = Some(CachedResponse {
            seconds,
            is_grpc,
            response: response.clone(),
        });
        response
    }
}

/// The refusal of a client by this ban, for `explain`: it is not counted.
pub(super) fn explain_refusal(ban: Arc<ActiveBan>, kind: BanResponse, now: Nanos) -> BanRefusal {
    let seconds = seconds_until(&ban, now);
    BanRefusal {
        kind,
        seconds,
        response: Rc::new(build_response(kind, seconds, false)),
        ban,
    }
}
