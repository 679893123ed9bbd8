//! Sessions with substitutes for AMD's tools: shell scripts that support `--help` and write the
//! files that the tool's documentation describes.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rf_profile::Error;
use rf_profile::tools::*;

/// The documented options of the tools.
fn documented(tool: Tool) -> &'static [&'static str] {
    match tool {
        Tool::Rocprofv3 => &[
            "--kernel-trace",
            "--hip-trace",
            "--hsa-trace",
            "--memory-copy-trace",
            "--memory-allocation-trace",
            "--scratch-memory-trace",
            "--marker-trace",
            "--stats",
            "--output-format",
            "-f",
            "-d",
            "-o",
            "-i",
            "--pmc",
            "-L",
            "--list-avail",
            "-r",
            "-s",
            "-S",
            "-T",
            "--kernel-include-regex",
            "-P",
        ],
        Tool::Rocprofv2 => &[
            "--list-counters",
            "-m",
            "--basenames",
            "--hip-api",
            "--hip-activity",
            "--hip-trace",
            "--hsa-api",
            "--hsa-activity",
            "--hsa-trace",
            "--roctx-trace",
            "--kernel-trace",
            "--sys-trace",
            "--plugin",
            "--plugin-version",
            "-i",
            "--input",
            "-o",
            "--output-file",
            "-d",
            "--output-directory",
        ],
        Tool::Rocprof => &[
            "--list-basic",
            "--list-derived",
            "-i",
            "-o",
            "--stats",
            "--hip-trace",
            "--hsa-trace",
            "--timestamp",
            "--basenames",
        ],
        Tool::RocprofCompute | Tool::Omniperf => {
            &["-n", "-p", "-b", "-k", "-d", "--no-roof", "--roof-only", "--format-rocprof-output"]
        }
        Tool::RocprofSys | Tool::Omnitrace => &[
            "-o",
            "--output",
            "-T",
            "--trace",
            "-P",
            "--profile",
            "-F",
            "--flat-profile",
            "--profile-format",
            "--freq",
            "--host",
            "--device",
        ],
        _ => &[],
    }
}

fn requests() -> Vec<ProfileRequest> {
    let mut requests = vec![ProfileRequest::kernels(), ProfileRequest::timeline()];
    for gfx in ["gfx1100", "gfx1030", "gfx1201", "gfx90a", "gfx906"] {
        requests.push(ProfileRequest::memory(gfx).unwrap());
        requests.push(ProfileRequest::detailed_memory(gfx).unwrap());
        requests.push(ProfileRequest::matmul_memory(gfx).unwrap());
        requests.push(ProfileRequest::compute_unit(gfx).unwrap());
    }
    for i in 0..32_u32 {
        requests.push(ProfileRequest {
            kernels: i & 1 != 0,
            api: i & 2 != 0,
            copies: i & 4 != 0,
            allocations: i & 8 != 0,
            kernel_filter: (i & 16 != 0).then(|| "matmul".to_owned()),
            passes: Vec::new(),
        });
    }
    requests
}

#[test]
fn every_flag_is_documented_by_its_tool() {
    let output = ToolOutput { folder: "out".into(), name: "run".into() };
    let program: Vec<OsString> = vec!["app".into(), "--its-own-flag".into()];
    let mut lines = 0;
    for tool in Tool::ALL {
        for request in requests() {
            let Ok(line) = Invocation::new(tool, &request, &output, &program) else { continue };
            lines += 1;
            for flag in line.flags() {
                assert!(documented(tool).contains(&flag), "{line}: {flag}");
            }
            let help = documented(tool).join("\n  ");
            let arguments = line.arguments(&help).unwrap();
            assert_eq!(arguments[arguments.len() - 2..], program[..], "the program comes last");
            let separator = arguments.iter().any(|argument| argument == "--");
            assert_eq!(separator, !matches!(tool, Tool::Rocprof | Tool::Rocprofv2), "{line}");
        }
    }
    assert!(lines > 100, "{lines}");
}

#[test]
fn a_flag_that_the_tool_lacks_is_dropped_or_an_error() {
    let output = ToolOutput { folder: "out".into(), name: "run".into() };
    let program = ["app".into()];
    let line =
        Invocation::new(Tool::Rocprofv3, &ProfileRequest::timeline(), &output, &program).unwrap();
    let older = "--kernel-trace --hip-trace --memory-copy-trace --output-format -d -o";
    let arguments = line.arguments(older).unwrap();
    assert!(!arguments.contains(&"--memory-allocation-trace".into()), "{arguments:?}");
    let error = line.arguments("--kernel-trace --hip-trace-all -d -o").unwrap_err();
    assert_eq!(error.to_string(), "the installed rocprofv3 has no option --hip-trace");
}

