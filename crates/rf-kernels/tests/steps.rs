//! The steps of an executor: padding of decode batches, queued prompt chunks, kept graphs.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

mod stand_in;

use std::path::Path;
use std::time::Duration;

use rf_graph::{
    Backend, BackendError, Batch, Executor, Input, Layout, Output, Program, Span, Split, Turn,
    split,
};
use rf_kernels::{GpuBackend, GpuOptions};
use rf_kv::{PageGroup, PageId};
use rf_oracle::case::cases;
use stand_in::{Call, Outputs, arch, library, session};

const LIMIT: Duration = Duration::from_mins(5);

/// Pages of the cache: enough for padding.
const NUM_PAGES: usize = 80;

/// A model with a large cache, and the width of its output.
fn model(name: &str) -> Result<(Box<dyn Executor>, usize), BackendError> {
    let case = cases().into_iter().find(|case| case.name() == name).unwrap();
    let mut program = case.program();
    program.kv.num_pages.full = NUM_PAGES;
    if program.kv.num_pages.window > 0 {
        program.kv.num_pages.window = NUM_PAGES;
    }
    (program.max_batch_tokens, program.max_output_rows) = (100, 100);
    let backend = GpuBackend::new(GpuOptions::default()).map_err(BackendError::from)?;
    let program = program.fused_for(&backend);
    let width = program.graph.value(program.graph.output()).width;
    Ok((backend.compile(program, &mut |_| ())?, width))
}

/// The pages of a sequence: two of its own.
fn pages(sequence: usize) -> Vec<PageId> {
    (0..2).map(|page| PageId::new((2 * sequence + page) as u32)).collect()
}

