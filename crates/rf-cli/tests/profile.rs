//! Timelines of runs, and commands under profilers.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::collections::BTreeMap;
use std::fs;

use program::{finish, rf_cli};
use rf_testing::transcript;
use serde_json::Value;
use snapbox::{assert_data_eq, str};

#[test]
fn a_run_leaves_a_timeline_and_says_what_the_first_token_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let ran = finish(
        folder.path(),
        &["run", "-v", "-n", "4", "--temp", "0", "--trace", "run.json", "Tell me a story."],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = fs::read_to_string(folder.path().join("run.json")).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert_eq!((count("tokenize"), count("prefill")), (1, 1));
    assert_eq!((count("sample"), count("decode")), (4, 3));
    let prefill = events.iter().find(|event| event["name"] == "prefill").unwrap();
    assert!(
        prefill["dur"].as_f64().unwrap() > 0.0 && prefill["args"]["tokens"].as_u64().unwrap() > 4
    );

    assert_is_a_timeline(events);
    let threads = tracks(events, "thread_name");
    assert!(threads.iter().any(|name| name == "main") && threads.iter().any(|n| n == "thread 0"));
    assert!(tracks(events, "process_name").iter().any(|name| name.starts_with("CPU (")));
    // An op of each layer in each batch says which it is, on each thread.
    let attention: Vec<&Value> = events.iter().filter(|e| e["name"] == "attention").collect();
    assert!(attention.iter().any(|op| op["args"]["of"] == "KV layer 0" && op["cat"] == "op"));
    assert!(attention.iter().any(|op| op["args"]["batch"] == 3), "a prompt and three tokens");
    assert!(count("pages in use") == 4);

    let row =
        |name: &str| ran.stderr.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("prefill").ends_with('%') && row("first sample").ends_with('%'), "{}", ran.stderr);
    // A phase, besides the op of that name.
    assert!(ran.stderr.lines().any(|line| line.starts_with("embed ") && line.ends_with('%')));
    let copies = row("host to device");
    assert!(copies.contains(" -  no copies"), "what was not measured is not 0: {copies}");
    assert!(row("limits: ").contains("GB/s") && row("operation").contains("evidence"));
    assert!(row("KV cache: ").contains("KiB per token") && row("process: ").contains("peak"));
    assert!(row("total: ").contains("planned"));
    assert!(ran.stderr.contains("of the time to first token is"));
}

#[test]
fn a_timeline_shows_which_drafts_were_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let drafts = ["--spec", "ngram", "--draft-max", "3", "--draft-min", "3", "--trace", "run.json"];
    let basic =
        ["run", "-q", "--raw", "-n", "12", "--temp", "0", "--logit-bias", "903+100", "Once"];
    let ran = finish(folder.path(), &[&basic[..], &drafts].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = fs::read_to_string(folder.path().join("run.json")).unwrap();
    let trace: Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_is_a_timeline(events);
    let named = |name: &str| events.iter().filter(|e| e["name"] == name).collect::<Vec<_>>();
    let (verified, shares) = (named("verify"), named("accepted tokens (%)"));
    assert!(!verified.is_empty() && verified.len() == shares.len());
    let (args, share) = (&verified[0]["args"], &shares[0]["args"]["accepted tokens (%)"]);
    assert_eq!(args["drafted"], 3);
    let accepted = args["accepted"].as_f64().unwrap();
    assert!((share.as_f64().unwrap() - 100.0 * accepted / 3.0).abs() < 1e-6);
}