#[test]
fn counters_of_several_passes_are_written_to_a_file() {
    let output = ToolOutput { folder: "out".into(), name: "run".into() };
    let request = ProfileRequest::memory("gfx1100").unwrap();
    let line = Invocation::new(Tool::Rocprofv3, &request, &output, &["app".into()]).unwrap();
    let (path, text) = line.input.clone().unwrap();
    assert_eq!(
        (path.as_path(), &*text),
        (Path::new("out/counters.txt"), "pmc: FETCH_SIZE\npmc: WRITE_SIZE\n")
    );
    let expected =
        "rocprofv3 --kernel-trace -i out/counters.txt --output-format csv -d out -o run -- app";
    assert_eq!(line.to_string(), expected);

    let line = Invocation::new(Tool::Rocprof, &request, &output, &["app".into()]).unwrap();
    assert_eq!(line.to_string(), "rocprof -i out/counters.txt --timestamp on -o out/run.csv app");
}

#[test]
fn unsupported_requests_fail_before_the_run() {
    let output = ToolOutput { folder: "out".into(), name: "run".into() };
    let reason = |tool, request: &ProfileRequest| {
        Invocation::new(tool, request, &output, &["app".into()]).unwrap_err().to_string()
    };
    assert!(reason(Tool::Rocprofv2, &ProfileRequest::timeline()).contains("allocations"));
    assert!(reason(Tool::RocprofCompute, &ProfileRequest::timeline()).contains("not calls"));
    assert!(reason(Tool::AmdSmi, &ProfileRequest::kernels()).contains("not record kernels"));
    let error =
        Invocation::new(Tool::Rocprofv3, &ProfileRequest::kernels(), &output, &[]).unwrap_err();
    assert!(error.to_string().contains("program to run is missing"));
    let error = Tool::RocprofCompute.check_target("gfx1100").unwrap_err().to_string();
    assert!(error.contains("Instinct") && error.contains("rocprofv3"), "{error}");
    assert!(Tool::RocprofCompute.check_target("gfx942:sramecc+").is_ok());
    assert!(Tool::Rocprofv3.check_target("sm_90").is_err());
}

/// Installs a script as a tool.
fn install(folder: &Path, tool: Tool, script: &str) -> InstalledTool {
    let path = folder.join(tool.program());
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    Toolbox::of([folder.to_owned()]).find(tool).unwrap()
}

/// A substitute for rocprofv3 that parses the command line and writes the tables.
const ROCPROFV3: &str = r#"
if [ "$1" = --help ]; then
    echo "usage: rocprofv3 [--kernel-trace] [--hip-trace] [--pmc PMC] [-i INPUT] [-d DIR] [-o NAME] [--output-format {csv,json}]"
    exit 0
fi
while [ $# -gt 0 ]; do
    case "$1" in
        -d) dir="$2"; shift ;;
        -o) name="$2"; shift ;;
        -i) input="$2"; shift ;;
        --) shift; break ;;
    esac
    shift
done
"$@" || exit $?
mkdir -p "$dir"
printf '"Kind","Agent_Id","Kernel_Name","Dispatch_Id","Start_Timestamp","End_Timestamp","VGPR_Count"\n' > "$dir/${name}_kernel_trace.csv"
printf '"KERNEL_DISPATCH","Agent 1","f(int, int)",1,100,1100,24\n' >> "$dir/${name}_kernel_trace.csv"
printf '"Domain","Function","Process_Id","Thread_Id","Correlation_Id","Start_Timestamp","End_Timestamp"\n' > "$dir/${name}_hip_api_trace.csv"
if [ -n "$input" ]; then
    pass=0
    while read -r _ counters; do
        pass=$((pass + 1))
        mkdir -p "$dir/pmc_$pass"
        out="$dir/pmc_$pass/${name}_counter_collection.csv"
        printf '"Dispatch_Id","Kernel_Name","Counter_Name","Counter_Value","Start_Timestamp","End_Timestamp"\n' > "$out"
        for counter in $counters; do
            printf '1,"f(int, int)","%s",%s,100,1100\n' "$counter" "${VALUE:-64}" >> "$out"
        done
    done < "$input"
fi
"#;

#[test]
fn a_session_runs_the_program_and_reads_the_tables() {
    let folder = tempfile::tempdir().unwrap();
    let tool = install(folder.path(), Tool::Rocprofv3, ROCPROFV3);
    let mark = folder.path().join("ran");
    let session = Session::new(tool, folder.path().join("out")).on_target("gfx1100");
    let program = ["touch".into(), mark.clone().into_os_string()];
    let profile = session.run(&ProfileRequest::memory("gfx1100").unwrap(), &program);
    // The help text of the substitute lacks the option for the filter.
    let filtered = session.run(&ProfileRequest::matmul_memory("gfx1100").unwrap(), &program);
    assert!(matches!(filtered, Err(Error::FlagMissing { .. })), "{filtered:?}");

    let profile = profile.unwrap();
    assert!(mark.exists());
    let summaries = profile.kernel_summaries();
    assert_eq!((&*summaries[0].name, summaries[0].us.total), ("f(int, int)", 1.0));
    assert_eq!(profile.kernels.len(), 1, "a table of counters holds no dispatches");
    let counters = profile.counter_profile().unwrap();
    assert_eq!(counters.memory_bytes("f(int, int)"), Some((65536.0, 65536.0)));
    let speed = counters.bandwidth_bytes_per_s("f(int, int)", &profile.kernels).unwrap();
    assert!((speed - 131_072.0 / 1e-6).abs() < 1.0, "{speed}");
}

