//! The behaviour of the pool, one fact per test.

#![expect(clippy::unwrap_used, reason = "a test")]

use rf_kv::PageGroup::{Full, State, Window};
use rf_kv::{
    CopyPage, CutCause, NotCut, OutOfPages, PageCounts, PageGroup, PageId, PagePool, PageSize,
    PageTable, Prefix,
};

const SIZE: PageSize = PageSize::Tokens16;

#[test]
fn sizes_other_than_16_32_and_64_are_refused() {
    assert_eq!("32".parse(), Ok(PageSize::Tokens32));
    assert_eq!(PageSize::try_from(64), Ok(PageSize::Tokens64));
    for text in ["0", "17", "128", "-16", "many", ""] {
        assert_eq!(
            text.parse::<PageSize>().unwrap_err().to_string(),
            format!("page size '{text}' is not one of 16, 32 and 64 tokens")
        );
    }
    assert_eq!(SIZE.pages_for(0), 0);
    assert_eq!(SIZE.pages_for(16), 1);
    assert_eq!(SIZE.pages_for(17), 2);
}

#[test]
fn pages_are_handed_out_from_zero_and_the_last_one_back_comes_first() {
    let mut pool = PagePool::new(6, SIZE);
    let mut first = table(&mut pool, 48);
    assert_eq!(ids(&first), [0, 1, 2]);
    let second = table(&mut pool, 16);
    assert_eq!(ids(&second), [3]);
    pool.truncate(&mut first, 20).unwrap();
    let third = table(&mut pool, 32);
    assert_eq!(ids(&third), [2, 4]);
    for table in [first, second, third] {
        pool.release(table);
    }
}

#[test]
fn growing_to_less_changes_nothing() {
    let mut pool = PagePool::new(2, SIZE);
    let mut table = table(&mut pool, 20);
    assert_eq!(pool.grow(&mut table, 5), Ok(Vec::new()));
    assert_eq!((table.len_tokens(), table.pages(Full).len()), (20, 2));
    pool.release(table);
}

#[test]
fn a_full_pool_says_what_is_needed_and_changes_nothing() {
    let mut pool = PagePool::new(3, SIZE);
    let mut table = table(&mut pool, 17);
    let before = pool.stats(Full);
    let refused = pool.grow(&mut table, 100);
    assert_eq!(refused, Err(OutOfPages { needed: 5, free: 1 }));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the KV cache is full: 5 more pages are needed and 1 are available"
    );
    assert_eq!((table.len_tokens(), pool.stats(Full)), (17, before));
    pool.release(table);
}

#[test]
fn a_shared_partial_page_is_copied_once_and_a_full_one_never() {
    let mut pool = PagePool::new(8, SIZE);
    let mut first = table(&mut pool, 20);
    let mut second = pool.fork(&first);
    assert_eq!(pool.stats(Full).shared_pages, 2);
    let copies = pool.grow(&mut second, 21).unwrap();
    assert_eq!(copies, [CopyPage { group: Full, from: PageId::new(1), to: PageId::new(2) }]);
    // The other table is now the only holder of its page.
    assert_eq!(pool.grow(&mut first, 21), Ok(Vec::new()));
    assert_eq!((ids(&first), ids(&second)), (vec![0, 1], vec![0, 2]));

    let mut full = table(&mut pool, 16);
    let mut fork = pool.fork(&full);
    assert_eq!(pool.grow(&mut fork, 17), Ok(Vec::new()));
    assert_eq!(pool.grow(&mut full, 17), Ok(Vec::new()));
    assert_eq!(pool.stats(Full).copies, 1);
    for table in [first, second, full, fork] {
        pool.release(table);
    }
    assert_eq!(pool.stats(Full).free_pages, 8);
}

#[test]
fn a_copy_that_does_not_fit_is_refused() {
    let mut pool = PagePool::new(1, SIZE);
    let first = table(&mut pool, 10);
    let mut second = pool.fork(&first);
    assert_eq!(pool.grow(&mut second, 11), Err(OutOfPages { needed: 1, free: 0 }));
    pool.release(first);
    assert_eq!(pool.grow(&mut second, 11), Ok(Vec::new()));
    pool.release(second);
}

