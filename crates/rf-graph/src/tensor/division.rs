//! The report on the matrices that are divided.

use std::collections::HashSet;
use std::fmt;

use super::region::Regions;
use super::walk::left_operand;
use crate::graph::Graph;
use crate::op::{Op, Operand};
use crate::program::Program;
use crate::value::WeightId;
use crate::weight::Weight;

/// The matrices of a program that are divided over parts, and those that each part has whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Number of parts.
    pub parts: usize,
    /// Bytes of the matrices that are divided.
    pub divided_bytes: u64,
    /// Bytes of the matrices that every part has.
    pub whole_bytes: u64,
    /// Sums over the parts in a step.
    pub sums: usize,
    /// The matrices that every part has, by the reason.
    pub whole: Vec<WholeWeights>,
}

/// Matrices that every part has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeWeights {
    /// The reason for which they are not divided.
    pub reason: String,
    /// Names of the tensors, with `*` for numbers of layers.
    pub tensors: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
}

impl Division {
    pub(super) fn new(
        graph: &Graph,
        weights: &[Weight],
        regions: &Regions,
        parts: &[Program],
    ) -> Self {
        let is_sum = |op: &&Op| matches!(op, Op::AllReduce { .. });
        let sums = parts.first().map_or(0, |part| part.graph.ops.iter().filter(is_sum).count());
        let mut division = Self { parts: parts.len(), sums, ..Self::default() };
        let mut seen: HashSet<WeightId> = HashSet::new();
        // A matrix that some op reads whole counts as such only if no region divides it.
        let divided = (0..graph.ops.len()).filter(|op| regions.role(*op).is_some());
        for id in divided.flat_map(|op| matrices(&graph.ops[op])) {
            if seen.insert(id) {
                division.divided_bytes += weights[id.index()].size_bytes() as u64;
            }
        }
        for (i, op) in graph.ops.iter().enumerate() {
            let reason = regions.reason(i).unwrap_or(default_reason(op));
            for id in matrices(op) {
                if seen.insert(id) {
                    division.add_whole(reason, &weights[id.index()]);
                }
            }
        }
        division
    }

    fn add_whole(&mut self, reason: &str, weight: &Weight) {
        let bytes = weight.size_bytes() as u64;
        self.whole_bytes += bytes;
        let known = self.whole.iter().position(|whole| whole.reason == reason);
        let known = known.unwrap_or_else(|| {
            let (reason, tensors) = (reason.to_owned(), Vec::new());
            self.whole.push(WholeWeights { reason, tensors, bytes: 0 });
            self.whole.len() - 1
        });
        let whole = &mut self.whole[known];
        whole.bytes += bytes;
        let name = without_numbers(weight.name());
        if !whole.tensors.contains(&name) {
            whole.tensors.push(name);
        }
    }
}

/// `2 parts: 91 % of the matrices divided, 12 sums per step; whole on each part: …`.
impl fmt::Display for Division {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (self.divided_bytes + self.whole_bytes).max(1);
        let percent = 100.0 * self.divided_bytes as f64 / all as f64;
        let Self { parts, sums, .. } = self;
        write!(f, "{parts} parts: {percent:.0} % of the matrices divided, {sums} sums per step")?;
        for (i, WholeWeights { reason, tensors, .. }) in self.whole.iter().enumerate() {
            let start = if i == 0 { "; whole on each part: " } else { "; " };
            write!(f, "{start}{} ({reason})", tensors.join(", "))?;
        }
        Ok(())
    }
}

/// The matrices that an op multiplies by or looks rows up in.
fn matrices(op: &Op) -> Vec<WeightId> {
    let operands = op.operands().into_iter();
    let ids = operands.filter_map(|operand| match operand {
        Operand::Matrix(id) | Operand::Table(id) => Some(*id),
        _ => None,
    });
    ids.collect()
}

fn default_reason(op: &Op) -> &'static str {
    match op {
        Op::Embed { .. } | Op::EmbedPosition { .. } => "a table of which a token reads a row",
        Op::HeadMatMul { .. } => "latent attention",
        op if left_operand(op).is_some() => "its input and its output are read as whole rows",
        _ => "a fused op",
    }
}

/// `blk.*.attn_q.weight` of `blk.7.attn_q.weight`.
fn without_numbers(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let parts = name.split('.').map(|part| if is_number(part) { "*" } else { part });
    parts.collect::<Vec<_>>().join(".")
}
