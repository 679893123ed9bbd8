//! The prefix cache: finds full pages by their tokens and all tokens before them.
//!
//! The keys and values in a page depend on its tokens and on all tokens before. A cached page is
//! therefore a node of a tree with its tokens and its parent. A hash over the whole chain gives a
//! candidate. The candidate matches only if its tokens are equal and its parent is the node that
//! the search came from. A hash collision thus costs a miss and never returns another text.
//!
//! The tree consists of the pages of [`PageGroup::Full`]. A node may have a page of
//! [`PageGroup::Window`], too, and one of [`PageGroup::State`]: the states after its last token.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::export::{ChainKey, Exports, PageKey, PageMove};
use crate::observer::{CacheEvent, CacheObserver};
use crate::page::{PageCounts, PageGroup, PageId};

/// The start of a sequence: its tokens, and all else that its keys and values depend on.
///
/// Only sequences with equal keys share pages. Most have none, so a prefix is made of tokens alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// What the keys and values depend on besides the tokens, such as adapters of the model.
    pub key: &'a [u32],
    /// The tokens from the start of the sequence.
    pub tokens: &'a [u32],
}

impl<'a> Prefix<'a> {
    /// The full pages of the tokens. The first one begins with the key, so that it differs from
    /// that of another key.
    pub(crate) fn chunks(self, page_tokens: usize) -> impl Iterator<Item = Cow<'a, [u32]>> {
        let key = self.key;
        self.tokens.chunks_exact(page_tokens).enumerate().map(move |(index, chunk)| {
            if index == 0 && !key.is_empty() { [key, chunk].concat().into() } else { chunk.into() }
        })
    }
}

impl<'a> From<&'a [u32]> for Prefix<'a> {
    fn from(tokens: &'a [u32]) -> Self {
        Self { key: &[], tokens }
    }
}

impl<'a> From<&'a Vec<u32>> for Prefix<'a> {
    fn from(tokens: &'a Vec<u32>) -> Self {
        tokens.as_slice().into()
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Prefix<'a> {
    fn from(tokens: &'a [u32; N]) -> Self {
        tokens.as_slice().into()
    }
}

/// A place in the tree of cached prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixNode {
    /// Never reused, so that children of an evicted node do not match under another node.
    pub(crate) id: u64,
    /// Hash of all tokens up to and including this node.
    pub(crate) chain_hash: u64,
    /// The same, for a store: stronger and slower.
    pub(crate) key: ChainKey,
}

impl PrefixNode {
    /// The empty prefix.
    pub(crate) const ROOT: Self = Self { id: 0, chain_hash: 0, key: ChainKey::ROOT };

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
    node: PrefixNode,
    parent_id: u64,
    tokens: Box<[u32]>,
}

#[derive(Debug)]
pub(crate) struct PrefixCache {
    /// The page of each chain hash. A later entry with the same hash replaces an earlier one.
    by_hash: HashMap<u64, PageId>,
    /// The entry of each page.
    entries: Vec<Option<Entry>>,
    last_id: u64,
    window: NodePages,
    states: NodePages,
    pub(crate) exports: Exports,
    /// Copies to the store that were not executed yet.
    pub(crate) moves: Vec<PageMove>,
    /// Learns of the pages of [`PageGroup::Full`].
    pub(crate) observer: Option<CacheObserver>,
}

/// The pages of a group that nodes have in addition to those of [`PageGroup::Full`].
#[derive(Debug)]
struct NodePages {
    /// The page of each node, by its id. The page of a removed node stays until it is evicted.
    pages: HashMap<u64, PageId>,
    /// The node of each page.
    nodes: Vec<Option<PrefixNode>>,
}

impl NodePages {
    fn new(num_pages: usize) -> Self {
        Self { pages: HashMap::new(), nodes: vec![None; num_pages] }
    }

    fn insert(&mut self, page: PageId, node: PrefixNode) {
        self.pages.insert(node.id, page);
        self.nodes[page.index()] = Some(node);
    }

    fn remove(&mut self, page: PageId) {
        if let Some(node) = self.nodes[page.index()].take() {
            self.pages.remove(&node.id);
        }
    }
}