#[test]
fn counters_that_are_zero_are_reason() {
    let folder = tempfile::tempdir().unwrap();
    let zero = ROCPROFV3.replace("${VALUE:-64}", "0");
    let tool = install(folder.path(), Tool::Rocprofv3, &zero);
    let session = Session::new(tool, folder.path().join("out"));
    let profile =
        session.run(&ProfileRequest::memory("gfx1100").unwrap(), &["true".into()]).unwrap();
    assert!(matches!(profile.counter_profile(), Err(Error::ZeroCounters { values: 2, .. })));
}

#[test]
fn tools_that_fail_hang_or_write_nothing_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let help = "[ \"$1\" = --help ] && { echo --kernel-trace --output-format -d -o; exit 0; }\n";
    let run_for = |limit: Duration, script: &str| {
        let tool = install(folder.path(), Tool::Rocprofv3, &format!("{help}{script}"));
        Session::new(tool, folder.path().join("out"))
            .with_runner(Runner::new(limit))
            .run(&ProfileRequest::kernels(), &["true".into()])
            .unwrap_err()
    };
    let run = |script: &str| run_for(Duration::from_mins(1), script);
    let error = run("echo 'no HSA agents' >&2; exit 1");
    assert!(matches!(error, Error::Failed { .. }) && error.to_string().contains("no HSA agents"));
    let error = run("exit 0");
    assert!(matches!(error, Error::NoOutput { .. }), "{error:?}");
    let error = run_for(Duration::from_secs(2), "sleep 60");
    assert!(matches!(error, Error::Killed { .. }), "{error:?}");
    let into_folder =
        "while [ $# -gt 0 ]; do [ \"$1\" = -d ] && d=\"$2\"; shift; done; mkdir -p $d; cd $d\n";
    let error = run(&format!("{into_folder}echo x > run_results.db"));
    assert!(error.to_string().contains("rocpd"), "{error}");
    let cut_off = r#"printf '"Kernel_Name","Start_Timestamp","End_Timestamp"\n"f",1' > a.csv"#;
    let error = run(&format!("{into_folder}{cut_off}"));
    assert!(matches!(error, Error::Malformed { line: 2, .. }), "{error:?}");
}

#[test]
fn availability_has_the_version_or_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), Tool::Rocprofv3, "echo rocprofv3; echo '    version: 1.0.0'");
    install(
        folder.path(),
        Tool::AmdSmi,
        "[ $1 = version ] && echo 'AMDSMI Tool: 26.0.0 | ROCm version: 7.0.0'",
    );
    install(folder.path(), Tool::Rocprof, "exit 1");
    fs::write(folder.path().join("rocprofv2"), "not executable").unwrap();
    let found = Toolbox::of([folder.path().to_owned()]).availability();
    let version = |tool| found.iter().find(|found| found.tool == tool).unwrap().version.clone();
    assert_eq!(version(Tool::Rocprofv3).unwrap(), "version: 1.0.0");
    assert!(version(Tool::AmdSmi).unwrap().contains("26.0.0"));
    assert!(version(Tool::Rocprof).unwrap_err().contains("failed"));
    assert!(version(Tool::Rocprofv2).unwrap_err().contains("not installed"));
    assert_eq!(found.len(), Tool::ALL.len());
}

#[test]
fn perf_counts_and_samples_where_it_is_installed() {
    let Ok(tool) = Toolbox::system().find(Tool::Perf) else {
        rf_testing::skip!("perf is not installed");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let runner = Runner::new(Duration::from_mins(1));
    let busy =
        ["sh".into(), "-c".into(), "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done".into()];
    match perf::stat(&tool, &runner, folder.path(), &perf::EVENTS, &busy) {
        Ok(counters) => {
            let clock =
                counters.iter().find(|counter| counter.event.contains("task-clock")).unwrap();
            assert!(clock.value.unwrap() > 0.0, "{counters:?}");
        }
        Err(error) => rf_testing::skip!("{error}"),
    }
    match perf::record(&tool, &runner, folder.path(), 999, &busy) {
        Ok(stacks) => {
            assert!(stacks.samples() > 0, "{}", stacks.folded());
            assert!(
                stacks
                    .folded()
                    .lines()
                    .all(|line| line.starts_with("sh") || line.starts_with("perf"))
            );
        }
        Err(error) => rf_testing::skip!("{error}"),
    }
}
