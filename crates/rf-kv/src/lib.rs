//! Paged KV cache bookkeeping: which page of the cache holds which tokens of which sequence.
//!
//! **Place in the layering.** At the bottom: it depends on no other crate and knows no device, no
//! tensor and no byte. A backend owns the storage, `[num_pages, page_size, …]` per layer, and is told
//! page ids; `rf-engine` owns a [`PagePool`] and one [`PageTable`] per sequence.
//!
//! **Where to start.** [`PagePool::grow`] makes room for new tokens; everything else shares
//! ([`PagePool::fork`], [`PagePool::match_prefix`]) or gives back ([`PagePool::truncate`],
//! [`PagePool::drop_front`], [`PagePool::release`]).
//!
//! **Invariants.**
//! - A page that more than one table holds, or that the prefix cache offers, is never written: before
//!   a table writes into one, [`PagePool::grow`] replaces it by a copy of its own.
//! - A page is free, held by tables, or idle in the prefix cache: exactly one of the three. Idle pages
//!   count as available, for they are evicted, the least recently used first, when no page is free.
//! - The same calls give the same page ids.
//! - Every operation takes time in proportion to the pages it touches, whatever the size of the pool.
//! - A table belongs to the pool that filled it and goes back to it by [`PagePool::release`]. Giving it
//!   to another pool is a mistake of the caller, and the only way to make this crate panic.
//!
//! # Example
//!
//! ```
//! use rf_kv::{PagePool, PageSize, PageTable};
//!
//! let mut pool = PagePool::new(8, PageSize::Tokens16);
//!
//! // A prompt of 20 tokens takes two pages; the second one has room for twelve more.
//! let prompt: Vec<u32> = (0..20).collect();
//! let mut first = PageTable::new();
//! pool.grow(&mut first, prompt.len())?;
//! assert_eq!(first.pages().len(), 2);
//!
//! // A second continuation of the prompt shares both, until it writes into the second.
//! let mut second = pool.fork(&first);
//! let copies = pool.grow(&mut second, 21)?;
//! assert_eq!((copies[0].from, copies[0].to), (first.pages()[1], second.pages()[1]));
//! assert_eq!(first.pages()[0], second.pages()[0]);
//!
//! // Full pages can be found again by their tokens after the sequences are gone.
//! pool.publish(&first, &prompt);
//! pool.release(first);
//! pool.release(second);
//! let again = pool.match_prefix(&prompt);
//! assert_eq!(again.len_tokens(), 16);
//! # pool.release(again);
//! # Ok::<(), rf_kv::OutOfPages>(())
//! ```

mod page;
mod pool;
mod prefix;
mod stats;
mod table;

pub use page::{InvalidPageSize, PageId, PageSize};
pub use pool::{CopyPage, OutOfPages, PagePool};
pub use stats::PoolStats;
pub use table::{PageTable, Slot};
