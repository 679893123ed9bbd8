//! Replays of captured graphs that go wrong, as HIP's are known to: no result of them is used, and
//! the executor does without graphs from then on. After a crash inside one, so does the next
//! process.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "functions of tests, which print skipped tests"
)]

mod stand_in;
mod warnings;

use std::path::Path;
use std::process::{Command, Output as ChildOutput};
use std::time::Duration;
use std::{env, fs};

use rf_graph::{Backend, BackendError, Batch, Candidate, Executor, Output, Program};
use rf_kernels::objects::build_note;
use rf_kernels::{GpuBackend, GpuOptions, GraphMode};
use rf_oracle::case::{Case, Schedule, cases, rms_norm};
use stand_in::{Call, Outputs, Session, arch, library, session};
use warnings::Warnings;

const LIMIT: Duration = Duration::from_mins(5);

/// Uses of the decode step as graphs, after [`PLAIN`] by plain launches.
const REPLAYS: usize = 6;

/// Uses before the first replay. During the last one the graph is captured.
const PLAIN: usize = 2;

/// Numbers of replays that are compared with plain launches.
const CHECKED: [usize; 3] = [1, 2, 4];

fn compile(program: Program, graphs: GraphMode) -> Result<Box<dyn Executor>, BackendError> {
    let options = GpuOptions::default().with_graphs(graphs);
    let backend = GpuBackend::new(options).map_err(BackendError::from)?;
    backend.compile(program.fused_for(&backend), &mut |_| ())
}

fn case(name: &str) -> Case {
    cases().into_iter().find(|case| case.name() == name).unwrap()
}

/// A prompt, then a decode step again and again. `k` > 0 asks for that many candidates.
fn decode(name: &str, k: usize) -> Result<Outputs, BackendError> {
    decode_with(GraphMode::Auto, name, k)
}

fn decode_with(graphs: GraphMode, name: &str, k: usize) -> Result<Outputs, BackendError> {
    let case = case(name);
    let program = case.program();
    let output = program.graph.value(program.graph.output());
    let mut executor = compile(program, graphs)?;
    let mut forward = |batch: &Batch<'_>| {
        let rows = batch.rows(output.rows);
        if k == 0 || rows == 0 {
            let mut out = vec![f32::NAN; rows * output.width];
            executor.forward(batch, Output::rows(&mut out))?;
            return Ok(out);
        }
        let mut best = vec![Candidate::default(); rows * k];
        executor.forward(batch, Output::top_k(k, &mut best))?;
        Ok(best.iter().flat_map(|best| [best.id as f32, best.logit]).collect())
    };
    let batches = case.batches();
    let steps = [&batches[0]].into_iter().chain([&batches[1]; PLAIN + REPLAYS]);
    steps.map(|batch| batch.with(&mut forward)).collect()
}

/// A program of so many launches that a step is several graphs.
fn long(copies: usize) -> Result<Outputs, BackendError> {
    let case = rms_norm(80, Schedule::single(3));
    let program = case.timed_program(copies);
    let output = program.graph.value(program.graph.output());
    let mut executor = compile(program, GraphMode::Auto)?;
    let mut forward = |batch: &Batch<'_>| {
        let mut out = vec![f32::NAN; batch.rows(output.rows) * output.width];
        executor.forward(batch, Output::rows(&mut out))?;
        Ok(out)
    };
    (0..PLAIN + REPLAYS).map(|_| case.timed_batch().with(&mut forward)).collect()
}

fn graph_launches(calls: &[Call]) -> usize {
    let launches = calls.iter().filter(|call| call.function == "hipGraphLaunch");
    launches.map(|call| call.number as usize).max().unwrap_or(0)
}

/// Runs a scenario with each wrong replay. The results are those of right replays, and a wrong one
/// that is noticed is the last.
fn check(session: &Session, parts: usize, scenario: impl Fn() -> Result<Outputs, BackendError>) {
    let (expected, calls) = session.run("", &scenario);
    let expected = expected.unwrap();
    assert_eq!(graph_launches(&calls), parts * REPLAYS);
    let mut runs = 0;
    for replay in 1..=REPLAYS {
        for part in 0..parts {
            let number = parts * (replay - 1) + part + 1;
            for wrong in ["stale", "skipped", "altered"] {
                // The stamp passes the first and the last kernel of a graph. A wrong result between
                // is seen by the next comparison only.
                let is_seen = match wrong {
                    "stale" => part == 0,
                    "skipped" => true,
                    _ => false,
                };
                if !is_seen && !CHECKED.contains(&replay) {
                    continue;
                }
                let plan = format!("replay:{number}:{wrong}");
                let (outcome, calls) = session.run(&plan, &scenario);
                runs += 1;
                assert_eq!(outcome.unwrap(), expected, "{plan}");
                assert_eq!(graph_launches(&calls), parts * replay, "{plan}");
                assert_eq!(calls.last().unwrap().live_objects, 0, "{plan}");
            }
        }
    }
    println!("{runs} runs");
}

#[test]
fn rows_of_wrong_replays_are_not_used() {
    let Some(session) = session("rows_of_wrong_replays_are_not_used", &library(), &[], LIMIT)
    else {
        return;
    };
    check(&session, 1, || decode("model/llama-q8_0", 0));
}

