//! Events of the prefix cache, for observers outside of this crate.

use std::fmt;

/// A change of the pages of [`PageGroup::Full`](crate::PageGroup::Full) in the prefix cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheEvent {
    /// A page entered the cache.
    Stored {
        /// The hash of its tokens, and of all before and their key.
        hash: u64,
        /// The hash of the page before; `None` for the first page.
        parent: Option<u64>,
        /// The tokens of the page.
        tokens: Box<[u32]>,
        /// The [key](crate::Prefix::key) of the prefix.
        key: Box<[u32]>,
    },
    /// A page left the cache.
    Removed {
        /// The hash with which it was stored.
        hash: u64,
    },
}

/// Receives the changes of a prefix cache. It runs under the lock of the pool.
pub struct CacheObserver(Box<dyn FnMut(CacheEvent) + Send>);

impl CacheObserver {
    /// Passes each change to `observe`, which must return at once.
    pub fn new(observe: impl FnMut(CacheEvent) + Send + 'static) -> Self {
        Self(Box::new(observe))
    }

    pub(crate) fn observe(&mut self, event: CacheEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for CacheObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheObserver").finish_non_exhaustive()
    }
}
