//! The pool: allocates pages, counts their holders and takes them back.

mod matching;
mod reserved;
mod sharing;

pub use self::reserved::Reserved;

use crate::export::{Exports, PageMove};
use crate::group::GroupPages;
use crate::page::{PageCounts, PageGroup, PageId, PageSize};
use crate::prefix::PrefixCache;
use crate::stats::PoolStats;
use crate::table::{DROPPED, GroupTable, PageTable};

/// All pages of a KV cache.
#[derive(Debug)]
pub struct PagePool {
    page_size: PageSize,
    /// The sliding window of [`PageGroup::Window`] in tokens; `None` for a pool without the group.
    window: Option<usize>,
    /// Pages of each group, indexed by [`PageGroup::index`].
    groups: [GroupPages; 3],
    prefix: PrefixCache,
}

/// A request needs more pages than are free or idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} more pages are needed and {free} are available")]
pub struct OutOfPages {
    /// The number of pages of a group that the request needs.
    pub needed: usize,
    /// The number of available pages of the group: free, or idle in the prefix cache.
    pub free: usize,
}

impl OutOfPages {
    /// Compares the pages that a request needs with those that are available.
    ///
    /// # Errors
    ///
    /// If a group has too few, with the numbers of the first such group.
    pub fn check(needed: PageCounts, available: PageCounts) -> Result<(), Self> {
        for group in PageGroup::ALL {
            let (needed, free) = (needed.of(group), available.of(group));
            if needed > free {
                return Err(Self { needed, free });
            }
        }
        Ok(())
    }
}

/// A sequence cannot be cut to a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sequence cannot be cut to {len_tokens} tokens, because {}: compute it again from the \
     start",
    match cause {
        CutCause::Window => "its sliding window has passed them",
        CutCause::State => "a recurrent state cannot be cut",
    }
)]
pub struct NotCut {
    /// The length that is not possible.
    pub len_tokens: usize,
    /// The reason.
    pub cause: CutCause,
}

/// Why a sequence cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutCause {
    /// The window has dropped pages that the next token would see.
    Window,
    /// The recurrent states are those after the last token.
    State,
}

/// A command for the backend: copy page `from` to page `to` in every layer of a group, before the
/// next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPage {
    /// The group of the layers.
    pub group: PageGroup,
    /// The page that the other tables keep.
    pub from: PageId,
    /// The page that replaces it in this table.
    pub to: PageId,
}

impl PagePool {
    /// A pool of `num_pages` free pages of [`PageGroup::Full`], at most as many as 32-bit ids can
    /// name.
    pub fn new(num_pages: usize, page_size: PageSize) -> Self {
        Self::with_window(PageCounts::full(num_pages), page_size, None)
    }

    /// A pool of free pages of all groups. `window` is the sliding window in tokens: the token at
    /// a position sees itself and the `window − 1` tokens before it. `None` leaves the group
    /// [`PageGroup::Window`] out. Without pages, [`PageGroup::State`] is left out.
    pub fn with_window(num_pages: PageCounts, page_size: PageSize, window: Option<usize>) -> Self {
        let groups = PageGroup::ALL.map(|group| match (group, window) {
            (PageGroup::Window, None) => GroupPages::new(0),
            _ => GroupPages::new(num_pages.of(group)),
        });
        let prefix = PrefixCache::new(counts(&groups, GroupPages::len));
        Self { page_size, window, groups, prefix }
    }

    /// Decides when pages go to a store outside of the pool ([`take_moves`](Self::take_moves)),
    /// from which they come back ([`match_prefix_in`](Self::match_prefix_in)). The default is
    /// never.
    pub fn set_exports(&mut self, exports: Exports) {
        self.prefix.exports = exports;
    }

