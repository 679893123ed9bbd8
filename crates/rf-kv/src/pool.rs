//! The pool: allocates pages, counts their holders and takes them back.

use crate::page::{PageId, PageSize};
use crate::prefix::{Node, PrefixCache};
use crate::stats::PoolStats;
use crate::table::{DROPPED, PageTable};

/// All pages of a KV cache.
#[derive(Debug)]
pub struct PagePool {
    page_size: PageSize,
    /// The number of tables that hold each page.
    holders: Vec<u32>,
    /// A stack: the page that was returned last is allocated first, because it may still be cached.
    free: Vec<PageId>,
    prefix: PrefixCache,
    /// The running counters. [`PagePool::stats`] adds the others.
    counted: PoolStats,
}

/// A request needs more pages than are free or idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} more pages are needed and {free} are available")]
pub struct OutOfPages {
    /// The number of pages that the request needs.
    pub needed: usize,
    /// The number of available pages: free, or idle in the prefix cache.
    pub free: usize,
}

/// A command for the backend: copy page `from` to page `to` in every layer, before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPage {
    /// The page that the other tables keep.
    pub from: PageId,
    /// The page that replaces it in this table.
    pub to: PageId,
}

impl PagePool {
    /// A pool of `num_pages` free pages, at most as many as 32-bit ids can name.
    pub fn new(num_pages: usize, page_size: PageSize) -> Self {
        let count = u32::try_from(num_pages).unwrap_or(u32::MAX);
        Self {
            page_size,
            holders: vec![0; count as usize],
            // Reversed, so that page 0 is on top.
            free: (0..count).rev().map(PageId::new).collect(),
            prefix: PrefixCache::new(count as usize),
            counted: PoolStats { total_pages: count as usize, ..PoolStats::default() },
        }
    }

    /// The number of all pages.
    pub const fn num_pages(&self) -> usize {
        self.counted.total_pages
    }

    /// The number of available pages: free, or idle in the prefix cache.
    pub const fn available_pages(&self) -> usize {
        self.free.len() + self.prefix.idle_pages()
    }

    /// The number of pages that [`grow`](Self::grow) would allocate for the same arguments.
    pub fn pages_needed(&self, table: &PageTable, new_len_tokens: usize) -> usize {
        let pages = self.page_size.pages_for(new_len_tokens);
        let copy = self.page_to_copy(table, new_len_tokens).is_some();
        pages.saturating_sub(table.pages.len()) + usize::from(copy)
    }

