//! Static instruction counts of kernels and of their loops, from the machine code.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use rf_kernels_build::{Compiler, ObjectFile};

use super::flow;

/// The targets whose instructions are counted, one per RDNA generation.
const TARGETS: [&str; 3] = ["gfx1030", "gfx1100", "gfx1201"];

pub(super) const FILE: &str = "kernels/instructions.toml";

pub(super) const HEADER: &str = "\
# The instructions of every hot kernel in the machine code: [all, in loops]; an instruction in a
# loop of a loop counts twice in the second number. `*` stands for the formats of a template.
# `cargo xtask kernels --report --bless` writes this file; `--report --check` fails if a number is
# more than 2 % larger, and prints the loops of both revisions.
";

/// Instructions that do no work: padding, and hints to the scheduler.
const IGNORED: [&str; 5] =
    ["s_code_end", "s_nop", "s_delay_alu", "s_clause", "s_set_inst_prefetch_distance"];

/// Instructions by class.
pub(super) type Classes = BTreeMap<&'static str, u64>;

/// The instructions of a kernel in the code of a target.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) target: &'static str,
    /// The translation unit.
    pub(super) unit: String,
    pub(super) name: String,
    /// The whole kernel, under the name `all`, and each of its loops: `loop 2-1` is the first one
    /// inside the second. A loop includes the loops inside it.
    pub(super) parts: Vec<(String, Classes)>,
}

impl Counted {
    /// The numbers of the snapshot: all instructions, and the sum over loops, in which an
    /// instruction counts once per loop around it. Without the second number the growth of a short
    /// loop would be hidden by what runs once.
    pub(super) fn totals(&self) -> Vec<u64> {
        let mut parts = self.parts.iter().map(|(_, classes)| classes.values().sum());
        let all = parts.next().unwrap_or(0);
        match parts.sum() {
            0 => vec![all],
            in_loops => vec![all, in_loops],
        }
    }
}

/// Counts the instructions of every kernel of the objects for [`TARGETS`].
pub(super) fn count(compiler: &Compiler, objects: &[ObjectFile<'_>]) -> Result<Vec<Counted>> {
    let disassembler = disassembler(compiler.path())?;
    let mut counted = Vec::new();
    for object in objects.iter().filter(|object| TARGETS.contains(&object.target.name)) {
        let text = disassemble(&disassembler, &object.path)?;
        counted.extend(kernels(&text).into_iter().map(|kernel| Counted {
            target: object.target.name,
            unit: object.unit.name.clone(),
            name: kernel.name.to_owned(),
            parts: kernel.counts(),
        }));
    }
    Ok(counted)
}

/// `llvm-objdump` of the installation that `clang` belongs to.
fn disassembler(clang: &Path) -> Result<PathBuf> {
    let output = Command::new(clang)
        .arg("-print-prog-name=llvm-objdump")
        .output()
        .with_context(|| clang.display().to_string())?;
    let path = PathBuf::from(String::from_utf8(output.stdout).context("path")?.trim());
    ensure!(
        path.is_file(),
        "llvm-objdump is not installed in the directory of {}: install llvm-19",
        clang.display()
    );
    Ok(path)
}

fn disassemble(disassembler: &Path, object: &Path) -> Result<String> {
    let output = Command::new(disassembler)
        .args(["--disassemble", "--no-show-raw-insn"])
        .arg(object)
        .output()
        .with_context(|| disassembler.display().to_string())?;
    ensure!(output.status.success(), "{}: cannot be disassembled", object.display());
    String::from_utf8(output.stdout).context("disassembly")
}

/// The code of one kernel.
struct Kernel<'a> {
    name: &'a str,
    instructions: Vec<Instruction<'a>>,
}

struct Instruction<'a> {
    /// Bytes from the start of the kernel.
    offset: u64,
    mnemonic: &'a str,
    /// The offset of the branch target.
    target: Option<u64>,
}