    /// The copies from pages to the store since the last call. The caller must execute them before
    /// it writes any page: after [`grow`](Self::grow) or [`reserve`](Self::reserve), before the
    /// copies that these return, and after [`match_prefix_in`](Self::match_prefix_in), before the
    /// imports.
    pub fn take_moves(&mut self) -> Vec<PageMove> {
        std::mem::take(&mut self.prefix.moves)
    }

    /// The number of all pages.
    pub fn num_pages(&self) -> PageCounts {
        counts(&self.groups, GroupPages::len)
    }

    /// The number of available pages: free, or idle in the prefix cache.
    pub fn available_pages(&self) -> PageCounts {
        counts(&self.groups, GroupPages::available)
    }

    /// The number of pages that [`grow`](Self::grow) would allocate for the same arguments.
    pub fn pages_needed(&self, table: &PageTable, new_len_tokens: usize) -> PageCounts {
        let pages = self.page_size.pages_for(new_len_tokens);
        let needed = |group| {
            let copy = self.page_to_copy(table, group, new_len_tokens).is_some();
            pages.saturating_sub(table.pages(group).len()) + usize::from(copy)
        };
        let window = self.window.map_or(0, |_| needed(PageGroup::Window));
        let writes_state = self.has_states() && new_len_tokens > table.len_tokens;
        let owns_state = table.state().is_some_and(|page| !self.is_shared(PageGroup::State, page));
        let states = usize::from(writes_state && !owns_state);
        PageCounts { full: needed(PageGroup::Full), window, states }
    }

    /// An upper bound of the pages that a table needs to reach a length in steps of at most
    /// `step_tokens` tokens, with [`drop_front`](Self::drop_front) after each. Pages that other
    /// tables hold too count as this table's own, except the one that the first step copies.
    pub fn pages_needed_in_steps(
        &self,
        table: &PageTable,
        new_len_tokens: usize,
        step_tokens: usize,
    ) -> PageCounts {
        let mut needed = self.pages_needed(table, new_len_tokens);
        if let Some(window) = self.window {
            // The tokens before the step that its first token sees, and those of the step.
            let seen = window.saturating_sub(1).saturating_add(step_tokens);
            let most = self.page_size.most_pages_for(seen);
            let held = table.held_pages(PageGroup::Window).len();
            // A copy adds no page to the table, but takes one from the pool.
            let copy = self.page_to_copy(table, PageGroup::Window, new_len_tokens).is_some();
            needed.window = needed.window.min(most.saturating_sub(held) + usize::from(copy));
        }
        needed
    }

    /// Allocates pages for tokens up to `new_len_tokens`, which the caller is about to write. Does
    /// nothing when the table already has that many tokens.
    ///
    /// The new tokens may start in the last page. If another table holds that page as well, this
    /// table gets a new one, and the backend must execute the returned copy first. There is at most
    /// one copy per group. States are copied as well if the prefix cache has them and a page is
    /// available; otherwise they leave the cache, for the store if there is one.
    ///
    /// # Errors
    ///
    /// When there are not enough pages. Nothing has changed then.
    pub fn grow(
        &mut self,
        table: &mut PageTable,
        new_len_tokens: usize,
    ) -> Result<Vec<CopyPage>, OutOfPages> {
        if new_len_tokens <= table.len_tokens {
            return Ok(Vec::new());
        }
        OutOfPages::check(self.pages_needed(table, new_len_tokens), self.available_pages())?;
        self.count_unfilled(table, false);
        let mut copies = self.add_pages(table, new_len_tokens)?;
        if self.has_states() {
            copies.extend(self.own_state(table)?);
        }
        table.len_tokens = new_len_tokens;
        self.count_unfilled(table, true);
        Ok(copies)
    }

