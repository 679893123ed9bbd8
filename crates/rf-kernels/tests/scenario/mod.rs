//! The model that tests with injected faults run, and its steps.

use std::collections::BTreeMap;

use rf_graph::{BackendError, Batch, Executor, Output};
use rf_oracle::case::{Case, cases};

use crate::stand_in::{Call, Outputs};

/// The model.
pub(crate) fn case() -> Case {
    cases().into_iter().find(|case| case.name() == "model/llama-q8_0").unwrap()
}

/// Runs a prompt, and then the same decode step several times.
pub(crate) fn steps(
    case: &Case,
    executor: &mut dyn Executor,
    decode_steps: usize,
) -> Result<Outputs, BackendError> {
    let program = case.program();
    let output = program.graph.value(program.graph.output());
    let batches = case.batches();
    let decode = std::iter::repeat_n(&batches[1], decode_steps);
    let mut forward = |batch: &Batch<'_>| {
        let mut out = vec![f32::NAN; batch.rows(output.rows) * output.width];
        executor.forward(batch, Output::rows(&mut out))?;
        Ok(out)
    };
    [&batches[0]].into_iter().chain(decode).map(|batch| batch.with(&mut forward)).collect()
}

/// The number of the last call of each function.
pub(crate) fn last_calls(calls: &[Call]) -> BTreeMap<String, u64> {
    calls.iter().map(|call| (call.function.clone(), call.number)).collect()
}
