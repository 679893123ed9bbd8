//! Comparison with another engine: `cargo xtask bench --peer`.
//!
//! [`compare`] measures this engine and another one alternately, A B A B, each time in a fresh
//! process. Each process loads the model, warms up, and times one prompt and one generation.
//! Machines drift by more than engines differ, so the result is the ratio of adjacent runs, with
//! its range.

mod install;
mod own;
mod programs;
mod report;
mod speeds;

pub use install::{PYTHON_FOLDER, install_python, installed_python};
pub use own::measure_own;
pub use programs::{Peer, Programs};
pub use report::{PeerComparison, csv, json, table};
pub use speeds::{Speeds, Test};

use crate::model::ModelFile;
use crate::{Error, Interrupt, MeasurementProgress};

/// Measures both engines with every model. An interrupt ends the comparison after the current
/// repetition; the result has the complete ones.
///
/// # Errors
///
/// [`Error::Profile`] if a program fails, [`Error::PeerOutput`] if its output has no speeds.
pub fn compare(
    models: &[ModelFile],
    programs: &Programs,
    test: Test,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(MeasurementProgress<'_>),
) -> Result<Vec<PeerComparison>, Error> {
    let mut comparisons = Vec::new();
    for model in models {
        let mut comparison = PeerComparison::new(model.name(), test);
        for done in 0..test.repetitions {
            if interrupt.is_requested() {
                break;
            }
            progress(MeasurementProgress {
                stage: &format!("repetition {}/{}", done + 1, test.repetitions),
                done,
                total: test.repetitions,
                step: &model.name(),
            });
            let ours = programs.measure_own(&model.path, test, interrupt)?;
            let theirs = programs.measure_peer(&model.path, test, interrupt)?;
            comparison.add(ours, theirs);
        }
        if comparison.has_pairs() {
            comparisons.push(comparison);
        }
    }
    Ok(comparisons)
}
