//! The memory of the bodies of all requests together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{ApiError, ApiErrorKind};

/// The most memory of parsed bodies at a time.
const PARSED_MIB: u32 = 512;
/// The most bytes of bodies that are received at a time.
const RECEIVED_MIB: u32 = 1024;
/// The time for which a body waits until others are done.
const WAIT: Duration = Duration::from_secs(10);
/// The most memory that a value of a document takes, whatever its length.
const VALUE_BYTES: usize = 250;
/// Bodies of less memory are not counted.
pub(super) const SMALL_BYTES: usize = 1 << 20;

/// The memory for large bodies, which wait for one another. Bodies of both kinds have their own,
/// so that one that was received waits for parsed ones only.
#[derive(Debug)]
pub(crate) struct BodyMemory {
    received: MemoryPool,
    parsed: MemoryPool,
}

/// Memory that requests take parts of.
#[derive(Debug)]
struct MemoryPool {
    free_mib: Arc<Semaphore>,
    total_mib: u32,
    wait: Duration,
}

/// A part of the memory, which is free again once this is dropped. Small bodies have none.
pub(super) type MemoryPermit = Option<OwnedSemaphorePermit>;

impl Default for BodyMemory {
    fn default() -> Self {
        let pool = |total_mib| MemoryPool::new(total_mib, WAIT);
        Self { received: pool(RECEIVED_MIB), parsed: pool(PARSED_MIB) }
    }
}

impl BodyMemory {
    /// Waits for the memory to receive a body of so many bytes.
    pub(super) async fn receive(&self, bytes: usize) -> Result<MemoryPermit, ApiError> {
        self.received.take(bytes).await
    }

    /// Waits for the memory to parse a body with so many bytes and values.
    pub(super) async fn parse(
        &self,
        bytes: usize,
        num_values: usize,
    ) -> Result<MemoryPermit, ApiError> {
        self.parsed.take(bytes.saturating_add(num_values.saturating_mul(VALUE_BYTES))).await
    }
}

impl MemoryPool {
    fn new(total_mib: u32, wait: Duration) -> Self {
        Self { free_mib: Arc::new(Semaphore::new(total_mib as usize)), total_mib, wait }
    }

    /// Waits for a part of the memory. A body that needs more than all of it gets all of it.
    async fn take(&self, bytes: usize) -> Result<MemoryPermit, ApiError> {
        if bytes < SMALL_BYTES {
            return Ok(None);
        }
        let mib = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX).min(self.total_mib);
        let permit = Arc::clone(&self.free_mib).acquire_many_owned(mib);
        match tokio::time::timeout(self.wait, permit).await {
            Ok(Ok(permit)) => Ok(Some(permit)),
            // The semaphore is never closed.
            Ok(Err(closed)) => Err(ApiError::internal(&closed)),
            Err(_) => {
                let message = "the bodies of other requests take all memory for large bodies: \
                               send the request again, or a smaller one";
                Err(ApiError::new(ApiErrorKind::Unavailable, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_bodies_wait_for_one_another_and_small_ones_do_not() {
        let pool = MemoryPool::new(100, Duration::from_mins(1));
        let first = pool.take(60 << 20).await.unwrap();
        assert!(pool.take(SMALL_BYTES - 1).await.unwrap().is_none());
        let second = tokio::time::timeout(Duration::from_millis(20), pool.take(60 << 20));
        assert!(second.await.is_err(), "it waits");
        drop(first);
        let second = pool.take((60 << 20) + 1).await.unwrap();
        assert_eq!(pool.free_mib.available_permits(), 39);
        drop(second);
        assert_eq!(pool.free_mib.available_permits(), 100);
    }

    #[tokio::test]
    async fn a_body_that_is_larger_than_the_memory_takes_all_of_it() {
        let pool = MemoryPool::new(100, Duration::from_millis(20));
        let all = pool.take(usize::MAX).await.unwrap();
        let error = pool.take(SMALL_BYTES).await.unwrap_err();
        assert_eq!(error.kind, ApiErrorKind::Unavailable);
        assert!(error.message.contains("memory for large bodies"), "{}", error.message);
        drop(all);
        assert!(pool.take(usize::MAX).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn values_count_whatever_their_length() {
        let memory = BodyMemory::default();
        assert!(memory.parse(1000, 4000).await.unwrap().is_none());
        let parsed = memory.parse(1 << 20, 500_000).await.unwrap();
        assert_eq!(parsed.map(|permit| permit.num_permits()), Some(121));
        assert_eq!(memory.parsed.free_mib.available_permits(), 512);
    }
}