/// What the format asks for: events of a track nest or follow each other, and every track has a
/// name.
fn assert_is_a_timeline(events: &[Value]) {
    let named: Vec<(&Value, &Value)> = events
        .iter()
        .filter(|event| event["ph"] == "M" && event["name"] == "thread_name")
        .map(|event| (&event["pid"], &event["tid"]))
        .collect();
    let mut by_track: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        assert!(named.contains(&(&event["pid"], &event["tid"])), "{event}");
        let (start, duration) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        assert!(start >= 0.0 && duration >= 0.0, "{event}");
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        by_track.entry(track).or_default().push((start, start + duration));
    }
    assert!(by_track.len() > 1);
    for times in by_track.values_mut() {
        // Outer before inner.
        times.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut open: Vec<f64> = Vec::new();
        for (start, end) in times {
            // A nanosecond is lost where sums are rounded.
            open.retain(|outer| *outer > *start + 1e-3);
            assert!(
                open.iter().all(|outer| *end <= *outer + 1e-3),
                "{start} to {end} within {open:?}"
            );
            open.push(*end);
        }
    }
}

/// Names of groups or tracks.
fn tracks(events: &[Value], what: &str) -> Vec<String> {
    let named = events.iter().filter(|event| event["ph"] == "M" && event["name"] == what);
    named.map(|event| event["args"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_draws_its_roofline() {
    let folder = tempfile::tempdir().unwrap();
    let run = |path: &str| {
        let arguments =
            ["run", "-q", "-n", "4", "--temp", "0", "--roofline", path, "Tell me a story."];
        let ran = finish(folder.path(), &arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr
    };
    assert_eq!(run("roof.svg"), "roof.svg: open it in a browser\n");
    let svg = fs::read_to_string(folder.path().join("roof.svg")).unwrap();
    assert!(svg.contains("<title>Roofline of CPU (") && svg.contains(" GB/s</text>"), "{svg}");
    assert!(svg.contains("matmul: ") && svg.matches("<circle").count() > 3, "{svg}");
    let text = run("-");
    assert!(text.contains("operations per byte") && text.contains("\na "), "{text}");
}

#[cfg(unix)]
#[test]
fn call_stacks_of_perf_become_a_flame_graph() {
    let folder = tempfile::tempdir().unwrap();
    // A stand-in with the output of `perf script`.
    let script = r#"#!/bin/sh
case "$1" in
    --version) echo "perf version 6.1" ;;
    record) [ "$2" = --help ] && exit 0
        while [ "$1" != -- ]; do [ "$1" = -o ] && : > "$2"; shift; done; shift; "$@" ;;
    script) printf 'rf-cli 42 10.5: 1 cycles:\n\t55 matmul+0x10 (/rf-cli)\n\t44 main+0x20 (/rf-cli)\n\n' ;;
esac
"#;
    stand_in(&folder, "perf", script);
    let run = |arguments: &[&str]| {
        let arguments =
            [&["profile", "--tool", "perf"], arguments, &["--", "echo", "ran"]].concat();
        let mut command = rf_cli(folder.path(), &arguments);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.path().display()));
        let ran = program::Finished::of(command.output().unwrap());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let ran = run(&["--flame-graph", "flames.svg", "--stacks", "stacks.txt"]);
    assert!(ran.stdout.contains("1 samples") && ran.stderr.contains("flames.svg: open it"));
    let svg = fs::read_to_string(folder.path().join("flames.svg")).unwrap();
    assert!(svg.contains("<title>matmul (1 samples, 100.0 %)</title>"), "{svg}");
    let stacks = fs::read_to_string(folder.path().join("stacks.txt")).unwrap();
    assert_eq!(stacks, "rf-cli;main;matmul 1\n");
    let ran = run(&["--flame-graph", "-"]);
    assert!(ran.stderr.contains("▏matmul"), "{}", ran.stderr);
}

