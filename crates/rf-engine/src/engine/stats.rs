//! Statistics of the prefix cache.

/// The prefix cache of an engine: counters since it was loaded, and recurrent states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixCacheStats {
    /// Tokens of prompts that were looked up.
    pub lookup_tokens: u64,
    /// Tokens that were found, of those looked up.
    pub found_tokens: u64,
    /// Recurrent states on the device, from which a sequence can begin.
    pub device_states: usize,
    /// Pages in host memory that the device has evicted.
    pub host: TierStats,
    /// Pages in the folder.
    pub disk: TierStats,
}

/// Pages of the prefix cache outside of the device: in host memory, or in a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// Pages, recurrent states included.
    pub pages: usize,
    /// The number of these pages that are recurrent states.
    pub states: usize,
    /// Size of all pages.
    pub bytes: u64,
    /// Pages that were copied back to the device so far.
    pub loads: u64,
    /// Pages that were not written so far, because writing failed or too many waited.
    pub dropped: u64,
    /// Damaged files that were removed so far.
    pub damaged: u64,
}
