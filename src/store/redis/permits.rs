//! How [`RedisClient`] keeps the permits that gateways share: for each key a hash with the permits of each gateway's
//! lease, and for each partition the leases with their ends by the store's clock.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::try_join_all;
use redis::Value;

use super::client::RedisClient;
use crate::base::clock::Nanos;
use crate::store::permits::permit_call::{PermitCall, PermitReply};
use crate::store::permits::{LATE_CALL_TIME, PermitKey, STORED_TIME};
use crate::store::shared::call::{CounterName, StoreError};
use crate::store::shared::permit_lease::LeaseStep;

/// The replies of the scripts where nothing was changed.
const OTHER_MARK: i64 = -1;
const LEASE_ENDED: i64 = -2;
const LATER_CALL: i64 = -3;

impl RedisClient {
    /// Sets the number of permits of a key that a gateway holds. A call with the number 0 changes nothing.
    ///
    /// # Errors
    ///
    /// When there is no connection or no usable reply; [`StoreError::MarkMismatch`] when the store has lost its data, and
    /// [`StoreError::LeaseEnded`] when it does not have the lease.
    pub async fn set_permits(
        &self,
        connection_index: usize,
        call: &PermitCall,
    ) -> Result<PermitReply, StoreError> {
        let name = counter_name(&call.key);
        let partition = self.partition_of(&name);
        let mark = self.known_mark(connection_index, partition)?;
        let prefix = self.key_prefix(partition);
        let mut key = format!("{prefix}permits:");
        URL_SAFE_NO_PAD.encode_string(name.limit.to_be_bytes(), &mut key);
        key.push(':');
        URL_SAFE_NO_PAD.encode_string(name.key.0.to_be_bytes(), &mut key);
        let script = &self.permits_script;
        let reply = self.run_script(connection_index, partition, script, |command| {
            command
                .arg(3)
                .arg(format!("{prefix}mark"))
                .arg(leases_key(&prefix))
                .arg(&key)
                .arg(&mark[..])
                .arg(call.lease)
                .arg(call.number)
                .arg(call.used)
                .arg(call.needed)
                .arg(call.spare)
                .arg(call.ceiling)
                .arg(u8::from(call.is_clean))
                .arg(STORED_TIME.0 / 1_000_000)
                .arg(LATE_CALL_TIME.0 / 1_000_000);
        });
        match redis::from_redis_value::<Vec<i64>>(reply.await?) {
            Ok(numbers) => match numbers[..] {
                [held, others] => {
                    let number = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
                    Ok(PermitReply {
                        held: u32::try_from(held).unwrap_or(0),
                        others: number(others),
                    })
                }
                [code] => Err(error_of(code)),
                _ => Err(malformed()),
            },
            Err(_) => Err(malformed()),
        }
    }

    /// Begins, renews or ends the lease of a gateway on all partitions.
    ///
    /// # Errors
    ///
    /// As [`RedisClient::set_permits`], if any partition fails.
    pub async fn keep_permit_lease(
        &self,
        connection_index: usize,
        lease: u64,
        step: LeaseStep,
        life: Nanos,
    ) -> Result<(), StoreError> {
        let step = match step {
            LeaseStep::Begin => "begin",
            LeaseStep::Renew => "renew",
            LeaseStep::End => "end",
        };
        let steps = (0..self.partition_count()).map(|partition| async move {
            let mark = self.known_mark(connection_index, partition)?;
            let prefix = self.key_prefix(partition);
            let script = &self.lease_script;
            let reply = self.run_script(connection_index, partition, script, |command| {
                command
                    .arg(2)
                    .arg(format!("{prefix}mark"))
                    .arg(leases_key(&prefix))
                    .arg(&mark[..])
                    .arg(lease)
                    .arg(step)
                    .arg(life.0 / 1_000);
            });
            match reply.await? {
                Value::Int(1) => Ok(()),
                Value::Int(code) => Err(error_of(code)),
                _ => Err(malformed()),
            }
        });
        try_join_all(steps).await.map(|_| ())
    }
}

/// The key of the leases of a partition.
fn leases_key(prefix: &str) -> String {
    format!("{prefix}leases")
}

/// The name by which the partition of a key is chosen.
fn counter_name(key: &PermitKey) -> CounterName {
    CounterName {
        limit: key.scope.hash() as u64,
        key: key.key,
    }
}

fn error_of(code: i64) -> StoreError {
    match code {
        OTHER_MARK => StoreError::MarkMismatch,
        LEASE_ENDED => StoreError::LeaseEnded,
        LATER_CALL => StoreError::Other(Cow::Borrowed("a later call about permits came first")),
        _ => malformed(),
    }
}

fn malformed() -> StoreError {
    StoreError::Other(Cow::Borrowed("the reply about permits is malformed"))
}
