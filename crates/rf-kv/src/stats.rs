//! Statistics of a pool.

/// The state of one group of pages of a [`PagePool`](crate::PagePool) and its counters since
/// creation.
///
/// Sizes are in pages and tokens. Multiply by the bytes per token of the group's layers to get
/// memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The number of all pages.
    pub total_pages: usize,
    /// Pages that hold no tokens.
    pub free_pages: usize,
    /// Pages that at least one table holds.
    pub used_pages: usize,
    /// Pages in the prefix cache that no table holds. Free, used and idle pages add up to all
    /// pages.
    pub idle_pages: usize,
    /// Pages in the prefix cache, held by tables or idle.
    pub cached_pages: usize,
    /// Pages that more than one table holds.
    pub shared_pages: usize,
    /// The maximum of `used_pages` so far.
    pub peak_used_pages: usize,
    /// Internal fragmentation: unused token slots in the last pages of tables. A last page that two
    /// tables share counts for both.
    pub unfilled_tokens: usize,
    /// Pages allocated so far.
    pub allocations: u64,
    /// Shared pages copied so far, because a table wrote into them.
    pub copies: u64,
    /// Cached pages evicted so far.
    pub evictions: u64,
    /// Tokens looked up in the prefix cache so far.
    pub prefix_lookup_tokens: u64,
    /// Tokens found in the prefix cache so far.
    pub prefix_hit_tokens: u64,
}
