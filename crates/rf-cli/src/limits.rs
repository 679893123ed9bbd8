//! What this machine can do at most, measured with what a model would use: the bound that ops are held against.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use rf_cpu::CpuBackend;
use rf_graph::{Backend, Batch, DType, GraphBuilder, KvLayout, KvType, Program, Span, Weight};
use rf_profile::roofline::Limits;

use crate::device::{OpenGpu, Placement, gpus};

/// A product that is bound by arithmetic: `[tokens, columns] · [rows, columns]ᵀ`.
#[derive(Clone, Copy)]
struct Product {
    rows: usize,
    columns: usize,
    tokens: usize,
}

/// Weights that stay in a core's cache, and some milliseconds of work.
const ON_CPU: Product = Product { rows: 1024, columns: 2048, tokens: 512 };

/// Enough for all compute units.
const ON_GPU: Product = Product { rows: 8192, columns: 4096, tokens: 2048 };

/// Limits of the CPU, with the threads that a model gets.
pub(crate) fn of_cpu(placement: &Placement) -> Result<Limits> {
    let cpu: CpuBackend = placement.cpu()?;
    let mut limits = Limits::measure_host(cpu.threads())?;
    limits.int8_operations_per_s = Some(operations_per_s(&cpu, ON_CPU)?);
    limits.source = format!("{}: reads of 256 MiB; {}", limits.source, ON_CPU.name());
    Ok(limits)
}

/// Limits of the GPU in use.
pub(crate) fn of_gpu(gpu: &OpenGpu) -> Result<Limits> {
    let mut limits = gpus::limits(gpu.number)?;
    limits.int8_operations_per_s = Some(operations_per_s(&*gpu.backend, ON_GPU)?);
    limits.source = format!("{}: copies of 256 MiB; {}", limits.source, ON_GPU.name());
    Ok(limits)
}

impl Product {
    fn name(self) -> String {
        let Self { rows, columns, tokens } = self;
        format!("the fastest Q8_0 product {rows}×{columns} of {tokens} tokens")
    }

    fn program(self) -> Option<Program> {
        let Self { rows, columns, tokens } = self;
        let mut g = GraphBuilder::new();
        // Any bytes are numbers that a product takes as long for as for others.
        let bytes = vec![0x21; DType::Q8_0.row_bytes(columns)? * rows];
        let weight = Weight::new("limit", DType::Q8_0, rows, columns, Arc::new(bytes))?;
        let weight = g.weight(weight);
        let x = g.input(columns);
        let out = g.matmul(x, weight);
        let (graph, weights) = g.finish(out);
        let kv =
            KvLayout { layers: Vec::new(), page_tokens: 32, num_pages: 64, dtype: KvType::F16 };
        Some(Program { graph, weights, kv, max_batch_tokens: tokens, max_output_rows: tokens })
    }
}

/// Arithmetic of the best of some runs.
fn operations_per_s(backend: &dyn Backend, product: Product) -> Result<f64> {
    const RUNS: usize = 8;
    let program = product.program().context("no whole number of blocks")?;
    let num_pages = program.kv.num_pages;
    let mut executor = backend.compile(program, &mut |_| ())?;
    let Product { rows, columns, tokens } = product;
    let input: Vec<f32> = (0..tokens * columns).map(|i| (i % 17) as f32 / 17.0).collect();
    let mut out = vec![0.0; tokens * rows];
    let ids = vec![0; tokens];
    let pages: Vec<_> = (0..num_pages as u32).map(rf_kv::PageId::new).collect();
    let spans = [Span { tokens: 0..tokens, past_tokens: 0, pages: &pages }];
    let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: Some(&input) };
    let mut best: Option<f64> = None;
    for _ in 0..RUNS {
        // Sums begin anew.
        executor.profile(true);
        executor.forward(&batch, &mut out)?;
        let summaries = executor.summaries();
        let op = summaries.first().and_then(|summary| summary.ops.get("matmul"));
        let speed = op
            .filter(|op| !op.time.is_zero())
            .map(|op| op.cost.operations() as f64 / op.time.as_secs_f64());
        best = best.into_iter().chain(speed).reduce(f64::max);
    }
    best.ok_or_else(|| anyhow!("{} takes no times of ops", backend.description()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rf_cpu::CpuOptions;

    #[test]
    fn a_product_on_the_cpu_has_a_speed_that_can_be() {
        let cpu = CpuBackend::new(CpuOptions { threads: Some(1), isa: None }).unwrap();
        let small = Product { rows: 64, columns: 256, tokens: 32 };
        let speed = operations_per_s(&cpu, small).unwrap();
        assert!(speed > 1e7 && speed < 1e14, "{speed}");
    }
}
