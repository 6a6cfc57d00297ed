//! How many connections there may be, in all and of each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::ServerConfig;

/// The counts of connections.
pub(super) struct Limits {
    rooms: Arc<Semaphore>,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
    per_address: usize,
}

/// The right to a connection, until it is dropped.
pub(super) struct Permit {
    _room: Option<OwnedSemaphorePermit>,
    address: Option<IpAddr>,
    addresses: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Limits {
    pub(super) fn new(config: &ServerConfig) -> Limits {
        let rooms = config.max_connections.min(Semaphore::MAX_PERMITS);
        Limits {
            rooms: Arc::new(Semaphore::new(rooms)),
            addresses: Arc::default(),
            per_address: config.max_connections_per_address,
        }
    }

    /// Waits until there is room for a connection: clients wait in the queue of the system.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.rooms).acquire_owned().await.ok()
    }

    /// The right to a connection from an address; `None` if it has as many as it may have.
    pub(super) fn admit(
        &self,
        room: Option<OwnedSemaphorePermit>,
        address: Option<IpAddr>,
    ) -> Option<Permit> {
        if let Some(address) = address {
            let mut addresses = lock(&self.addresses);
            let count = addresses.entry(address).or_default();
            if *count >= self.per_address {
                return None;
            }
            *count += 1;
        }
        Some(Permit { _room: room, address, addresses: Arc::clone(&self.addresses) })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut addresses = lock(&self.addresses);
        if let Some(count) = addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&address);
            }
        }
    }
}

fn lock(addresses: &Mutex<HashMap<IpAddr, usize>>) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_as_many_connections_as_they_may() {
        let limits = Limits::new(&ServerConfig { max_connections_per_address: 2, ..ServerConfig::default() });
        let of = |last| limits.admit(None, Some(IpAddr::from([10, 0, 0, last])));
        let (first, second) = (of(1), of(1));
        assert!(first.is_some() && second.is_some() && of(1).is_none() && of(2).is_some());
        drop(first);
        assert!(of(1).is_some());
        drop(second);
        assert!(lock(&limits.addresses).is_empty());
        assert!((0..9).all(|_| limits.admit(None, None).is_some()));
    }
}
