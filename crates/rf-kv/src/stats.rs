//! What a pool can tell about itself.

/// The state of a [`PagePool`](crate::PagePool) and what has happened since it was made.
///
/// Sizes are in pages and tokens: multiply by the bytes per token of the model for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// All pages.
    pub total_pages: usize,
    /// Pages with nothing in them.
    pub free_pages: usize,
    /// Pages that at least one table holds.
    pub used_pages: usize,
    /// Pages that no table holds and the prefix cache keeps until they are needed otherwise. Free,
    /// used and idle pages together are all pages.
    pub idle_pages: usize,
    /// Pages that the prefix cache can offer, held by tables or idle.
    pub cached_pages: usize,
    /// Pages that more than one table holds.
    pub shared_pages: usize,
    /// The most pages that were used at any time.
    pub peak_used_pages: usize,
    /// Internal fragmentation: tokens for which tables have room in their last page and which are not
    /// there. A last page that two tables share counts for both.
    pub unfilled_tokens: usize,
    /// Pages handed out so far.
    pub allocations: u64,
    /// Shared pages that were replaced by a copy so far, because a table wrote into them.
    pub copies: u64,
    /// Cached pages that were given up for a new use so far.
    pub evictions: u64,
    /// Tokens that were looked for in the prefix cache so far.
    pub prefix_lookup_tokens: u64,
    /// Tokens that were found there so far.
    pub prefix_hit_tokens: u64,
}
