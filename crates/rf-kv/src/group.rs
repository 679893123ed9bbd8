//! The pages of one group: free, held by tables, or idle in the prefix cache.

use crate::idle::IdlePages;
use crate::page::PageId;
use crate::stats::PoolStats;

/// The state of all pages of a group.
#[derive(Debug)]
pub(crate) struct GroupPages {
    /// The number of tables that hold each page.
    holders: Vec<u32>,
    /// A stack: the page that was returned last is allocated first, because it may still be cached.
    free: Vec<PageId>,
    idle: IdlePages,
    /// The running counters. [`GroupPages::stats`] adds the others.
    pub(crate) counted: PoolStats,
}

impl GroupPages {
    /// `num_pages` free pages, at most as many as 32-bit ids can name.
    pub(crate) fn new(num_pages: usize) -> Self {
        let count = u32::try_from(num_pages).unwrap_or(u32::MAX);
        Self {
            holders: vec![0; count as usize],
            // Reversed, so that page 0 is on top.
            free: (0..count).rev().map(PageId::new).collect(),
            idle: IdlePages::new(count as usize),
            counted: PoolStats { total_pages: count as usize, ..PoolStats::default() },
        }
    }

    /// The number of all pages.
    pub(crate) const fn len(&self) -> usize {
        self.counted.total_pages
    }

    /// The number of pages that are free or idle.
    pub(crate) const fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Returns true if a table holds a page.
    pub(crate) fn is_held(&self, page: PageId) -> bool {
        self.holders[page.index()] > 0
    }

    /// Returns true if more than one table holds a page.
    pub(crate) fn is_shared(&self, page: PageId) -> bool {
        self.holders[page.index()] > 1
    }

    /// Takes a page for a table: a free one, or else the idle one that was least recently used.
    /// `evict` removes that one from the prefix cache.
    pub(crate) fn allocate(&mut self, evict: impl FnOnce(PageId)) -> Option<PageId> {
        let page = self.free.pop().or_else(|| {
            let page = self.idle.pop_oldest()?;
            evict(page);
            self.counted.evictions += 1;
            Some(page)
        })?;
        self.counted.allocations += 1;
        self.add_holder(page);
        Some(page)
    }

    /// Adds a holder to a page that is in use or cached.
    pub(crate) fn hold(&mut self, page: PageId) {
        if self.holders[page.index()] == 0 {
            self.idle.remove(page);
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
    pub(crate) fn drop_holder(&mut self, page: PageId, is_cached: bool) {
        let holders = &mut self.holders[page.index()];
        debug_assert!(*holders > 0, "page {page:?} is given back twice or to the wrong pool");
        *holders = holders.saturating_sub(1);
        match *holders {
            0 => {
                self.counted.used_pages -= 1;
                if is_cached {
                    self.idle.push(page);
                } else {
                    self.free.push(page);
                }
            }
            1 => self.counted.shared_pages -= 1,
            _ => {}
        }
    }

    /// A page is no longer cached. If it was idle, it becomes free.
    pub(crate) fn end_cached(&mut self, page: PageId) {
        if self.holders[page.index()] == 0 {
            self.idle.remove(page);
            self.free.push(page);
        }
    }

    /// The current state and the counters.
    pub(crate) fn stats(&self) -> PoolStats {
        PoolStats { free_pages: self.free.len(), idle_pages: self.idle.len(), ..self.counted }
    }
}
