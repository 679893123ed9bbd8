//! Tests of the `rf-bench` program: output, files and exit codes. No test judges a time.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rf_testing::transcript;
use serde_json::Value;
use snapbox::{assert_data_eq, file, str};

/// Arguments that select three benchmarks of the suite launch, which take milliseconds in any
/// build.
const TINY: [&str; 4] = ["launch", "--filter", "step", "--quick"];

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rf-bench"));
    command.env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
    command.env_remove("ROCFORGE_TEST_MODEL").args(arguments);
    command
}

/// Serializes the measurements, because concurrent ones would disturb each other.
static MACHINE: Mutex<()> = Mutex::new(());

fn output(command: &mut Command) -> Output {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    command.output().unwrap()
}

fn run(arguments: &[&str]) -> Output {
    output(&mut bench(arguments))
}

fn tiny(more: &[&str]) -> Output {
    run(&[&TINY[..], more].concat())
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Writes an executable file.
#[cfg(unix)]
fn script(path: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn names_are_listed_and_nothing_is_measured() {
    let output = run(&["--list", "launch", "inference"]);
    assert_eq!(code(&output), 0);
    let text = text(&output);
    assert!(text.lines().any(|line| line.starts_with("launch/step/ops=64 ")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("inference/ttft/tokens=512 ")), "{text}");
    assert!(!text.contains("matmul/"), "{text}");
}

#[test]
fn invalid_arguments_are_named_with_the_cure() {
    let printed = [
        &["speed"][..],
        &["launch", "--filter", "nosuch"],
        &["launch", "--threshold", "ten"],
        &["launch", "--compare", "nosuch.json"],
        &["launch", "--record"],
        &["launch", "--isa", "mmx"],
        &["inference", "--model", "/nosuch.gguf"],
        &["--peer", "llama.cpp", "--peer-python", "/nosuch/python"],
        &["--peer", "rocmforge"],
        &["--peer", "llama.cpp", "-p", "0", "-n", "0"],
        &["--peer", "llama.cpp", "--quick"],
        &["launch", "--against", "no-such-revision"],
        &["launch", "--against", "/bin/true"],
        &["launch", "--against", "/bin/true", "--compare", "a.json"],
        &["launch", "--against", "/bin/true", "--filter", "nosuch"],
    ]
    .map(|arguments| transcript(&mut bench(arguments)));
    assert_data_eq!(printed.concat(), file!["invalid_arguments.txt"]);
}

#[test]
fn every_format_has_every_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let page = path(&folder, "report.html");
    let output = tiny(&["--format", "html", "--output", &page]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(fs::read_to_string(&page).unwrap().contains("ops=64"));
    assert!(text(&output).is_empty());

    let output = tiny(&["--format", "json", "--rounds", "2"]);
    let json = json(&text(&output));
    let names: Vec<&str> = json["run"]["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["launch/step/ops=1", "launch/step/ops=64", "launch/step/ops=512"]);
    let first = &json["run"]["results"][0];
    assert_eq!(first["rounds"].as_array().unwrap().len(), 2, "{first}");
    assert!(first["metrics"]["p50"].as_f64().unwrap() > 0.0);
    assert!(json["run"]["limits"]["bandwidth_bytes_per_s"].as_f64().unwrap() > 0.0);

    let csv = text(&tiny(&["--format", "csv"]));
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let columns: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [16; 4]);

    assert_data_eq!(
        text(&tiny(&[])),
        str![[r#"
on       [..]
build    [..]
limits   memory [..] GB/s, f32 [..] Tops/s, int8 [..] Tops/s: measured with [..]

launch                       median             p95    spread      n         speed  of roofline
launch/step/ops=1 [..]
...
launch/step/ops=64 [..]
...
launch/step/ops=512 [..]
...

"#]]
    );
}

#[test]
fn a_baseline_is_saved_merged_and_compared_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "deeper/mine.json");
    let output = tiny(&["--save-baseline", &file]);
    assert_eq!(code(&output), 0, "{output:?}");
    let one = run(&["launch", "--quick", "--filter", "ops=64", "--save-baseline", &file]);
    assert!(errors(&one).contains("merged into"), "{}", errors(&one));
    let saved = json(&fs::read_to_string(&file).unwrap());
    assert_eq!(saved["entries"].as_array().unwrap().len(), 3);
    // The baseline against itself, with a threshold for a busy machine.
    let output = tiny(&["--compare", &file, "--threshold", "100%", "--format", "json"]);
    let rows = json(&text(&output))["comparison"]["rows"].clone();
    let rows = rows.as_array().unwrap().clone();
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["baseline"].is_number()), "{rows:?}");
    assert!(rows.iter().all(|row| row["current"].is_number()), "{rows:?}");
}