    /// Allocates pages for tokens up to `new_len_tokens`, which the caller is about to write. Does
    /// nothing when the table already has that many tokens.
    ///
    /// The new tokens may start in the last page. If another table holds that page as well, this
    /// table gets a new one, and the backend must execute the returned copy first. There is at most
    /// one copy.
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
        let (needed, free) = (self.pages_needed(table, new_len_tokens), self.available_pages());
        if needed > free {
            return Err(OutOfPages { needed, free });
        }
        self.counted.unfilled_tokens -= table.unfilled_tokens(self.page_size);
        let mut copies = Vec::new();
        if let Some(from) = self.page_to_copy(table, new_len_tokens) {
            let to = self.allocate().ok_or(OutOfPages { needed, free })?;
            copies.push(CopyPage { from, to });
            self.counted.copies += 1;
            self.drop_holder(from);
            if let Some(last) = table.pages.last_mut() {
                *last = to;
            }
        } else if let Some(last) = self.partial_page(table) {
            // No other table holds the page, but the cache must not find tokens that will change.
            self.prefix.remove(last);
        }
        let pages = self.page_size.pages_for(new_len_tokens);
        while table.pages.len() < pages {
            let page = self.allocate().ok_or(OutOfPages { needed, free })?;
            table.pages.push(page);
        }
        table.len_tokens = new_len_tokens;
        self.counted.unfilled_tokens += table.unfilled_tokens(self.page_size);
        Ok(copies)
    }

    /// A second table that shares all pages of `table`.
    pub fn fork(&mut self, table: &PageTable) -> PageTable {
        for &page in table.held_pages() {
            self.hold(page);
        }
        self.counted.unfilled_tokens += table.unfilled_tokens(self.page_size);
        PageTable { pages: table.pages.clone(), ..*table }
    }

    /// Removes the tokens from `len_tokens` on and returns the pages that are no longer needed.
    ///
    /// Returns the new length of the table: `len_tokens`, or the old length if that is less, or 0
    /// if a sliding window has dropped tokens before `len_tokens`. The sequence must then be
    /// computed again from the start.
    pub fn truncate(&mut self, table: &mut PageTable, len_tokens: usize) -> usize {
        if len_tokens >= table.len_tokens {
            return table.len_tokens;
        }
        let reaches_dropped = len_tokens < table.dropped_pages * self.page_size.tokens();
        let len_tokens = if reaches_dropped { 0 } else { len_tokens };
        self.counted.unfilled_tokens -= table.unfilled_tokens(self.page_size);
        let keep = self.page_size.pages_for(len_tokens);
        // The last page first, so that it is evicted and allocated before the others.
        for &page in table.pages[keep.max(table.dropped_pages)..].iter().rev() {
            self.drop_holder(page);
        }
        table.pages.truncate(keep);
        table.len_tokens = len_tokens;
        table.dropped_pages = table.dropped_pages.min(keep);
        self.counted.unfilled_tokens += table.unfilled_tokens(self.page_size);
        len_tokens
    }

    /// Returns the pages whose tokens are all before position `first_needed`, for a sliding window.
    ///
    /// Positions keep their numbers, because the entries stay in the table as placeholders.
    pub fn drop_front(&mut self, table: &mut PageTable, first_needed: usize) {
        let first_needed = first_needed.min(table.len_tokens);
        let end = first_needed / self.page_size.tokens();
        for index in table.dropped_pages..end {
            self.drop_holder(table.pages[index]);
            table.pages[index] = DROPPED;
        }
        table.dropped_pages = table.dropped_pages.max(end);
    }

    /// Returns all pages of a table.
    pub fn release(&mut self, mut table: PageTable) {
        self.truncate(&mut table, 0);
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
        for (index, (chunk, &page)) in chunks.zip(&table.pages).enumerate() {
            if let Some((_, found)) = self.prefix.find(node, chunk) {
                node = found;
                continue;
            }
            if index < table.dropped_pages {
                // Later pages cannot be reached without this one.
                return;
            }
            // The page may still be cached after a node that was evicted.
            self.prefix.remove(page);
            let (inserted, displaced) = self.prefix.insert(page, node, chunk);
            node = inserted;
            if let Some(displaced) = displaced.filter(|page| self.holders[page.index()] == 0) {
                self.prefix.end_idle(displaced);
                self.free.push(displaced);
            }
        }
    }

    /// A table with the longest cached prefix of `tokens`, in full pages.
    ///
    /// Leave out the last token of a prompt, so that at least one token remains to compute logits
    /// for.
    pub fn match_prefix(&mut self, tokens: &[u32]) -> PageTable {
        let mut table = PageTable::new();
        let mut node = Node::ROOT;
        for chunk in tokens.chunks_exact(self.page_size.tokens()) {
            let Some((page, found)) = self.prefix.find(node, chunk) else {
                break;
            };
            self.hold(page);
            table.pages.push(page);
            node = found;
        }
        table.len_tokens = table.pages.len() * self.page_size.tokens();
        self.counted.prefix_lookup_tokens += tokens.len() as u64;
        self.counted.prefix_hit_tokens += table.len_tokens as u64;
        table
    }

    /// The current state and the counters of the pool.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            free_pages: self.free.len(),
            idle_pages: self.prefix.idle_pages(),
            cached_pages: self.prefix.len(),
            ..self.counted
        }
    }

    /// The last page, unless it is full.
    fn partial_page(&self, table: &PageTable) -> Option<PageId> {
        let partial = !table.len_tokens.is_multiple_of(self.page_size.tokens());
        table.pages.last().copied().filter(|_| partial)
    }

    /// The last page, if `grow` would write into it and other tables hold it.
    fn page_to_copy(&self, table: &PageTable, new_len_tokens: usize) -> Option<PageId> {
        let grows = new_len_tokens > table.len_tokens;
        self.partial_page(table).filter(|page| grows && self.holders[page.index()] > 1)
    }

    fn allocate(&mut self) -> Option<PageId> {
        let page = self.free.pop().or_else(|| {
            let evicted = self.prefix.evict()?;
            self.counted.evictions += 1;
            Some(evicted)
        })?;
        self.counted.allocations += 1;
        self.add_holder(page);
        Some(page)
    }

    /// Adds a holder to a page that is in use or cached.
    fn hold(&mut self, page: PageId) {
        if self.holders[page.index()] == 0 {
            self.prefix.end_idle(page);
        }
        self.add_holder(page);
    }

    fn add_holder(&mut self, page: PageId) {
        let holders = &mut self.holders[page.index()];
        *holders += 1;
        match *holders {
            1 => {
                self.counted.used_pages += 1;
                self.counted.peak_used_pages =
                    self.counted.peak_used_pages.max(self.counted.used_pages);
            }
            2 => self.counted.shared_pages += 1,
            _ => {}
        }
    }

    /// Removes a holder. A page without holders becomes idle if it is cached, and free otherwise.
    fn drop_holder(&mut self, page: PageId) {
        let holders = &mut self.holders[page.index()];
        debug_assert!(*holders > 0, "page {page:?} is given back twice or to the wrong pool");
        *holders = holders.saturating_sub(1);
        match *holders {
            0 => {
                self.counted.used_pages -= 1;
                if self.prefix.contains(page) {
                    self.prefix.make_idle(page);
                } else {
                    self.free.push(page);
                }
            }
            1 => self.counted.shared_pages -= 1,
            _ => {}
        }
    }
}
