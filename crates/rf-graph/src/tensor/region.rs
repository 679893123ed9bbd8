//! The regions of a graph: which ops and values are divided, and how.

use std::collections::{HashMap, HashSet};

use super::cut::Cut;
use super::walk::{Columns, Region, Role, Uses, Walk, left_operand};
use crate::graph::Graph;
use crate::op::Op;
use crate::value::ValueId;

/// All regions of a graph.
#[derive(Default)]
pub(super) struct Regions {
    all: Vec<Region>,
    /// The index of the region of each op and value.
    ops: HashMap<usize, usize>,
    values: HashMap<ValueId, usize>,
    /// The reasons for which matmuls are not divided, by the index of the op.
    reasons: HashMap<usize, String>,
    /// The same for matmuls that begin and end no region.
    weak_reasons: HashMap<usize, String>,
    pub(super) uses: Uses,
}

impl Regions {
    /// The regions of a program that are divided over parts.
    pub(super) fn of(graph: &Graph, shares: &[f32]) -> Self {
        let mut all = Self { uses: Uses::of(graph), ..Self::default() };
        if shares.len() < 2 {
            return all;
        }
        let mut attempted = HashSet::new();
        for op in &graph.ops {
            if let Some(x) = left_operand(op)
                && attempted.insert(x)
            {
                all.attempt(graph, shares, x);
            }
        }
        let stages = graph.stages();
        for output in stages.iter().flat_map(|stage| &stage.outputs) {
            if attempted.insert(*output) {
                all.attempt(graph, shares, *output);
            }
        }
        all.drop_conflicts(graph);
        all.index();
        all
    }

    /// The role of an op, if it is divided.
    pub(super) fn role(&self, op: usize) -> Option<(Role, &Region)> {
        let region = &self.all[*self.ops.get(&op)?];
        Some((region.ops[&op], region))
    }

    /// The columns of a value, if it is divided.
    pub(super) fn of_value(&self, id: ValueId) -> Option<&Columns> {
        self.all[*self.values.get(&id)?].values.get(&id)
    }

    /// The KV heads of the parts in a layer of the cache.
    pub(super) fn of_kv_layer(&self, layer: usize) -> Option<&Cut> {
        self.all.iter().find_map(|region| region.kv_layers.get(&layer))
    }

    /// Returns the reason for which a matmul is not divided, if it is known.
    pub(super) fn reason(&self, op: usize) -> Option<&str> {
        self.reasons.get(&op).or(self.weak_reasons.get(&op)).map(String::as_str)
    }

    /// Makes a region of the ops that compute a value from whole ones, and of the matmuls that read
    /// it, if that is possible.
    fn attempt(&mut self, graph: &Graph, shares: &[f32], root: ValueId) {
        let mut walk = Walk::new(graph, &self.uses, &self.ops, root);
        let region = walk.visit_all().and_then(|()| walk.region(shares));
        match region {
            Ok(region) => {
                let index = self.all.len();
                self.ops.extend(region.ops.keys().map(|op| (*op, index)));
                self.all.push(region);
            }
            Err(reason) => {
                let (sources, sums) = walk.matmuls();
                if sources.is_empty() {
                    let reason = format!("its input is from {reason}");
                    self.weak_reasons.extend(sums.into_iter().map(|op| (op, reason.clone())));
                    return;
                }
                for op in sources.into_iter().chain(sums) {
                    self.reasons.entry(op).or_insert_with(|| reason.clone());
                }
            }
        }
    }

    /// Leaves out regions whose layers of the cache are read or written outside of regions, or are
    /// divided otherwise.
    fn drop_conflicts(&mut self, graph: &Graph) {
        loop {
            self.index();
            let users = graph.ops.iter().enumerate().filter_map(|(i, op)| match op {
                Op::Attention { attention, .. } => Some((i, attention.layer)),
                Op::KvAppend { layer, .. } => Some((i, *layer)),
                _ => None,
            });
            let mut cuts: HashMap<usize, Vec<Option<&Cut>>> = HashMap::new();
            for (op, layer) in users {
                let cut = self.role(op).and_then(|(_, region)| region.kv_layers.get(&layer));
                cuts.entry(layer).or_default().push(cut);
            }
            let differ = |cuts: &&Vec<Option<&Cut>>| cuts.iter().any(|cut| *cut != cuts[0]);
            let wrong: HashSet<usize> =
                cuts.iter().filter(|(_, cuts)| differ(cuts)).map(|(layer, _)| *layer).collect();
            let is_wrong =
                |region: &Region| region.kv_layers.keys().any(|layer| wrong.contains(layer));
            if !self.all.iter().any(is_wrong) {
                return;
            }
            for region in self.all.extract_if(.., |region| is_wrong(region)) {
                for op in region.ops.into_keys() {
                    let reason = || "layers that share a cache are divided differently".to_owned();
                    self.reasons.entry(op).or_insert_with(reason);
                }
            }
        }
    }

    fn index(&mut self) {
        let regions = || self.all.iter().enumerate();
        self.ops = regions().flat_map(|(i, r)| r.ops.keys().map(move |op| (*op, i))).collect();
        self.values =
            regions().flat_map(|(i, r)| r.values.keys().map(move |id| (*id, i))).collect();
    }
}
