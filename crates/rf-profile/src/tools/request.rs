//! Requests to a profiler.

use super::counters::{CounterGroup, GpuGeneration, passes};
use crate::Error;

/// The data that a profiler records. The constructors cover the usual cases.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::ProfileRequest;
///
/// let request = ProfileRequest::memory("gfx1100")?;
/// assert_eq!(request.passes[0], ["FETCH_SIZE"]);
/// assert!(ProfileRequest::memory("gfx803").is_err(), "the counters of this target are unknown");
/// // Caches, stalls and waves take more passes. The matmul request selects kernels by name.
/// assert!(ProfileRequest::detailed_memory("gfx1100")?.passes.len() > request.passes.len());
/// assert!(ProfileRequest::matmul_memory("gfx1100")?.kernel_filter.is_some());
/// let compute_unit = ProfileRequest::compute_unit("gfx90a")?;
/// assert!(compute_unit.passes.iter().flatten().any(|name| name == "VALUBusy"));
/// # Ok::<(), rf_profile::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent options")]
pub struct ProfileRequest {
    /// Records the times of kernels.
    pub kernels: bool,
    /// Records calls of the HIP runtime.
    pub api: bool,
    /// Records copies between memories.
    pub copies: bool,
    /// Records allocations of device memory.
    pub allocations: bool,
    /// Counters by pass. The program runs once for each pass.
    pub passes: Vec<Vec<String>>,
    /// A regular expression for the names of the recorded kernels.
    pub kernel_filter: Option<String>,
}

impl ProfileRequest {
    /// Requests the times of kernels.
    pub fn kernels() -> Self {
        Self { kernels: true, ..Self::default() }
    }

    /// Requests a timeline: kernels, calls, copies and allocations.
    pub fn timeline() -> Self {
        Self { kernels: true, api: true, copies: true, allocations: true, ..Self::default() }
    }

    /// Requests the bytes that each kernel reads from and writes to memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the counters of `gfx` are unknown.
    pub fn memory(gfx: &str) -> Result<Self, Error> {
        Self::counting(gfx, &[CounterGroup::Memory])
    }

    /// Requests memory bytes, cache hits, stalls and waves.
    ///
    /// # Errors
    ///
    /// The errors of [`ProfileRequest::memory`].
    pub fn detailed_memory(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{Cache, Memory, Stalls, Waves};
        Self::counting(gfx, &[Memory, Cache, Stalls, Waves])
    }

    /// Requests memory bytes, cache hits, LDS counters and instructions of matmul kernels.
    ///
    /// # Errors
    ///
    /// The errors of [`ProfileRequest::memory`].
    pub fn matmul_memory(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{Cache, Instructions, Lds, Memory};
        let request = Self::counting(gfx, &[Memory, Cache, Lds, Instructions])?;
        Ok(Self { kernel_filter: Some("mat(mul|vec)|[gG][eE][mM][mMvV]".to_owned()), ..request })
    }

    /// Requests the utilisation of the compute units and the stalls of waves.
    ///
    /// # Errors
    ///
    /// The errors of [`ProfileRequest::memory`].
    pub fn compute_unit(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{ComputeUnit, Instructions, Stalls, Waves};
        Self::counting(gfx, &[ComputeUnit, Waves, Instructions, Stalls])
    }

    /// Requests the counters of these groups and the times of kernels.
    ///
    /// # Errors
    ///
    /// The errors of [`ProfileRequest::memory`].
    pub fn counting(gfx: &str, groups: &[CounterGroup]) -> Result<Self, Error> {
        let generation = GpuGeneration::of(gfx).ok_or_else(|| Error::Unsupported {
            tool: "hardware counters",
            reason: format!("those of '{gfx}' are unknown"),
        })?;
        let counters: Vec<&str> =
            groups.iter().flat_map(|group| group.counters(generation)).copied().collect();
        Ok(Self { kernels: true, passes: passes(&counters), ..Self::default() })
    }
}
