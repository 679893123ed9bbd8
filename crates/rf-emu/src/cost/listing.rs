//! Costs as text: annotated listings and stacks.

use std::fmt::{self, Display, Formatter};

use super::{CostProfile, KernelProfile};

impl KernelProfile {
    /// The instructions, each with its executions, cycles, extra cycles of LDS conflicts and lines
    /// of caches per execution, under the lines of the source.
    pub fn listing(&self) -> impl Display {
        Listing(self)
    }
}

impl CostProfile {
    /// A line per instruction with its cycles, `KERNEL;FILE:LINE;INSTRUCTION CYCLES`, as tools for
    /// flame graphs read them.
    pub fn stacks(&self) -> impl Display {
        Stacks(self)
    }
}

struct Listing<'a>(&'a KernelProfile);

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(kernel) = self;
        let launches: u64 = kernel.costs().map(|costs| costs.launches).sum();
        let all = kernel.cycles().max(1) as f64;
        writeln!(f, "kernel {} ({}), {launches} launches", kernel.name, kernel.arch)?;
        writeln!(
            f,
            "{:>12} {:>12} {:>6} {:>10} {:>6}  instruction",
            "executions", "cycles", "share", "conflicts", "lines"
        )?;
        let mut source = None;
        for row in &kernel.rows {
            if row.source != source {
                source.clone_from(&row.source);
                writeln!(f, "{:>50}  {}", "", source.as_deref().unwrap_or("no line"))?;
            }
            let share = row.cycles as f64 * 100.0 / all;
            write!(f, "{:>12} {:>12} {share:>5.1}%", row.executions, row.cycles)?;
            match (row.accesses.conflict_cycles, row.executions) {
                (0, _) => write!(f, " {:>10}", "")?,
                (conflicts, _) => write!(f, " {conflicts:>10}")?,
            }
            match (row.accesses.lines, row.executions) {
                (0, _) | (_, 0) => write!(f, " {:>6}", "")?,
                (lines, executions) => write!(f, " {:>6.1}", lines as f64 / executions as f64)?,
            }
            writeln!(f, "  {:#8x}: {}", row.offset, row.text)?;
        }
        Ok(())
    }
}

struct Stacks<'a>(&'a CostProfile);

impl Display for Stacks<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for kernel in self.0.kernels() {
            for row in kernel.rows.iter().filter(|row| row.cycles > 0) {
                write!(f, "{};", kernel.name)?;
                if let Some(source) = &row.source {
                    write!(f, "{source};")?;
                }
                writeln!(f, "{:#x} {} {}", row.offset, row.text, row.cycles)?;
            }
        }
        Ok(())
    }
}
