//! The pages of three sequences that begin alike: one page pool, and no device.
//! `cargo run -p rf-kv --example pages`

#![expect(clippy::print_stdout, reason = "an example")]

use rf_kv::PageGroup::Full;
use rf_kv::{OutOfPages, PagePool, PageSize, PageTable};

fn main() -> Result<(), OutOfPages> {
    // A backend has storage for four pages of 16 tokens each. The pool knows their numbers only.
    let mut pool = PagePool::new(4, PageSize::Tokens16);

    // Allocate: pages for a prompt, whose keys and values the backend then writes.
    let prompt: Vec<u32> = (100..140).collect();
    let mut first = PageTable::new();
    pool.grow(&mut first, prompt.len())?;
    show("first", &first, &pool);
    let slot = first.slot(Full, 17, PageSize::Tokens16).expect("the table has 40 tokens");
    println!("position 17 is token {} of page {}", slot.offset_tokens, slot.page.index());

    // Share a prefix: a later request with the same prompt finds its two full pages in the cache.
    // The last token is computed in any case, because its logits are needed.
    pool.publish(&first, &prompt);
    let mut second = pool.match_prefix(&prompt[..prompt.len() - 1]);
    println!("{} of {} tokens are cached", second.len_tokens(), prompt.len());
    pool.grow(&mut second, prompt.len())?;
    show("second", &second, &pool);

    // Fork: a second answer to the same prompt shares all pages until it writes into the last one.
    let mut third = pool.fork(&second);
    if let Err(error) = pool.grow(&mut third, prompt.len() + 1) {
        println!("{error}");
    }

    // Free: the pages that only the first sequence held are available again.
    pool.release(first);
    for copy in pool.grow(&mut third, prompt.len() + 1)? {
        println!("the backend copies page {} to page {}", copy.from.index(), copy.to.index());
    }
    show("third", &third, &pool);

    // Dropping a table would leak its pages. Full pages stay in the cache until they are needed.
    pool.release(second);
    pool.release(third);
    let stats = pool.stats(Full);
    println!("{} pages are free, {} idle in the prefix cache", stats.free_pages, stats.idle_pages);
    Ok(())
}

fn show(name: &str, table: &PageTable, pool: &PagePool) {
    let pages: Vec<_> = table.pages(Full).iter().map(|page| page.index()).collect();
    let free = pool.available_pages().full;
    println!("{name}: {} tokens in the pages {pages:?}, {free} available", table.len_tokens());
}