#[test]
fn a_published_prefix_is_found_in_full_pages() {
    let mut pool = PagePool::new(8, SIZE);
    let tokens: Vec<u32> = (100..150).collect();
    let first = table(&mut pool, 50);
    pool.publish(&first, &tokens);
    assert_eq!(pool.stats(Full).cached_pages, 3);

    let same = pool.match_prefix(&tokens);
    assert_eq!((same.len_tokens(), same.pages(Full)), (48, &first.pages(Full)[..3]));
    let mut other = tokens.clone();
    other[20] = 0;
    let shorter = pool.match_prefix(&other);
    assert_eq!(shorter.len_tokens(), 16);
    // The same page of tokens after a different start is a different prefix.
    let moved = pool.match_prefix(&tokens[16..]);
    assert!(moved.is_empty());
    let stats = pool.stats(Full);
    assert_eq!((stats.prefix_lookup_tokens, stats.prefix_hit_tokens), (50 + 50 + 34, 48 + 16));
    for table in [first, same, shorter, moved] {
        pool.release(table);
    }
    assert_eq!((pool.stats(Full).idle_pages, pool.stats(Full).free_pages), (3, 5));
}

#[test]
fn equal_prefixes_that_were_computed_apart_are_cached_once() {
    let mut pool = PagePool::new(8, SIZE);
    let tokens: Vec<u32> = (0..48).collect();
    let first = table(&mut pool, 32);
    let second = table(&mut pool, 48);
    pool.publish(&first, &tokens);
    pool.publish(&second, &tokens);
    let found = pool.match_prefix(&tokens);
    assert_eq!(ids(&found), [0, 1, second.pages(Full)[2].raw()]);
    for table in [first, second, found] {
        pool.release(table);
    }
    assert_eq!((pool.stats(Full).idle_pages, pool.stats(Full).free_pages), (3, 5));
}

#[test]
fn the_prefix_unused_for_longest_is_evicted_first_and_from_its_end() {
    let mut pool = PagePool::new(4, SIZE);
    let text = |start: u32| (start..start + 32).collect::<Vec<u32>>();
    for start in [100, 200] {
        let table = table(&mut pool, 32);
        pool.publish(&table, &text(start));
        pool.release(table);
    }
    let touched = pool.match_prefix(&text(100));
    pool.release(touched);

    let new = table(&mut pool, 16);
    assert_eq!(pool.stats(Full).evictions, 1);
    let found = |pool: &mut PagePool, start: u32| {
        let table = pool.match_prefix(&text(start));
        let len_tokens = table.len_tokens();
        pool.release(table);
        len_tokens
    };
    assert_eq!(found(&mut pool, 200), 16);
    assert_eq!(found(&mut pool, 100), 32);
    pool.release(new);
}

#[test]
fn pages_in_use_are_not_evicted() {
    let mut pool = PagePool::new(2, SIZE);
    let tokens: Vec<u32> = (0..16).collect();
    let first = table(&mut pool, 16);
    pool.publish(&first, &tokens);
    let mut second = PageTable::new();
    assert_eq!(pool.grow(&mut second, 32), Err(OutOfPages { needed: 2, free: 1 }));
    pool.release(first);
    assert_eq!(pool.grow(&mut second, 32), Ok(Vec::new()));
    assert!(pool.match_prefix(&tokens).is_empty());
    pool.release(second);
}

#[test]
fn a_cached_page_is_not_offered_after_it_is_written_again() {
    let mut pool = PagePool::new(4, SIZE);
    let tokens: Vec<u32> = (0..16).collect();
    let mut table = table(&mut pool, 16);
    pool.publish(&table, &tokens);
    pool.truncate(&mut table, 10).unwrap();
    // The page still has its published contents.
    let found = pool.match_prefix(&tokens);
    assert_eq!(found.len_tokens(), 16);
    // Another table holds the page: the writer gets a copy, and the cache keeps the page.
    let copies = pool.grow(&mut table, 12).unwrap();
    assert_eq!(copies.len(), 1);
    assert_eq!(pool.match_prefix(&tokens).pages(Full), found.pages(Full));
    pool.release(table);

    // No other table holds the page: it is written in place and leaves the cache.
    let mut alone = PagePool::new(4, SIZE);
    let mut table = PageTable::new();
    alone.grow(&mut table, 16).unwrap();
    alone.publish(&table, &tokens);
    alone.truncate(&mut table, 10).unwrap();
    assert_eq!(alone.grow(&mut table, 12), Ok(Vec::new()));
    assert!(alone.match_prefix(&tokens).is_empty());
    alone.release(table);
    assert_eq!(alone.stats(Full).free_pages, 4);
}

