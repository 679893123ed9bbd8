//! The prefix cache: finds full pages by their tokens and all tokens before them.
//!
//! The keys and values in a page depend on its tokens and on all tokens before. A cached page is
//! therefore a node of a tree with its tokens and its parent. A hash over the whole chain gives a
//! candidate. The candidate matches only if its tokens are equal and its parent is the node that
//! the search came from. A hash collision thus costs a miss and never returns another text.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::page::PageId;

/// A place in the tree of cached prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Never reused, so that children of an evicted node do not match under another node.
    id: u64,
    /// Hash of all tokens up to and including this node.
    chain_hash: u64,
}

impl Node {
    /// The empty prefix.
    pub(crate) const ROOT: Self = Self { id: 0, chain_hash: 0 };

    fn child_hash(self, tokens: &[u32]) -> u64 {
        // Default keys are equal in every run, and so is the order of eviction.
        let mut hasher = DefaultHasher::new();
        self.chain_hash.hash(&mut hasher);
        tokens.hash(&mut hasher);
        hasher.finish()
    }
}

#[derive(Debug)]
struct Entry {
    node: Node,
    parent_id: u64,
    tokens: Box<[u32]>,
}

/// The neighbours of an idle page in the order of eviction.
#[derive(Clone, Copy, Debug, Default)]
struct Links {
    older: Option<PageId>,
    newer: Option<PageId>,
}

#[derive(Debug)]
pub(crate) struct PrefixCache {
    /// The page of each chain hash. A later entry with the same hash replaces an earlier one.
    by_hash: HashMap<u64, PageId>,
    /// The entry of each page.
    entries: Vec<Option<Entry>>,
    /// A linked list of the idle pages, which removes any page in constant time.
    links: Vec<Links>,
    oldest: Option<PageId>,
    newest: Option<PageId>,
    idle_pages: usize,
    last_id: u64,
}

impl PrefixCache {
    pub(crate) fn new(num_pages: usize) -> Self {
        Self {
            by_hash: HashMap::new(),
            entries: (0..num_pages).map(|_| None).collect(),
            links: vec![Links::default(); num_pages],
            oldest: None,
            newest: None,
            idle_pages: 0,
            last_id: Node::ROOT.id,
        }
    }

    pub(crate) fn contains(&self, page: PageId) -> bool {
        self.entries[page.index()].is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }

    pub(crate) const fn idle_pages(&self) -> usize {
        self.idle_pages
    }

    /// The page that holds `tokens` after the prefix that ends at `parent`.
    pub(crate) fn find(&self, parent: Node, tokens: &[u32]) -> Option<(PageId, Node)> {
        let page = *self.by_hash.get(&parent.child_hash(tokens))?;
        let entry = self.entries[page.index()].as_ref()?;
        let same = entry.parent_id == parent.id && *entry.tokens == *tokens;
        same.then_some((page, entry.node))
    }

    /// Adds `page`, which must not be cached yet, as a child of `parent`. Returns its node, and the
    /// page that it displaces because of an equal hash. The displaced page is no longer cached.
    pub(crate) fn insert(
        &mut self,
        page: PageId,
        parent: Node,
        tokens: &[u32],
    ) -> (Node, Option<PageId>) {
        self.last_id += 1;
        let node = Node { id: self.last_id, chain_hash: parent.child_hash(tokens) };
        let displaced = self.by_hash.insert(node.chain_hash, page);
        if let Some(displaced) = displaced {
            self.entries[displaced.index()] = None;
        }
        self.entries[page.index()] =
            Some(Entry { node, parent_id: parent.id, tokens: tokens.into() });
        (node, displaced)
    }

    /// Removes a page, because it is about to be written.
    pub(crate) fn remove(&mut self, page: PageId) {
        if let Some(entry) = self.entries[page.index()].take() {
            self.by_hash.remove(&entry.node.chain_hash);
        }
    }

