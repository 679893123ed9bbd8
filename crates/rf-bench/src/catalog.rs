//! The list of workloads.

use crate::{Suite, Workload, attention, dequant, launch, matmul, memory, standard};

/// All one-op workloads of a suite, in the order of reports. [`Suite::Inference`] has none: its
/// metrics need a model file.
pub fn workloads(suite: Suite) -> Vec<Workload> {
    match suite {
        Suite::Matmul => matmul::workloads(),
        Suite::Attention => [attention::workloads(), standard::workloads()].concat(),
        Suite::Dequant => dequant::workloads(),
        Suite::Inference => Vec::new(),
        Suite::Memory => memory::workloads(),
        Suite::Launch => launch::workloads(),
    }
}
