//! Static instruction counts of kernels and of their loops, from the machine code.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use rf_emu::CodeObject;
use rf_emu::isa::Instruction;
use rf_kernels_build::ObjectFile;

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
pub(super) fn count(objects: &[ObjectFile<'_>]) -> Result<Vec<Counted>> {
    let mut counted = Vec::new();
    for object in objects.iter().filter(|object| TARGETS.contains(&object.target.name)) {
        let path = object.path.display();
        let file = fs::read(&object.path).with_context(|| path.to_string())?;
        let code = CodeObject::parse(&file).with_context(|| path.to_string())?;
        for kernel in code.kernels() {
            let instructions = code.disassemble(kernel).with_context(|| path.to_string())?;
            let steps: Vec<Step> = instructions.into_iter().map(Step::from).collect();
            counted.push(Counted {
                target: object.target.name,
                unit: object.unit.name.clone(),
                name: kernel.name.clone(),
                parts: counts(&steps),
            });
        }
    }
    Ok(counted)
}

/// An instruction in the control flow of a kernel.
struct Step {
    /// Bytes from the start of the kernel.
    offset: u64,
    mnemonic: Cow<'static, str>,
    /// The offset of the branch target.
    target: Option<u64>,
}

impl From<(u64, Instruction)> for Step {
    fn from((offset, instruction): (u64, Instruction)) -> Self {
        let branches = ["s_branch", "s_cbranch"].iter().any(|op| instruction.name.starts_with(op));
        let target = branches.then(|| instruction.branch_target(offset));
        Self { offset, mnemonic: instruction.name, target }
    }
}

/// See [`Counted::parts`].
fn counts(steps: &[Step]) -> Vec<(String, Classes)> {
    let mut counts = vec![("all".to_owned(), count_classes(steps.iter()))];
    // The enclosing loops of the current loop, each with its number and its number of children.
    let mut path: Vec<(&BTreeSet<usize>, usize, usize)> = Vec::new();
    let mut outermost = 0;
    let loops = flow::loops(&successors(steps));
    for body in &loops {
        while path.last().is_some_and(|(outer, ..)| !body.is_subset(outer)) {
            path.pop();
        }
        let number = path.last_mut().map_or(&mut outermost, |(.., children)| children);
        *number += 1;
        let number = *number;
        path.push((body, number, 0));
        let numbers: Vec<String> = path.iter().map(|(_, number, _)| number.to_string()).collect();
        let name = format!("loop {}", numbers.join("-"));
        counts.push((name, count_classes(body.iter().map(|&index| &steps[index]))));
    }
    counts
}

/// The instructions that may follow each instruction.
fn successors(steps: &[Step]) -> Vec<Vec<usize>> {
    let index: BTreeMap<u64, usize> =
        steps.iter().enumerate().map(|(i, step)| (step.offset, i)).collect();
    let successors = steps.iter().enumerate().map(|(i, step)| {
        let target = step.target.and_then(|offset| index.get(&offset).copied());
        let ends = ["s_endpgm", "s_branch", "s_setpc_b64"].contains(&&*step.mnemonic);
        let next = (!ends && i + 1 < steps.len()).then_some(i + 1);
        target.into_iter().chain(next).collect()
    });
    successors.collect()
}

fn count_classes<'a>(steps: impl Iterator<Item = &'a Step>) -> Classes {
    let mut classes = Classes::new();
    for mnemonic in steps.map(|step| &*step.mnemonic) {
        if !IGNORED.contains(&mnemonic) {
            *classes.entry(class(mnemonic)).or_default() += 1;
        }
    }
    classes
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

    /// Offsets in words, mnemonics, and the offsets of branch targets in words.
    const CODE: [(u64, &str, Option<u64>); 12] = [
        (0, "s_load_b32", None),
        (2, "v_mov_b32", None),
        (3, "v_dot4_i32_i8", None),
        (5, "s_waitcnt", None),
        (6, "s_cbranch_scc1", Some(3)),
        (7, "ds_load_b32", None),
        (9, "s_nop", None),
        (10, "s_cbranch_vccnz", Some(2)),
        (11, "s_cbranch_scc0", Some(13)),
        (12, "s_endpgm", None),
        (13, "s_branch", Some(13)),
        (14, "s_code_end", None),
    ];

    fn steps(code: &[(u64, &'static str, Option<u64>)]) -> Vec<Step> {
        let step = |&(word, mnemonic, target): &(u64, &'static str, Option<u64>)| Step {
            offset: 4 * word,
            mnemonic: mnemonic.into(),
            target: target.map(|word| 4 * word),
        };
        code.iter().map(step).collect()
    }

    #[test]
    fn loops_are_found_and_counted_with_those_inside() {
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
        assert_eq!(counts(&steps(&CODE)), expected);
    }

    #[test]
    fn the_totals_are_of_the_kernel_and_of_its_loops() {
        let totals = |code: &[(u64, &'static str, Option<u64>)]| {
            let (unit, name) = ("u".to_owned(), "k".to_owned());
            Counted { target: "gfx1100", unit, name, parts: counts(&steps(code)) }.totals()
        };
        assert_eq!(totals(&CODE), [10, 6 + 3 + 1]);
        let mut longer = CODE.to_vec();
        longer.insert(3, (4, "v_add_u32", None));
        assert_eq!(totals(&longer), [11, 7 + 4 + 1]);
        let straight: Vec<_> = CODE.into_iter().filter(|step| step.2.is_none()).collect();
        assert_eq!(totals(&straight), [6]);
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
