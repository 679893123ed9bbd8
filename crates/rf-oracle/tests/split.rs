//! Tests of split programs: both parts in turn compute what the whole program computes.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

use rf_graph::{
    Backend, Batch, Executor, Input, Layout, Output, Program, Side, Split, SplitError, Turn,
    observe, split,
};
use rf_oracle::ReferenceBackend;
use rf_oracle::case::{Case, cases};

/// Models of two layers, with batches of sequences of several lengths.
fn models() -> Vec<Case> {
    cases().into_iter().filter(|case| case.name().starts_with("model/")).collect()
}

fn executor(program: Program) -> Box<dyn Executor> {
    ReferenceBackend.compile(program, &mut |_| ()).unwrap()
}

fn output(executor: &mut dyn Executor, batch: &Batch<'_>, rows: usize, width: usize) -> Vec<u32> {
    let mut out = vec![f32::NAN; rows * width];
    executor.forward(batch, Output::rows(&mut out)).unwrap();
    out.iter().map(|x| x.to_bits()).collect()
}

/// The results of a batch of a program of one stage.
fn in_turns(
    parts: &mut [Box<dyn Executor>; 2],
    turns: &[Turn],
    batch: &Batch<'_>,
    out: &mut [f32],
) {
    let mut handed_over = None::<Vec<f32>>;
    for Turn { side, stage, width } in turns {
        let part = &mut parts[usize::from(*side == Side::Second)];
        let input = handed_over.as_deref().map(Input::Rows).or(batch.input);
        let batch = Batch { input, ..*batch };
        if *width == 0 {
            return part.forward(&batch, Output::rows(out).of_stage(*stage)).unwrap();
        }
        let mut next = vec![f32::NAN; batch.ids.len() * width];
        part.forward(&batch, Output::rows(&mut next).of_stage(*stage)).unwrap();
        handed_over = Some(next);
    }
}

/// Splits a model and compares its results with those of the whole one. Returns the stages and
/// the layers of the cache and the recurrent states of each part.
fn check(case: &Case, layout: Layout) -> Result<(Vec<Side>, [[usize; 2]; 2]), SplitError> {
    let program = case.program();
    let value = program.graph.value(program.graph.output());
    let Split { first, second, stages } = split(program, layout)?;
    let [turns] = stages.as_slice() else { panic!("one stage: {stages:?}") };
    let caches = [&first, &second].map(|Program { kv, .. }| [kv.layers.len(), kv.states.len()]);
    let mut whole = executor(case.program());
    let mut parts = [executor(first), executor(second)];
    for batch in case.batches() {
        batch.with(|batch| {
            let rows = batch.rows(value.rows);
            let expected = output(&mut *whole, batch, rows, value.width);
            let mut actual = vec![f32::NAN; rows * value.width];
            in_turns(&mut parts, turns, batch, &mut actual);
            let actual: Vec<u32> = actual.into_iter().map(f32::to_bits).collect();
            assert_eq!(actual, expected, "{} with {layout:?}", case.name());
        });
    }
    Ok((turns.iter().map(|turn| turn.side).collect(), caches))
}

#[test]
fn both_parts_in_turn_give_the_results_of_the_whole_program() {
    assert!(!models().is_empty());
    for case in models() {
        let count = case.program().graph.num_layers();
        for layers in 1..=count {
            let layout = Layout { layers, expert_layers: 0 };
            let (stages, caches) = check(&case, layout).unwrap();
            assert_eq!(stages, [Side::First, Side::Second], "{}", case.name());
            let expected = match case.name() {
                // The last two layers read the caches of the first two.
                "model/gemma4" => [[1, 2], [2, 2], [2, 1], [2, 0]][layers - 1].map(|kv| [kv, 0]),
                name => {
                    let of_layers = caches_of_layers(name, count);
                    let (first, second) = of_layers.split_at(layers);
                    [first, second].map(|part| [0, 1].map(|i| part.iter().map(|l| l[i]).sum()))
                }
            };
            assert_eq!(caches, expected, "{} after {layers} layers", case.name());
        }
    }
}

/// The layers of the cache, and the states, of each layer of a model.
fn caches_of_layers(name: &str, count: usize) -> Vec<[usize; 2]> {
    let (attention, convolution, recurrence) = ([1, 0], [0, 1], [0, 2]);
    match name {
        "model/lfm2" | "model/lfm2-q8_0" => vec![convolution, attention, convolution],
        "model/lfm2-without-attention" => vec![convolution; count],
        "model/qwen3.5" | "model/qwen3-next" | "model/kimi-linear" | "model/ling-3" => {
            vec![recurrence, recurrence, attention]
        }
        "model/falcon-h1" => vec![[1, 2]; count],
        "model/jamba" => vec![recurrence, attention],
        "model/nemotron-h" => vec![recurrence, [0, 0], attention, recurrence, [0, 0]],
        _ => vec![attention; count],
    }
}

