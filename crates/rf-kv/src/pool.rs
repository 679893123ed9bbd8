//! The pool: allocates pages, counts their holders and takes them back.

use crate::group::GroupPages;
use crate::page::{PageCounts, PageGroup, PageId, PageSize};
use crate::prefix::{Node, PrefixCache};
use crate::stats::PoolStats;
use crate::table::{DROPPED, GroupTable, PageTable};

/// All pages of a KV cache.
#[derive(Debug)]
pub struct PagePool {
    page_size: PageSize,
    /// The sliding window of [`PageGroup::Window`] in tokens; `None` for a pool without the group.
    window: Option<usize>,
    /// By [`PageGroup::index`].
    groups: [GroupPages; 2],
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

/// A sequence cannot be cut to a length, because its window has dropped pages that the next token
/// would see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the sequence cannot be cut to {len_tokens} tokens, because its sliding window has passed \
     them: compute it again from the start"
)]
pub struct WindowPassed {
    /// The length that is not possible.
    pub len_tokens: usize,
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

    /// A pool of free pages of both groups. `window` is the sliding window in tokens: the token at
    /// a position sees itself and the `window − 1` tokens before it. `None` leaves the group
    /// [`PageGroup::Window`] out.
    pub fn with_window(num_pages: PageCounts, page_size: PageSize, window: Option<usize>) -> Self {
        let groups = PageGroup::ALL.map(|group| match (group, window) {
            (PageGroup::Window, None) => GroupPages::new(0),
            _ => GroupPages::new(num_pages.of(group)),
        });
        let [full, window_pages] = [&groups[0], &groups[1]].map(GroupPages::len);
        let prefix = PrefixCache::new(PageCounts { full, window: window_pages });
        Self { page_size, window, groups, prefix }
    }

    /// The number of all pages.
    pub const fn num_pages(&self) -> PageCounts {
        PageCounts { full: self.groups[0].len(), window: self.groups[1].len() }
    }

    /// The number of available pages: free, or idle in the prefix cache.
    pub const fn available_pages(&self) -> PageCounts {
        PageCounts { full: self.groups[0].available(), window: self.groups[1].available() }
    }

    /// The number of pages that [`grow`](Self::grow) would allocate for the same arguments.
    pub fn pages_needed(&self, table: &PageTable, new_len_tokens: usize) -> PageCounts {
        let pages = self.page_size.pages_for(new_len_tokens);
        let needed = |group| {
            let copy = self.page_to_copy(table, group, new_len_tokens).is_some();
            pages.saturating_sub(table.pages(group).len()) + usize::from(copy)
        };
        let window = self.window.map_or(0, |_| needed(PageGroup::Window));
        PageCounts { full: needed(PageGroup::Full), window }
    }

