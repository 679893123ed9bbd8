//! Pages that leave a pool for a store, and come back.

#![expect(clippy::unwrap_used, reason = "a test")]

use rf_kv::PageGroup::{Full, State, Window};
use rf_kv::{
    Exports, PageCounts, PageGroup, PageId, PageKey, PageMove, PagePool, PageSize, PageStore,
    PageTable, Prefix,
};

const SIZE: PageSize = PageSize::Tokens16;

/// A table with this many tokens.
fn table(pool: &mut PagePool, len_tokens: usize) -> PageTable {
    let mut table = PageTable::new();
    pool.grow(&mut table, len_tokens).unwrap();
    table
}

/// A store that has the keys of all exports, and notes the imports for which it was asked.
#[derive(Default)]
struct Store {
    keys: Vec<PageKey>,
    is_slow: bool,
}

impl PageStore for Store {
    fn contains(&self, key: PageKey) -> bool {
        self.keys.contains(&key)
    }

    fn is_faster(&self, _: usize, _: usize) -> bool {
        !self.is_slow
    }
}

impl Store {
    /// Executes the moves of a pool. Returns the groups and pages of the exports.
    fn follow(&mut self, pool: &mut PagePool) -> Vec<(PageGroup, PageId)> {
        let mut exported = Vec::new();
        for each in pool.take_moves() {
            match each {
                PageMove::Export { key, from, .. } => {
                    self.keys.push(key);
                    exported.push((key.group, from));
                }
                PageMove::Forget(key) => self.keys.retain(|other| *other != key),
            }
        }
        exported
    }
}

#[test]
fn evicted_pages_go_to_the_store_and_come_back() {
    let mut pool = PagePool::new(4, SIZE);
    pool.set_exports(Exports::OnEviction);
    let mut store = Store::default();
    let tokens: Vec<u32> = (0..40).collect();
    let first = table(&mut pool, 40);
    pool.publish(&first, &tokens);
    let pages = first.pages(Full).to_vec();
    pool.release(first);
    assert_eq!(store.follow(&mut pool), []);
    // Another sequence takes all pages. The last one was not full, so that it was not cached.
    let other = table(&mut pool, 64);
    assert_eq!(store.follow(&mut pool), [(Full, pages[1]), (Full, pages[0])]);
    // Nothing can be imported while there are no pages.
    let (none, imports) = pool.match_prefix_in(&tokens, Some(&store));
    assert_eq!((none.len_tokens(), &imports[..]), (0, &[][..]));
    pool.release(other);

    let (again, imports) = pool.match_prefix_in(&tokens, Some(&store));
    assert_eq!((again.len_tokens(), imports.len()), (32, 2));
    let to: Vec<PageId> = imports.iter().map(|import| import.to).collect();
    assert_eq!(again.pages(Full), to);
    // Another text, another key of adapters, or a slow store finds nothing.
    pool.release(again);
    let adapters = Prefix { key: &[7], tokens: &tokens };
    let text: Vec<u32> = (1..41).collect();
    for prefix in [adapters, Prefix::from(&text)] {
        let (table, imports) = pool.match_prefix_in(prefix, Some(&store));
        assert!(table.is_empty() && imports.is_empty());
    }
    store.is_slow = true;
    let (table, imports) = pool.match_prefix_in(&tokens, Some(&store));
    assert!(table.is_empty() && imports.is_empty());
    assert_eq!(pool.available_pages(), pool.num_pages());
}

#[test]
fn a_prefix_in_the_store_needs_its_window_and_its_states_only() {
    let counts = PageCounts { full: 8, window: 8, states: 2 };
    let pool = || {
        let mut pool = PagePool::with_window(counts, SIZE, Some(20));
        pool.set_exports(Exports::AtOnce);
        pool
    };
    let mut first = pool();
    let tokens: Vec<u32> = (0..64).collect();
    let mut store = Store::default();
    let table = table(&mut first, 64);
    first.publish(&table, &tokens);
    assert!(first.checkpoint(&table, &tokens));
    assert_eq!(store.follow(&mut first).len(), 8, "the pages, without the states");
    let mut second = pool();
    let (none, _) = second.match_prefix_in(&tokens, Some(&store));
    assert!(none.is_empty(), "no states are stored");
    first.export_checkpoint(&tokens);
    assert_eq!(store.follow(&mut first), [(State, table.state().unwrap())]);

    let (again, imports) = second.match_prefix_in(&tokens, Some(&store));
    assert_eq!((again.len_tokens(), again.dropped_pages(Window)), (64, 2));
    let of = |group| imports.iter().filter(|import| import.key.group == group).count();
    assert_eq!([Full, Window, State].map(of), [4, 2, 1]);
    assert_eq!(again.held_pages(Window).len(), 2);
    second.release(again);
    // Without a page of the window there is no prefix.
    let window = imports.iter().find(|import| import.key.group == Window).unwrap().key;
    store.keys.retain(|key| *key != window);
    let (none, _) = second.match_prefix_in(&tokens, Some(&store));
    assert!(none.is_empty());
    first.release(table);
}

#[test]
fn states_that_are_forgotten_leave_the_store() {
    let counts = PageCounts { full: 16, window: 0, states: 1 };
    let mut pool = PagePool::with_window(counts, SIZE, None);
    pool.set_exports(Exports::OnEviction);
    let mut store = Store::default();
    let tokens: Vec<u32> = (0..40).collect();
    let mut table = table(&mut pool, 32);
    pool.publish(&table, &tokens[..32]);
    assert!(pool.checkpoint(&table, &tokens[..32]));
    // The only page of states leaves the cache, because the sequence goes on in it.
    let state = table.state().unwrap();
    pool.grow(&mut table, 40).unwrap();
    assert_eq!(store.follow(&mut pool), [(State, state)]);
    pool.release(table);
    let (found, imports) = pool.match_prefix_in(&tokens, Some(&store));
    assert_eq!((found.len_tokens(), imports.len()), (32, 1));
    pool.release(found);
    pool.forget_checkpoint(&tokens[..32]);
    store.follow(&mut pool);
    assert!(pool.match_prefix_in(&tokens, Some(&store)).0.is_empty());
}
