//! Paged KV cache bookkeeping: which page of the cache holds which tokens of which sequence.
//!
//! **Place in the layering.** At the bottom: the crate depends on no other and knows no device, no
//! tensor and no byte. A backend owns the storage, `[num_pages, page_size, …]` per layer, and
//! receives page ids. `rf-engine` owns a [`PagePool`] and one [`PageTable`] per sequence.
//!
//! **Groups.** Layers with a sliding window need a few pages of a long sequence, all others need
//! every page. The layers therefore form two [`PageGroup`]s with separate page ids, and a table
//! lists the pages of both. Models without windows have [`PageGroup::Full`] only.
//!
//! **States.** A recurrent layer keeps a state of fixed size instead of one entry per position. A
//! sequence of such a model also holds one page of [`PageGroup::State`], which is shared, copied,
//! counted and returned like the others. It is the state after the last token, so the sequence
//! cannot be cut. [`PagePool::checkpoint`] keeps a state in the prefix cache.
//!
//! **Store.** Pages that leave the prefix cache may go to a store outside of the pool, which its
//! owner keeps ([`PagePool::set_exports`]). The pool says which pages to copy there
//! ([`PagePool::take_moves`]), and finds prefixes there ([`PagePool::match_prefix_in`]).
//!
//! **Where to start.** [`PagePool::grow`] allocates pages for new tokens, and
//! [`PagePool::reserve`] for values after them that are not kept. [`PagePool::fork`] and
//! [`PagePool::match_prefix`] share pages. [`PagePool::truncate`], [`PagePool::drop_front`] and
//! [`PagePool::release`] return them.
//!
//! **Invariants.**
//! - A page that several tables hold, or that the prefix cache contains, is never written. Before a
//!   table writes into such a page, [`PagePool::grow`] replaces it by a copy.
//! - A page of a group is exactly one of three: free, held by tables, or idle in the prefix cache.
//!   Idle pages count as available. When no page is free, the least recently used one is evicted.
//! - The same calls give the same page ids.
//! - The time of an operation is proportional to the pages it touches, not to the size of the pool.
//! - A table belongs to the pool that filled it and returns to it through [`PagePool::release`].
//!   Passing it to another pool is a bug of the caller, and the only way to make this crate panic.
//!
//! # Example
//!
//! ```
//! use rf_kv::PageGroup::Full;
//! use rf_kv::{PagePool, PageSize, PageTable};
//!
//! let mut pool = PagePool::new(8, PageSize::Tokens16);
//!
//! // A prompt of 20 tokens takes two pages. The second one has room for twelve more tokens.
//! let prompt: Vec<u32> = (0..20).collect();
//! let mut first = PageTable::new();
//! pool.grow(&mut first, prompt.len())?;
//! assert_eq!(first.pages(Full).len(), 2);
//!
//! // A second continuation of the prompt shares both pages until it writes into the second one.
//! let mut second = pool.fork(&first);
//! let copies = pool.grow(&mut second, 21)?;
//! assert_eq!((copies[0].from, copies[0].to), (first.pages(Full)[1], second.pages(Full)[1]));
//! assert_eq!(first.pages(Full)[0], second.pages(Full)[0]);
//!
//! // The prefix cache finds full pages by their tokens after the sequences have ended.
//! pool.publish(&first, &prompt);
//! pool.release(first);
//! pool.release(second);
//! let again = pool.match_prefix(&prompt);
//! assert_eq!(again.len_tokens(), 16);
//! assert_eq!(pool.stats(Full).used_pages, 1);
//! pool.release(again); // dropping a table that holds pages would leak them
//! # Ok::<(), rf_kv::OutOfPages>(())
//! ```

mod export;
mod group;
mod idle;
mod observer;
mod page;
mod pool;
mod prefix;
mod stats;
mod table;

pub use export::{ChainKey, Exports, PageImport, PageKey, PageMove, PageStore};
pub use observer::{CacheEvent, CacheObserver};
pub use page::{InvalidPageSize, PageCounts, PageGroup, PageId, PageSize};
pub use pool::{CopyPage, CutCause, NotCut, OutOfPages, PagePool, Reserved};
pub use prefix::Prefix;
pub use stats::PoolStats;
pub use table::{PageTable, Slot};
