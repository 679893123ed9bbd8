//! The CPU backend: SIMD ISAs, packed weights, one parallel region per batch.
//!
//! [`CpuBackend`] implements [`rf_graph::Backend`]. Weights are packed into panels of 16 rows when
//! a program is compiled. Every kernel is written once, over a 16-lane vector interface that each
//! [`Isa`] implements. All ISAs, numbers of threads and batches therefore compute the same bits.
//!
//! Start reading at `exec`, then `panel` (the layout of weights) and `simd`. In the layering this
//! crate is above rf-graph, like the other backends; it knows no model and no file format.
//!
//! | module | content |
//! |---|---|
//! | `panel` | the packed layout: *planes* of a block's fields, 16 rows interleaved |
//! | `stored` | formats whose panels differ from the file: codebook indices become codes of values |
//! | `simd` | the vector interface, and ISAs: portable, AVX2, AVX-VNNI, AVX-512 VNNI, NEON, NEON dotprod |
//! | `simd/format` | planes → codes, scales and minima: the only code per format |
//! | `simd/matvec` | GEMV: unpack in registers; bound by weight bytes |
//! | `simd/gemm` | GEMM: unpack a tile of 256 columns once, then 2 panels × 6 tokens in registers; bound by dot products |
//! | `simd/attention`, `simd/latent` | scores, softmax and values over the paged cache; latent attention, where a lane is a query |
//! | `simd/convolution`, `simd/recurrence` | recurrent layers: a lane is a column, the state stays in L1 |
//! | `kv`, `state` | keys transposed within a page, values by row; recurrent states in tiles of 32 columns |
//! | `team` | threads, phases, dynamic scheduling of pieces, disjoint parts of shared buffers |
//! | `exec` | graph ops as steps of one parallel region |
//!
//! Invariants:
//!
//! - An output is one lane, and no sum crosses lanes. Hence every ISA, number of threads, chunking
//!   and batch composition computes the same bits.
//! - A value of an ISA proves that the CPU has its features.
//! - A thread that does not run delays at most the piece that it has begun.
//!
//! Weights are packed when a program is compiled, not per chunk of a prompt, because decode reads
//! the packed layout too. Packing costs about half a second for 0.7 GB. The crate depends on
//! `memmap2` for page-aligned, lazily mapped buffers with huge pages. `exec` and `team` contain
//! `unsafe` besides `simd`: in each phase, threads write disjoint parts of shared buffers. Safe
//! Rust would need a fork and join per op for that.
//!
//! ```
//! use rf_cpu::{CpuBackend, CpuOptions, Isa};
//! use rf_graph::Backend;
//!
//! let backend = CpuBackend::new(CpuOptions::default().with_threads(2).with_isa(Isa::best()))?;
//! assert!(backend.description().contains("2 threads"));
//! # Ok::<(), rf_graph::BackendError>(())
//! ```

mod exec;
mod kv;
mod machine;
mod panel;
mod peak;
mod simd;
mod state;
mod stored;
mod team;
#[doc(hidden)]
pub mod testing;

use std::sync::{Arc, Mutex};

use rf_graph::{Backend, BackendError, Executor, Fusions, MemoryNeed, Peak, Program, Progress};

/// The crate of the backend's trait, and of its programs and errors.
pub use rf_graph;
pub use simd::{Isa, UnknownIsa};
use team::Team;

/// Options of [`CpuBackend`].
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct CpuOptions {
    /// Number of threads. Default: one per physical core that this process may use.
    pub threads: Option<usize>,
    /// Instruction set. Default: the fastest one that this CPU supports.
    pub isa: Option<Isa>,
}

impl CpuOptions {
    /// Sets [`threads`](Self::threads).
    #[must_use]
    pub fn with_threads(mut self, threads: impl Into<Option<usize>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Sets [`isa`](Self::isa).
    #[must_use]
    pub fn with_isa(mut self, isa: impl Into<Option<Isa>>) -> Self {
        self.isa = isa.into();
        self
    }
}

/// Runs programs on the CPU.
pub struct CpuBackend {
    isa: Isa,
    team: Arc<Mutex<Team>>,
    threads: usize,
}

impl CpuBackend {
    /// Detects the CPU and starts the threads. Idle threads sleep.
    ///
    /// # Errors
    ///
    /// The threads cannot be started.
    pub fn new(options: CpuOptions) -> Result<Self, BackendError> {
        let threads = options.threads.unwrap_or_else(machine::default_threads).max(1);
        let isa = options.isa.unwrap_or_else(Isa::best);
        Ok(Self { isa, team: Arc::new(Mutex::new(Team::new(threads)?)), threads })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &'static str {
        "CPU"
    }

    fn description(&self) -> String {
        machine::description(self.isa, self.threads)
    }

    fn fusions(&self) -> Fusions {
        Fusions::PROLOGUES
    }

    fn available_memory_bytes(&self) -> Option<u64> {
        machine::available_memory_bytes()
    }

    fn measure_peak(&self) -> Result<Peak, BackendError> {
        Ok(self.isa.measure_peak(self.threads))
    }

    fn memory_need(&self, program: &Program) -> Result<MemoryNeed, BackendError> {
        exec::memory_need(self.isa, self.threads, program)
    }

    fn compile(
        &self,
        program: Program,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Box<dyn Executor>, BackendError> {
        let team = Arc::clone(&self.team);
        Ok(Box::new(exec::CpuExecutor::new(self.isa, team, program, progress)?))
    }
}
