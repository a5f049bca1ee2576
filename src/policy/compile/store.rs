//! Computes the size of the memory store, and compiles the settings of the shared store and how gateways share each
//! limit.

use std::path::Path;

use super::super::context::LoadContext;
use super::super::decode::{LimitConfig, StoreAddress, StoreConfig};
use super::super::source::Files;
use super::files::read_named_secret;
use super::tls::{load_system_roots, read_named_roots};
use crate::limit::{CountMode, OnStoreError, RuleLimit, Sharing};
use crate::store::{memcached, redis, shared};

/// With a shared store, a fourth of `memory` is for its [`Ledger`](shared::Settings::ledger_bytes): what this gateway
/// holds of shared counters. The counts of this gateway alone get the other three fourths.
const LEDGER_DIVISOR: usize = 4;

/// The prefix of all keys in a shared store, which other programs may use too.
const KEY_PREFIX: &str = "tollgate";

/// Computes the memory for this gateway's own counts, in bytes. It is at least what the memory store accepts, even if
/// the ledger leaves less.
pub(super) fn store_budget(store: &StoreConfig) -> usize {
    let memory = store.memory;
    match store.address {
        Some(_) => (memory - ledger_bytes(memory)).max(crate::store::Settings::MIN_BUDGET_BYTES),
        None => memory,
    }
}

/// Compiles the settings of the shared store; `None` without one. A mistake in its files, or a system without
/// authorities that TLS needs, is reported to `cx`. The settings then lack that part.
pub(super) fn compile_shared_store(
    cx: &mut LoadContext,
    files: &dyn Files,
    base: &Path,
    store: &StoreConfig,
) -> Option<shared::Settings> {
    let written = store.address.as_ref()?;
    let mut address = written.value.clone();
    if let (StoreAddress::Redis(address), Some(name)) = (&mut address, &store.password_file) {
        let what = "the store's password";
        address.password = read_named_secret(cx, files, base, name, what);
    }
    let roots = match (&store.ca, &address) {
        (Some(name), _) => read_named_roots(cx, files, base, name),
        (None, StoreAddress::Redis(address)) if address.uses_tls => {
            let help =
                "install `ca-certificates`, or name a file: `store: { address: …, ca: ca.pem }`";
            load_system_roots(cx, written.location, help)
        }
        (None, _) => None,
    };
    let prefix = String::from(KEY_PREFIX);
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
        budget: store.budget,
        ledger_bytes: ledger_bytes(store.memory),
        permit_lease: store.permit_lease,
    })
}

/// The part of the memory that the ledger of shared counters may take, in bytes.
fn ledger_bytes(memory: usize) -> usize {
    memory / LEDGER_DIVISOR
}

/// What holds while the store cannot be reached. A share of the credits would let a key use some of them twice, so a limit
/// with credits is closed.
pub(super) fn compile_on_store_error(config: &LimitConfig) -> OnStoreError {
    match config.credits {
        Some(_) => OnStoreError::Closed,
        None => config.on_store_error,
    }
}

/// How gateways share a limit: as the file says, or by a default that depends on the limit. A limit on open requests is
/// strict, because whoever writes one wants it to hold at each moment.
pub(super) fn compile_sharing(
    config: &LimitConfig,
    limit: &RuleLimit,
    count: &CountMode,
) -> Sharing {
    let written = config.sharing.map(|sharing| sharing.value);
    let Some(rate_limit) = limit.rate() else {
        return written.unwrap_or(Sharing::Strict);
    };
    // Units are leased in advance only where each request takes one unit at its admission.
    written.unwrap_or_else(|| match count.takes_one_unit() {
        true => Sharing::default_for(rate_limit),
        false => Sharing::Strict,
    })
}
