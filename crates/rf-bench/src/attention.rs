//! Attention over the paged cache: of whole prompts, and of single tokens at a depth.
//!
//! The graph has one attention, causal, and backends one form of it: scores, softmax and values of
//! a query in one pass over the pages ("flash"). [`crate::standard`] is the comparison: it
//! materialises all scores.

use rf_oracle::case::{Case, CaseShape, speed};
use rf_oracle::rf_graph::{KvType, OperandFormat};

use crate::op_task::{OpTask, format_name};
use crate::{Suite, Workload};

pub(crate) fn workloads() -> Vec<Workload> {
    let workload = |case: Case| {
        let quick = is_quick(&case);
        Workload::new(OpTask::new(name(&case), Suite::Attention, case), quick)
    };
    speed::attentions().into_iter().map(workload).collect()
}

fn name(case: &Case) -> String {
    let CaseShape::Heads { num_heads, num_kv_heads, head_dim } = case.shape() else {
        return case.name().to_owned();
    };
    let what = match (case.timed_batch().past_tokens(), case.timed_batch().tokens()) {
        (0, tokens) => format!("prefill/tokens={tokens}"),
        (past_tokens, _) => format!("decode/depth={past_tokens}"),
    };
    let kv = format_name(case);
    format!("attention/heads={num_heads}:{num_kv_heads}x{head_dim}/{kv}/{what}")
}

fn is_quick(case: &Case) -> bool {
    let [num_heads, num_kv_heads, head_dim] = speed::USUAL_HEADS;
    if case.shape() != (CaseShape::Heads { num_heads, num_kv_heads, head_dim }) {
        return false;
    }
    match (case.timed_batch().past_tokens(), case.timed_batch().tokens()) {
        (0, tokens) => [128, 512].contains(&tokens),
        (past_tokens, _) => {
            let usual = [KvType::F16, KvType::Q8_0].map(|kv| Some(OperandFormat::Cache(kv)));
            past_tokens == 4096 && usual.contains(&case.format())
        }
    }
}
