//! Finding a prefix: in the prefix cache of a pool, and in a store outside of it.

use super::{OutOfPages, PagePool};
use crate::export::{ChainKey, PageImport, PageKey, PageStore};
use crate::page::{PageCounts, PageGroup, PageId};
use crate::prefix::{Prefix, PrefixNode};
use crate::table::{DROPPED, GroupTable, PageTable};

/// A full page of a prefix: its page in each group, if the prefix cache has it.
struct PrefixPage {
    chain: ChainKey,
    cached: [Option<PageId>; 3],
}

/// The pages of a prefix that the prefix cache and the store have.
struct Chain {
    places: Vec<PrefixPage>,
    /// The longest prefix of which the prefix cache has all that a sequence needs, in pages.
    cached: usize,
    /// The same of both together.
    stored: usize,
}

/// The end of the longest usable prefix so far.
#[derive(Default)]
struct Usable {
    /// Its pages.
    end: usize,
    /// The start of the unbroken window pages at the end of the chain.
    unbroken: usize,
}

impl PagePool {
    /// A table with the longest cached part of a prefix, in full pages. With a sliding window, a
    /// prefix also needs the window pages that its next token sees, and with recurrent states those
    /// after its last token.
    ///
    /// Leave out the last token of a prompt, so that at least one token remains to compute logits
    /// for.
    pub fn match_prefix<'a>(&mut self, prefix: impl Into<Prefix<'a>>) -> PageTable {
        self.match_prefix_in(prefix, None).0
    }

    /// [`match_prefix`](Self::match_prefix) with pages of a store, if they make the prefix longer,
    /// are faster than computing it, and there are pages to copy them to. The caller must execute
    /// the imports before the pages are read or published.
    pub fn match_prefix_in<'a>(
        &mut self,
        prefix: impl Into<Prefix<'a>>,
        store: Option<&dyn PageStore>,
    ) -> (PageTable, Vec<PageImport>) {
        let prefix = prefix.into();
        let Chain { places, cached, stored } = self.find_places(prefix, store);
        let tokens = (stored - cached) * self.page_size.tokens();
        let is_faster = |store: &dyn PageStore| {
            let PageCounts { full, window, states } = self.missing(&places[..stored]);
            store.is_faster(full + window + states, tokens)
        };
        let mut taken = None;
        if tokens > 0 && store.is_some_and(is_faster) {
            taken = self.take_places(&places[..stored]).ok();
        }
        let taken = taken.map_or_else(|| self.take_places(&places[..cached]), Ok);
        // All pages of the second attempt are cached, so that it allocates none.
        let (table, imports) = taken.unwrap_or_default();
        let counted = &mut self.groups[PageGroup::Full.index()].counted;
        counted.prefix_lookup_tokens += prefix.tokens.len() as u64;
        counted.prefix_hit_tokens += table.len_tokens as u64;
        (table, imports)
    }

    /// Follows a prefix through the prefix cache and then through the store.
    fn find_places(&self, prefix: Prefix<'_>, store: Option<&dyn PageStore>) -> Chain {
        let in_store = |group, chain| store.is_some_and(|s| s.contains(PageKey { group, chain }));
        let can_load = self.groups[PageGroup::State.index()].available() > 0;
        let mut places: Vec<PrefixPage> = Vec::new();
        let (mut in_cache, mut with_store) = (Usable::default(), Usable::default());
        // The node of the last page, while the prefix cache has all pages of the chain.
        let mut node = Some(PrefixNode::ROOT);
        let mut chain = ChainKey::ROOT;
        for chunk in prefix.chunks(self.page_size.tokens()) {
            let found = node.and_then(|node| self.prefix.find(node, &chunk));
            if found.is_none() && store.is_none() {
                break;
            }
            node = found.map(|(_, node)| node);
            chain = node.map_or_else(|| chain.child(&chunk), |node| node.key);
            let full = found.map(|(page, _)| page);
            if full.is_none() && !in_store(PageGroup::Full, chain) {
                break;
            }
            let window = node.and_then(|node| self.prefix.find_window(node));
            let state = node.and_then(|node| self.prefix.find_state(node));
            places.push(PrefixPage { chain, cached: [full, window, state] });
            let len = places.len();
            let has_window = window.is_some() || in_store(PageGroup::Window, chain);
            let has_state = state.is_some() || (can_load && in_store(PageGroup::State, chain));
            self.extend(&mut with_store, len, has_window, has_state);
            if full.is_some() {
                self.extend(&mut in_cache, len, window.is_some(), state.is_some());
            }
        }
        Chain { places, cached: in_cache.end, stored: with_store.end }
    }

    /// Notes the pages at the end of a chain of `len` pages.
    fn extend(&self, usable: &mut Usable, len: usize, has_window: bool, has_state: bool) {
        if !has_window {
            usable.unbroken = len;
        }
        let first_page = self.first_window_page(len * self.page_size.tokens());
        let has_window = self.window.is_none() || usable.unbroken <= first_page;
        if has_window && (has_state || !self.has_states()) {
            usable.end = len;
        }
    }

    /// The places of a prefix whose page of a group a sequence needs.
    fn needed_places(&self, len: usize, group: PageGroup) -> std::ops::Range<usize> {
        match group {
            PageGroup::Full => 0..len,
            PageGroup::Window if self.window.is_none() => len..len,
            PageGroup::Window => {
                self.first_window_page(len * self.page_size.tokens()).min(len)..len
            }
            PageGroup::State if !self.has_states() => len..len,
            PageGroup::State => len.saturating_sub(1)..len,
        }
    }

    /// The number of pages of a prefix that the prefix cache lacks.
    fn missing(&self, places: &[PrefixPage]) -> PageCounts {
        let [full, window, states] = PageGroup::ALL.map(|group| {
            let needed = &places[self.needed_places(places.len(), group)];
            needed.iter().filter(|place| place.cached[group.index()].is_none()).count()
        });
        PageCounts { full, window, states }
    }

    /// A table with the pages of a prefix. Those that the prefix cache lacks are new.
    fn take_places(
        &mut self,
        places: &[PrefixPage],
    ) -> Result<(PageTable, Vec<PageImport>), OutOfPages> {
        let len = places.len();
        let cached: Vec<(PageGroup, PageId)> = PageGroup::ALL
            .into_iter()
            .flat_map(|group| {
                let needed = &places[self.needed_places(len, group)];
                needed.iter().filter_map(move |place| Some((group, place.cached[group.index()]?)))
            })
            .collect();
        let [full, window, states] = PageGroup::ALL.map(|group| {
            let of_group = cached.iter().filter(|(other, _)| *other == group);
            of_group.filter(|(_, page)| !self.groups[group.index()].is_held(*page)).count()
        });
        let idle = PageCounts { full, window, states };
        OutOfPages::check(self.missing(places) + idle, self.available_pages())?;
        // Before others are allocated, so that none of them is evicted.
        for (group, page) in cached {
            self.groups[group.index()].hold(page);
        }
        let len_tokens = len * self.page_size.tokens();
        let mut table = PageTable { len_tokens, ..PageTable::new() };
        let mut imports = Vec::new();
        for group in PageGroup::ALL {
            let needed = self.needed_places(len, group);
            let dropped_pages = match (group, self.window) {
                (PageGroup::Window, Some(_)) => needed.start,
                _ => 0,
            };
            let mut pages = vec![DROPPED; dropped_pages];
            for place in &places[needed] {
                let cached = place.cached[group.index()];
                let page = cached.map_or_else(|| self.allocate(group), Ok)?;
                if cached.is_none() {
                    let key = PageKey { group, chain: place.chain };
                    imports.push(PageImport { key, to: page });
                }
                pages.push(page);
            }
            *table.group_mut(group) = GroupTable { pages, dropped_pages };
        }
        Ok((table, imports))
    }
}