#[test]
fn a_baseline_without_a_name_is_that_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let mut command = bench(&[&TINY[..], more].concat());
        output(command.arg("--root").arg(folder.path()))
    };
    let saved = run(&["--save-baseline"]);
    assert_eq!(code(&saved), 0, "{saved:?}");
    let files = fs::read_dir(folder.path().join("benchmarks/baselines")).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let name = names[0].to_str().unwrap();
    let compared = run(&["--compare", name, "--threshold", "100%"]);
    // Any verdict: no test judges a time.
    assert!([0, 1, 3].contains(&code(&compared)), "{compared:?}");
    assert!(!text(&compared).contains(" New"), "{}", text(&compared));
}

#[test]
fn a_damaged_or_newer_baseline_is_named_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "mine.json");
    let mut printed = String::new();
    for content in [
        "{\"format\": \"rocmforge-base",
        "",
        "{\"format\": \"rocmforge-baselines\", \"version\": 99, \"entries\": []}",
        "{\"some\": \"thing\"}",
    ] {
        fs::write(&file, content).unwrap();
        for option in ["--compare", "--save-baseline"] {
            printed += &transcript(&mut bench(&[&TINY[..], &[option, &file]].concat()));
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), content, "the file changed");
    }
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-bench launch --filter step --quick --compare [..]/mine.json
error: cannot compare with '[..]/mine.json'; write a new baseline with --save-baseline: '[..]/mine.json', line 1: EOF while parsing a string at line 1 column 26
? 2
$ rf-bench launch --filter step --quick --save-baseline [..]/mine.json
error: cannot merge into '[..]/mine.json'; remove the file or name another one: '[..]/mine.json', line 1: EOF while parsing a string at line 1 column 26
? 2
$ rf-bench launch --filter step --quick --compare [..]/mine.json
error: cannot compare with '[..]/mine.json'; write a new baseline with --save-baseline: '[..]/mine.json': the file is empty
? 2
$ rf-bench launch --filter step --quick --save-baseline [..]/mine.json
error: cannot merge into '[..]/mine.json'; remove the file or name another one: '[..]/mine.json': the file is empty
? 2
$ rf-bench launch --filter step --quick --compare [..]/mine.json
error: cannot compare with '[..]/mine.json'; write a new baseline with --save-baseline: '[..]/mine.json' has format version 99, newer than 2: use a newer ROCmForge with it
? 2
$ rf-bench launch --filter step --quick --save-baseline [..]/mine.json
error: cannot merge into '[..]/mine.json'; remove the file or name another one: '[..]/mine.json' has format version 99, newer than 2: use a newer ROCmForge with it
? 2
$ rf-bench launch --filter step --quick --compare [..]/mine.json
error: cannot compare with '[..]/mine.json'; write a new baseline with --save-baseline: '[..]/mine.json': neither "format" nor "baselines": no baseline file
? 2
$ rf-bench launch --filter step --quick --save-baseline [..]/mine.json
error: cannot merge into '[..]/mine.json'; remove the file or name another one: '[..]/mine.json': neither "format" nor "baselines": no baseline file
? 2

"#]]
    );
}