#[test]
fn statistics_count_what_happened() {
    let mut pool = PagePool::new(8, SIZE);
    let mut first = table(&mut pool, 20);
    let second = pool.fork(&first);
    assert_eq!(pool.stats(Full).unfilled_tokens, 24);
    pool.grow(&mut first, 33).unwrap();
    let stats = pool.stats(Full);
    assert_eq!((stats.allocations, stats.copies), (4, 1));
    assert_eq!((stats.used_pages, stats.shared_pages, stats.free_pages), (4, 1, 4));
    assert_eq!(stats.unfilled_tokens, 15 + 12);
    pool.release(first);
    pool.release(second);
    let stats = pool.stats(Full);
    assert_eq!((stats.used_pages, stats.peak_used_pages, stats.unfilled_tokens), (0, 4, 0));
}

/// A pool with a window of 20 tokens.
fn windowed(full: usize, window: usize) -> PagePool {
    PagePool::with_window(PageCounts { full, window, states: 0 }, SIZE, Some(20))
}

#[test]
fn a_window_gives_back_what_it_has_passed() {
    let mut pool = windowed(8, 4);
    let mut table = table(&mut pool, 60);
    pool.drop_front(&mut table);
    // The next token is at position 60 and sees the positions from 41 on.
    assert_eq!((table.dropped_pages(Window), table.held_pages(Window).len()), (2, 2));
    assert_eq!((table.dropped_pages(Full), table.held_pages(Full).len()), (0, 4));
    assert_eq!(pool.stats(Window).free_pages, 2);
    assert_eq!(table.slot(Window, 31, SIZE), None);
    let slot = |group| table.slot(group, 33, SIZE).map(|s| (s.page.raw(), s.offset_tokens));
    assert_eq!((slot(Full), slot(Window)), (Some((2, 1)), Some((2, 1))));
    // Positions continue in the returned pages.
    pool.grow(&mut table, 96).unwrap();
    assert_eq!((table.pages(Full).len(), ids_of(&table, Window)[4..].len()), (6, 2));
    assert_eq!(pool.available_pages(), PageCounts { full: 2, window: 0, states: 0 });
    let refused = pool.grow(&mut table, 97);
    assert_eq!(refused, Err(OutOfPages { needed: 1, free: 0 }));
    pool.release(table);
    assert_eq!(pool.available_pages(), PageCounts { full: 8, window: 4, states: 0 });
}