impl PrefixCache {
    /// A cache for pages of a pool.
    pub(crate) fn new(num_pages: PageCounts) -> Self {
        Self {
            by_hash: HashMap::new(),
            entries: (0..num_pages.full).map(|_| None).collect(),
            last_id: PrefixNode::ROOT.id,
            window: NodePages::new(num_pages.window),
            states: NodePages::new(num_pages.states),
            exports: Exports::Off,
            moves: Vec::new(),
            observer: None,
        }
    }

    pub(crate) fn contains(&self, group: PageGroup, page: PageId) -> bool {
        match group {
            PageGroup::Full => self.entries[page.index()].is_some(),
            PageGroup::Window => self.window.nodes[page.index()].is_some(),
            PageGroup::State => self.states.nodes[page.index()].is_some(),
        }
    }

    pub(crate) fn len(&self, group: PageGroup) -> usize {
        match group {
            PageGroup::Full => self.by_hash.len(),
            PageGroup::Window => self.window.pages.len(),
            PageGroup::State => self.states.pages.len(),
        }
    }

    /// The page that holds `tokens` after the prefix that ends at `parent`.
    pub(crate) fn find(&self, parent: PrefixNode, tokens: &[u32]) -> Option<(PageId, PrefixNode)> {
        let page = *self.by_hash.get(&parent.child_hash(tokens))?;
        let entry = self.entries[page.index()].as_ref()?;
        let same = entry.parent_id == parent.id && *entry.tokens == *tokens;
        same.then_some((page, entry.node))
    }

    /// The window page of a node.
    pub(crate) fn find_window(&self, node: PrefixNode) -> Option<PageId> {
        self.window.pages.get(&node.id).copied()
    }

    /// The states of a node.
    pub(crate) fn find_state(&self, node: PrefixNode) -> Option<PageId> {
        self.states.pages.get(&node.id).copied()
    }

    /// Removes the states of a node, in the pool and in the store. Returns their page.
    pub(crate) fn remove_state(&mut self, node: PrefixNode) -> Option<PageId> {
        if self.exports != Exports::Off {
            self.moves.push(PageMove::Forget(PageKey { group: PageGroup::State, chain: node.key }));
        }
        let page = self.find_state(node)?;
        self.states.remove(page);
        Some(page)
    }

    /// Removes a page, because it is about to be written. It goes to the store, if there is one.
    pub(crate) fn evict(&mut self, group: PageGroup, page: PageId) {
        if self.exports != Exports::Off
            && let Some(node) = self.node_of(group, page)
        {
            let key = PageKey { group, chain: node.key };
            self.moves.push(PageMove::Export { key, from: page, is_evicted: true });
        }
        self.remove(group, page);
    }

    /// Copies a cached page to the store now, if the store takes pages before they are evicted.
    pub(crate) fn export(&mut self, group: PageGroup, page: PageId) {
        if self.exports == Exports::AtOnce
            && let Some(node) = self.node_of(group, page)
        {
            let key = PageKey { group, chain: node.key };
            self.moves.push(PageMove::Export { key, from: page, is_evicted: false });
        }
    }

    fn node_of(&self, group: PageGroup, page: PageId) -> Option<PrefixNode> {
        match group {
            PageGroup::Full => self.entries[page.index()].as_ref().map(|entry| entry.node),
            PageGroup::Window => self.window.nodes[page.index()],
            PageGroup::State => self.states.nodes[page.index()],
        }
    }

    /// Adds `page`, which must not be cached yet, as a child of `parent`. Returns its node, and the
    /// page that it displaces because of an equal hash. The displaced page is no longer cached.
    pub(crate) fn insert(
        &mut self,
        page: PageId,
        parent: PrefixNode,
        tokens: &[u32],
    ) -> (PrefixNode, Option<PageId>) {
        self.last_id += 1;
        let (chain_hash, key) = (parent.child_hash(tokens), parent.key.child(tokens));
        let node = PrefixNode { id: self.last_id, chain_hash, key };
        let displaced = self.by_hash.insert(node.chain_hash, page);
        if let Some(displaced) = displaced
            && let Some(entry) = self.entries[displaced.index()].take()
        {
            self.notify_removed(entry.node);
        }
        self.entries[page.index()] =
            Some(Entry { node, parent_id: parent.id, tokens: tokens.into() });
        self.export(PageGroup::Full, page);
        (node, displaced)
    }

