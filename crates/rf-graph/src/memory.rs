//! Memory that a program needs, and memory that an executor holds.

/// Memory held by an executor, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Weights, in the layout of the backend or mapped from the file.
    pub weights_bytes: u64,
    /// Pages of the KV cache.
    pub kv_bytes: u64,
    /// Recurrent states of all sequences.
    pub states_bytes: u64,
    /// Activations, operands and other buffers of a batch.
    pub buffers_bytes: u64,
}

impl MemoryUse {
    /// The sum of all parts.
    pub fn total_bytes(&self) -> u64 {
        [self.kv_bytes, self.states_bytes, self.buffers_bytes]
            .into_iter()
            .fold(self.weights_bytes, u64::saturating_add)
    }
}

impl std::ops::Add for MemoryUse {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            weights_bytes: self.weights_bytes.saturating_add(other.weights_bytes),
            kv_bytes: self.kv_bytes.saturating_add(other.kv_bytes),
            states_bytes: self.states_bytes.saturating_add(other.states_bytes),
            buffers_bytes: self.buffers_bytes.saturating_add(other.buffers_bytes),
        }
    }
}

/// Memory that a program needs on a backend, in bytes.
///
/// [`Backend::memory_need`](crate::Backend::memory_need) computes it before anything is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// What the executor holds after compilation: the value of
    /// [`Executor::memory`](crate::Executor::memory).
    pub held: MemoryUse,
    /// Upper bound of what the runtime and buffers that grow with the context add later.
    pub reserve_bytes: u64,
}

impl MemoryNeed {
    /// The sum of all parts.
    pub fn total_bytes(&self) -> u64 {
        self.held.total_bytes().saturating_add(self.reserve_bytes)
    }
}

impl std::ops::Add for MemoryNeed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            reserve_bytes: self.reserve_bytes.saturating_add(other.reserve_bytes),
        }
    }
}