    /// Gives a table pages for tokens up to `new_len_tokens` that no other table and no cached
    /// prefix has. Returns the copies of pages that it shared.
    fn add_pages(
        &mut self,
        table: &mut PageTable,
        new_len_tokens: usize,
    ) -> Result<Vec<CopyPage>, OutOfPages> {
        let mut copies = Vec::new();
        for &group in self.token_groups() {
            if let Some(from) = self.page_to_copy(table, group, new_len_tokens) {
                let to = self.allocate(group)?;
                copies.push(CopyPage { group, from, to });
                self.groups[group.index()].counted.copies += 1;
                self.drop_holder(group, from);
                if let Some(last) = table.group_mut(group).pages.last_mut() {
                    *last = to;
                }
            } else if let Some(last) = table.partial_page(group, self.page_size) {
                // No other table holds the page, but the cache must not find tokens that will
                // change.
                self.prefix.evict(group, last);
            }
            let pages = self.page_size.pages_for(new_len_tokens);
            while table.pages(group).len() < pages {
                let page = self.allocate(group)?;
                table.group_mut(group).pages.push(page);
            }
        }
        Ok(copies)
    }

    /// A second table that shares all pages of `table`.
    pub fn fork(&mut self, table: &PageTable) -> PageTable {
        self.hold(table);
        self.count_unfilled(table, true);
        PageTable { groups: table.groups.clone(), ..*table }
    }

    /// Removes the tokens from `len_tokens` on and returns the pages that are no longer needed.
    /// Does nothing when the table does not have more tokens.
    ///
    /// # Errors
    ///
    /// If the sliding window has dropped pages that the token at position `len_tokens` would see,
    /// or the table has states and would keep tokens. Nothing has changed then.
    pub fn truncate(&mut self, table: &mut PageTable, len_tokens: usize) -> Result<(), NotCut> {
        let first_page = self.first_window_page(len_tokens);
        if len_tokens >= table.len_tokens {
            return Ok(());
        }
        if len_tokens > 0 && table.state().is_some() {
            return Err(NotCut { len_tokens, cause: CutCause::State });
        }
        if len_tokens > 0 && first_page < table.dropped_pages(PageGroup::Window) {
            return Err(NotCut { len_tokens, cause: CutCause::Window });
        }
        self.cut(table, len_tokens);
        Ok(())
    }

    /// Returns the pages of [`PageGroup::Window`] whose tokens no later token of the table sees.
    ///
    /// Positions keep their numbers, because the entries stay in the table as placeholders.
    pub fn drop_front(&mut self, table: &mut PageTable) {
        let end = self.first_window_page(table.len_tokens);
        let GroupTable { pages, dropped_pages } = table.group_mut(PageGroup::Window);
        for page in pages.iter_mut().take(end).skip(*dropped_pages) {
            self.drop_holder(PageGroup::Window, std::mem::replace(page, DROPPED));
        }
        *dropped_pages = (*dropped_pages).max(end.min(pages.len()));
    }

    /// Returns all pages of a table.
    pub fn release(&mut self, mut table: PageTable) {
        if !table.is_empty() {
            self.cut(&mut table, 0);
        }
    }

    /// The current state and the counters of a group. The counters of the prefix cache are those of
    /// [`PageGroup::Full`].
    pub fn stats(&self, group: PageGroup) -> PoolStats {
        let cached_pages = self.prefix.len(group);
        PoolStats { cached_pages, ..self.groups[group.index()].stats() }
    }