#[test]
fn a_folder_is_no_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let printed = ["--compare", "--save-baseline"].map(|option| {
        let output = tiny(&[option, folder.path().to_str().unwrap()]);
        assert_eq!(code(&output), 2, "{output:?}");
        errors(&output)
    });
    assert_data_eq!(
        printed.concat(),
        str![[r#"
error: '[..]' is a folder: name a baseline file in it
error: cannot write '[..]': it is a folder

"#]]
    );
}

#[test]
fn an_older_baseline_is_read() {
    let Some(shared) = rf_testing::shared("reference/baseline-format.json") else { return };
    let formats = json(&fs::read_to_string(shared).unwrap());
    let folder = tempfile::tempdir().unwrap();
    for name in ["named_map", "flat"] {
        let file = path(&folder, "old.json");
        fs::write(&file, formats[name].to_string()).unwrap();
        let output = tiny(&["--compare", &file]);
        assert_eq!(code(&output), 0, "{output:?}");
        assert!(text(&output).contains("HardwareMismatch"), "{}", text(&output));
    }
}

#[test]
fn results_of_other_hardware_are_not_compared() {
    let output = run(&["--compare", "rdna3-baseline.json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_data_eq!(
        text(&output),
        str![[r#"
benchmark                      on       baseline           now    change   allowed  verdict           note
inference/prefill/tokens=512   GPU  3890 tokens/s             -         -         -  HardwareMismatch  7B Q4_0: GPU [..], not AMD Radeon RX 7900 XTX
...
13 HardwareMismatch

Nothing was measured: every baseline result is of other hardware. Commands for that hardware:
  cargo xtask bench inference --backend gpu --model <7B Q4_0.gguf> --compare rdna3-baseline.json    # on AMD Radeon RX 7900 XTX (gfx1100)
...

"#]]
    );
    let output = run(&["--compare", "rdna3-baseline.json", "--require-hardware"]);
    assert_eq!(code(&output), 2, "{output:?}");
    let output = run(&["--compare", "rdna3-baseline", "--format", "json"]);
    let json = json(&text(&output));
    let rows = json["comparison"]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["verdict"] == "HardwareMismatch"), "{rows:?}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../benchmarks/baselines/rdna3-baseline.json");
    let published = self::json(&fs::read_to_string(file).unwrap());
    assert_eq!(rows.len(), published["entries"].as_array().unwrap().len());
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_loses_no_result() {
    let output = tiny(&["--format", "json", "--output", "/dev/full"]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(errors(&output).contains("/dev/full"), "{}", errors(&output));
    assert!(text(&output).contains("launch/step/ops=64"), "{}", text(&output));
    // The baseline is saved even if stdout cannot be written.
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "mine.json");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output =
        bench(&[&TINY[..], &["--save-baseline", &file]].concat()).stdout(full).output().unwrap();
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(Path::new(&file).exists());
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = path(&folder, "file");
    fs::write(&blocked, "").unwrap();
    let output = tiny(&["--save-baseline", &format!("{blocked}/mine.json")]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert_data_eq!(
        errors(&output),
        str![[r#"
...
error: cannot write '[..]/file/mine.json': File exists (os error 17)

"#]]
    );
    assert!(text(&output).contains("launch/step/ops=64"), "results are missing on stdout");
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_the_measurements_and_leaves_the_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, "mine.json");
    assert_eq!(code(&tiny(&["--save-baseline", &file])), 0);
    let before = fs::read_to_string(&file).unwrap();
    // Enough rounds to be interrupted.
    let mut command =
        bench(&["launch", "memory", "--quick", "--rounds", "1000", "--save-baseline", &file]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
    let interrupted = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(interrupted.elapsed() < Duration::from_mins(1), "it ends after the current run");
    assert_eq!(code(&output), 130, "{output:?}");
    assert!(text(&output).contains("memory/") || text(&output).contains("launch/"), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let partial = folder.path().join("mine.partial.json");
    assert!(!json(&fs::read_to_string(partial).unwrap())["entries"].as_array().unwrap().is_empty());
}

#[test]
fn targets_are_met_missed_or_not_measured() {
    let output = run(&["launch", "--quick", "--filter", "ops=1", "--targets", "--format", "json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let json = json(&text(&output));
    let targets = json["targets"].as_array().unwrap();
    assert!(targets.len() >= 6);
    for target in targets {
        assert!(target["outcome"]["not_measured"].is_string(), "{target}");
    }
}

#[test]
fn metrics_of_a_model_are_measured() {
    let output = run(&["inference", "--quick", "--rounds", "1", "--format", "json"]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert!(errors(&output).contains("demo model"), "{}", errors(&output));
    let json = json(&text(&output));
    let run = &json["run"];
    assert!(run["model"]["hash"].as_str().unwrap().starts_with("xxh3:"));
    let result = |name: &str| {
        let results = run["results"].as_array().unwrap();
        let found = results.iter().find(|result| result["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {run}")).clone()
    };
    let ttft = result("inference/ttft/tokens=128");
    let phases = ttft["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"tokenise") && names.contains(&"prefill"), "{names:?}");
    let all: f64 = phases.iter().map(|phase| phase["ms"].as_f64().unwrap()).sum();
    assert!(all > 0.0 && all <= 1.01 * ttft["metrics"]["max"].as_f64().unwrap());
    assert!(result("inference/decode/batch=8")["metrics"]["p50"].as_f64().unwrap() > 0.0);
    let memory = result("inference/memory/peak");
    assert!(memory["metadata"]["planned weights"].as_str().unwrap().ends_with("MiB"));
    let skipped = run["skipped"].as_array().unwrap();
    let long = skipped.iter().find(|one| one["name"] == "inference/ttft/tokens=2048");
    assert!(long.unwrap()["why"].as_str().unwrap().contains("1024"), "{skipped:?}");
}

#[cfg(unix)]
#[test]
fn a_peer_is_measured_in_turns_and_the_ratio_comes_last() {
    let folder = tempfile::tempdir().unwrap();
    let peer = path(&folder, "llama-bench");
    // A stub that prints the JSON of llama-bench.
    let stub = r#"#!/bin/sh
echo '[{"build_commit": "abc", "build_number": 7, "n_prompt": 16, "n_gen": 0, "avg_ts": 1.0},'
echo ' {"build_commit": "abc", "build_number": 7, "n_prompt": 0, "n_gen": 8, "avg_ts": 2.0}]'
"#;
    script(&peer, stub);
    let arguments =
        ["--peer", "llama.cpp", "--peer-bench", &peer, "-p", "16", "-n", "8", "-r", "2"];
    let output = run(&arguments);
    assert_eq!(code(&output), 0, "{output:?}");
    let table = text(&output);
    assert_data_eq!(
        table,
        str![[r#"
ours    ROCmForge [..]
theirs  llama-bench 7 (abc) (features not reported)
on      [..]
threads [..] each; tokens/s, a fresh process for each run

model                 test             run       ours     theirs   ratio
stories-7m-Q8_0.gguf  pp16               1 [..] 1.0 [..]
stories-7m-Q8_0.gguf  pp16               2 [..] 1.0 [..]
stories-7m-Q8_0.gguf  tg8                1 [..] 2.0 [..]
stories-7m-Q8_0.gguf  tg8                2 [..] 2.0 [..]

model                 test                 ours     theirs  ratio, median (min to max)
stories-7m-Q8_0.gguf  pp16 [..] 1.0 [..] ([..] to [..])
stories-7m-Q8_0.gguf  tg8 [..] 2.0 [..] ([..] to [..])

"#]]
    );
    let json = json(&text(&run(&[&arguments[..], &["--format", "json"]].concat())));
    assert_eq!(json["comparisons"][0]["pairs"].as_array().unwrap().len(), 2);
    assert_eq!(json["comparisons"][0]["pairs"][0][1]["decode_tokens_per_s"], 2.0);
    // The error of a failed peer includes its stderr.
    script(&peer, "#!/bin/sh\necho no such model >&2\nexit 3\n");
    let output = run(&arguments);
    assert_eq!(code(&output), 2);
    assert_data_eq!(
        errors(&output),
        str![[r#"
error: '[..]/llama-bench' failed with exit status: 3: no such model

"#]]
    );
}

#[test]
fn two_builds_are_measured_in_turns() {
    let program = env!("CARGO_BIN_EXE_rf-bench");
    let output = run(&[
        "--peer",
        "rocmforge",
        "--peer-bench",
        program,
        "-p",
        "16",
        "-n",
        "8",
        "-r",
        "1",
        "--format",
        "csv",
    ]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(text(&output).lines().count(), 3, "{}", text(&output));
}

#[test]
fn a_build_is_compared_with_another_program_in_turns() {
    let program = env!("CARGO_BIN_EXE_rf-bench");
    let pair = ["--against", program, "--head", program, "--budget", "0.1", "--format", "json"];
    let output = tiny(&pair);
    // No test judges a time.
    assert!([0, 1, 3].contains(&code(&output)), "{output:?}");
    let json = json(&text(&output));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0]["name"], "launch/step/ops=1");
    let block = &rows[0]["passes"][0]["blocks"][0];
    assert!(block["base"][1].as_f64().unwrap() > 0.0, "{block}");
    assert!(block["head"][0].as_f64().unwrap() > 0.0, "{block}");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_both_workers_of_a_paired_comparison() {
    let program = env!("CARGO_BIN_EXE_rf-bench");
    let (output, workers) = interrupt_comparison(program, 1);
    assert_eq!(code(&output), 130, "{output:?}");
    assert!(errors(&output).contains("ended by Ctrl-C: "), "{}", errors(&output));
    assert!(errors(&output).contains("of 3 workloads have no verdict"), "{}", errors(&output));
    // The table has what was measured.
    assert!(text(&output).contains("launch/step/ops=512"), "{}", text(&output));
    assert!(text(&output).contains("interrupted"), "{}", text(&output));
    assert_eq!(alive(&workers), [0; 0]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_ctrl_c_ends_a_paired_comparison_whose_worker_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let stub = path(&folder, "hanging");
    let ready = r#"{"ready":{"version":1,"backend":"stub"}}"#;
    script(&stub, &format!("#!/bin/sh\nread hello\necho '{ready}'\nexec sleep 600\n"));
    let (output, workers) = interrupt_comparison(&stub, 2);
    assert_eq!(code(&output), 130, "{output:?}");
    assert_data_eq!(
        errors(&output),
        str![[r#"
ending after the current run; press Ctrl-C again to end at once
ended by Ctrl-C; the measurements are discarded

"#]]
    );
    assert!(text(&output).is_empty(), "{}", text(&output));
    assert_eq!(alive(&workers), [0; 0]);
}

/// Starts a comparison with `base`, interrupts it once both workers run, and returns its output and
/// the ids of the workers.
#[cfg(target_os = "linux")]
fn interrupt_comparison(base: &str, presses: usize) -> (Output, Vec<u32>) {
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let program = env!("CARGO_BIN_EXE_rf-bench");
    let mut command = bench(&[&TINY[..], &["--against", base, "--head", program]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let mut workers = children(child.id());
    while workers.len() < 2 {
        assert!(start.elapsed() < Duration::from_mins(1), "no workers: {workers:?}");
        std::thread::sleep(Duration::from_millis(10));
        workers = children(child.id());
    }
    let interrupted = Instant::now();
    for _ in 0..presses {
        // The workers answer the first requests meanwhile.
        std::thread::sleep(Duration::from_secs(1));
        let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(killed.unwrap().success());
    }
    let output = child.wait_with_output().unwrap();
    assert!(interrupted.elapsed() < Duration::from_mins(1), "it ends after the current run");
    (output, workers)
}

/// The processes that a process started and has not waited for.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// Selects the processes that still exist.
#[cfg(target_os = "linux")]
fn alive(ids: &[u32]) -> Vec<u32> {
    ids.iter().copied().filter(|id| parent_of(*id).is_some()).collect()
}

#[cfg(target_os = "linux")]
fn parent_of(id: u32) -> Option<u32> {
    // The name in parentheses may contain spaces: pid (name) state parent ...
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