#[test]
fn a_timeline_that_cannot_be_written_is_an_error_and_the_answer_is_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let ran = finish(
        folder.path(),
        &["run", "-q", "-n", "4", "--temp", "0", "--trace", "file/run.json", "Tell me a story."],
    );
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.len() > 4);
    assert_data_eq!(
        ran.stderr,
        str![[r#"
error: cannot write 'file/run.json': File exists (os error 17)

"#]]
    );
}

#[test]
fn tools_that_are_not_there_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = rf_cli(folder.path(), arguments);
        // Nothing is installed here.
        command.env("PATH", folder.path()).env("ROCM_PATH", folder.path());
        transcript(&mut command)
    };
    assert_data_eq!(
        run(&["profile", "--tool", "rocperf", "--", "true"]),
        str![[r#"
$ rf-cli profile --tool rocperf -- true
error: there is no tool 'rocperf': use rocprofv3 for kernels and counters, or perf for the CPU
? 2

"#]]
    );
    if fs::exists("/opt/rocm/bin/rocprofv3").unwrap_or(false) {
        rf_testing::skip!("ROCm is installed");
        return;
    }
    let printed = run(&["profile", "--record", "memory", "--", "true"]);
    assert_data_eq!(
        printed + &run(&["profile", "--list"]),
        str![[r#"
$ rf-cli profile --record memory -- true
error: rocprofv3 is not installed: it comes with ROCm 6.2 and later (package rocprofiler-sdk)
? 1
$ rf-cli profile --list
rocprofv3 is not installed: it comes with ROCm 6.2 and later (package rocprofiler-sdk)
rocprofv2 is not installed: it came with ROCm 5 and 6 (package rocprofiler); use rocprofv3
rocprof is not installed: it came with ROCm 5 and 6 (package rocprofiler); use rocprofv3
rocprof-compute is not installed: it comes with ROCm 6.3 and later (package rocprofiler-compute), for Instinct GPUs
omniperf is not installed: it is called rocprof-compute since ROCm 6.3
rocprof-sys-sample is not installed: it comes with ROCm 6.3 and later (package rocprofiler-systems)
omnitrace-sample is not installed: it is called rocprof-sys since ROCm 6.3
perf is not installed: install the package linux-perf (Debian), linux-tools (Ubuntu) or perf (Fedora)
amd-smi is not installed: it comes with ROCm 6 and later (package amd-smi-lib)
rocm-smi is not installed: it comes with ROCm (package rocm-smi-lib); use amd-smi

"#]]
    );
}

/// Puts a script in the place of a tool.
#[cfg(unix)]
fn stand_in(folder: &tempfile::TempDir, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt;

    let tool = folder.path().join(name);
    fs::write(&tool, script).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_profiler_s_tables_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    // A stand-in that runs the command and writes what rocprofv3 writes.
    let script = r#"#!/bin/sh
[ "$1" = --help ] && { echo "--kernel-trace --output-format -d -o"; exit 0; }
while [ $# -gt 0 ]; do
    case "$1" in -d) dir="$2"; shift ;; --) shift; break ;; esac
    shift
done
"$@" || exit $?
mkdir -p "$dir"
printf '"Kernel_Name","Start_Timestamp","End_Timestamp"\n"matvec(int, int)",1000,4000\n' > "$dir/run_kernel_trace.csv"
"#;
    stand_in(&folder, "rocprofv3", script);
    let path = std::env::var("PATH").unwrap_or_default();
    let arguments = ["profile", "--gfx", "gfx1100", "--trace", "gpu.json", "--", "echo", "ran"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let ran = program::Finished::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_data_eq!(
        ran.stdout,
        str![[r#"
ran

kernel                                                           calls     total ms   share   median us      p95 us  VGPRs  scratch
matvec(int, int)                                                     1        0.003  100.0%        3.00        3.00      -        -


"#]]
    );
    let trace = fs::read_to_string(folder.path().join("gpu.json")).unwrap();
    assert!(trace.contains("matvec(int, int)"));

    // It samples no call stacks.
    let arguments = ["profile", "--gfx", "gfx1100", "--flame-graph", "f.svg", "--", "echo", "ran"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let ran = program::Finished::of(command.output().unwrap());
    let message = "error: --flame-graph needs call stacks, which rocprofv3 does not sample: give --tool perf\n";
    assert_eq!((ran.code, &*ran.stderr), (Some(2), message));

    let arguments = ["profile", "--gfx", "gfx1100", "--", "no-such-program"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let ran = program::Finished::of(command.output().unwrap());
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.stderr, "error: there is no program 'no-such-program': check its name\n");
}
