//! The memory that a program needs on a device.

use std::path::Path;

use rf_graph::{MemoryNeed, MemoryUse, Plan, Program};
use rf_hip::{DeviceInfo, Platform};

use super::analysis::GraphAnalysis;
use super::padding::Padding;
use super::rope::{OwnPositions, RopeTables, rope_of};
use super::step::StepSizes;
use super::sums::Sums;
use super::top_k::TopK;
use super::weights::WeightPlan;
use super::work::Work;
use crate::error::Error;
use crate::launch::Gpu;
use crate::params::MatmulDevice;
use crate::system;

/// Device memory that the driver takes for queues, code, graphs and rounded allocations.
const RESERVE_BYTES: u64 = 64 << 20;

/// Device memory that stays free on AMD cards. HIP keeps the arguments of graphs in device memory,
/// and crashes where there is none left (ROCm/rocm-systems #10021).
const AMD_RESERVE_BYTES: u64 = 512 << 20;

/// Device memory that stays free on AMD cards with a screen, whose windows take some at any time.
const AMD_DISPLAY_RESERVE_BYTES: u64 = 1 << 30;

/// The memory of a device that programs leave free.
fn reserve_bytes(info: &DeviceInfo, root: &Path) -> u64 {
    match info.platform {
        Platform::Amd if info.integrated => RESERVE_BYTES,
        Platform::Amd if system::has_display(root, &info.pci_bus_id) => AMD_DISPLAY_RESERVE_BYTES,
        Platform::Amd => AMD_RESERVE_BYTES,
        Platform::Nvidia => RESERVE_BYTES,
    }
}

/// Computes the memory of an executor without allocating any. `root` has `/sys`. `held` equals
/// [`Executor::memory`](rf_graph::Executor::memory).
pub(crate) fn memory_need(
    gpu: &Gpu,
    device: MatmulDevice,
    root: &Path,
    program: &Program,
) -> Result<MemoryNeed, Error> {
    let Program { graph, weights, kv, max_batch_tokens, max_output_rows } = program;
    let analysis = GraphAnalysis::new(graph, device);
    let plan = Plan::with_floats(graph, |id| analysis.floats(graph, id));
    let kv_plan = Padding::kv_plan(graph, kv)?;
    let own_positions = OwnPositions::of(graph, *max_batch_tokens);
    let ropes = RopeTables::new(kv_plan.positions(), own_positions);
    let step = StepSizes::new(*max_batch_tokens, *max_output_rows, kv.num_pages);
    let buffers = Work::bytes(&analysis, &plan, *max_batch_tokens)
        + step.bytes()
        + Sums::bytes_for(gpu.context(), graph, *max_batch_tokens)
        + TopK::bytes(graph.value(graph.output()).width, *max_output_rows)
        + kv_plan.spare_bytes()
        + ropes.bytes_for(graph.ops().iter().filter_map(rope_of));
    let held = MemoryUse {
        weights_bytes: WeightPlan::new(graph, weights).bytes() as u64,
        kv_bytes: kv_plan.bytes() as u64,
        states_bytes: kv_plan.states_bytes() as u64,
        buffers_bytes: buffers as u64,
    };
    Ok(MemoryNeed { held, reserve_bytes: reserve_bytes(gpu.context().info(), root) })
}
