//! The pool: hands out pages, counts who holds them, takes them back.

use crate::page::{PageId, PageSize};
use crate::prefix::{Node, PrefixCache};
use crate::stats::PoolStats;
use crate::table::{DROPPED, PageTable};

/// All pages of a KV cache.
#[derive(Debug)]
pub struct PagePool {
    page_size: PageSize,
    /// How many tables hold each page.
    holders: Vec<u32>,
    /// A stack: the page given back last is handed out first, while it is warm.
    free: Vec<PageId>,
    prefix: PrefixCache,
    /// What is counted as it happens; the rest is filled in when asked for.
    counted: PoolStats,
}

/// Pages are needed and neither free nor idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the KV cache is full: {needed} more pages are needed and {free} are available")]
pub struct OutOfPages {
    /// Pages that the request needs.
    pub needed: usize,
    /// Pages that could be had: free, or idle in the prefix cache.
    pub free: usize,
}

/// An order to the backend: copy all of page `from` to page `to`, in every layer, before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPage {
    /// The page that stays with the other tables.
    pub from: PageId,
    /// The page that the table has instead.
    pub to: PageId,
}

impl PagePool {
    /// A pool of `num_pages` free pages. Ids have 32 bits: pages beyond that are not made.
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

    /// The size of every page.
    pub const fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// The number of all pages.
    pub const fn num_pages(&self) -> usize {
        self.counted.total_pages
    }

    /// Pages that can be had: free, or idle in the prefix cache.
    pub const fn available_pages(&self) -> usize {
        self.free.len() + self.prefix.idle_pages()
    }

    /// How many pages [`grow`](Self::grow) would take for the same arguments.
    pub fn pages_needed(&self, table: &PageTable, new_len_tokens: usize) -> usize {
        let pages = self.page_size.pages_for(new_len_tokens);
        let copy = self.page_to_copy(table, new_len_tokens).is_some();
        pages.saturating_sub(table.pages.len()) + usize::from(copy)
    }

    /// Makes room for tokens up to `new_len_tokens`, which the caller is about to write. Does nothing
    /// where that is not more than the table has.
    ///
    /// Writing may go into the last page; if another table holds that page as well, the table gets a
    /// new one and the backend must carry out the returned copy first. There is at most one.
    ///
    /// # Errors
    ///
    /// When there are not enough pages; nothing has changed then.
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
            self.let_go(from);
            if let Some(last) = table.pages.last_mut() {
                *last = to;
            }
        } else if let Some(last) = self.partial_page(table) {
            // Nobody else holds it, but the cache must not offer what is about to change.
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

    /// A second table with the same tokens in the same pages.
    pub fn fork(&mut self, table: &PageTable) -> PageTable {
        for &page in table.held_pages() {
            self.hold(page);
        }
        self.counted.unfilled_tokens += table.unfilled_tokens(self.page_size);
        PageTable { pages: table.pages.clone(), ..*table }
    }

    /// Forgets the tokens from `len_tokens` on and gives back the pages that only they were in.
    ///
    /// Returns the length of the table then. That is `len_tokens`, or what it was where that is less,
    /// or 0 where a sliding window has dropped the tokens just before: those would have to be
    /// computed again, from the start.
    pub fn truncate(&mut self, table: &mut PageTable, len_tokens: usize) -> usize {
        if len_tokens >= table.len_tokens {
            return table.len_tokens;
        }
        let reaches_dropped = len_tokens < table.dropped_pages * self.page_size.tokens();
        let len_tokens = if reaches_dropped { 0 } else { len_tokens };
        self.counted.unfilled_tokens -= table.unfilled_tokens(self.page_size);
        let keep = self.page_size.pages_for(len_tokens);
        // The last page first: it is then the first of them to be evicted and to be handed out.
        for &page in table.pages[keep.max(table.dropped_pages)..].iter().rev() {
            self.let_go(page);
        }
        table.pages.truncate(keep);
        table.len_tokens = len_tokens;
        table.dropped_pages = table.dropped_pages.min(keep);
        self.counted.unfilled_tokens += table.unfilled_tokens(self.page_size);
        len_tokens
    }

    /// Gives back the pages whose tokens are all before position `first_needed`, for a sliding window.
    ///
    /// Positions keep their numbers: the entries stay in the table as place-holders.
    pub fn drop_front(&mut self, table: &mut PageTable, first_needed: usize) {
        let first_needed = first_needed.min(table.len_tokens);
        let end = first_needed / self.page_size.tokens();
        for index in table.dropped_pages..end {
            self.let_go(table.pages[index]);
            table.pages[index] = DROPPED;
        }
        table.dropped_pages = table.dropped_pages.max(end);
    }

    /// Takes a table back with all its pages.
    pub fn release(&mut self, mut table: PageTable) {
        self.truncate(&mut table, 0);
    }

    /// Offers the full pages of a table to later sequences that start with the same tokens.
    ///
    /// `tokens` are those of the sequence from its start; pages that they do not cover are left out.
    /// The caller must have written the pages, or do so before anyone who finds them reads them. Where
    /// an equal prefix is cached already, that one stays.
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
                // The way to the later pages is gone.
                return;
            }
            // Cached as the continuation of a node that is gone: it starts anew.
            self.prefix.remove(page);
            let (inserted, displaced) = self.prefix.insert(page, node, chunk);
            node = inserted;
            if let Some(displaced) = displaced.filter(|page| self.holders[page.index()] == 0) {
                self.prefix.end_idle(displaced);
                self.free.push(displaced);
            }
        }
    }

    /// A table with the longest published prefix of `tokens`, in full pages: those need not be
    /// computed again.
    ///
    /// To have at least one token left whose logits can be computed, leave out the last one.
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

    /// The state of the pool and what has happened so far.
    pub fn stats(&self) -> PoolStats {
        PoolStats {
            free_pages: self.free.len(),
            idle_pages: self.prefix.idle_pages(),
            cached_pages: self.prefix.len(),
            ..self.counted
        }
    }

    /// The last page, where there is room left in it.
    fn partial_page(&self, table: &PageTable) -> Option<PageId> {
        let partial = !table.len_tokens.is_multiple_of(self.page_size.tokens());
        table.pages.last().copied().filter(|_| partial)
    }

    /// The page that growing would write into although other tables hold it.
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

    /// One more table holds a page that is in use or cached.
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

    /// One table fewer holds the page; without any it is idle if it is cached, and free if not.
    fn let_go(&mut self, page: PageId) {
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
