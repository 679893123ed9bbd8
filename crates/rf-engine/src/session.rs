//! One sequence and its part of the KV cache.

use std::sync::{Arc, Mutex, PoisonError};

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

    /// The tokens in the cache.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Number of tokens in the cache.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether the cache holds no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Drops all but the first `len_tokens` tokens.
    pub fn truncate(&mut self, len_tokens: usize) {
        if len_tokens < self.tokens.len() {
            self.tokens.truncate(len_tokens);
            self.pool
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .truncate(&mut self.table, len_tokens);
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
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).release(table);
    }
}