    fn notify_removed(&mut self, node: PrefixNode) {
        if let Some(observer) = &mut self.observer {
            observer.observe(CacheEvent::Removed { hash: node.chain_hash });
        }
    }

    /// Adds a window page, which must not be cached yet, to a node that has none.
    pub(crate) fn insert_window(&mut self, page: PageId, node: PrefixNode) {
        self.window.insert(page, node);
        self.export(PageGroup::Window, page);
    }

    /// Adds states, which must not be cached yet, to a node that has none.
    pub(crate) fn insert_state(&mut self, page: PageId, node: PrefixNode) {
        self.states.insert(page, node);
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, group: PageGroup, page: PageId) {
        match group {
            PageGroup::Full => {
                if let Some(entry) = self.entries[page.index()].take() {
                    self.by_hash.remove(&entry.node.chain_hash);
                    self.notify_removed(entry.node);
                }
            }
            PageGroup::Window => self.window.remove(page),
            PageGroup::State => self.states.remove(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [u32; 4] = [1, 2, 3, 4];

    fn cache() -> PrefixCache {
        PrefixCache::new(PageCounts { full: 4, window: 2, states: 0 })
    }

    #[test]
    fn another_text_with_the_same_hash_is_a_miss() {
        let mut cache = cache();
        let (node, _) = cache.insert(PageId::new(0), PrefixNode::ROOT, &TOKENS);
        cache.insert(PageId::new(1), node, &TOKENS);
        assert_eq!(cache.find(node, &TOKENS).map(|(page, _)| page), Some(PageId::new(1)));

        let collides = PrefixNode { id: node.id + 100, ..node };
        assert_eq!(cache.find(collides, &TOKENS), None);
        let hash = cache.by_hash.remove(&node.chain_hash);
        let other_tokens = PrefixNode::ROOT.child_hash(&[9]);
        cache.by_hash.extend(hash.map(|page| (other_tokens, page)));
        assert_eq!(cache.find(PrefixNode::ROOT, &[9]), None);
    }

    #[test]
    fn a_later_entry_with_the_same_hash_takes_the_place() {
        let mut cache = cache();
        let (node, displaced) = cache.insert(PageId::new(0), PrefixNode::ROOT, &TOKENS);
        assert_eq!(displaced, None);
        cache.insert(PageId::new(1), node, &TOKENS);
        let collides = PrefixNode { id: node.id + 100, ..node };
        let (_, displaced) = cache.insert(PageId::new(2), collides, &TOKENS);
        assert_eq!(displaced, Some(PageId::new(1)));
        assert!(!cache.contains(PageGroup::Full, PageId::new(1)));
        assert_eq!(cache.len(PageGroup::Full), 2);
        assert_eq!(cache.find(node, &TOKENS), None);
        assert_eq!(cache.find(collides, &TOKENS).map(|(page, _)| page), Some(PageId::new(2)));
    }

    #[test]
    fn children_and_window_pages_of_an_evicted_node_are_not_those_of_its_successor() {
        let mut cache = cache();
        let (old, _) = cache.insert(PageId::new(0), PrefixNode::ROOT, &TOKENS);
        cache.insert(PageId::new(1), old, &TOKENS);
        cache.insert_window(PageId::new(0), old);
        assert_eq!(cache.find_window(old), Some(PageId::new(0)));
        cache.remove(PageGroup::Full, PageId::new(0));
        let (new, _) = cache.insert(PageId::new(2), PrefixNode::ROOT, &TOKENS);
        assert_eq!(new.chain_hash, old.chain_hash);
        assert_eq!(cache.find(new, &TOKENS), None);
        assert_eq!(cache.find_window(new), None);

        cache.remove(PageGroup::Window, PageId::new(0));
        cache.insert_window(PageId::new(0), new);
        assert_eq!((cache.find_window(old), cache.find_window(new)), (None, Some(PageId::new(0))));
    }
}
