//! The loops of a control-flow graph.

use std::collections::{BTreeMap, BTreeSet};

/// The natural loops of a graph with entry node 0, each as the set of its nodes. A loop precedes
/// the loops inside it.
///
/// An edge closes a loop if its target dominates its source. Code that is placed after its
/// successor also jumps back, but closes no loop.
pub(super) fn loops(successors: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let blocks = Blocks::of(successors);
    let dominators = blocks.dominators();
    let mut bodies: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (block, nexts) in blocks.successors.iter().enumerate() {
        for &header in nexts {
            let dominates = dominators[block].as_ref().is_some_and(|set| set.contains(&header));
            if dominates {
                blocks.add_body(header, block, bodies.entry(header).or_default());
            }
        }
    }
    let mut loops: Vec<BTreeSet<usize>> = bodies
        .values()
        .map(|body| body.iter().flat_map(|&block| blocks.nodes[block].clone()).collect())
        .collect();
    // A header is the first node of its loop, and an outer loop is larger.
    loops.sort_by_key(|body| (body.first().copied(), std::cmp::Reverse(body.len())));
    loops
}

/// Basic blocks: runs of nodes with one entry, the first node, and one exit, the last.
struct Blocks {
    nodes: Vec<std::ops::Range<usize>>,
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
}

impl Blocks {
    fn of(successors: &[Vec<usize>]) -> Self {
        let mut starts = BTreeSet::from([0]);
        for (node, nexts) in successors.iter().enumerate() {
            if *nexts != [node + 1] {
                starts.extend(nexts);
                starts.insert(node + 1);
            }
        }
        let starts: Vec<usize> =
            starts.into_iter().filter(|&start| start < successors.len()).collect();
        let block_of = |node: usize| starts.partition_point(|&start| start <= node) - 1;
        let ends = starts.iter().skip(1).copied().chain([successors.len()]);
        let nodes: Vec<_> = starts.iter().zip(ends).map(|(&start, end)| start..end).collect();
        let block_successors: Vec<Vec<usize>> = nodes
            .iter()
            .map(|nodes| {
                let last = nodes.end.saturating_sub(1);
                let nexts = successors.get(last).map_or(&[][..], Vec::as_slice);
                nexts.iter().map(|&next| block_of(next)).collect()
            })
            .collect();
        let mut predecessors = vec![Vec::new(); nodes.len()];
        for (block, nexts) in block_successors.iter().enumerate() {
            for &next in nexts {
                predecessors[next].push(block);
            }
        }
        Self { nodes, successors: block_successors, predecessors }
    }

    /// For each block its dominators, the blocks on every path to it; `None` if it is unreachable.
    fn dominators(&self) -> Vec<Option<BTreeSet<usize>>> {
        let mut dominators: Vec<Option<BTreeSet<usize>>> = vec![None; self.nodes.len()];
        if let Some(entry) = dominators.first_mut() {
            *entry = Some(BTreeSet::from([0]));
        }
        let mut changed = true;
        while changed {
            changed = false;
            for block in 1..self.nodes.len() {
                let known = self.predecessors[block].iter().filter_map(|&p| dominators[p].as_ref());
                let common = known.cloned().reduce(|a, b| &a & &b);
                let updated = common.map(|mut set| {
                    set.insert(block);
                    set
                });
                if updated != dominators[block] {
                    dominators[block] = updated;
                    changed = true;
                }
            }
        }
        dominators
    }

    /// Adds the blocks from which `end` is reached without passing `header`.
    fn add_body(&self, header: usize, end: usize, body: &mut BTreeSet<usize>) {
        body.insert(header);
        let mut open = vec![end];
        while let Some(block) = open.pop() {
            if body.insert(block) {
                open.extend(&self.predecessors[block]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_loops_are_found_outermost_first() {
        // 0 → 1 → 2 → 3 → 4; 3 → 2 and 4 → 1.
        let graph = [vec![1], vec![2], vec![3], vec![4, 2], vec![1, 5], vec![]];
        assert_eq!(loops(&graph), [BTreeSet::from([1, 2, 3, 4]), BTreeSet::from([2, 3])]);
    }

    #[test]
    fn a_jump_back_from_code_laid_out_later_is_no_loop() {
        // 0 branches to 3, which jumps back to 1.
        let graph = [vec![1, 3], vec![2], vec![], vec![1]];
        assert!(loops(&graph).is_empty());
    }

    #[test]
    fn two_ways_back_to_one_header_are_one_loop() {
        let graph = [vec![1], vec![2, 3], vec![1], vec![1, 4], vec![]];
        assert_eq!(loops(&graph), [BTreeSet::from([1, 2, 3])]);
    }

    #[test]
    fn an_empty_graph_has_no_loops() {
        assert!(loops(&[]).is_empty());
    }
}
