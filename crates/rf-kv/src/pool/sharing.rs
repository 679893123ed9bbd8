//! The prefix cache of a pool: publishing pages and states.

use super::PagePool;
use crate::observer::{CacheEvent, CacheObserver};
use crate::page::{PageGroup, PageId};
use crate::prefix::{Prefix, PrefixNode};
use crate::table::PageTable;

impl PagePool {
    /// Passes the changes of the prefix cache to an observer, instead of an earlier one.
    pub fn observe(&mut self, observer: Option<CacheObserver>) {
        self.prefix.observer = observer;
    }

    /// Adds the full pages of a table to the prefix cache, for later sequences that start with the
    /// same tokens.
    ///
    /// `prefix` has the tokens of the sequence from its start. Pages that they do not cover are
    /// left out. The caller must write the pages before another sequence reads them. A prefix that
    /// is cached already stays. States are not part of it: see [`checkpoint`](Self::checkpoint).
    pub fn publish<'a>(&mut self, table: &PageTable, prefix: impl Into<Prefix<'a>>) {
        let Prefix { key, tokens } = prefix.into();
        let tokens = &tokens[..tokens.len().min(table.len_tokens)];
        let mut node = PrefixNode::ROOT;
        let chunks = Prefix { key, tokens }.chunks(self.page_size.tokens());
        for (index, (chunk, &page)) in chunks.zip(table.pages(PageGroup::Full)).enumerate() {
            node = match self.prefix.find(node, &chunk) {
                Some((_, found)) => found,
                None => self.publish_page(page, node, &chunk, key),
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

    /// Adds the states of a table to the prefix cache, so that later sequences can begin after the
    /// table's tokens. The next [`grow`](Self::grow) of the table copies them.
    ///
    /// `prefix` has all tokens of the table, and its pages are published. Returns false if there is
    /// nothing to add: no states, tokens that do not fill whole pages, or a prefix that is not
    /// cached or has states.
    pub fn checkpoint<'a>(&mut self, table: &PageTable, prefix: impl Into<Prefix<'a>>) -> bool {
        let Some(state) = table.state() else { return false };
        let prefix = prefix.into();
        let (cached_tokens, node) = self.find_chain(prefix);
        let is_cached = cached_tokens == prefix.tokens.len() && cached_tokens == table.len_tokens;
        if !is_cached || self.prefix.find_state(node).is_some() {
            return false;
        }
        // The page may still be cached for a node that was evicted.
        self.prefix.remove(PageGroup::State, state);
        self.prefix.insert_state(state, node);
        true
    }

    /// Copies the cached states after a prefix to the store now, if it takes pages before they are
    /// evicted ([`Exports::AtOnce`](crate::Exports::AtOnce)).
    pub fn export_checkpoint<'a>(&mut self, prefix: impl Into<Prefix<'a>>) {
        let prefix = prefix.into();
        let (cached_tokens, node) = self.find_chain(prefix);
        if cached_tokens == prefix.tokens.len()
            && let Some(state) = self.prefix.find_state(node)
        {
            self.prefix.export(PageGroup::State, state);
        }
    }

    /// Removes the states after a prefix from the prefix cache and the store, if they have them.
    pub fn forget_checkpoint<'a>(&mut self, prefix: impl Into<Prefix<'a>>) {
        let prefix = prefix.into();
        let (cached_tokens, node) = self.find_chain(prefix);
        if cached_tokens == prefix.tokens.len()
            && let Some(state) = self.prefix.remove_state(node)
        {
            self.groups[PageGroup::State.index()].end_cached(state);
        }
    }

    /// The number of tokens of the longest prefix whose pages of [`PageGroup::Full`] are cached,
    /// also without the window pages and states that [`match_prefix`](Self::match_prefix) needs.
    pub fn cached_tokens<'a>(&self, prefix: impl Into<Prefix<'a>>) -> usize {
        self.find_chain(prefix.into()).0
    }

    /// The cached pages that a prefix begins with: their tokens, and the node of the last one.
    fn find_chain(&self, prefix: Prefix<'_>) -> (usize, PrefixNode) {
        let (mut len_tokens, mut node) = (0, PrefixNode::ROOT);
        for chunk in prefix.chunks(self.page_size.tokens()) {
            let Some((_, found)) = self.prefix.find(node, &chunk) else { break };
            (len_tokens, node) = (len_tokens + self.page_size.tokens(), found);
        }
        (len_tokens, node)
    }

    fn publish_page(
        &mut self,
        page: PageId,
        parent: PrefixNode,
        tokens: &[u32],
        key: &[u32],
    ) -> PrefixNode {
        // The page may still be cached after a node that was evicted.
        self.prefix.remove(PageGroup::Full, page);
        let (node, displaced) = self.prefix.insert(page, parent, tokens);
        if let Some(displaced) = displaced {
            self.groups[PageGroup::Full.index()].end_cached(displaced);
        }
        if let Some(observer) = &mut self.prefix.observer {
            let is_first = parent == PrefixNode::ROOT;
            let own_tokens = if is_first { &tokens[key.len()..] } else { tokens };
            observer.observe(CacheEvent::Stored {
                hash: node.chain_hash,
                parent: (!is_first).then_some(parent.chain_hash),
                tokens: own_tokens.into(),
                key: key.into(),
            });
        }
        node
    }
}
