//! The pages of one sequence.

use crate::page::{PageId, PageSize};

/// The pages that hold the tokens of one sequence.
///
/// Position `p` is in page `pages()[p / page_size]`. The table is not `Clone`, because the pool
/// counts copies: use [`PagePool::fork`](crate::PagePool::fork). Dropping a table that is not empty
/// leaks its pages: return it with [`PagePool::release`](crate::PagePool::release).
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "pages leak unless the table is released to its pool"]
pub struct PageTable {
    pub(crate) pages: Vec<PageId>,
    pub(crate) len_tokens: usize,
    /// The number of leading entries of `pages` that were returned.
    pub(crate) dropped_pages: usize,
}

/// The placeholder for a dropped page. The id is valid, so that a device may load from it. The
/// sliding window masks the loaded values.
pub(crate) const DROPPED: PageId = PageId::new(0);

/// The position of one token in the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The page.
    pub page: PageId,
    /// The offset in the page, in tokens.
    pub offset_tokens: usize,
}

impl PageTable {
    /// A sequence without tokens.
    pub const fn new() -> Self {
        Self { pages: Vec::new(), len_tokens: 0, dropped_pages: 0 }
    }

    /// The number of tokens.
    pub const fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Returns true if the table has no tokens.
    pub const fn is_empty(&self) -> bool {
        self.len_tokens == 0
    }

    /// The page of every position, indexed by `position / page_size`.
    ///
    /// The first [`dropped_pages`](Self::dropped_pages) entries are placeholders: valid indices
    /// whose contents are undefined.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The pages that the table holds: [`pages`](Self::pages) without the placeholders.
    pub fn held_pages(&self) -> &[PageId] {
        &self.pages[self.dropped_pages..]
    }

    /// The number of leading pages that a sliding window has dropped.
    pub const fn dropped_pages(&self) -> usize {
        self.dropped_pages
    }

    /// The slot of the token at `position`. `None` past the end and in dropped pages.
    pub fn slot(&self, position: usize, page_size: PageSize) -> Option<Slot> {
        let index = position / page_size.tokens();
        if position >= self.len_tokens || index < self.dropped_pages {
            return None;
        }
        let page = *self.pages.get(index)?;
        Some(Slot { page, offset_tokens: position % page_size.tokens() })
    }

    /// The number of unused token slots in the held pages.
    pub(crate) const fn unfilled_tokens(&self, page_size: PageSize) -> usize {
        self.pages.len() * page_size.tokens() - self.len_tokens
    }
}
