//! What is to be found out.

use super::counters::{CounterGroup, Generation, passes};
use crate::Error;

/// What a profiler is to record. Helpers make the usual ones.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::Request;
///
/// let request = Request::memory("gfx1100")?;
/// assert_eq!(request.passes[0], ["FETCH_SIZE"]);
/// assert!(Request::memory("gfx803").is_err(), "counters that are not known are not guessed");
/// // With caches, stalls and waves it takes more runs of the program; of products, their kernels alone.
/// assert!(Request::detailed_memory("gfx1100")?.passes.len() > request.passes.len());
/// assert!(Request::matmul_memory("gfx1100")?.kernel_filter.is_some());
/// assert!(Request::compute_unit("gfx90a")?.passes.iter().flatten().any(|name| name == "VALUBusy"));
/// # Ok::<(), rf_profile::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for on its own")]
pub struct Request {
    /// Times of kernels.
    pub kernels: bool,
    /// Calls of the HIP runtime.
    pub api: bool,
    /// Copies between memories.
    pub copies: bool,
    /// Allocations of device memory.
    pub allocations: bool,
    /// Counters: the program runs once for each list.
    pub passes: Vec<Vec<String>>,
    /// Only kernels whose names match this regular expression.
    pub kernel_filter: Option<String>,
}

impl Request {
    /// Times of kernels.
    pub fn kernels() -> Self {
        Self { kernels: true, ..Self::default() }
    }

    /// A timeline: kernels, calls, copies and allocations.
    pub fn timeline() -> Self {
        Self { kernels: true, api: true, copies: true, allocations: true, ..Self::default() }
    }

    /// Bytes that each kernel reads from and writes to memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the counters of `gfx` are not known.
    pub fn memory(gfx: &str) -> Result<Self, Error> {
        Self::counting(gfx, &[CounterGroup::Memory])
    }

    /// The same with cache hits, stalls and waves.
    ///
    /// # Errors
    ///
    /// As [`Request::memory`].
    pub fn detailed_memory(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{Cache, Memory, Stalls, Waves};
        Self::counting(gfx, &[Memory, Cache, Stalls, Waves])
    }

    /// Memory, caches, LDS and instructions of the kernels of matrix products.
    ///
    /// # Errors
    ///
    /// As [`Request::memory`].
    pub fn matmul_memory(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{Cache, Instructions, Lds, Memory};
        let request = Self::counting(gfx, &[Memory, Cache, Lds, Instructions])?;
        Ok(Self { kernel_filter: Some("mat(mul|vec)|[gG][eE][mM][mMvV]".to_owned()), ..request })
    }

    /// How busy the compute units are, and what waves wait for.
    ///
    /// # Errors
    ///
    /// As [`Request::memory`].
    pub fn compute_unit(gfx: &str) -> Result<Self, Error> {
        use CounterGroup::{ComputeUnit, Instructions, Stalls, Waves};
        Self::counting(gfx, &[ComputeUnit, Waves, Instructions, Stalls])
    }

    /// Counters of these groups, with the times of kernels.
    ///
    /// # Errors
    ///
    /// As [`Request::memory`].
    pub fn counting(gfx: &str, groups: &[CounterGroup]) -> Result<Self, Error> {
        let generation = Generation::of(gfx).ok_or_else(|| Error::Unsupported {
            tool: "hardware counters",
            reason: format!("those of '{gfx}' are not known"),
        })?;
        let counters: Vec<&str> =
            groups.iter().flat_map(|group| group.counters(generation)).copied().collect();
        Ok(Self { kernels: true, passes: passes(&counters), ..Self::default() })
    }
}