/// Runs tokens of sequences, `(sequence, past tokens, ids)` each, with the last outputs of those
/// that are `wanted`.
fn forward(
    executor: &mut dyn Executor,
    width: usize,
    parts: &[(usize, usize, Vec<u32>)],
    wanted: bool,
) -> Result<Vec<f32>, BackendError> {
    let tables: Vec<_> = parts.iter().map(|(sequence, ..)| pages(*sequence)).collect();
    let (mut ids, mut spans, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for ((_, past_tokens, tokens), pages) in parts.iter().zip(&tables) {
        let first = ids.len();
        ids.extend(tokens);
        rows.push(ids.len() - 1);
        let past_tokens = *past_tokens;
        let tokens = first..ids.len();
        spans.push(Span { tokens, past_tokens, pages, window_pages: pages, ..Span::default() });
    }
    let output_rows = if wanted { &rows[..] } else { &[] };
    let mut out = vec![f32::NAN; output_rows.len() * width];
    executor.forward(
        &Batch { ids: &ids, spans: &spans, output_rows, input: None },
        Output::rows(&mut out),
    )?;
    Ok(out)
}

fn prompt(sequence: usize) -> Vec<u32> {
    (0..7).map(|i| ((13 * sequence + 5 * i) % 200) as u32).collect()
}

/// Decode batches of 2, 3, 4, 7, 8 and 11 sequences: every size is a graph of its own or of its
/// padded size, and runs several times.
fn decode(name: &str) -> Result<Outputs, BackendError> {
    const SEQUENCES: usize = 11;
    let (mut executor, width) = model(name)?;
    for sequence in 0..SEQUENCES {
        forward(&mut *executor, width, &[(sequence, 0, prompt(sequence))], false)?;
    }
    let mut outputs = Vec::new();
    for size in [2, 3, 4, 7, 8, 11] {
        for _ in 0..4 {
            let parts: Vec<_> = (0..size).map(|i| (i, 7, vec![(3 * i) as u32])).collect();
            outputs.push(forward(&mut *executor, width, &parts, true)?);
        }
    }
    // The last page belongs to nobody.
    let mut page = Vec::new();
    executor.read_page(PageGroup::Full, PageId::new(NUM_PAGES as u32 - 1), &mut page)?;
    outputs.push(page.into_iter().map(f32::from).collect());
    Ok(outputs)
}

/// The number of calls of a function.
fn count(calls: &[Call], function: &str) -> usize {
    let calls = calls.iter().filter(|call| call.function == function);
    calls.map(|call| call.number as usize).max().unwrap_or(0)
}

fn relative_distance(a: &[f32], b: &[f32]) -> f32 {
    let distance: f32 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    let energy: f32 = b.iter().map(|b| b * b).sum();
    distance / energy
}

#[test]
fn padded_batches_give_the_rows_of_their_sequences_and_touch_no_page_of_others() {
    let name = "padded_batches_give_the_rows_of_their_sequences_and_touch_no_page_of_others";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    for model in ["model/llama-q8_0", "model/gpt-oss", "model/gemma"] {
        let (outcome, calls) = session.run("", || decode(model));
        let mut outputs = outcome.unwrap();
        let page = outputs.pop().unwrap();
        let unwritten = vec![page[0]; page.len()];
        assert_eq!(page, unwritten, "{model}: a page of nobody is written");
        for same in outputs.chunks(4) {
            assert!(same.iter().all(|output| *output == same[0]), "{model}");
        }
        // Rows do not depend on the batch, up to rounding.
        let all = outputs.last().unwrap();
        for output in &outputs {
            let distance = relative_distance(output, all);
            assert!(distance < 1e-6, "{model}: {distance}");
        }
        // The prompt, and sizes 2, 4, 8 and 12; experts are not padded.
        let sizes = if model == "model/gpt-oss" { 6 } else { 4 };
        assert_eq!(count(&calls, "hipStreamBeginCapture"), 1 + sizes, "{model}");
    }
}

/// Chunks of a prompt without outputs, then one with an output. Each has more than 64 tokens.
fn chunks(waits: bool) -> Result<Outputs, BackendError> {
    let (mut executor, width) = model("model/llama-q8_0")?;
    let pages: Vec<PageId> = (0..40).map(PageId::new).collect();
    let mut outputs = Vec::new();
    for chunk in 0..5 {
        let ids: Vec<u32> = (0..100).map(|i| (7 * i + chunk) % 200).collect();
        let past_tokens = 100 * chunk as usize;
        let pages = &pages[..(past_tokens + 100).div_ceil(16)];
        let spans = [Span { tokens: 0..100, past_tokens, pages, ..Span::default() }];
        let output_rows: &[usize] = if chunk == 4 { &[99] } else { &[] };
        let mut out = vec![f32::NAN; output_rows.len() * width];
        executor.forward(
            &Batch { ids: &ids, spans: &spans, output_rows, input: None },
            Output::rows(&mut out),
        )?;
        if waits {
            executor.wait()?;
        }
        outputs.push(out);
    }
    Ok(outputs)
}

#[test]
fn chunks_without_outputs_are_queued_without_a_wait() {
    let name = "chunks_without_outputs_are_queued_without_a_wait";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    let (waiting, with) = session.run("", || chunks(true));
    let (queued, without) = session.run("", || chunks(false));
    assert_eq!(queued.unwrap(), waiting.unwrap());
    // Waiting for the stream, and for the event after a step whose memory is used again.
    let waits = ["hipStreamSynchronize", "hipEventSynchronize"];
    assert_eq!(count(&with, waits[0]), count(&without, waits[0]) + 5);
    // The fifth chunk waits for the one four before.
    assert_eq!(count(&without, waits[1]), count(&with, waits[1]) + 1);
    // A chunk whose results never arrive: later ones fail, too.
    let last = count(&without, "hipModuleLaunchKernel");
    let lost = session.run(&format!("kernel:{}:719", last / 2), || chunks(false)).0;
    assert!(matches!(lost, Err(BackendError::Device(_))), "{lost:?}");
}

/// The form in which rows go from one device to the next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HandOver {
    /// The host waits for them and copies them.
    Host,
    /// The second device waits for them.
    Queued,
}

