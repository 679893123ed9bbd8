//! One sequence and its part of the KV cache.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rf_kv::{PagePool, PageTable};

/// A sequence: the tokens in the cache and the pages that hold them. Dropping it frees the pages.
#[derive(Debug)]
pub struct Session {
    pub(crate) pool: Arc<Mutex<PagePool>>,
    pub(crate) table: PageTable,
    pub(crate) tokens: Vec<u32>,
}

impl Session {
    pub(crate) fn new(pool: Arc<Mutex<PagePool>>) -> Self {
        Self { pool, table: PageTable::new(), tokens: Vec::new() }
    }

    /// The longest prefix of `tokens` that the prefix cache of the pool holds, in full pages.
    pub(crate) fn from_prefix(pool: Arc<Mutex<PagePool>>, tokens: &[u32]) -> Self {
        let table = lock(&pool).match_prefix(tokens);
        let tokens = tokens[..table.len_tokens()].to_vec();
        Self { pool, table, tokens }
    }

    /// A second sequence with the same tokens. They share pages until one of them writes.
    #[must_use]
    pub fn fork(&self) -> Self {
        let table = lock(&self.pool).fork(&self.table);
        Self { pool: Arc::clone(&self.pool), table, tokens: self.tokens.clone() }
    }

    /// Adds the full pages to the prefix cache.
    pub(crate) fn publish(&self) {
        lock(&self.pool).publish(&self.table, &self.tokens);
    }

    /// Pages that the cache needs for the sequence to have `len_tokens` tokens. Sequences that
    /// share a page each count the copy of it.
    pub(crate) fn pages_needed(&self, len_tokens: usize) -> usize {
        lock(&self.pool).pages_needed(&self.table, len_tokens)
    }

    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns true if the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Drops all but the first `len_tokens` tokens.
    pub fn truncate(&mut self, len_tokens: usize) {
        if len_tokens < self.tokens.len() {
            self.tokens.truncate(len_tokens);
            lock(&self.pool).truncate(&mut self.table, len_tokens);
        }
    }

    /// Drops all tokens.
    pub fn reset(&mut self) {
        self.truncate(0);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let table = std::mem::take(&mut self.table);
        lock(&self.pool).release(table);
    }
}

/// Locks a pool. A panic of a backend poisons it between two of its operations, not within one.
pub(crate) fn lock(pool: &Mutex<PagePool>) -> MutexGuard<'_, PagePool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}