    /// Marks a cached page that has no holders as idle. It becomes the last one to be evicted.
    pub(crate) fn make_idle(&mut self, page: PageId) {
        self.links[page.index()] = Links { older: self.newest, newer: None };
        match self.newest {
            Some(before) => self.links[before.index()].newer = Some(page),
            None => self.oldest = Some(page),
        }
        self.newest = Some(page);
        self.idle_pages += 1;
    }

    /// Removes a page from the idle ones.
    pub(crate) fn end_idle(&mut self, page: PageId) {
        let Links { older, newer } = std::mem::take(&mut self.links[page.index()]);
        match older {
            Some(older) => self.links[older.index()].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.links[newer.index()].older = older,
            None => self.newest = older,
        }
        self.idle_pages -= 1;
    }

    /// Removes the idle page that was least recently used.
    pub(crate) fn evict(&mut self) -> Option<PageId> {
        let page = self.oldest?;
        self.end_idle(page);
        self.remove(page);
        Some(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [u32; 4] = [1, 2, 3, 4];

    #[test]
    fn another_text_with_the_same_hash_is_a_miss() {
        let mut cache = PrefixCache::new(4);
        let (node, _) = cache.insert(PageId::new(0), Node::ROOT, &TOKENS);
        cache.insert(PageId::new(1), node, &TOKENS);
        assert_eq!(cache.find(node, &TOKENS).map(|(page, _)| page), Some(PageId::new(1)));

        let collides = Node { id: node.id + 100, ..node };
        assert_eq!(cache.find(collides, &TOKENS), None);
        let hash = cache.by_hash.remove(&node.chain_hash);
        let other_tokens = Node::ROOT.child_hash(&[9]);
        cache.by_hash.extend(hash.map(|page| (other_tokens, page)));
        assert_eq!(cache.find(Node::ROOT, &[9]), None);
    }

    #[test]
    fn a_later_entry_with_the_same_hash_takes_the_place() {
        let mut cache = PrefixCache::new(4);
        let (node, displaced) = cache.insert(PageId::new(0), Node::ROOT, &TOKENS);
        assert_eq!(displaced, None);
        cache.insert(PageId::new(1), node, &TOKENS);
        let collides = Node { id: node.id + 100, ..node };
        let (_, displaced) = cache.insert(PageId::new(2), collides, &TOKENS);
        assert_eq!(displaced, Some(PageId::new(1)));
        assert!(!cache.contains(PageId::new(1)));
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.find(node, &TOKENS), None);
        assert_eq!(cache.find(collides, &TOKENS).map(|(page, _)| page), Some(PageId::new(2)));
    }

    #[test]
    fn children_of_an_evicted_node_are_not_those_of_its_successor() {
        let mut cache = PrefixCache::new(4);
        let (old, _) = cache.insert(PageId::new(0), Node::ROOT, &TOKENS);
        cache.insert(PageId::new(1), old, &TOKENS);
        cache.make_idle(PageId::new(0));
        assert_eq!(cache.evict(), Some(PageId::new(0)));
        assert_eq!(cache.evict(), None);
        let (new, _) = cache.insert(PageId::new(2), Node::ROOT, &TOKENS);
        assert_eq!(new.chain_hash, old.chain_hash);
        assert_eq!(cache.find(new, &TOKENS), None);
    }

    #[test]
    fn idle_pages_leave_from_anywhere_in_the_list() {
        let mut cache = PrefixCache::new(4);
        for index in 0..4 {
            cache.insert(PageId::new(index), Node::ROOT, &[index; 4]);
            cache.make_idle(PageId::new(index));
        }
        cache.end_idle(PageId::new(1));
        cache.end_idle(PageId::new(3));
        cache.make_idle(PageId::new(1));
        assert_eq!(cache.idle_pages(), 3);
        let order: Vec<u32> = std::iter::from_fn(|| cache.evict()).map(PageId::raw).collect();
        assert_eq!(order, [0, 2, 1]);
        assert_eq!((cache.idle_pages(), cache.oldest, cache.newest), (0, None, None));
    }
}