/// Chunks of a prompt on two devices, each with a layer. The last chunk has outputs.
fn divided_chunks(form: HandOver, chunks: usize) -> Result<Outputs, BackendError> {
    const TOKENS: usize = 100;
    let case = cases().into_iter().find(|case| case.name() == "model/llama-q8_0").unwrap();
    let mut program = case.program();
    program.kv.num_pages.full = NUM_PAGES;
    (program.max_batch_tokens, program.max_output_rows) = (TOKENS, TOKENS);
    let output_width = program.graph.value(program.graph.output()).width;
    let Split { first, second, stages } =
        split(program, Layout { layers: 1, expert_layers: 0 }).unwrap();
    let [Turn { width, .. }, _] = stages[0][..] else { panic!("{stages:?}") };
    let open = |ordinal, part: Program| {
        let options = GpuOptions::default().with_ordinal(ordinal);
        let backend = GpuBackend::new(options).map_err(BackendError::from)?;
        backend.compile(part.fused_for(&backend), &mut |_| ())
    };
    let (mut first, mut second) = (open(0, first)?, open(1, second)?);
    let pages: Vec<PageId> = (0..NUM_PAGES as u32).map(PageId::new).collect();
    let mut outputs = Vec::new();
    for chunk in 0..chunks {
        let ids: Vec<u32> = (0..TOKENS).map(|i| ((7 * i + 31 * chunk) % 200) as u32).collect();
        let past_tokens = TOKENS * chunk;
        let pages = &pages[..(past_tokens + TOKENS).div_ceil(16)];
        let spans = [Span { tokens: 0..TOKENS, past_tokens, pages, ..Span::default() }];
        let batch = Batch { ids: &ids, spans: &spans, output_rows: &[], input: None };
        let mut rows = vec![f32::NAN; TOKENS * width];
        let mut queued = None;
        let slot = (form == HandOver::Queued).then_some(&mut queued);
        first.forward(&batch, Output { queued: slot, ..Output::rows(&mut rows) })?;
        assert_eq!(queued.is_some(), form == HandOver::Queued);
        let input = Some(queued.as_ref().map_or(Input::Rows(&rows), Input::Queued));
        let all_rows: Vec<usize> = (0..TOKENS).collect();
        let output_rows = if chunk + 1 == chunks { &all_rows[..] } else { &[] };
        let mut out = vec![f32::NAN; output_rows.len() * output_width];
        second.forward(&Batch { input, output_rows, ..batch }, Output::rows(&mut out))?;
        outputs.push(out);
        if let Some(queued) = queued.filter(|_| chunk == 0) {
            // The host may wait, too.
            outputs.push(queued.wait()?.to_vec());
        } else if chunk == 0 {
            outputs.push(rows);
        }
    }
    first.wait()?;
    Ok(outputs)
}

#[test]
fn rows_are_handed_to_another_device_without_a_wait() {
    const CHUNKS: usize = 7;
    let name = "rows_are_handed_to_another_device_without_a_wait";
    let devices = [arch(), arch()].into_iter().flatten().collect::<Vec<_>>().join(",");
    let variables = [("ROCFORGE_EMU_ARCH", Path::new(&devices))];
    let Some(session) = session(name, &library(), &variables, LIMIT) else { return };
    let (expected, with) = session.run("", || divided_chunks(HandOver::Host, CHUNKS));
    let (queued, without) = session.run("", || divided_chunks(HandOver::Queued, CHUNKS));
    assert_eq!(queued.unwrap(), expected.unwrap());
    let waits = |calls: &[Call]| count(calls, "hipStreamSynchronize");
    assert_eq!(waits(&with), waits(&without) + CHUNKS);
    // Memory for the four chunks that may be queued on the second device, and for the next one.
    assert_eq!(count(&without, "hipHostMalloc"), count(&with, "hipHostMalloc") + 5);
    assert_eq!(without.last().unwrap().live_objects, 0);
    for function in ["hipStreamWaitEvent", "hipHostGetDevicePointer"] {
        let last = count(&without, function);
        let plan = format!("{function}:{last}:719");
        let lost = session.run(&plan, || divided_chunks(HandOver::Queued, CHUNKS)).0;
        assert!(matches!(lost, Err(BackendError::Device(_))), "{function}: {lost:?}");
    }
}

/// Two uses of more shapes than are kept.
fn shapes() -> Result<Outputs, BackendError> {
    let (mut executor, width) = model("model/llama-q8_0")?;
    let mut outputs = Vec::new();
    for tokens in 1..=24 {
        for _ in 0..2 {
            let ids = (0..tokens).collect();
            outputs.push(forward(&mut *executor, width, &[(0, 0, ids)], true)?);
        }
    }
    Ok(outputs)
}

#[test]
fn few_graphs_are_kept() {
    let Some(session) = session("few_graphs_are_kept", &library(), &[], LIMIT) else { return };
    let (outcome, calls) = session.run("", shapes);
    outcome.unwrap();
    assert_eq!(count(&calls, "hipGraphInstantiateWithFlags"), 24);
    assert_eq!(calls.last().unwrap().live_objects, 0);
    let (mut graphs, mut most) = (0_i32, 0);
    for call in &calls {
        match &*call.function {
            "hipGraphInstantiateWithFlags" => graphs += 1,
            "hipGraphExecDestroy" => graphs -= 1,
            _ => {}
        }
        most = most.max(graphs);
    }
    // The oldest one is dropped when the seventeenth is put back.
    assert!((16..=17).contains(&most), "{most}");
}
