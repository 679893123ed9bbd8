//! Tests of observed programs: their stages output the operands of the whole program's matmuls.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_graph::{Backend, Executor, Observation, Observed, Op, Output, Program, ValueId, observe};
use rf_oracle::ReferenceBackend;
use rf_oracle::case::cases;

fn executor(program: Program) -> Box<dyn Executor> {
    ReferenceBackend.compile(program, &mut |_| ()).unwrap()
}

/// Each stage outputs what a program that ends at the operand computes, and the rest of the
/// program is the unobserved one.
#[test]
fn stages_output_the_operands_of_matmuls() {
    let models = cases().into_iter().filter(|case| case.name().starts_with("model/"));
    let (mut dense, mut routed) = (0, 0);
    for case in models {
        let Observed { program, observations } = observe(case.program(), |_| true);
        let operands: Vec<ValueId> = (program.graph.ops().iter())
            .zip(&program.graph.ops()[1..])
            .filter_map(|(op, next)| match (op, next) {
                (Op::Map { x, .. }, Op::Output { .. }) => Some(*x),
                _ => None,
            })
            .collect();
        assert_eq!(operands.len(), observations.len(), "{}", case.name());
        let mut stages = executor(program.clone());
        let mut whole = executor(case.program());
        let ending_at = |x: &ValueId| {
            let mut program = case.program();
            program.graph = program.graph.with_output(*x);
            executor(program)
        };
        let mut endings: Vec<_> = operands.iter().map(ending_at).collect();
        for batch in case.batches() {
            batch.with(|batch| {
                for (i, observation) in observations.iter().enumerate() {
                    match observation {
                        Observation::Operand { .. } => dense += 1,
                        Observation::Route { .. } | Observation::ExpertOperand { .. } => {
                            routed += 1;
                        }
                    }
                    let rows = batch.rows(program.graph.value(operands[i]).rows);
                    let mut actual = vec![f32::NAN; rows * observation.width()];
                    let output = Output::rows(&mut actual).of_stage(i);
                    stages.forward(batch, output).unwrap();
                    let mut expected = vec![f32::NAN; actual.len()];
                    endings[i].forward(batch, Output::rows(&mut expected)).unwrap();
                    assert_eq!(actual, expected, "{}, stage {i}", case.name());
                }
                let value = program.graph.value(program.graph.output());
                let mut actual = vec![f32::NAN; batch.rows(value.rows) * value.width];
                let mut expected = actual.clone();
                stages.forward(batch, Output::rows(&mut actual)).unwrap();
                whole.forward(batch, Output::rows(&mut expected)).unwrap();
                assert_eq!(actual, expected, "{}", case.name());
            });
        }
    }
    assert!(dense > 0 && routed > 0);
}
