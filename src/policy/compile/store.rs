//! The store that gateways share, and how they share each limit.

use std::path::Path;

use super::super::collect::Cx;
use super::super::model::{self, StoreAddress};
use super::super::source::Files;
use super::files::named_secret;
use super::tls::{named_roots, system_roots};
use crate::limit::{RuleLimit, Sharing};
use crate::store::{memcached, redis, shared};

/// Bytes of counts in memory where no file says otherwise.
const MEMORY: usize = 256 * 1024 * 1024;

/// Bytes of memory for this gateway's own counts.
pub(super) fn budget(store: &model::StoreConfig) -> usize {
    let memory = store.memory.unwrap_or(MEMORY);
    match store.address {
        Some(_) => (memory - ledger(memory)).max(crate::store::Settings::LEAST),
        None => memory,
    }
}

/// The settings of the shared store, if there is one.
pub(super) fn shared(
    cx: &mut Cx,
    files: &dyn Files,
    base: &Path,
    store: &model::StoreConfig,
) -> Option<shared::Settings> {
    let written = store.address.as_ref()?;
    let mut address = written.value.clone();
    if let (StoreAddress::Redis(address), Some(name)) = (&mut address, &store.password_file) {
        let what = "the store's password";
        address.password = named_secret(cx, files, base, name, what);
    }
    let roots = match (&store.roots, &address) {
        (Some(name), _) => named_roots(cx, files, base, name),
        (None, StoreAddress::Redis(address)) if address.tls => {
            let help =
                "install `ca-certificates`, or name a file: `store: { address: …, ca: ca.pem }`";
            system_roots(cx, written.place, help)
        }
        (None, _) => None,
    };
    let prefix = String::from("tollgate");
    Some(shared::Settings {
        backend: match address {
            StoreAddress::Redis(address) => shared::Backend::Redis(redis::Settings {
                address,
                roots,
                prefix,
            }),
            StoreAddress::Memcached(servers) => {
                shared::Backend::Memcached(memcached::Settings { servers, prefix })
            }
        },
        budget: store.budget.unwrap_or(shared::Settings::BUDGET),
        ledger: ledger(store.memory.unwrap_or(MEMORY)),
    })
}

/// Bytes of memory for the ledger of shared counters.
fn ledger(memory: usize) -> usize {
    memory / 4
}

/// How gateways share the limit, as it says or as suits it.
pub(super) fn sharing(limit: &model::LimitConfig, bound: &RuleLimit) -> Sharing {
    let Some(counted) = bound.rate() else {
        return Sharing::Local;
    };
    let said = limit.sharing.map(|at| at.value);
    said.unwrap_or_else(|| Sharing::default_for(counted))
}