#[test]
fn candidates_of_wrong_replays_are_not_used() {
    let name = "candidates_of_wrong_replays_are_not_used";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    for k in [1, 5] {
        check(&session, 1, || decode("model/llama-q8_0", k));
    }
}

#[test]
fn a_long_step_is_several_graphs_and_each_of_them_is_checked() {
    let name = "a_long_step_is_several_graphs_and_each_of_them_is_checked";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    check(&session, 3, || long(300));
}

/// A wrong result between two comparisons is used, and the next comparison ends the graphs.
#[test]
fn a_graph_that_goes_wrong_later_is_found() {
    let name = "a_graph_that_goes_wrong_later_is_found";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    let scenario = || decode("model/llama-q8_0", 0);
    let expected = session.run("", scenario).0.unwrap();
    let (outcome, calls) = session.run("replay:3+:altered", scenario);
    let outputs = outcome.unwrap();
    // The prompt is first.
    let third = PLAIN + 3;
    assert_ne!(outputs[third], expected[third], "the third replay is wrong and not compared");
    assert_eq!(outputs[third + 1..], expected[third + 1..]);
    assert_eq!(graph_launches(&calls), 4);
}

/// Recurrent states are replaced by a step, so a wrong replay can be repaired only if they were
/// saved before it.
#[test]
fn a_wrong_replay_of_a_recurrent_model_is_an_error_or_repaired() {
    let name = "a_wrong_replay_of_a_recurrent_model_is_an_error_or_repaired";
    let Some(session) = session(name, &library(), &[], LIMIT) else { return };
    let scenario = || decode("model/lfm2", 0);
    let expected = session.run("", scenario).0.unwrap();
    assert_ne!(expected[1], expected[2], "the state changes from step to step");
    for replay in 1..=REPLAYS {
        for wrong in ["stale", "skipped"] {
            let plan = format!("replay:{replay}:{wrong}");
            match session.run(&plan, scenario).0 {
                Ok(outputs) => {
                    assert!(CHECKED.contains(&replay), "{plan}");
                    assert_eq!(outputs, expected, "{plan}");
                }
                Err(BackendError::StaleResults) => {
                    assert!(!CHECKED.contains(&replay), "{plan}");
                }
                Err(error) => panic!("{plan}: {error}"),
            }
        }
    }
}

/// The variable with the mode of a child process that may crash.
const MODE: &str = "RF_KERNELS_TEST_GRAPHS";

/// Runs this test in a child process. Returns its end and the number of graphs that it launched.
fn child(folder: &Path, mode: &str, faults: &str) -> (ChildOutput, usize) {
    let log = folder.join("log");
    fs::write(&log, "").unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", "a_crash_inside_a_launch_is_remembered", "--nocapture"])
        .env(MODE, mode)
        .env("ROCFORGE_GPU_PLATFORM", "amd")
        .env("ROCFORGE_HIP_LIBRARY", library())
        .env("ROCFORGE_EMU_ARCH", arch().unwrap())
        .env("ROCFORGE_EMU_CHECK", "none")
        .env("ROCFORGE_EMU_FAIL", faults)
        .env("ROCFORGE_EMU_LOG", &log)
        .env("XDG_CACHE_HOME", folder)
        .output()
        .unwrap();
    let log = fs::read_to_string(log).unwrap();
    (output, log.lines().filter(|line| line.starts_with("hipGraphLaunch ")).count())
}

#[test]
fn a_crash_inside_a_launch_is_remembered() {
    if let Ok(mode) = env::var(MODE) {
        let mode = if mode == "on" { GraphMode::On } else { GraphMode::Auto };
        let (outputs, warnings) = Warnings::of(|| decode_with(mode, "model/llama-q8_0", 0));
        println!("warnings {warnings:?}\nresult {:?}", outputs.unwrap());
        return;
    }
    if arch().is_none() {
        rf_testing::skip!("{}", build_note());
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let run = |mode, faults| child(folder.path(), mode, faults);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let result = |output: &ChildOutput| {
        let text = text(&output.stdout);
        text.lines().find(|line| line.starts_with("result")).unwrap().to_owned()
    };
    let warns =
        |output: &ChildOutput| text(&output.stdout).contains("ended inside the first launch");

    let (right, launches) = run("auto", "");
    assert!(right.status.success() && launches > 0 && !warns(&right), "{}", text(&right.stderr));
    let (crashed, _) = run("auto", "hipGraphLaunch:1:crash");
    assert!(!crashed.status.success());
    let (next, launches) = run("auto", "");
    assert!(next.status.success() && warns(&next), "{}", text(&next.stderr));
    assert_eq!((launches, result(&next)), (0, result(&right)));
    // The user insists, and it works.
    let (on, launches) = run("on", "");
    assert!(on.status.success() && launches > 0, "{}", text(&on.stderr));
    let (again, launches) = run("auto", "");
    assert!(launches > 0 && !warns(&again), "{}", text(&again.stderr));
    assert_eq!(result(&again), result(&right));
}
