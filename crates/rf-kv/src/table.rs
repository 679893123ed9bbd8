//! The pages of one sequence.

use crate::page::{PageGroup, PageId, PageSize};

/// The pages that hold the tokens of one sequence.
///
/// Position `p` is in page `pages(group)[p / page_size]` of the layers of a group. The group
/// [`PageGroup::State`] has one page for all positions. The table is not `Clone`, because the pool
/// counts copies: use [`PagePool::fork`](crate::PagePool::fork). Dropping a table that is not empty
/// leaks its pages: return it with [`PagePool::release`](crate::PagePool::release).
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "pages leak unless the table is released to its pool"]
pub struct PageTable {
    pub(crate) len_tokens: usize,
    /// Pages of each group, indexed by [`PageGroup::index`]. A group that the pool lacks has none.
    pub(crate) groups: [GroupTable; 3],
}

/// The pages of one sequence in one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupTable {
    pub(crate) pages: Vec<PageId>,
    /// The number of leading entries of `pages` that were returned.
    pub(crate) dropped_pages: usize,
}

/// The placeholder for a dropped page. The id is valid, so that a device may load from it. The
/// sliding window masks the loaded values.
pub(crate) const DROPPED: PageId = PageId::new(0);

/// The position of one token in the storage of a group.
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
        const EMPTY: GroupTable = GroupTable { pages: Vec::new(), dropped_pages: 0 };
        Self { len_tokens: 0, groups: [EMPTY; 3] }
    }

    /// The number of tokens.
    pub const fn len_tokens(&self) -> usize {
        self.len_tokens
    }

    /// Returns true if the table has no tokens.
    pub const fn is_empty(&self) -> bool {
        self.len_tokens == 0
    }

    /// The page of every position in a group, indexed by `position / page_size`.
    ///
    /// The first [`dropped_pages`](Self::dropped_pages) entries are placeholders: valid indices
    /// whose contents are undefined.
    pub fn pages(&self, group: PageGroup) -> &[PageId] {
        &self.group(group).pages
    }

    /// The pages that the table holds in a group: [`pages`](Self::pages) without the placeholders.
    pub fn held_pages(&self, group: PageGroup) -> &[PageId] {
        let group = self.group(group);
        &group.pages[group.dropped_pages..]
    }

    /// The page of [`PageGroup::State`]: the recurrent states after the last token. `None` for an
    /// empty table, and in a pool without states.
    pub fn state(&self) -> Option<PageId> {
        self.pages(PageGroup::State).first().copied()
    }

    /// The number of leading pages of a group that the sliding window has dropped.
    pub fn dropped_pages(&self, group: PageGroup) -> usize {
        self.group(group).dropped_pages
    }

    /// The slot of the token at `position` in a group. `None` past the end and in dropped pages.
    pub fn slot(&self, group: PageGroup, position: usize, page_size: PageSize) -> Option<Slot> {
        let index = position / page_size.tokens();
        if position >= self.len_tokens || index < self.dropped_pages(group) {
            return None;
        }
        let page = *self.pages(group).get(index)?;
        Some(Slot { page, offset_tokens: position % page_size.tokens() })
    }

    pub(crate) fn group(&self, group: PageGroup) -> &GroupTable {
        &self.groups[group.index()]
    }

    pub(crate) fn group_mut(&mut self, group: PageGroup) -> &mut GroupTable {
        &mut self.groups[group.index()]
    }

    /// The number of unused token slots in the last page of a group.
    pub(crate) const fn unfilled_tokens(&self, page_size: PageSize) -> usize {
        page_size.pages_for(self.len_tokens) * page_size.tokens() - self.len_tokens
    }

    /// The last page of a group, unless it is full.
    pub(crate) fn partial_page(&self, group: PageGroup, page_size: PageSize) -> Option<PageId> {
        let is_partial = !self.len_tokens.is_multiple_of(page_size.tokens());
        self.pages(group).last().copied().filter(|_| is_partial)
    }
}