    /// An upper bound of the pages that a table needs to reach a length in steps of at most
    /// `step_tokens` tokens, with [`drop_front`](Self::drop_front) after each. Pages that other
    /// tables hold too count as this table's own.
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
            needed.window = needed.window.min(most.saturating_sub(held));
        }
        needed
    }

    /// Allocates pages for tokens up to `new_len_tokens`, which the caller is about to write. Does
    /// nothing when the table already has that many tokens.
    ///
    /// The new tokens may start in the last page. If another table holds that page as well, this
    /// table gets a new one, and the backend must execute the returned copy first. There is at most
    /// one copy per group.
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
        let mut copies = Vec::new();
        for &group in self.groups_in_use() {
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
                self.prefix.remove(group, last);
            }
            let pages = self.page_size.pages_for(new_len_tokens);
            while table.pages(group).len() < pages {
                let page = self.allocate(group)?;
                table.group_mut(group).pages.push(page);
            }
        }
        table.len_tokens = new_len_tokens;
        self.count_unfilled(table, true);
        Ok(copies)
    }

    /// A second table that shares all pages of `table`.
    pub fn fork(&mut self, table: &PageTable) -> PageTable {
        for &group in self.groups_in_use() {
            for &page in table.held_pages(group) {
                self.groups[group.index()].hold(page);
            }
        }
        self.count_unfilled(table, true);
        PageTable { groups: table.groups.clone(), ..*table }
    }

    /// Removes the tokens from `len_tokens` on and returns the pages that are no longer needed.
    /// Does nothing when the table does not have more tokens.
    ///
    /// # Errors
    ///
    /// If the sliding window has dropped pages that the token at position `len_tokens` would see.
    /// Nothing has changed then.
    pub fn truncate(
        &mut self,
        table: &mut PageTable,
        len_tokens: usize,
    ) -> Result<(), WindowPassed> {
        let first_page = self.first_window_page(len_tokens);
        if len_tokens >= table.len_tokens {
            return Ok(());
        }
        if len_tokens > 0 && first_page < table.dropped_pages(PageGroup::Window) {
            return Err(WindowPassed { len_tokens });
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

    /// Adds the full pages of a table to the prefix cache, for later sequences that start with the
    /// same tokens.
    ///
    /// `tokens` are the tokens of the sequence from its start. Pages that they do not cover are
    /// left out. The caller must write the pages before another sequence reads them. A prefix that
    /// is cached already stays.
    pub fn publish(&mut self, table: &PageTable, tokens: &[u32]) {
        let tokens = &tokens[..tokens.len().min(table.len_tokens)];
        let mut node = Node::ROOT;
        let chunks = tokens.chunks_exact(self.page_size.tokens());
        for (index, (chunk, &page)) in chunks.zip(table.pages(PageGroup::Full)).enumerate() {
            node = match self.prefix.find(node, chunk) {
                Some((_, found)) => found,
                None => self.publish_page(page, node, chunk),
            };
            let window = table.group(PageGroup::Window);
            if index >= window.dropped_pages
                && let Some(&page) = window.pages.get(index)
                && self.prefix.find_window(node).is_none()
            {
                // The page may still be cached for a node that was evicted.
                self.prefix.remove(PageGroup::Window, page);
                self.prefix.insert_window(page, node);
            }
        }
    }

    fn publish_page(&mut self, page: PageId, parent: Node, tokens: &[u32]) -> Node {
        // The page may still be cached after a node that was evicted.
        self.prefix.remove(PageGroup::Full, page);
        let (node, displaced) = self.prefix.insert(page, parent, tokens);
        if let Some(displaced) = displaced {
            self.groups[PageGroup::Full.index()].end_cached(displaced);
        }
        node
    }

    /// A table with the longest cached prefix of `tokens`, in full pages. With a sliding window, a
    /// prefix also needs the window pages that its next token sees.
    ///
    /// Leave out the last token of a prompt, so that at least one token remains to compute logits
    /// for.
    pub fn match_prefix(&mut self, tokens: &[u32]) -> PageTable {
        let (mut pages, mut window_pages) = (Vec::new(), Vec::new());
        let mut node = Node::ROOT;
        // The longest prefix so far, and the start of the unbroken window pages at its end.
        let (mut matched, mut unbroken) = (0, 0);
        for chunk in tokens.chunks_exact(self.page_size.tokens()) {
            let Some((page, found)) = self.prefix.find(node, chunk) else {
                break;
            };
            pages.push(page);
            node = found;
            let window_page = self.prefix.find_window(node);
            window_pages.push(window_page.unwrap_or(DROPPED));
            if window_page.is_none() {
                unbroken = pages.len();
            }
            let first_page = self.first_window_page(pages.len() * self.page_size.tokens());
            if self.window.is_none() || unbroken <= first_page {
                matched = pages.len();
            }
        }
        let len_tokens = matched * self.page_size.tokens();
        let mut table = PageTable { len_tokens, ..PageTable::new() };
        pages.truncate(matched);
        table.group_mut(PageGroup::Full).pages = pages;
        if self.window.is_some() {
            let first_page = self.first_window_page(len_tokens).min(matched);
            window_pages.truncate(matched);
            window_pages[..first_page].fill(DROPPED);
            *table.group_mut(PageGroup::Window) =
                GroupTable { pages: window_pages, dropped_pages: first_page };
        }
        for &group in self.groups_in_use() {
            for &page in table.held_pages(group) {
                self.groups[group.index()].hold(page);
            }
        }
        let counted = &mut self.groups[PageGroup::Full.index()].counted;
        counted.prefix_lookup_tokens += tokens.len() as u64;
        counted.prefix_hit_tokens += len_tokens as u64;
        table
    }

    /// The current state and the counters of a group. The counters of the prefix cache are those of
    /// [`PageGroup::Full`].
    pub fn stats(&self, group: PageGroup) -> PoolStats {
        let cached_pages = self.prefix.len(group);
        PoolStats { cached_pages, ..self.groups[group.index()].stats() }
    }

    /// The groups that have pages.
    const fn groups_in_use(&self) -> &'static [PageGroup] {
        match self.window {
            Some(_) => &PageGroup::ALL,
            None => &[PageGroup::Full],
        }
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
        partial.filter(|page| grows && self.groups[group.index()].is_shared(*page))
    }

    /// Removes the tokens from `len_tokens` on. The window pages that the rest sees must be there.
    fn cut(&mut self, table: &mut PageTable, len_tokens: usize) {
        self.count_unfilled(table, false);
        let keep = self.page_size.pages_for(len_tokens);
        for &group in self.groups_in_use() {
            let of_group = table.group_mut(group);
            let first = keep.max(of_group.dropped_pages);
            // The last page first, so that it is evicted and allocated before the others.
            for &page in of_group.pages.get(first..).unwrap_or_default().iter().rev() {
                self.drop_holder(group, page);
            }
            of_group.pages.truncate(keep);
            of_group.dropped_pages = of_group.dropped_pages.min(keep);
        }
        table.len_tokens = len_tokens;
        self.count_unfilled(table, true);
    }

    fn allocate(&mut self, group: PageGroup) -> Result<PageId, OutOfPages> {
        let Self { groups, prefix, .. } = self;
        let pages = &mut groups[group.index()];
        let page = pages.allocate(|page| prefix.remove(group, page));
        page.ok_or(OutOfPages { needed: 1, free: 0 })
    }

    fn drop_holder(&mut self, group: PageGroup, page: PageId) {
        let is_cached = self.prefix.contains(group, page);
        self.groups[group.index()].drop_holder(page, is_cached);
    }

    /// Adds the unused slots of a table to the counters, or removes them.
    fn count_unfilled(&mut self, table: &PageTable, adds: bool) {
        let unfilled = table.unfilled_tokens(self.page_size);
        for &group in self.groups_in_use() {
            let counted = &mut self.groups[group.index()].counted.unfilled_tokens;
            *counted = if adds { *counted + unfilled } else { *counted - unfilled };
        }
    }
}
