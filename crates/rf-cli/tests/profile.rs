//! Timelines of runs, and commands under profilers.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "functions of tests")]

mod program;

use std::fs;

use program::{finish, rf_cli};
use serde_json::Value;

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

    let row =
        |name: &str| ran.stderr.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("prefill").ends_with('%') && row("first sample").ends_with('%'), "{}", ran.stderr);
    assert!(row("host to device").trim_end().ends_with('-'), "what was not measured is not 0");
    assert!(ran.stderr.contains("of the time to first token is"));
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
    assert!(
        ran.stdout.len() > 4 && ran.stderr.contains("cannot write 'file/run.json'"),
        "{}",
        ran.stderr
    );
}

#[test]
fn tools_that_are_not_there_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = rf_cli(folder.path(), arguments);
        // Nothing is installed here.
        command.env("PATH", folder.path()).env("ROCM_PATH", folder.path());
        program::Finished::of(command.output().unwrap())
    };
    let ran = run(&["profile", "--tool", "rocperf", "--", "true"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("there is no tool 'rocperf': use rocprofv3"), "{}", ran.stderr);
    if fs::exists("/opt/rocm/bin/rocprofv3").unwrap_or(false) {
        println!("skipped: ROCm is installed");
        return;
    }
    let ran = run(&["profile", "--record", "memory", "--", "true"]);
    assert!(
        ran.code == Some(1) && ran.stderr.contains("rocprofv3 is not installed"),
        "{}",
        ran.stderr
    );
    let list = run(&["profile", "--list"]);
    assert!(list.stdout.contains("perf is not installed"), "{}", list.stdout);
}

#[cfg(unix)]
#[test]
fn a_profiler_s_tables_are_printed() {
    use std::os::unix::fs::PermissionsExt;

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
    let tool = folder.path().join("rocprofv3");
    fs::write(&tool, script).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let arguments = ["profile", "--gfx", "gfx1100", "--trace", "gpu.json", "--", "echo", "ran"];
    let mut command = rf_cli(folder.path(), &arguments);
    command.env("PATH", format!("{}:{path}", folder.path().display()));
    let ran = program::Finished::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("ran\n"), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("matvec(int, int)") && ran.stdout.contains("100.0%"),
        "{}",
        ran.stdout
    );
    let trace = fs::read_to_string(folder.path().join("gpu.json")).unwrap();
    assert!(trace.contains("matvec(int, int)"));
}
