//! Weights in the layout that their ops read.

use std::sync::{Arc, Mutex, PoisonError};

use rf_graph::{BackendError, Graph, Op, Operand, Progress, Weight, WeightId};

use crate::panel::{PackedMatrix, PanelLayout, allocate, fill_panel};
use crate::simd::LANES;
use crate::team::{PieceDivision, Share, Team};

/// The layout of a weight in memory. The ops that read the weight determine it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Rows of an embedding table, mapped from the file.
    Table,
    /// A norm weight, bias or sink as f32.
    Vector,
    /// A matmul weight in panels, which is also the embedding table if tied.
    Matrix,
}

/// The layouts of all weights of a program, known before any weight is loaded.
pub(super) struct StoragePlan<'a> {
    weights: &'a [Weight],
    forms: Vec<Form>,
}

impl<'a> StoragePlan<'a> {
    pub(super) fn new(graph: &Graph, weights: &'a [Weight]) -> Self {
        let mut forms = vec![Form::Vector; weights.len()];
        for operand in graph.ops().iter().flat_map(Op::operands) {
            match operand {
                Operand::Matrix(id) => forms[id.index()] = Form::Matrix,
                // A tied table keeps the layout of its matmul.
                Operand::Table(id) if forms[id.index()] == Form::Vector => {
                    forms[id.index()] = Form::Table;
                }
                _ => {}
            }
        }
        Self { weights, forms }
    }

    /// The weight, if it is stored as a matrix.
    pub(super) fn matrix(&self, id: WeightId) -> Option<&'a Weight> {
        (self.forms[id.index()] == Form::Matrix).then(|| &self.weights[id.index()])
    }

    /// Bytes of all weights in their layouts.
    pub(super) fn bytes(&self) -> usize {
        let sizes = self.weights.iter().zip(&self.forms).map(|(weight, form)| match form {
            Form::Table => weight.size_bytes(),
            Form::Vector => weight.rows() * weight.columns() * size_of::<f32>(),
            Form::Matrix => PanelLayout::new(weight).bytes(),
        });
        sizes.sum()
    }
}

/// A weight in its layout.
pub(super) enum StoredWeight {
    Table(Weight),
    Vector(Vec<f32>),
    Matrix(PackedMatrix),
}

impl StoredWeight {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Table(weight) => weight.size_bytes(),
            Self::Vector(values) => size_of_val(values.as_slice()),
            Self::Matrix(matrix) => matrix.bytes(),
        }
    }
}

/// Converts every weight to its layout. The whole team packs matrices.
pub(super) fn load(
    team: &Mutex<Team>,
    plan: &StoragePlan<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<StoredWeight>, BackendError> {
    let total_bytes = plan.weights.iter().map(|w| w.size_bytes() as u64).sum();
    let matrices = plan.weights.iter().zip(&plan.forms).filter(|(_, form)| **form == Form::Matrix);
    let matrix_bytes = matrices.map(|(weight, _)| PanelLayout::new(weight).bytes()).sum();
    let mut memory = allocate(matrix_bytes)?;
    let (mut used_bytes, mut done_bytes) = (0, 0);
    let mut team = team.lock().unwrap_or_else(PoisonError::into_inner);
    for (weight, form) in plan.weights.iter().zip(&plan.forms) {
        if *form == Form::Matrix {
            let layout = PanelLayout::new(weight);
            pack(&mut team, weight, layout, &mut memory[used_bytes..][..layout.bytes()])?;
            weight.release();
            used_bytes += layout.bytes();
        }
        done_bytes += weight.size_bytes() as u64;
        progress(Progress { done_bytes, total_bytes });
    }
    let memory = Arc::new(memory);
    let mut first_byte = 0;
    let stored = plan.weights.iter().zip(&plan.forms).map(|(weight, form)| match form {
        Form::Matrix => {
            let layout = PanelLayout::new(weight);
            let packed = PackedMatrix::new(layout, Arc::clone(&memory), first_byte);
            first_byte += layout.bytes();
            StoredWeight::Matrix(packed)
        }
        Form::Table => StoredWeight::Table(weight.clone()),
        Form::Vector => {
            let rows = (0..weight.rows()).flat_map(|row| weight.row_f32(row));
            StoredWeight::Vector(rows.collect())
        }
    });
    Ok(stored.collect())
}

/// Checks and packs a matrix.
fn pack(
    team: &mut Team,
    weight: &Weight,
    layout: PanelLayout,
    data: &mut [u8],
) -> Result<(), BackendError> {
    let panel_ns = layout.bytes() / layout.num_panels().max(1);
    let deal = PieceDivision::new(layout.num_panels(), panel_ns, team.threads());
    let damaged = Mutex::new(Vec::new());
    let panels = Mutex::new(layout.panels_mut(data).enumerate());
    team.run(&[deal], &|share: &mut Share<'_>| {
        // The panels come in their order, whatever the indices of a member's pieces are.
        for _ in share.flatten() {
            let next = panels.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, panel)) = next else { break };
            let rows = i * LANES..weight.rows().min((i + 1) * LANES);
            if let Err(error) = weight.check_finite(rows) {
                damaged.lock().unwrap_or_else(PoisonError::into_inner).push((i, error));
                break;
            }
            fill_panel(weight, i, panel);
        }
    });
    // Panels are taken in order, so the first damaged one is among them.
    let damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
    damaged.into_iter().min_by_key(|(i, _)| *i).map_or(Ok(()), |(_, error)| Err(error.into()))
}
