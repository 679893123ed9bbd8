//! The pages of one sequence.

use crate::page::{PageId, PageSize};

/// Which pages hold the tokens of one sequence.
///
/// Position `p` is in page `pages()[p / page_size]`. The table is not `Clone`, since a copy must be
/// counted: that is [`PagePool::fork`](crate::PagePool::fork). Dropping one that is not empty loses
/// its pages: it must go back by [`PagePool::release`](crate::PagePool::release).
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "pages are lost unless the table is released to its pool"]
pub struct PageTable {
    pub(crate) pages: Vec<PageId>,
    pub(crate) len_tokens: usize,
    /// Leading entries of `pages` that have been given back.
    pub(crate) dropped_pages: usize,
}

/// What stands in a table for a page that was dropped: a valid id, so that a device may load from it,
/// of a page that it must not look at, since the sliding window has passed.
pub(crate) const DROPPED: PageId = PageId::new(0);

/// Where in the storage one token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The page.
    pub page: PageId,
    /// The place in the page, in tokens.
    pub offset_tokens: usize,
}

impl PageTable {
    /// A sequence without tokens.
    pub const fn new() -> Self {
        Self { pages: Vec::new(), len_tokens: 0, dropped_pages: 0 }
    }

    /// The number of tokens there is room for and that count as written.
    pub const fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Whether there are no tokens.
    pub const fn is_empty(&self) -> bool {
        self.len_tokens == 0
    }

    /// The page of every position, by `position / page_size`.
    ///
    /// The first [`dropped_pages`](Self::dropped_pages) entries are place-holders: valid as an index,
    /// meaningless as a page.
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// The pages that the table really holds: [`pages`](Self::pages) without the place-holders.
    pub fn held_pages(&self) -> &[PageId] {
        &self.pages[self.dropped_pages..]
    }

    /// How many leading pages a sliding window has given back.
    pub const fn dropped_pages(&self) -> usize {
        self.dropped_pages
    }

    /// Where the token at `position` is; `None` past the end or where its page was dropped.
    pub fn slot(&self, position: usize, page_size: PageSize) -> Option<Slot> {
        let index = position / page_size.tokens();
        if position >= self.len_tokens || index < self.dropped_pages {
            return None;
        }
        let page = *self.pages.get(index)?;
        Some(Slot { page, offset_tokens: position % page_size.tokens() })
    }

    /// Tokens that the held pages have room for and do not hold.
    pub(crate) const fn unfilled_tokens(&self, page_size: PageSize) -> usize {
        self.pages.len() * page_size.tokens() - self.len_tokens
    }
}
