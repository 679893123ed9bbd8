//! The disassembly is that of LLVM: for one example of each instruction form of our kernels, and
//! for every instruction of the code objects that a build left in the target folder.

#![expect(clippy::unwrap_used, reason = "a failure is a failed test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use proptest::prelude::*;
use rayon::prelude::*;
use rf_emu::isa::{Arch, decode};

/// The text of an instruction that occupies exactly these dwords.
fn text(arch: Arch, words: &[u32]) -> String {
    match decode(arch, words) {
        Ok(instruction) if usize::from(instruction.bytes) == words.len() * 4 => {
            instruction.text(arch).to_string()
        }
        Ok(instruction) => format!("{} in {} bytes", instruction.text(arch), instruction.bytes),
        Err(error) => error.to_string(),
    }
}

fn words(text: &str) -> Vec<u32> {
    let words = text.split_whitespace().take_while(|word| !word.starts_with('<'));
    words.map(|word| u32::from_str_radix(word, 16).unwrap()).collect()
}

/// The first differences, as "LLVM's text != ours".
fn differences<'a>(arch: Arch, lines: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    lines
        .map(|(encoded, expected)| (expected, text(arch, &words(encoded))))
        .filter(|(expected, found)| expected != found)
        .map(|(expected, found)| format!("{arch}: {expected} != {found}"))
        .take(5)
        .collect()
}

#[test]
fn every_form_in_our_kernels_disassembles_as_in_llvm() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/disassembly");
    for arch in [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1201] {
        let fixture = rf_testing::packed_text(&folder.join(format!("{arch}.txt.gz")));
        let lines = fixture.lines().map(|line| line.split_once(" | ").unwrap());
        assert_eq!(differences(arch, lines), [""; 0]);
    }
}

/// The code objects that the build of `rf-kernels` keeps, the newest of each unit and target.
fn code_objects() -> Vec<(PathBuf, Arch)> {
    let target = env::current_exe().unwrap();
    let folder = target.ancestors().map(|folder| folder.join("rocmforge-kernels"));
    let Some(folder) = folder.into_iter().find(|folder| folder.is_dir()) else { return Vec::new() };
    let mut newest = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let Some(arch) = arch_of(&path) else { continue };
        let name = path.file_name().unwrap().to_str().unwrap();
        let unit = name.rsplit_once('-').unwrap().0.to_owned();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let entry = newest.entry(unit).or_insert((modified, path.clone(), arch));
        if entry.0 < modified {
            *entry = (modified, path, arch);
        }
    }
    newest.into_values().map(|(_, path, arch)| (path, arch)).collect()
}

/// The processor in a name such as `rope-gfx1100-0123.co`.
fn arch_of(path: &Path) -> Option<Arch> {
    let name = path.file_name()?.to_str()?.strip_suffix(".co")?;
    let (_, target) = name.rsplit_once('-')?.0.split_once("-gfx")?;
    Arch::from_name(&format!("gfx{target}"))
}

#[test]
fn whole_code_objects_disassemble_as_in_llvm() {
    // Later versions print some operands differently.
    let tool = "llvm-objdump-19";
    if Command::new(tool).arg("--version").output().is_err() {
        rf_testing::skip!("no {tool}");
        return;
    }
    let files = code_objects();
    if files.is_empty() {
        rf_testing::skip!("no code objects of a build of rf-kernels");
        return;
    }
    let differences: Vec<_> = files
        .par_iter()
        .flat_map(|(path, arch)| {
            let output = Command::new(tool).arg("--disassemble").arg(path).output().unwrap();
            assert!(output.status.success(), "{tool} rejects {}", path.display());
            let listing = String::from_utf8(output.stdout).unwrap();
            let lines = listing.lines().filter_map(|line| {
                let (expected, place) = line.split_once("//")?;
                Some((place.split_once(": ")?.1, expected.trim()))
            });
            differences(*arch, lines)
        })
        .collect();
    assert_eq!(differences, [""; 0]);
}

/// The text without what later versions of LLVM print differently: literals that could be inline
/// constants, and the halves of registers by name.
fn normalised(text: &str) -> String {
    let mut text = text.replace(".l", "").replace(".h", "");
    if let Some((before, rest)) = text.split_once("lit(")
        && let Some((value, after)) = rest.split_once(')')
        && let Ok(value) = u32::from_str_radix(value.trim_start_matches("0x"), 16)
        && (-16..=64).contains(&(value as i32))
    {
        text = format!("{before}{}{after}", value as i32);
    }
    text.split(" op_sel:").next().unwrap_or_default().to_owned()
}

/// The listings (`llvm-objdump -d`) that `RF_EMU_LISTINGS` names: `rope-gfx1100-v22-O0.dis` is one
/// of code for gfx1100. They serve to compare other compilers and levels of optimisation.
#[test]
fn listings_of_other_compilers_disassemble_as_in_llvm() {
    let Some(folder) = env::var_os("RF_EMU_LISTINGS") else {
        rf_testing::skip!("RF_EMU_LISTINGS names no folder of listings");
        return;
    };
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let counts = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let target = name.split_once("-gfx").unwrap().1.rsplit_once("-v").unwrap().0;
        let arch = Arch::from_name(&format!("gfx{target}")).unwrap();
        let listing = fs::read_to_string(path).unwrap();
        let mut forms = BTreeMap::<String, (usize, String)>::new();
        for line in listing.lines() {
            let Some((expected, place)) = line.split_once("//") else { continue };
            let Some((_, encoded)) = place.split_once(": ") else { continue };
            let (expected, found) = (expected.trim(), text(arch, &words(encoded)));
            if normalised(expected) != normalised(&found) {
                let name = expected.split(' ').next().unwrap_or_default().to_owned();
                let first = (0, format!("{arch}: {expected} != {found}"));
                forms.entry(name).or_insert(first).0 += 1;
            }
        }
        println!("{name}: {} instructions", listing.lines().count());
        forms
    };
    let mut differences = BTreeMap::new();
    for (name, (count, example)) in files.par_iter().flat_map_iter(counts).collect::<Vec<_>>() {
        differences.entry(name).or_insert((0, example)).0 += count;
    }
    assert_eq!(differences, BTreeMap::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn arbitrary_words_never_panic(first: u32, rest: [u32; 3], arch in 0..Arch::ALL.len()) {
        let arch = Arch::ALL[arch];
        if let Ok(instruction) = decode(arch, &[first, rest[0], rest[1], rest[2]]) {
            prop_assert!(matches!(instruction.bytes, 4 | 8 | 12 | 16));
            prop_assert!(!instruction.text(arch).to_string().is_empty());
        }
        let alone = decode(arch, &[first]);
        prop_assert!(alone.is_err() || alone.is_ok_and(|instruction| instruction.bytes == 4));
    }
}
