//! The costs of all launches of a program, by kernel and instruction.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::issue::issue;
use super::traffic::LINE_BYTES;
use super::{Accesses, Unit, UnitCycles};
use crate::{Counters, Grid, Program};

/// The costs of launches. Launches must have run with
/// [`Options::count_each`](crate::Options::count_each).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CostProfile {
    kernels: BTreeMap<(String, &'static str), KernelProfile>,
}

/// The costs of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelProfile {
    /// The name of the kernel.
    pub name: String,
    /// The processor whose code ran, such as `gfx1100`.
    pub arch: &'static str,
    /// The instructions in the order of their addresses.
    pub rows: Vec<InstructionCost>,
    /// The costs by workgroups of a launch and waves of a workgroup.
    shapes: BTreeMap<(u64, u64), Costs>,
}

/// An instruction and what its executions cost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InstructionCost {
    /// The offset in the code object.
    pub offset: u64,
    /// The instruction.
    pub text: String,
    /// The file and the line of the source, as `FILE:LINE`, if the code object has them.
    pub source: Option<String>,
    /// The unit that executes it.
    pub unit: Unit,
    /// Number of executions by waves.
    pub executions: u64,
    /// The cycles for which these executions occupied the unit.
    pub cycles: u64,
    /// The accesses of these executions.
    pub accesses: Accesses,
}

/// The costs of the launches of a kernel with one shape, summed over the launches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Costs {
    /// The name of the kernel.
    pub kernel: String,
    /// The processor whose code ran.
    pub arch: String,
    /// The workgroups of a launch.
    pub workgroups: u64,
    /// The waves of a workgroup.
    pub waves: u64,
    /// The number of launches.
    pub launches: u64,
    /// Instructions that waves executed.
    pub instructions: u64,
    /// Bytes that lanes asked for, of global memory and of scratch.
    pub requested_bytes: u64,
    /// Bytes of the lines that the vector caches delivered, counted anew by each instruction.
    pub cache_bytes: u64,
    /// Bytes of the lines that each workgroup touched: at least these pass L2.
    pub group_bytes: u64,
    /// Bytes of the lines that each launch touched: at least these pass the memory's bus.
    pub memory_bytes: u64,
    /// Cycles that lanes waited for others of the same bank of LDS; part of those of LDS.
    pub conflict_cycles: u64,
    /// Cycles by unit.
    pub cycles: UnitCycles,
}

/// The form of costs in TOML.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    launches: Vec<Costs>,
}

/// A text that is not a list of costs, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of costs: {0}")]
pub struct InvalidCosts(String);

impl Costs {
    /// Reads costs from TOML.
    ///
    /// # Errors
    ///
    /// The text is not TOML, or not that of costs.
    pub fn parse(text: &str) -> Result<Vec<Self>, InvalidCosts> {
        let list: List = toml::from_str(text).map_err(|error| InvalidCosts(error.to_string()))?;
        Ok(list.launches)
    }
}

impl CostProfile {
    /// Adds a launch.
    pub fn add(&mut self, program: &Program, grid: &Grid, counters: &Counters) {
        let (name, arch) = (&program.kernel().name, program.arch());
        let kernel =
            self.kernels.entry((name.clone(), arch.name())).or_insert_with(|| KernelProfile {
                name: name.clone(),
                arch: arch.name(),
                rows: rows(program),
                shapes: BTreeMap::new(),
            });
        let workgroups = grid.workgroups.iter().map(|&side| u64::from(side)).product::<u64>();
        let waves = counters.waves / workgroups.max(1);
        let costs = kernel.shapes.entry((workgroups, waves)).or_insert_with(|| Costs {
            kernel: name.clone(),
            arch: arch.name().to_owned(),
            workgroups,
            waves,
            ..Costs::default()
        });
        costs.launches += 1;
        costs.instructions += counters.instructions();
        costs.group_bytes += counters.group_bytes;
        costs.memory_bytes += counters.memory_bytes;
        for (at, (_, instruction)) in program.instructions().enumerate() {
            let (Some(instruction), Some(row)) = (instruction, kernel.rows.get_mut(at)) else {
                continue;
            };
            let executions = counters.each.get(at).copied().unwrap_or(0);
            let accesses = counters.accesses.get(at).copied().unwrap_or_default();
            let (unit, each) = issue(arch.family(), instruction);
            let cycles = executions * each + accesses.cache_cycles + accesses.conflict_cycles;
            row.executions += executions;
            row.cycles += cycles;
            row.accesses.add(&accesses);
            *costs.cycles.of(unit) += cycles;
            if unit == Unit::VectorMemory {
                costs.requested_bytes += accesses.bytes;
                costs.cache_bytes += accesses.lines * LINE_BYTES;
            }
            costs.conflict_cycles += accesses.conflict_cycles;
        }
    }

    /// The costs in TOML, as [`Costs::parse`] reads them.
    pub fn to_toml(&self) -> String {
        let list = List { launches: self.costs().cloned().collect() };
        // Tables of numbers and texts have a form in TOML.
        toml::to_string(&list).unwrap_or_default()
    }

    /// True if no launch was added.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The kernels by name.
    pub fn kernels(&self) -> impl Iterator<Item = &KernelProfile> {
        self.kernels.values()
    }

    /// The costs of each kernel and shape.
    pub fn costs(&self) -> impl Iterator<Item = &Costs> {
        self.kernels().flat_map(KernelProfile::costs)
    }
}

impl KernelProfile {
    /// The costs by shape of launch.
    pub fn costs(&self) -> impl Iterator<Item = &Costs> {
        self.shapes.values()
    }

    /// The rows of each line of the source, with those without one last; the lines with most
    /// cycles first.
    pub fn lines(&self) -> Vec<(Option<&str>, Vec<&InstructionCost>)> {
        let mut lines: BTreeMap<Option<&str>, Vec<&InstructionCost>> = BTreeMap::new();
        for row in &self.rows {
            lines.entry(row.source.as_deref()).or_default().push(row);
        }
        let mut lines: Vec<_> = lines.into_iter().collect();
        lines.sort_by_key(|(line, rows)| {
            (line.is_none(), Reverse(rows.iter().map(|row| row.cycles).sum::<u64>()))
        });
        lines
    }

    /// The cycles of all instructions.
    pub fn cycles(&self) -> u64 {
        self.rows.iter().map(|row| row.cycles).sum()
    }
}

/// The instructions of a program without costs.
fn rows(program: &Program) -> Vec<InstructionCost> {
    let family = program.arch().family();
    let row =
        |((offset, text), (_, instruction)): ((u64, String), (u64, Option<_>))| InstructionCost {
            offset,
            text,
            source: program
                .source_lines()
                .lookup(offset)
                .map(|(file, line)| format!("{file}:{line}")),
            unit: instruction.map_or(Unit::Other, |instruction| issue(family, instruction).0),
            executions: 0,
            cycles: 0,
            accesses: Accesses::default(),
        };
    program.listing().zip(program.instructions()).map(row).collect()
}
