//! A store of pages outside of the pool: what goes there, and what comes back.
//!
//! The pool only names pages. Its owner copies their contents and keeps the store.

use sha2::{Digest, Sha256};

use crate::page::{PageGroup, PageId};

/// Identifies the tokens of a page and all tokens before them: a chain of SHA-256 hashes.
///
/// Equal chains have equal keys in every run of a program. Nobody can make another text with the
/// same key, so a key alone decides which page belongs to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainKey([u8; 32]);

impl ChainKey {
    /// The key of the empty prefix.
    pub const ROOT: Self = Self([0; 32]);

    /// The key of a page with these tokens after the pages of this key.
    #[must_use]
    pub fn child(self, tokens: &[u32]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        for token in tokens {
            hash.update(token.to_le_bytes());
        }
        Self(hash.finalize().into())
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for ChainKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Identifies a page in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey {
    /// The group of the page.
    pub group: PageGroup,
    /// The tokens up to the end of the page.
    pub chain: ChainKey,
}

/// The events at which pages of the prefix cache are copied to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exports {
    /// Pages are never copied, because there is no store.
    #[default]
    Off,
    /// Pages are copied when the prefix cache evicts them.
    OnEviction,
    /// Pages are copied when they enter the prefix cache, and again when it evicts them. States
    /// are copied only by [`PagePool::export_checkpoint`](crate::PagePool::export_checkpoint).
    AtOnce,
}

/// A command for the owner of the pages and of the store: see
/// [`PagePool::take_moves`](crate::PagePool::take_moves).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageMove {
    /// Copy a page to the store.
    Export {
        /// The key in the store.
        key: PageKey,
        /// The page, which may be written next.
        from: PageId,
        /// True if the pool no longer has the contents.
        is_evicted: bool,
    },
    /// Remove a page from the store, because no prefix can reach it any more.
    Forget(PageKey),
}

/// Copy a page from the store to the pool, before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageImport {
    /// The key in the store.
    pub key: PageKey,
    /// The page.
    pub to: PageId,
}

/// The queries of a pool to a store when it looks for a prefix.
pub trait PageStore {
    /// Returns true if the store has a page.
    fn contains(&self, key: PageKey) -> bool;

    /// Returns true if copying `pages` pages from the store is faster than computing `tokens`
    /// tokens.
    fn is_faster(&self, pages: usize, tokens: usize) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_hash_of_the_key_before_and_the_tokens() {
        // The reference is sha256sum of 32 zero bytes, 01000000 and 02000000.
        let key = ChainKey::ROOT.child(&[1, 2]);
        assert_eq!(key.as_bytes()[..8], [0xe7, 0xca, 0x17, 0xd6, 0x58, 0x1d, 0x12, 0x6a]);
        assert_ne!(key.child(&[3]), ChainKey::ROOT.child(&[1, 2, 3]));
    }
}