fn kernels(disassembly: &str) -> Vec<Kernel<'_>> {
    let mut kernels: Vec<Kernel<'_>> = Vec::new();
    let mut start = 0;
    for line in disassembly.lines() {
        if let Some((address, name)) = symbol(line) {
            start = address;
            kernels.push(Kernel { name, instructions: Vec::new() });
        } else if let Some(kernel) = kernels.last_mut() {
            kernel.instructions.extend(instruction(line, kernel.name, start));
        }
    }
    kernels.retain(|kernel| !kernel.instructions.is_empty());
    kernels
}

/// Parses a symbol line, such as `0000000000004d00 <name>:`.
fn symbol(line: &str) -> Option<(u64, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

/// Parses a line such as `s_cbranch_scc1 65528    // 000000004DDC: BFA2FFF8 <name+0xc0>`.
fn instruction<'a>(line: &'a str, kernel: &str, start: u64) -> Option<Instruction<'a>> {
    let (code, comment) = line.split_once("//")?;
    let mnemonic = code.split_whitespace().next()?;
    let (address, rest) = comment.trim().split_once(':').unwrap_or((comment.trim(), ""));
    let offset = u64::from_str_radix(address, 16).ok()?.checked_sub(start)?;
    let target = rest.split_once('<').and_then(|(_, label)| {
        let within = label.trim_end().strip_suffix('>')?.strip_prefix(kernel)?;
        match within.strip_prefix("+0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => within.is_empty().then_some(0),
        }
    });
    Some(Instruction { offset, mnemonic, target })
}

impl Kernel<'_> {
    /// See [`Counted::parts`].
    fn counts(&self) -> Vec<(String, Classes)> {
        let mut counts = vec![("all".to_owned(), self.count(0..self.instructions.len()))];
        // The enclosing loops of the current loop, each with its number and its number of children.
        let mut path: Vec<(&BTreeSet<usize>, usize, usize)> = Vec::new();
        let mut outermost = 0;
        let loops = flow::loops(&self.successors());
        for body in &loops {
            while path.last().is_some_and(|(outer, ..)| !body.is_subset(outer)) {
                path.pop();
            }
            let number = path.last_mut().map_or(&mut outermost, |(.., children)| children);
            *number += 1;
            let number = *number;
            path.push((body, number, 0));
            let numbers: Vec<String> =
                path.iter().map(|(_, number, _)| number.to_string()).collect();
            let name = format!("loop {}", numbers.join("-"));
            counts.push((name, self.count(body.iter().copied())));
        }
        counts
    }

    /// The instructions that may follow each instruction.
    fn successors(&self) -> Vec<Vec<usize>> {
        let index: BTreeMap<u64, usize> =
            self.instructions.iter().enumerate().map(|(i, found)| (found.offset, i)).collect();
        let successors = self.instructions.iter().enumerate().map(|(i, instruction)| {
            let target = instruction.target.and_then(|offset| index.get(&offset).copied());
            let ends = ["s_endpgm", "s_branch", "s_setpc_b64"].contains(&instruction.mnemonic);
            let next = (!ends && i + 1 < self.instructions.len()).then_some(i + 1);
            target.into_iter().chain(next).collect()
        });
        successors.collect()
    }

    fn count(&self, indices: impl Iterator<Item = usize>) -> Classes {
        let mut classes = Classes::new();
        for mnemonic in indices.map(|index| self.instructions[index].mnemonic) {
            if !IGNORED.contains(&mnemonic) {
                *classes.entry(class(mnemonic)).or_default() += 1;
            }
        }
        classes
    }
}