#[test]
fn a_part_is_split_again() {
    for case in models() {
        let count = case.program().graph.num_layers();
        for layers in 1..count {
            let whole = split(case.program(), Layout { layers, expert_layers: 0 }).unwrap();
            assert_eq!(whole.second.graph.num_layers(), count - layers, "{}", case.name());
            let value = case.program().graph.value(case.program().graph.output());
            let Split { first: second, second: third, stages } =
                split(whole.second, Layout { layers: 1, expert_layers: 0 }).unwrap();
            let mut expected = executor(case.program());
            let mut first = executor(whole.first);
            let mut parts = [executor(second), executor(third)];
            for batch in case.batches() {
                batch.with(|batch| {
                    let rows = batch.rows(value.rows);
                    let expected = output(&mut *expected, batch, rows, value.width);
                    let mut actual = vec![f32::NAN; rows * value.width];
                    let width = whole.stages[0][0].width;
                    let mut handed_over = vec![f32::NAN; batch.ids.len() * width];
                    first.forward(batch, Output::rows(&mut handed_over).of_stage(0)).unwrap();
                    let batch = Batch { input: Some(Input::Rows(&handed_over)), ..*batch };
                    in_turns(&mut parts, &stages[0], &batch, &mut actual);
                    let actual: Vec<u32> = actual.into_iter().map(f32::to_bits).collect();
                    assert_eq!(actual, expected, "{} after {layers}", case.name());
                });
            }
        }
    }
}

#[test]
fn what_later_layers_need_is_handed_over() {
    let case = models().into_iter().find(|case| case.name() == "model/gemma4").unwrap();
    let widths = |layers| {
        let split = split(case.program(), Layout { layers, expert_layers: 0 }).unwrap();
        split.stages[0][0].width
    };
    // The residual, the input of a layer, keys and values of 2 heads of 64 and of 1 of 128.
    let (residual, input, window, full) = (160, 32, 2 * 2 * 64, 2 * 128);
    assert_eq!(widths(1), residual + 4 * input + window);
    assert_eq!(widths(2), residual + 4 * input + window + full);
    // The last layer alone needs no more than its own input.
    assert_eq!(widths(3), residual + input + full);
    assert_eq!(widths(4), residual);
}

#[test]
fn experts_alone_are_parts_of_layers() {
    use Side::{First, Second};
    let model = |name: &str| models().into_iter().find(|case| case.name() == name).unwrap();
    let stages = |name, layers, expert_layers| {
        check(&model(name), Layout { layers, expert_layers }).unwrap().0
    };
    // Both layers have experts.
    assert_eq!(stages("model/gpt-oss", 0, 2), [Second, First, Second, First, Second]);
    assert_eq!(stages("model/gpt-oss", 0, 1), [Second, First, Second]);
    assert_eq!(stages("model/gpt-oss", 1, 2), [First, Second, First, Second]);
    assert_eq!(stages("model/gpt-oss", 1, 1), [First, Second]);
    // The second layer has.
    assert_eq!(stages("model/glm4.5", 0, usize::MAX), [Second, First, Second]);
    // The last of layers that have one part each.
    assert_eq!(stages("model/nemotron-h", 0, 5), [Second, First, Second]);
    assert_eq!(stages("model/nemotron-h", 4, 5), [First, Second]);
    let only_dense = split(model("model/glm4.5").program(), Layout { layers: 0, expert_layers: 1 });
    assert_eq!(only_dense.unwrap_err(), SplitError::Undivided);
}

#[test]
fn an_observed_model_is_not_split() {
    let observed = observe(models()[0].program(), |_| true).program;
    let error = split(observed, Layout { layers: 0, expert_layers: 1 }).unwrap_err();
    assert_eq!(error, SplitError::Observed);
}

#[test]
fn a_layer_beyond_the_model_is_an_error() {
    let program = models()[0].program();
    let count = program.graph.num_layers();
    let error = split(program, Layout { layers: count + 1, expert_layers: 0 }).unwrap_err();
    assert_eq!(error, SplitError::NoSuchLayer { layers: count + 1, count });
}

#[test]
fn each_part_has_the_weights_that_it_reads() {
    let program = models()[0].program();
    let (layers, weights) = (program.kv.layers.len(), program.weights.len());
    let parts = split(program, Layout { layers, expert_layers: 0 }).unwrap();
    // The output norm, the output matrix, and other weights after the last layer.
    assert!(parts.second.weights.len() < 5);
    assert!(parts.first.weights.len() < weights);
}
