//! What the tests of this crate reach besides its public items. In the library itself, the harness
//! of unit tests would compile every kernel once more, which takes minutes.

use std::sync::{Arc, Mutex};

use rf_graph::{BackendError, DType, Weight};

use crate::panel::{PackedMatrix, PanelLayout, allocate, fill_panel};
use crate::simd::planes;
use crate::team::Team;
use crate::{CpuBackend, CpuOptions, stored};

/// A backend whose other threads never come, as if the system did not run them.
///
/// # Errors
///
/// As [`CpuBackend::new`].
pub fn deserted(options: CpuOptions) -> Result<CpuBackend, BackendError> {
    let backend = CpuBackend::new(options)?;
    let team = Arc::new(Mutex::new(Team::deserted(backend.threads)));
    Ok(CpuBackend { team, ..backend })
}

/// The rows of a matrix after packing and unpacking.
///
/// # Errors
///
/// If there is no memory for the packed matrix.
pub fn repacked(weight: &Weight) -> Result<Vec<Vec<f32>>, BackendError> {
    let layout = PanelLayout::new(weight);
    let mut memory = allocate(layout.bytes())?;
    for (i, panel) in layout.panels_mut(&mut memory[..layout.bytes()]).enumerate() {
        fill_panel(weight, i, panel);
    }
    let packed = PackedMatrix::new(layout, Arc::new(memory), 0);
    let row = |row| {
        let mut out = vec![0.0; weight.columns()];
        packed.row_f32(row, &mut out);
        out
    };
    Ok((0..weight.rows()).map(row).collect())
}

/// In how many planes each byte of a block is.
pub fn plane_counts(dtype: DType) -> Vec<usize> {
    let mut counts = vec![0; stored::block_bytes(dtype)];
    for plane in planes(dtype) {
        counts[plane.offset..][..plane.bytes].iter_mut().for_each(|count| *count += 1);
    }
    counts
}
