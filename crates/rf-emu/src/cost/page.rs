//! Costs as one self-contained HTML page: it loads nothing and needs no scripts.

use std::fmt::{self, Display, Formatter};

use super::{CostProfile, KernelProfile, Unit};

/// The smallest share of the cycles of a kernel with which a line or an instruction has a box.
const SMALLEST_SHARE: f64 = 0.002;

const STYLE: &str = "body{font:14px sans-serif;margin:2em;max-width:100em}\
table{border-collapse:collapse}td,th{padding:2px 8px;text-align:right}\
td:first-child,th:first-child{text-align:left}\
.row{display:flex;width:100%}.box{overflow:hidden;min-width:0}\
.box>span{display:block;overflow:hidden;white-space:nowrap;font:12px monospace;padding:2px 3px;\
border:1px solid #fff;background:#f2c48c}\
.line>span{background:#f2b878}.kernel>span{background:#f0a860}.all>span{background:#e88f3c}\
pre{font:12px monospace}summary{cursor:pointer;font-family:monospace}";

impl CostProfile {
    /// An HTML page: a flame graph of cycles, a table of units, the listings.
    pub fn page(&self) -> impl Display {
        Page(self)
    }
}

struct Page<'a>(&'a CostProfile);

/// Text with the characters escaped that HTML gives a meaning.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            '"' => f.write_str("&quot;"),
            c if c.is_control() && c != '\n' => f.write_str("\u{FFFD}"),
            c => write!(f, "{c}"),
        })
    }
}

impl Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut kernels: Vec<_> = self.0.kernels().collect();
        kernels.sort_by_key(|kernel| std::cmp::Reverse(kernel.cycles()));
        writeln!(f, "<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\">")?;
        writeln!(f, "<title>Costs of kernels</title><style>{STYLE}</style>")?;
        writeln!(
            f,
            "<h1>Costs of kernels</h1><p>Cycles for which instructions occupy their units, "
        )?;
        writeln!(f, "summed over all waves, as the emulator counts them. They are not times.</p>")?;
        graph(f, &kernels)?;
        units(f, &kernels)?;
        writeln!(f, "<h2>Instructions</h2>")?;
        for kernel in kernels {
            let listing = kernel.listing().to_string();
            writeln!(f, "<details><summary>{}</summary>", Escaped(&kernel.name))?;
            writeln!(f, "<pre>{}</pre></details>", Escaped(&listing))?;
        }
        writeln!(f, "</html>")
    }
}

/// Boxes as wide as their cycles: all kernels, each kernel, its lines, their instructions.
fn graph(f: &mut Formatter<'_>, kernels: &[&KernelProfile]) -> fmt::Result {
    let all: u64 = kernels.iter().map(|kernel| kernel.cycles()).sum();
    writeln!(
        f,
        "<div class=\"box all\"><span>all kernels: {all} cycles</span><div class=\"row\">"
    )?;
    for kernel in kernels {
        let cycles = kernel.cycles();
        open(f, "box kernel", cycles, all, &kernel.name)?;
        write!(f, "<div class=\"row\">")?;
        for (line, rows) in kernel.lines() {
            let of_line: u64 = rows.iter().map(|row| row.cycles).sum();
            if !is_visible(of_line, cycles) {
                continue;
            }
            open(f, "box line", of_line, cycles, line.unwrap_or("no line"))?;
            write!(f, "<div class=\"row\">")?;
            for row in rows.into_iter().filter(|row| is_visible(row.cycles, cycles)) {
                open(f, "box", row.cycles, of_line, &format!("{:#x}: {}", row.offset, row.text))?;
                write!(f, "</div>")?;
            }
            write!(f, "</div></div>")?;
        }
        writeln!(f, "</div></div>")?;
    }
    writeln!(f, "</div></div>")
}

/// Returns true if a line or an instruction has a box of its own.
fn is_visible(cycles: u64, of_kernel: u64) -> bool {
    cycles > 0 && cycles as f64 >= of_kernel as f64 * SMALLEST_SHARE
}

/// Opens a box.
fn open(f: &mut Formatter<'_>, class: &str, cycles: u64, of: u64, name: &str) -> fmt::Result {
    let share = cycles as f64 * 100.0 / of.max(1) as f64;
    let name = Escaped(name);
    write!(f, "<div class=\"{class}\" style=\"width:{share:.3}%\">")?;
    write!(f, "<span title=\"{name}: {cycles} cycles, {share:.1} %\">{name}</span>")
}

/// A table of cycles and bytes.
fn units(f: &mut Formatter<'_>, kernels: &[&KernelProfile]) -> fmt::Result {
    writeln!(f, "<h2>Cycles by unit, bytes by level</h2><table><tr><th>kernel<th>workgroups")?;
    write!(f, "<th>waves<th>launches")?;
    Unit::ALL.iter().try_for_each(|unit| write!(f, "<th>{}", unit.name()))?;
    writeln!(f, "<th>LDS conflicts<th>bytes requested<th>vector caches<th>L2<th>memory</tr>")?;
    for costs in kernels.iter().flat_map(|kernel| kernel.costs()) {
        write!(f, "<tr><td>{}<td>{}", Escaped(&costs.kernel), costs.workgroups)?;
        write!(f, "<td>{}<td>{}", costs.waves, costs.launches)?;
        Unit::ALL.iter().try_for_each(|&unit| write!(f, "<td>{}", costs.cycles.get(unit)))?;
        write!(f, "<td>{}<td>{}", costs.conflict_cycles, costs.requested_bytes)?;
        let (caches, l2, memory) = (costs.cache_bytes, costs.group_bytes, costs.memory_bytes);
        writeln!(f, "<td>{caches}<td>{l2}<td>{memory}</tr>")?;
    }
    writeln!(f, "</table>")
}
