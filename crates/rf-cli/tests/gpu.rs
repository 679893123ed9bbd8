//! What the commands about GPUs say where there is none. What they say of one, the emulator shows.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::path::Path;
use std::process::Command;

use program::{Finished, rf_cli};
use rf_testing::transcript;
use snapbox::{assert_data_eq, str};

/// Runs the program on a machine without any GPU runtime.
fn without_gpu(arguments: &[&str]) -> Command {
    let mut command = rf_cli(Path::new(env!("CARGO_MANIFEST_DIR")), arguments);
    command.env_remove("ROCFORGE_DEVICE").env_remove("ROCFORGE_GPU_PLATFORM");
    command.env("ROCFORGE_HIP_LIBRARY", "/nowhere/libamdhip64.so");
    command.env("ROCFORGE_CUDA_LIBRARY", "/nowhere/libcuda.so");
    command
}

fn finish(arguments: &[&str]) -> Finished {
    Finished::of(without_gpu(arguments).output().unwrap())
}

#[test]
fn without_a_gpu_the_cpu_runs_and_nothing_is_said() {
    let run = finish(&["run", "-n", "4", "--temp", "0", "--raw", "Once upon a time"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn a_gpu_that_is_asked_for_and_absent_is_an_error_with_the_cure() {
    let printed = [
        &["run", "--device", "gpu", "Hello"][..],
        &["run", "--device", "0", "Hello"],
        &["run", "-ngl", "all", "Hello"],
        &["run", "--device", "cpu", "-ngl", "3", "Hello"],
        // Layers for a GPU that is not there: the CPU runs, and it is said.
        &["run", "-q", "-n", "4", "--temp", "0", "-ngl", "3", "Hello"],
    ]
    .map(|arguments| transcript(&mut without_gpu(arguments)));
    assert_data_eq!(
        printed.concat(),
        str![[r#"
$ rf-cli run --device gpu Hello
error: no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): check the installation; every model also runs on the CPU: see `rf-cli doctor` and --device cpu
? 1
$ rf-cli run --device 0 Hello
error: no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): check the installation; every model also runs on the CPU: see `rf-cli doctor` and --device cpu
? 1
$ rf-cli run -ngl all Hello
error: no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): check the installation; every model also runs on the CPU: see `rf-cli doctor` and --device cpu
? 1
$ rf-cli run --device cpu -ngl 3 Hello
error: 3 layers on a GPU were requested, but the device is the CPU: change one of them: leave out -ngl or --device cpu
? 2
$ rf-cli run -q -n 4 --temp 0 -ngl 3 Hello
Hello! Shall
warning: everything runs on the CPU: no GPU runtime is installed (neither ROCm's libamdhip64 nor NVIDIA's libcuda was found): check the installation; every model also runs on the CPU: see `rf-cli doctor`

"#]]
    );
}

#[test]
fn devices_lists_none() {
    assert_data_eq!(
        transcript(&mut without_gpu(&["devices"])),
        str![[r#"
$ rf-cli devices
no usable GPU, so everything runs on the CPU: run `rf-cli doctor` for the reason

"#]]
    );
    let json = finish(&["devices", "--json"]).json();
    assert_eq!(json["devices"].as_array().unwrap().len(), 0);
    assert!(json["default"].is_null());
    let platforms: Vec<_> =
        json["runtimes"].as_array().unwrap().iter().map(|runtime| &runtime["platform"]).collect();
    assert_eq!(platforms, ["AMD", "NVIDIA"]);
}

#[test]
fn the_doctor_fails_with_cures() {
    let doctor = finish(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.stdout);
    assert!(doctor.stderr.contains("no GPU is usable"), "{}", doctor.stderr);
    // Where the user has named a library.
    assert!(doctor.stdout.contains("/nowhere/libamdhip64.so"), "{}", doctor.stdout);
    let lines: Vec<_> = doctor.stdout.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        if line.starts_with("fail") || line.starts_with("warn") {
            assert!(lines[i + 1].trim_start().starts_with("->"), "{}", doctor.stdout);
        }
    }
    let json = finish(&["doctor", "--json"]);
    let checks: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let levels: Vec<_> = checks.as_array().unwrap().iter().map(|check| &check["level"]).collect();
    assert!(levels.iter().any(|level| *level == "fail"), "{levels:?}");
}

#[test]
fn a_library_that_is_none_is_told_from_one_that_is_absent() {
    let folder = tempfile::TempDir::new().unwrap();
    let library = folder.path().join("libamdhip64.so");
    std::fs::write(&library, "no library").unwrap();
    let mut command = rf_cli(folder.path(), &["doctor"]);
    command.env("ROCFORGE_HIP_LIBRARY", &library).env("ROCFORGE_GPU_PLATFORM", "amd");
    let doctor = Finished::of(command.output().unwrap());
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("ROCm's runtime does not load"), "{}", doctor.stdout);
}

/// A runtime whose first function ends the process, unless the environment shows it GPU 1 alone.
#[cfg(target_os = "linux")]
fn crashing_runtime(folder: &Path) -> Option<std::path::PathBuf> {
    let (source, library) = (folder.join("crash.c"), folder.join("libamdhip64.so"));
    let functions = "int hipInit(unsigned flags) {
        const char *visible = getenv(\"ROCR_VISIBLE_DEVICES\");
        if (visible == NULL || strcmp(visible, \"1\") != 0) abort();
        return 100;
    }
    int hipGetDeviceCount(int *count) { *count = 0; return 0; }";
    let stubs = [
        "hipDeviceGet",
        "hipDeviceGetAttribute",
        "hipMalloc",
        "hipFree",
        "hipMemcpyHtoDAsync",
        "hipMemcpyDtoHAsync",
        "hipStreamCreateWithPriority",
        "hipStreamDestroy",
        "hipStreamSynchronize",
        "hipModuleUnload",
        "hipModuleGetFunction",
        "hipModuleLaunchKernel",
        "hipSetDevice",
        "hipModuleLoadData",
    ];
    let stubs: String = stubs.map(|name| format!("int {name}(void) {{ return 1; }}\n")).concat();
    let text = format!("#include <stdlib.h>\n#include <string.h>\n{functions}\n{stubs}");
    std::fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    let built = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    built.is_ok_and(|status| status.success()).then_some(library)
}

#[test]
#[cfg(target_os = "linux")]
fn a_driver_that_crashes_takes_no_program_down() {
    let folder = tempfile::TempDir::new().unwrap();
    let Some(library) = crashing_runtime(folder.path()) else {
        rf_testing::skip!("no C compiler");
        return;
    };
    let finish = |arguments: &[&str]| {
        let mut command = rf_cli(folder.path(), arguments);
        command.env_remove("ROCFORGE_DEVICE").env("ROCFORGE_GPU_PLATFORM", "amd");
        command.env("ROCFORGE_HIP_LIBRARY", &library).env_remove("ROCR_VISIBLE_DEVICES");
        Finished::of(command.output().unwrap())
    };
    let run = finish(&["run", "-n", "4", "--temp", "0", "--raw", "Once upon a time"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("everything runs on the CPU"), "{}", run.stderr);
    assert!(run.stderr.contains("SIGABRT"), "{}", run.stderr);
    let run = finish(&["run", "-n", "4", "--device", "gpu", "Hello"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    for command in ["devices", "doctor", "selftest"] {
        let finished = finish(&[command]);
        assert!(finished.code.is_some(), "{command} ends by a signal");
        let output = finished.stdout + &finished.stderr;
        assert!(output.contains("SIGABRT"), "{command}: {output}");
    }
}

/// Runs the program on an emulated card with injected faults.
#[cfg(target_os = "linux")]
fn emulated(faults: &str, arguments: &[&str]) -> Finished {
    Finished::of(emulated_command(faults, arguments).output().unwrap())
}

#[cfg(target_os = "linux")]
fn emulated_command(faults: &str, arguments: &[&str]) -> Command {
    let library = std::env::current_exe().unwrap().with_file_name("librf_emu_hip.so");
    let mut command = rf_cli(Path::new(env!("CARGO_MANIFEST_DIR")), arguments);
    command.env_remove("ROCFORGE_DEVICE").env("ROCFORGE_GPU_PLATFORM", "amd");
    command.env("ROCFORGE_HIP_LIBRARY", library).env("ROCFORGE_EMU_ARCH", "gfx1100");
    command.env("ROCFORGE_EMU_CHECK", "none").env("ROCFORGE_EMU_FAIL", faults);
    command
}

/// Tunes the tile of prefill for a small model on an emulated card some times, and shows the table.
#[cfg(target_os = "linux")]
fn tuned(faults: &str, times: usize) -> Option<Vec<Finished>> {
    let cache = tempfile::TempDir::new().unwrap();
    let model = rf_testing::tiny_model();
    let model = model.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = emulated_command(faults, arguments);
        Finished::of(command.env("XDG_CACHE_HOME", cache.path()).output().unwrap())
    };
    let tune = ["tune", "-m", model, "prefill_tile"];
    let mut finished: Vec<_> = (0..times).map(|_| run(&tune)).collect();
    if finished[0].stderr.contains("carries no kernels") {
        rf_testing::skip!("{}", finished[0].stderr);
        return None;
    }
    finished.push(run(&["tune", "--show"]));
    Some(finished)
}

#[test]
#[cfg(target_os = "linux")]
fn tuning_replaces_a_slow_default() {
    // The default of this card, three times as slow as the other tile or more.
    let Some(finished) = tuned("matmul_wide_f16_f16_f32:*:40ms", 1) else { return };
    for Finished { code, stdout, stderr } in &finished {
        assert_eq!(*code, Some(0), "{stderr}");
        let line = stdout.lines().find(|line| line.starts_with("prefill_tile")).unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[..3], ["prefill_tile", "F16", "128"], "{stdout}");
    }
}

/// The value of a knob whose values are in the code is compiled, measured, kept and used; without
/// the compiler and what it made, the embedded code is.
#[test]
#[cfg(target_os = "linux")]
fn a_choice_of_code_is_compiled_and_used() {
    let folder = tempfile::TempDir::new().unwrap();
    let Ok(compiler) = rf_kernels_build::Compiler::find() else {
        rf_testing::skip!("no clang for kernels");
        return;
    };
    std::fs::create_dir(folder.path().join("lib")).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(folder.path().join("lib/libhiprtc.so.7"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../rf-kernels/tests/stand_in/hiprtc.c"))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        rf_testing::skip!("no cc");
        return;
    }
    let run = |rocm: &Path, arguments: &[&str]| {
        let mut command = emulated_command("", arguments);
        command.env("XDG_CACHE_HOME", folder.path().join("cache"));
        command.env("ROCM_PATH", rocm).env("TEST_HIPRTC_CLANG", compiler.path());
        Finished::of(command.output().unwrap())
    };
    let tell = ["run", "-n", "3", "--temp", "0", "--raw", "--device", "gpu", "Once upon a time"];
    // Without embedded code, the compiler would make all of it.
    let plain = run(Path::new("/nowhere"), &tell);
    if plain.stderr.contains("carries no kernels") {
        rf_testing::skip!("{}", plain.stderr);
        return;
    }
    let model = "../rocmforge/demo/stories-7m-Q8_0.gguf";
    let tune = run(folder.path(), &["tune", "-m", model, "glu_steps"]);
    assert_eq!(tune.code, Some(0), "{}", tune.stderr);
    assert!(tune.stdout.contains("glu_steps          Q8_0"), "{}", tune.stdout);
    let kernels = folder.path().join("cache/rocmforge/kernels");
    let compiled: Vec<_> =
        std::fs::read_dir(kernels.join("gfx1100")).unwrap().map(|f| f.unwrap().path()).collect();
    // One file for each value but the default.
    assert_eq!(compiled.len(), 2, "{compiled:?}");

    // Times on an emulated card say nothing, so the choice is made here.
    let table = folder.path().join("table.toml");
    let file = table.to_str().unwrap();
    assert_eq!(run(folder.path(), &["tune", "--export", file]).code, Some(0));
    let text = std::fs::read_to_string(&table).unwrap();
    let entries = text.lines().filter(|line| !line.starts_with("value = "));
    let set = |line: &str| match line.strip_prefix("code = ") {
        Some(_) => format!("{line}\nvalue = 2\n"),
        None => format!("{line}\n"),
    };
    std::fs::write(&table, entries.map(set).collect::<String>()).unwrap();
    let import = run(folder.path(), &["tune", "--import", file]);
    assert_eq!(import.code, Some(0), "{}", import.stderr);

    let tuned = run(folder.path(), &tell);
    assert_eq!((tuned.code, &tuned.stdout), (Some(0), &plain.stdout), "{}", tuned.stderr);
    assert!(!tuned.stderr.contains("warning"), "{}", tuned.stderr);
    std::fs::remove_dir_all(&kernels).unwrap();
    let without = run(Path::new("/nowhere"), &tell);
    assert_eq!((without.code, &without.stdout), (Some(0), &plain.stdout), "{}", without.stderr);
    let warning = "glu_steps is not tuned for Q8_0";
    assert!(without.stderr.contains(warning), "{}", without.stderr);
}

#[test]
#[cfg(target_os = "linux")]
fn a_value_that_fails_is_reported_and_not_tried_again() {
    for (fault, problem) in [("crash", "SIGABRT"), ("skipped", "wrong results: NMSE")] {
        let fault = format!("matmul_middle_f16_f16_f32:*:{fault}");
        let Some(finished) = tuned(&fault, 2) else { return };
        let [first, second, shown] = <[Finished; 3]>::try_from(finished).ok().unwrap();
        assert_eq!(first.code, Some(0), "{fault}: {}", first.stderr);
        let warning = "warning: prefill_tile 128 for F16 failed";
        assert!(first.stderr.contains(warning), "{fault}: {}", first.stderr);
        assert!(first.stderr.contains(problem), "{fault}: {}", first.stderr);
        // The only value of the knob is left out.
        assert_eq!(second.code, Some(0), "{fault}: {}", second.stderr);
        assert!(!second.stderr.contains(warning), "{fault}: {}", second.stderr);
        assert!(shown.stdout.contains(problem), "{fault}: {}", shown.stdout);
    }
}

/// Each fault ends the program with an error that names the function, or does not change the text.
#[test]
#[cfg(target_os = "linux")]
fn a_fault_of_the_gpu_is_an_error_or_changes_nothing() {
    let arguments =
        ["run", "-n", "4", "--temp", "0", "--raw", "--device", "gpu", "Once upon a time"];
    let whole = emulated("", &arguments);
    if whole.stderr.contains("carries no kernels") {
        rf_testing::skip!("{}", whole.stderr);
        return;
    }
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    for (fault, is_fatal) in [
        ("hipModuleLoadData:2:hipErrorNoBinaryForGpu", true),
        ("hipMemcpyHtoDAsync:5:hipErrorInvalidValue", true),
        ("kernel:200:hipErrorIllegalAddress", true),
        ("hipStreamSynchronize:4:hipErrorLaunchFailure", true),
        ("hipStreamBeginCapture:1:hipErrorNotSupported", false),
        ("hipGraphInstantiateWithFlags:1:hipErrorOutOfMemory", false),
        ("hipGraphLaunch:1:hipErrorInvalidValue", false),
    ] {
        let run = emulated(fault, &arguments);
        assert_eq!(run.code, Some(i32::from(is_fatal)), "{fault}: {}", run.stderr);
        if is_fatal {
            let status = fault.rsplit(':').next().unwrap();
            assert!(run.stderr.contains(status), "{fault}: {}", run.stderr);
            assert!(whole.stdout.starts_with(run.stdout.trim_end()), "{fault}: {}", run.stdout);
        } else {
            assert_eq!(run.stdout, whole.stdout, "{fault}");
        }
    }
}

/// The report of a self-test of the groups whose names contain `norm`, on an emulated card.
#[cfg(target_os = "linux")]
fn selftest(faults: &str, arguments: &[&str]) -> Option<(Finished, serde_json::Value)> {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("report.json");
    let report = ["selftest", "--quick", "norm", "--report", path.to_str().unwrap()];
    let finished = emulated(faults, &[&report[..], arguments].concat());
    if finished.stderr.contains("carries no kernels") {
        rf_testing::skip!("{}", finished.stderr);
        return None;
    }
    let text = std::fs::read_to_string(path).unwrap_or_else(|_| panic!("{}", finished.stderr));
    Some((finished, serde_json::from_str(&text).unwrap()))
}

#[test]
#[cfg(target_os = "linux")]
fn a_selftest_writes_one_file_with_all_that_an_issue_needs() {
    let Some((finished, report)) = selftest("", &[]) else { return };
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(report["device"]["arch"], "gfx1100");
    assert!(report["program"].as_str().unwrap().contains("revision"));
    assert!(report["platform"]["version"].is_string() && report["kernels"].is_string());
    let groups = report["groups"].as_array().unwrap();
    assert!(groups.len() >= 2, "{groups:?}");
    for case in groups.iter().flat_map(|group| group["cases"].as_array().unwrap()) {
        assert!(case["nmse"].as_f64().unwrap() <= case["allowed_nmse"].as_f64().unwrap());
        // The name was printed before the case started.
        assert!(finished.stderr.contains(case["name"].as_str().unwrap()), "{case}");
    }
    assert_eq!(finished.stdout.lines().filter(|line| line.contains(" ok")).count(), groups.len());
}

/// The next group runs after a group whose child crashes, hangs or loses the device.
#[test]
#[cfg(target_os = "linux")]
fn a_selftest_survives_a_driver_that_fails() {
    for (fault, arguments, problem) in [
        ("kernel:5:crash", &[][..], "SIGABRT"),
        ("kernel:5:hang", &["--timeout", "3"], "no result within 3 s"),
        ("kernel:5:hipErrorIllegalAddress", &[], "hipErrorIllegalAddress"),
    ] {
        let Some((finished, report)) = selftest(fault, arguments) else { return };
        assert_eq!(finished.code, Some(1), "{fault}: {}", finished.stderr);
        let groups = report["groups"].as_array().unwrap();
        assert!(groups.len() >= 2, "{fault}: {groups:?}");
        for group in groups {
            // Each child counts its kernels.
            let text = group.to_string();
            assert!(text.contains(problem), "{fault}: {text}");
            assert!(finished.stdout.contains(group["name"].as_str().unwrap()), "{fault}");
        }
        assert!(finished.stderr.contains("attach the file"), "{fault}: {}", finished.stderr);
    }
}
