//! The CPU as several parts that compute every layer together, each with some of its threads.

use rf_cpu::{CpuBackend, CpuOptions};
use rf_graph::Backend;
use rf_graph::tensor::TensorBackend;

use crate::error::Error;
use crate::hybrid::HybridBackend;

/// Parts of the CPU.
pub(crate) struct CpuParts {
    cpus: Vec<CpuBackend>,
    shares: Vec<f32>,
}

impl CpuParts {
    /// Starts a part for each share above 0, with that share of the threads and at least one.
    pub(crate) fn start(options: CpuOptions, shares: &[f32]) -> Result<Self, Error> {
        let threads = CpuBackend::new(options)?.threads();
        let counts = HybridBackend::deal(threads, shares);
        let used = shares.iter().zip(counts).filter(|(share, _)| **share > 0.0);
        let (shares, counts): (Vec<f32>, Vec<usize>) = used.unzip();
        let start = |threads: &usize| CpuBackend::new(options.with_threads((*threads).max(1)));
        let cpus = counts.iter().map(start).collect::<Result<_, _>>()?;
        Ok(Self { cpus, shares })
    }

    /// Returns one backend that runs all parts; `None` if there are no parts.
    pub(crate) fn as_one(&self) -> Option<TensorBackend<'_>> {
        let parts = self.cpus.iter().zip(&self.shares);
        let parts: Vec<_> = parts.map(|(cpu, share)| (cpu as &dyn Backend, *share)).collect();
        Some(TensorBackend::new(&parts)?.with_shared_memory())
    }

    /// The threads of all parts.
    pub(crate) fn threads(&self) -> usize {
        self.cpus.iter().map(CpuBackend::threads).sum()
    }

    /// `2 parts: avx2, 4 threads; avx2, 4 threads`.
    pub(crate) fn description(&self) -> String {
        let parts: Vec<String> = self.cpus.iter().map(Backend::description).collect();
        format!("{} parts: {}", parts.len(), parts.join("; "))
    }
}
