//! The events that an observer of the prefix cache receives.

use std::sync::mpsc::channel;

use rf_kv::{CacheEvent, CacheObserver, PagePool, PageSize, PageTable, Prefix};

/// The hash of a page, that of the page before, its tokens, and their key.
type Stored<'a> = (u64, Option<u64>, &'a [u32], &'a [u32]);

fn stored(event: &CacheEvent) -> Option<Stored<'_>> {
    match event {
        CacheEvent::Stored { hash, parent, tokens, key } => Some((*hash, *parent, tokens, key)),
        _ => None,
    }
}

#[test]
fn an_observer_learns_of_every_page_of_the_prefix_cache() {
    let (sender, events) = channel();
    let mut pool = PagePool::new(3, PageSize::Tokens16);
    pool.observe(Some(CacheObserver::new(move |event| sender.send(event).unwrap())));
    let tokens: Vec<u32> = (0..32).collect();
    let prefix = Prefix { key: &[7], tokens: &tokens };
    let mut table = PageTable::new();
    pool.grow(&mut table, 32).unwrap();
    pool.publish(&table, prefix);
    let events_of = || events.try_iter().collect::<Vec<_>>();
    let published = events_of();
    let first = stored(&published[0]).unwrap();
    let second = stored(&published[1]).unwrap();
    assert_eq!(published.len(), 2);
    assert_eq!(first, (first.0, None, &tokens[..16], &[7][..]));
    assert_eq!(second, (second.0, Some(first.0), &tokens[16..], &[7][..]));

    // What is cached already is no news.
    pool.publish(&table, prefix);
    pool.release(table);
    let again = pool.match_prefix(prefix);
    assert_eq!(again.len_tokens(), 32);
    pool.release(again);
    assert_eq!(events_of(), []);

    // Another sequence takes the free page, and then the one that was released first: the last.
    let mut other = PageTable::new();
    pool.grow(&mut other, 32).unwrap();
    assert_eq!(events_of(), [CacheEvent::Removed { hash: second.0 }]);
    pool.release(other);
}
