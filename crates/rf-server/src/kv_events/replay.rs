//! The latest batches, for subscribers that missed some.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A numbered batch.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) payload: Arc<[u8]>,
}

/// The latest batches, in their order.
#[derive(Debug)]
pub(super) struct ReplayBuffer {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next_number: u64,
    batches: VecDeque<Batch>,
}

impl ReplayBuffer {
    pub(super) fn new(most: usize) -> Self {
        Self { most, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers a batch and keeps it instead of the oldest one.
    pub(super) fn push(&self, payload: Vec<u8>) -> Batch {
        let mut inner = self.lock();
        let batch = Batch { number: inner.next_number, payload: payload.into() };
        inner.next_number += 1;
        if inner.batches.len() == self.most {
            inner.batches.pop_front();
        }
        if self.most > 0 {
            inner.batches.push_back(batch.clone());
        }
        batch
    }

    /// The batches from a number on, as far as they are kept.
    pub(super) fn since(&self, number: u64) -> Vec<Batch> {
        let inner = self.lock();
        inner.batches.iter().filter(|batch| batch.number >= number).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_batches_are_kept() {
        let buffer = ReplayBuffer::new(2);
        for byte in 0..3 {
            assert_eq!(buffer.push(vec![byte]).number, u64::from(byte));
        }
        let numbers = |since| buffer.since(since).iter().map(|b| b.number).collect::<Vec<_>>();
        assert_eq!((numbers(0), numbers(2), numbers(3)), (vec![1, 2], vec![2], vec![]));
        let none = ReplayBuffer::new(0);
        none.push(vec![1]);
        assert!(none.since(0).is_empty());
    }
}