#[test]
fn a_table_is_not_cut_to_where_its_window_has_passed() {
    let mut pool = windowed(8, 8);
    let mut table = table(&mut pool, 60);
    pool.drop_front(&mut table);
    let before = (ids(&table), ids_of(&table, Window), pool.stats(Window));
    // The token at position 50 sees position 31.
    assert_eq!(
        pool.truncate(&mut table, 50),
        Err(NotCut { len_tokens: 50, cause: CutCause::Window })
    );
    assert_eq!((ids(&table), ids_of(&table, Window), pool.stats(Window)), before);
    assert_eq!(pool.truncate(&mut table, 60), Ok(()));
    assert_eq!(pool.truncate(&mut table, 51), Ok(()));
    assert_eq!((table.len_tokens(), table.held_pages(Window).len()), (51, 2));
    assert_eq!(pool.truncate(&mut table, 0), Ok(()));
    assert_eq!(pool.available_pages(), pool.num_pages());
    pool.release(table);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn the_pages_of_a_window_suffice_for_any_steps_of_their_sequences() {
    for (size, window) in PageSize::ALL
        .into_iter()
        .flat_map(|size| [1, 2, 15, 16, 17, 100].map(|window| (size, window)))
    {
        // Three sequences take 40 tokens a step, of which every share is tried.
        let window_pages = size.window_pages_for(window, 3, 40);
        let counts = PageCounts { full: 1000, window: window_pages, states: 0 };
        let mut pool = PagePool::with_window(counts, size, Some(window));
        let mut tables = [(); 3].map(|()| PageTable::new());
        for step in 0..160 {
            let shares = [step % 41, (40 - step % 41) / 2, (41 - step % 41) / 2];
            for (table, tokens) in tables.iter_mut().zip(shares) {
                let new_len = table.len_tokens() + tokens;
                let bound = pool.pages_needed_in_steps(table, 100_000, tokens).window;
                assert!(pool.pages_needed(table, new_len).window <= bound);
                pool.grow(table, new_len).unwrap();
            }
            for table in &mut tables {
                pool.drop_front(table);
            }
        }
        for table in tables {
            pool.release(table);
        }
    }
}

#[test]
fn the_bound_of_a_window_includes_the_copy_of_a_shared_page() {
    // The next token sees tokens of all three pages.
    let mut pool = windowed(16, 8);
    let mut first = table(&mut pool, 33);
    let mut second = pool.fork(&first);
    let bound = |pool: &PagePool, table: &PageTable| pool.pages_needed_in_steps(table, 100, 1);
    for (table, pages) in [(&mut first, 1), (&mut second, 0)] {
        assert_eq!(pool.pages_needed(table, 34).window, pages);
        assert_eq!(bound(&pool, table).window, pages);
        pool.grow(table, 34).unwrap();
        assert_eq!(bound(&pool, table).window, 0);
    }
    pool.release(first);
    pool.release(second);
}

#[test]
fn a_prefix_is_found_where_the_pages_of_its_window_are_cached() {
    let mut pool = windowed(16, 8);
    let tokens: Vec<u32> = (0..96).collect();
    let mut first = table(&mut pool, 96);
    pool.publish(&first, &tokens);
    let fork = pool.match_prefix(&tokens);
    // Position 96 sees the positions from 77 on.
    assert_eq!((fork.len_tokens(), fork.dropped_pages(Window)), (96, 4));
    assert_eq!(fork.held_pages(Window), &first.pages(Window)[4..]);
    assert_eq!(fork.pages(Full), first.pages(Full));
    pool.release(fork);

    // Pages that the window has passed stay in the cache until they are evicted.
    pool.drop_front(&mut first);
    assert_eq!(pool.stats(Window).idle_pages, 4);
    let shorter = pool.match_prefix(&tokens[..70]);
    assert_eq!((shorter.len_tokens(), shorter.dropped_pages(Window)), (64, 2));
    pool.release(shorter);
    // Six of eight window pages for another sequence: only those of the first table stay.
    let other = table(&mut pool, 96);
    assert_eq!(pool.stats(Window).idle_pages, 0);
    let found: Vec<usize> = [96, 80, 64, 32, 16]
        .map(|len| {
            let found = pool.match_prefix(&tokens[..len]);
            let len_tokens = found.len_tokens();
            pool.release(found);
            len_tokens
        })
        .to_vec();
    assert_eq!(found, [96, 0, 0, 0, 0]);
    pool.release(other);
    pool.release(first);
    assert_eq!(pool.available_pages(), pool.num_pages());
}

#[test]
fn window_pages_are_published_again_after_they_were_evicted() {
    let mut pool = windowed(16, 4);
    let tokens: Vec<u32> = (0..64).collect();
    let computed = |pool: &mut PagePool| {
        let table = table(pool, 64);
        pool.publish(&table, &tokens);
        pool.release(table);
    };
    computed(&mut pool);
    let other = table(&mut pool, 64);
    pool.release(other);
    assert!(pool.match_prefix(&tokens).is_empty());
    assert_eq!((pool.stats(Full).cached_pages, pool.stats(Window).cached_pages), (4, 0));
    computed(&mut pool);
    let found = pool.match_prefix(&tokens);
    assert_eq!(found.len_tokens(), 64);
    pool.release(found);
}

#[test]
fn a_shared_partial_page_is_copied_in_both_groups() {
    let mut pool = windowed(8, 8);
    let mut first = table(&mut pool, 40);
    pool.drop_front(&mut first);
    let mut second = pool.fork(&first);
    assert_eq!(pool.pages_needed(&second, 41), PageCounts { full: 1, window: 1, states: 0 });
    let copies = pool.grow(&mut second, 41).unwrap();
    let page = PageId::new;
    // The window has passed page 0 of its group.
    let to = [(Full, page(3)), (Window, page(0))];
    assert_eq!(copies, to.map(|(group, to)| CopyPage { group, from: page(2), to }));
    pool.release(first);
    assert_eq!(second.held_pages(Window), [page(1), page(0)]);
    pool.release(second);
}

/// A pool with this many recurrent states.
fn recurrent(full: usize, states: usize) -> PagePool {
    PagePool::with_window(PageCounts { full, window: 0, states }, SIZE, None)
}

#[test]
fn a_sequence_holds_one_state_of_any_length_and_cannot_be_cut() {
    let mut pool = recurrent(9, 2);
    let mut first = table(&mut pool, 1);
    let state = first.state().unwrap();
    assert_eq!(pool.grow(&mut first, 100), Ok(Vec::new()));
    assert_eq!(first.state(), Some(state));
    let refused = pool.truncate(&mut first, 99).unwrap_err();
    assert_eq!(refused, NotCut { len_tokens: 99, cause: CutCause::State });
    assert_eq!(
        refused.to_string(),
        "the sequence cannot be cut to 99 tokens, because a recurrent state cannot be cut: \
         compute it again from the start"
    );
    let second = table(&mut pool, 1);
    assert_ne!(second.state(), Some(state));
    let mut third = PageTable::new();
    assert_eq!(pool.grow(&mut third, 1), Err(OutOfPages { needed: 1, free: 0 }));
    pool.truncate(&mut first, 0).unwrap();
    assert_eq!((first.state(), pool.available_pages().states), (None, 1));
    pool.release(second);
}

#[test]
fn shared_states_are_copied_before_either_sequence_goes_on() {
    let mut pool = recurrent(8, 2);
    let mut first = table(&mut pool, 16);
    let mut second = pool.fork(&first);
    let from = first.state().unwrap();
    assert_eq!(second.state(), Some(from));
    assert_eq!(pool.pages_needed(&second, 17), PageCounts { full: 1, window: 0, states: 1 });
    let copies = pool.grow(&mut second, 17).unwrap();
    let to = second.state().unwrap();
    assert_eq!(copies, [CopyPage { group: State, from, to }]);
    // The other one is now the only holder.
    assert_eq!(pool.grow(&mut first, 17), Ok(Vec::new()));
    assert_eq!(pool.stats(State).copies, 1);
    pool.release(first);
    pool.release(second);
}

#[test]
fn only_sequences_of_the_same_key_share_a_prefix() {
    let mut pool = PagePool::new(6, SIZE);
    let tokens: Vec<u32> = (0..40).collect();
    let [plain, one, two] = [&[][..], &[1], &[2]].map(|key| Prefix { key, tokens: &tokens });
    let mut table = PageTable::new();
    pool.grow(&mut table, tokens.len()).unwrap();
    pool.publish(&table, one);
    for other in [plain, two] {
        assert_eq!(pool.cached_tokens(other), 0);
        assert!(pool.match_prefix(other).is_empty());
    }
    // The key is no token: a text that begins with it is another one.
    let text: Vec<u32> = [1].into_iter().chain(tokens.iter().copied()).collect();
    assert_eq!(pool.cached_tokens(&text), 0);
    let found = pool.match_prefix(one);
    assert_eq!((found.len_tokens(), found.pages(Full)), (32, &table.pages(Full)[..2]));
    pool.release(found);
    pool.release(table);
}

#[test]
fn a_prefix_is_found_up_to_its_last_checkpoint() {
    let mut pool = recurrent(16, 3);
    let tokens: Vec<u32> = (0..80).collect();
    let mut first = table(&mut pool, 32);
    pool.publish(&first, &tokens[..32]);
    assert!(pool.match_prefix(&tokens).is_empty(), "no states are cached");
    assert!(pool.checkpoint(&first, &tokens[..32]));
    let kept = first.state().unwrap();
    let copies = pool.grow(&mut first, 72).unwrap();
    assert_eq!(
        copies.iter().map(|copy| (copy.group, copy.from)).collect::<Vec<_>>(),
        [(State, kept)]
    );
    pool.publish(&first, &tokens[..72]);
    // The states are those after 72 tokens, which do not end a page.
    assert!(!pool.checkpoint(&first, &tokens[..72]) && !pool.checkpoint(&first, &tokens[..64]));
    pool.release(first);

    let mut second = pool.match_prefix(&tokens);
    assert_eq!((second.len_tokens(), second.state()), (32, Some(kept)));
    // The cache keeps its states while there is room, and gives them up otherwise.
    let others = [table(&mut pool, 1), table(&mut pool, 1)];
    assert_eq!(pool.pages_needed(&second, 33).states, 0);
    assert_eq!(pool.grow(&mut second, 33), Ok(Vec::new()));
    assert!(pool.match_prefix(&tokens).is_empty());
    for table in others.into_iter().chain([second]) {
        pool.release(table);
    }
    assert_eq!(pool.available_pages(), pool.num_pages());
}

#[test]
fn an_empty_pool_has_nothing() {
    let mut pool = PagePool::new(0, SIZE);
    let mut table = PageTable::new();
    assert_eq!(pool.grow(&mut table, 0), Ok(Vec::new()));
    assert_eq!(pool.grow(&mut table, 1), Err(OutOfPages { needed: 1, free: 0 }));
}

fn table(pool: &mut PagePool, len_tokens: usize) -> PageTable {
    let mut table = PageTable::new();
    pool.grow(&mut table, len_tokens).unwrap();
    table
}

fn ids(table: &PageTable) -> Vec<u32> {
    ids_of(table, Full)
}

fn ids_of(table: &PageTable, group: PageGroup) -> Vec<u32> {
    table.pages(group).iter().map(|page| page.raw()).collect()
}