fn class(mnemonic: &str) -> &'static str {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| mnemonic.starts_with(prefix));
    if starts(&["v_dot", "v_wmma", "v_swmmac", "v_mfma"]) {
        "dot"
    } else if starts(&["v_"]) {
        "valu"
    } else if starts(&["ds_"]) {
        "lds"
    } else if starts(&["global_", "buffer_", "flat_", "scratch_"]) {
        if mnemonic.contains("load") { "load" } else { "store" }
    } else if starts(&["s_load", "s_buffer_load"]) {
        "smem"
    } else if starts(&["s_wait"]) {
        "wait"
    } else if starts(&["s_branch", "s_cbranch", "s_barrier", "s_endpgm", "s_setpc"]) {
        "branch"
    } else {
        "salu"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISASSEMBLY: &str = "\
file format elf64-amdgpu

Disassembly of section .text:

0000000000004d00 <k>:
\ts_load_b32 s2, s[0:1], 0x114      // 000000004D00: F4000080 F8000114
\tv_mov_b32_e32 v0, 0               // 000000004D08: 7E000280
\tv_dot4_i32_i8 v1, v2, v3, v1      // 000000004D0C: CC164001
\ts_waitcnt vmcnt(0)                // 000000004D14: BF89FC07
\ts_cbranch_scc1 65533              // 000000004D18: BFA2FFFD <k+0xc>
\tds_load_b32 v1, v0                // 000000004D1C: D8D80000
\ts_nop 0                           // 000000004D24: BF800000
\ts_cbranch_vccnz 65523             // 000000004D28: BFA4FFF3 <k+0x8>
\ts_cbranch_scc0 1                  // 000000004D2C: BFA10001 <k+0x34>
\ts_endpgm                          // 000000004D30: BFB00000
\ts_branch 65535                    // 000000004D34: BFA0FFFF <k+0x34>
\ts_code_end                        // 000000004D38: BF9F0000
";

    #[test]
    fn loops_are_found_and_counted_with_those_inside() {
        let kernels = kernels(DISASSEMBLY);
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].name, "k");
        let inner = Classes::from([("branch", 1), ("dot", 1), ("wait", 1)]);
        let outer =
            Classes::from([("branch", 2), ("dot", 1), ("lds", 1), ("valu", 1), ("wait", 1)]);
        let all = Classes::from([
            ("branch", 5),
            ("dot", 1),
            ("lds", 1),
            ("smem", 1),
            ("valu", 1),
            ("wait", 1),
        ]);
        let expected = [
            ("all".to_owned(), all),
            ("loop 1".to_owned(), outer),
            ("loop 1-1".to_owned(), inner),
            ("loop 2".to_owned(), Classes::from([("branch", 1)])),
        ];
        assert_eq!(kernels[0].counts(), expected);
    }

    #[test]
    fn the_totals_are_of_the_kernel_and_of_its_loops() {
        let counted = |text: &str| Counted {
            target: "gfx1100",
            unit: "u".to_owned(),
            name: "k".to_owned(),
            parts: kernels(text)[0].counts(),
        };
        assert_eq!(counted(DISASSEMBLY).totals(), [10, 6 + 3 + 1]);
        let longer = DISASSEMBLY.replace(
            "\ts_waitcnt vmcnt(0)                // 000000004D14",
            "\tv_add_u32 v1, v1, v2              // 000000004D10: 00\n\ts_waitcnt vmcnt(0) // 000000004D14",
        );
        assert_eq!(counted(&longer).totals(), [11, 7 + 4 + 1]);
        let straight: String = DISASSEMBLY
            .lines()
            .filter(|l| !l.contains("<k+"))
            .fold(String::new(), |text, line| text + line + "\n");
        assert_eq!(counted(&straight).totals(), [6]);
    }

    #[test]
    fn classes_are_told_apart() {
        for (mnemonic, expected) in [
            ("v_wmma_i32_16x16x16_iu8", "dot"),
            ("v_pk_fma_f16", "valu"),
            ("global_load_b128", "load"),
            ("global_store_b32", "store"),
            ("s_buffer_load_b64", "smem"),
            ("s_wait_loadcnt", "wait"),
            ("s_barrier_signal", "branch"),
            ("s_and_b32", "salu"),
        ] {
            assert_eq!(class(mnemonic), expected, "{mnemonic}");
        }
    }
}
