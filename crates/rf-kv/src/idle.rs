//! The cached pages that no table holds, in the order of their last use.

use crate::page::PageId;

/// A linked list of pages, which adds and removes any page in constant time.
#[derive(Debug)]
pub(crate) struct IdlePages {
    links: Vec<Links>,
    oldest: Option<PageId>,
    newest: Option<PageId>,
    len: usize,
}

/// The neighbours of an idle page in the order of eviction.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    older: Option<PageId>,
    newer: Option<PageId>,
}

impl IdlePages {
    /// An empty list for pages with ids below `num_pages`.
    pub(crate) fn new(num_pages: usize) -> Self {
        Self { links: vec![Links::default(); num_pages], oldest: None, newest: None, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a page as the last one to be evicted.
    pub(crate) fn push(&mut self, page: PageId) {
        self.links[page.index()] = Links { older: self.newest, newer: None };
        match self.newest {
            Some(before) => self.links[before.index()].newer = Some(page),
            None => self.oldest = Some(page),
        }
        self.newest = Some(page);
        self.len += 1;
    }

    /// Removes a page of the list.
    pub(crate) fn remove(&mut self, page: PageId) {
        let Links { older, newer } = std::mem::take(&mut self.links[page.index()]);
        match older {
            Some(older) => self.links[older.index()].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.links[newer.index()].older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    /// Removes the page that was least recently used.
    pub(crate) fn pop_oldest(&mut self) -> Option<PageId> {
        let page = self.oldest?;
        self.remove(page);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_leave_from_anywhere_in_the_list() {
        let mut idle = IdlePages::new(4);
        (0..4).for_each(|index| idle.push(PageId::new(index)));
        idle.remove(PageId::new(1));
        idle.remove(PageId::new(3));
        idle.push(PageId::new(1));
        assert_eq!(idle.len(), 3);
        let order: Vec<u32> = std::iter::from_fn(|| idle.pop_oldest()).map(PageId::raw).collect();
        assert_eq!(order, [0, 2, 1]);
        assert_eq!((idle.len(), idle.oldest, idle.newest), (0, None, None));
    }
}
