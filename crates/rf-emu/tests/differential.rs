//! Every instruction form of gfx1100 leaves the same registers and memory as in another emulator.
//!
//! The other emulator is named by `RDNA_EMU_DIR` (and what it needs by `RDNA_EMU_TINYGRAD`);
//! `PYTHON` is its interpreter. Without these or LLVM 19 the test is skipped.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failure is a failed test")]

#[path = "differential/compare.rs"]
mod compare;
mod device;
#[path = "differential/generate.rs"]
mod generate;
#[path = "differential/inputs.rs"]
mod inputs;
#[path = "differential/memory.rs"]
mod memory;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

use compare::{Judgement, Outcome, Report};
use device::{Device, all_checks, grid};
use generate::{Case, cases, not_tested, source};
use rayon::prelude::*;
use rf_emu::isa::forms;
use rf_emu::{Checks, ProcessorFamily};

/// The cases that the assembler accepts, each encoding once.
fn accepted(cases: Vec<Case>) -> Vec<Case> {
    let mut text = String::new();
    let mut owners = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        for line in case.text.lines() {
            owners.push(at);
            text.extend([line, "\n"]);
        }
    }
    let mut assembler = Command::new("llvm-mc-19")
        .args(["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-filetype=null"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = assembler.stdin.take().unwrap();
    let writer = thread::spawn(move || input.write_all(text.as_bytes()).unwrap());
    let errors = assembler.wait_with_output().unwrap().stderr;
    writer.join().unwrap();
    let errors = String::from_utf8(errors).unwrap();
    let refused: HashSet<_> = errors
        .lines()
        .filter(|line| line.contains(": error: "))
        .filter_map(|line| line.strip_prefix("<stdin>:")?.split(':').next()?.parse().ok())
        .map(|line: usize| owners[line - 1])
        .collect();
    let accepted: Vec<_> = (0..cases.len()).filter(|at| !refused.contains(at)).collect();
    let texts: HashSet<_> = accepted.iter().map(|&at| cases[at].text.clone()).collect();
    let is_again = |case: &Case| {
        let (name, rest) = case.text.split_once(' ').unwrap_or((&case.text, ""));
        name == case.form && texts.contains(&format!("{name}_e32 {rest}"))
    };
    let kept: BTreeSet<_> = accepted.into_iter().filter(|&at| !is_again(&cases[at])).collect();
    let numbered = cases.into_iter().enumerate();
    numbered.filter(|(at, _)| kept.contains(at)).map(|(_, case)| case).collect()
}

/// At most `RF_EMU_CASES` cases per form, if it is set.
fn limited(cases: Vec<Case>) -> Vec<Case> {
    let limit = env::var("RF_EMU_CASES").ok().and_then(|count| count.parse().ok());
    let limit: usize = limit.unwrap_or(usize::MAX);
    let mut count = BTreeMap::new();
    for case in &cases {
        *count.entry(case.form.clone()).or_insert(0) += 1;
    }
    let mut seen = BTreeMap::new();
    let mut is_chosen = |case: &Case| {
        let at = seen.entry(case.form.clone()).or_insert(0);
        *at += 1;
        (*at - 1) % usize::div_ceil(count[&case.form], limit) == 0
    };
    cases.into_iter().filter(|case| is_chosen(case)).collect()
}

/// Assembles the kernels of cases.
fn assemble(cases: &[Case], folder: &Path, name: &str) -> PathBuf {
    let (text, object) = (folder.join(format!("{name}.s")), folder.join(format!("{name}.co")));
    fs::write(&text, source(cases)).unwrap();
    let output = Command::new("clang-19")
        .args(["-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100"])
        .args([text.as_os_str(), "-o".as_ref(), object.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

/// Runs the kernels in this emulator and in the other one, and compares what they leave.
fn run(cases: &[Case], folder: &Path, name: &str) -> Vec<Judgement> {
    let object = assemble(cases, folder, name);
    let names: Vec<_> = cases.iter().map(|case| format!("k{}", case.number)).collect();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/reference.py");
    let mut reference = Command::new(env::var_os("PYTHON").unwrap_or("python3".into()))
        .arg(script)
        .args([&object, &folder.join("inputs"), &folder.join("memory")])
        .args([inputs::WORKGROUPS.to_string(), names.join(",")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut results = reference.stdout.take().unwrap();
    let device = Device::new(&fs::read(&object).unwrap());
    let registers = inputs::registers();
    let initial = inputs::memory();
    let input = device.buffer(&registers);
    let mut options = all_checks(0);
    options.checks = Checks::NONE;
    let mut judgements = Vec::new();
    for (case, kernel) in cases.iter().zip(&names) {
        let theirs = result(&mut results);
        let out = device.buffer(&vec![0; registers.len()]);
        let memory = device.buffer(&initial);
        let arguments: Vec<_> =
            [input, out, memory].iter().flat_map(|at| at.to_le_bytes()).collect();
        let grid = grid(inputs::WORKGROUPS as u32, 32);
        let launched = device.run(kernel, grid, &arguments, &options);
        let ours = launched.map_err(|fault| fault.to_string()).map(|_| {
            [device.read(out, registers.len()), device.read(memory, initial.len())].concat()
        });
        device.memory.free(out).unwrap();
        device.memory.free(memory).unwrap();
        judgements.push(compare::judge(case, &Outcome { ours, theirs }));
    }
    assert!(reference.wait().unwrap().success());
    judgements
}

/// The next result of the other emulator, or why it refuses the kernel.
fn result(from: &mut impl Read) -> Result<Vec<u32>, String> {
    let mut length = [0; 8];
    from.read_exact(&mut length).expect("the other emulator ended early");
    let length = i64::from_le_bytes(length);
    let mut bytes = vec![0; length.unsigned_abs() as usize];
    from.read_exact(&mut bytes).unwrap();
    if length < 0 {
        return Err(String::from_utf8_lossy(&bytes).into_owned());
    }
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    Ok(words.collect())
}

#[test]
fn every_form_of_gfx1100_does_what_another_emulator_does() {
    let found = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    if env::var_os("RDNA_EMU_DIR").is_none() || !found("llvm-mc-19") || !found("clang-19") {
        rf_testing::skip!("set RDNA_EMU_DIR to another emulator (and install LLVM 19)");
        return;
    }
    let all = forms(ProcessorFamily::Rdna3);
    let only = env::var("RF_EMU_FORMS").unwrap_or_default();
    let wanted: Vec<_> =
        all.iter().filter(|form| form.name.contains(only.as_str())).cloned().collect();
    let cases = limited(accepted(cases(&wanted)));
    println!("{} instructions", cases.len());
    let tested: HashSet<_> = cases.iter().map(|case| case.form.clone()).collect();
    let missing: BTreeMap<_, _> = wanted
        .iter()
        .filter(|form| !tested.contains(&form.name))
        .map(|form| (&form.name, not_tested(form).unwrap_or("the assembler knows no such form")))
        .collect();

    let folder = tempfile::tempdir().unwrap();
    let bytes = |words: Vec<u32>| bytemuck::cast_slice::<_, u8>(&words).to_vec();
    fs::write(folder.path().join("inputs"), bytes(inputs::registers())).unwrap();
    fs::write(folder.path().join("memory"), bytes(inputs::memory())).unwrap();
    let judgements: Vec<_> = cases
        .par_chunks(64)
        .enumerate()
        .flat_map_iter(|(at, cases)| run(cases, folder.path(), &format!("part{at}")))
        .collect();
    let report = Report::new(&wanted, &cases, &judgements);
    println!("{report}");
    println!("not tested:");
    for (name, reason) in missing {
        println!("  {name}: {reason}");
    }
    assert_eq!(report.unexplained, [""; 0]);
    let compared = report.compared();
    assert!(2 * compared > cases.len(), "the other emulator ran {compared} of {}", cases.len());
}
