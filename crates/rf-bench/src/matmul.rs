//! Matmuls: `out [tokens, rows] = x [tokens, columns] · Wᵀ`.

use rf_oracle::case::{Case, CaseShape, speed};
use rf_oracle::rf_graph::{DType, OperandFormat};

use crate::op_task::{OpTask, format_name};
use crate::{Suite, Workload};

pub(crate) fn workloads() -> Vec<Workload> {
    let workload = |case: Case| {
        let quick = is_quick(&case);
        Workload::new(OpTask::new(name(&case), Suite::Matmul, case), quick)
    };
    speed::matmuls().into_iter().map(workload).collect()
}

fn name(case: &Case) -> String {
    let (format, tokens) = (format_name(case), case.timed_batch().tokens());
    let CaseShape::Matrix { rows, columns } = case.shape() else { return case.name().to_owned() };
    format!("matmul/{format}/{rows}x{columns}/rows={tokens}")
}

fn is_quick(case: &Case) -> bool {
    let Some(OperandFormat::Weight(dtype)) = case.format() else { return false };
    let is_square = case.shape() == CaseShape::Matrix { rows: 4096, columns: 4096 };
    match (dtype, case.timed_batch().tokens()) {
        (DType::F32, 512) => case.shape() == CaseShape::Matrix { rows: 512, columns: 512 },
        (DType::F32 | DType::Q4_0 | DType::Q6K | DType::Q8_0 | DType::Q4K, 1)
        | (DType::Q8_0 | DType::Q4K, 512) => is_square,
        _ => false,
    }
}