    /// The groups that have pages of tokens.
    const fn token_groups(&self) -> &'static [PageGroup] {
        match self.window {
            Some(_) => &PageGroup::OF_TOKENS,
            None => &[PageGroup::Full],
        }
    }

    /// Returns true if sequences have recurrent states.
    pub const fn has_states(&self) -> bool {
        self.groups[PageGroup::State.index()].len() > 0
    }

    /// Gives a table, which is about to be written, separate states. Returns the copy of those
    /// that it shared.
    fn own_state(&mut self, table: &mut PageTable) -> Result<Option<CopyPage>, OutOfPages> {
        let group = PageGroup::State;
        let Some(from) = table.state() else {
            let page = self.allocate(group)?;
            table.group_mut(group).pages.push(page);
            return Ok(None);
        };
        let is_shared = self.is_shared(group, from);
        let is_cached = self.prefix.contains(group, from);
        if is_shared || (is_cached && self.groups[group.index()].available() > 0) {
            let to = self.allocate(group)?;
            self.groups[group.index()].counted.copies += 1;
            self.drop_holder(group, from);
            table.group_mut(group).pages[0] = to;
            return Ok(Some(CopyPage { group, from, to }));
        }
        self.prefix.evict(group, from);
        Ok(None)
    }

    /// Adds a table to the holders of its pages.
    fn hold(&mut self, table: &PageTable) {
        for group in PageGroup::ALL {
            for &page in table.held_pages(group) {
                self.groups[group.index()].hold(page);
            }
        }
    }

    fn is_shared(&self, group: PageGroup, page: PageId) -> bool {
        self.groups[group.index()].is_shared(page)
    }

    /// The index of the first page that a token at a position sees through the window; 0 without
    /// one.
    fn first_window_page(&self, position: usize) -> usize {
        let window = self.window.unwrap_or(usize::MAX);
        position.saturating_add(1).saturating_sub(window) / self.page_size.tokens()
    }

    /// The last page of a group, if `grow` would write into it and other tables hold it.
    fn page_to_copy(
        &self,
        table: &PageTable,
        group: PageGroup,
        new_len_tokens: usize,
    ) -> Option<PageId> {
        let grows = new_len_tokens > table.len_tokens;
        let partial = table.partial_page(group, self.page_size);
        partial.filter(|page| grows && self.is_shared(group, *page))
    }

    /// Removes the tokens from `len_tokens` on. The window pages that the rest sees must be there,
    /// and a table with states keeps nothing.
    fn cut(&mut self, table: &mut PageTable, len_tokens: usize) {
        self.count_unfilled(table, false);
        for group in PageGroup::ALL {
            let keep = match group {
                PageGroup::State => 0,
                PageGroup::Full | PageGroup::Window => self.page_size.pages_for(len_tokens),
            };
            self.keep_pages(table, group, keep);
        }
        table.len_tokens = len_tokens;
        self.count_unfilled(table, true);
    }

    /// Returns all but the first `keep` pages of a group.
    fn keep_pages(&mut self, table: &mut PageTable, group: PageGroup, keep: usize) {
        let of_group = table.group_mut(group);
        let first = keep.max(of_group.dropped_pages);
        // The last page first, so that it is evicted and allocated before the others.
        for &page in of_group.pages.get(first..).unwrap_or_default().iter().rev() {
            self.drop_holder(group, page);
        }
        of_group.pages.truncate(keep);
        of_group.dropped_pages = of_group.dropped_pages.min(keep);
    }

    fn allocate(&mut self, group: PageGroup) -> Result<PageId, OutOfPages> {
        let Self { groups, prefix, .. } = self;
        let pages = &mut groups[group.index()];
        let page = pages.allocate(|page| prefix.evict(group, page));
        page.ok_or(OutOfPages { needed: 1, free: 0 })
    }

    fn drop_holder(&mut self, group: PageGroup, page: PageId) {
        let is_cached = self.prefix.contains(group, page);
        self.groups[group.index()].drop_holder(page, is_cached);
    }

    /// Adds the unused slots of a table to the counters, or removes them.
    fn count_unfilled(&mut self, table: &PageTable, adds: bool) {
        let unfilled = table.unfilled_tokens(self.page_size);
        for &group in self.token_groups() {
            let counted = &mut self.groups[group.index()].counted.unfilled_tokens;
            *counted = if adds { *counted + unfilled } else { *counted - unfilled };
        }
    }
}

fn counts(groups: &[GroupPages; 3], count: impl Fn(&GroupPages) -> usize) -> PageCounts {
    let [full, window, states] = groups.each_ref().map(count);
    PageCounts { full, window, states }
}
