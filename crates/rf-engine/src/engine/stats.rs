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
    /// Recurrent states in host memory, from which a sequence can begin.
    pub host_states: usize,
    /// Bytes of host memory that hold states.
    pub host_state_bytes: u64,
    /// States that were copied back from host memory.
    pub host_state_loads: u64,
}
