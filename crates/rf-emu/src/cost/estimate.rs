//! Estimated times: the busiest unit or level of memory, and a constant per launch.

use super::issue::TRANSCENDENTAL_CYCLES;
use super::{Card, Costs, Unit, UnitCycles};

/// The SIMDs of a compute unit.
const SIMDS: u64 = 2;

/// Constants that the published data of cards lack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// The share of the memory's bandwidth that kernels reach. The default is fitted to published
    /// speeds of decode on seven cards together: docs/emulator.md.
    pub memory_share: f64,
    /// The time in seconds that a launch takes beyond its work. The default is what
    /// maeddesg/ROCmForge published for launches that follow each other on an RX 9070 XT.
    pub launch_seconds: f64,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self { memory_share: 0.72, launch_seconds: 2.7e-6 }
    }
}

/// The unit or level of memory that limits a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchBound {
    /// A unit of compute units.
    Unit(Unit),
    /// L2.
    L2,
    /// Memory.
    Memory,
}

impl LaunchBound {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unit(unit) => unit.name(),
            Self::L2 => "L2",
            Self::Memory => "memory",
        }
    }
}

/// An estimated time. No cache's contents, no latency and no dependence between instructions is
/// modelled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The time in seconds of all launches.
    pub seconds: f64,
    /// The limit of each of them.
    pub bound: LaunchBound,
}

impl Estimate {
    /// The sum of two estimates, with the bound of the longer one.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let bound = if self.seconds >= other.seconds { self.bound } else { other.bound };
        Self { seconds: self.seconds + other.seconds, bound }
    }
}

impl Card {
    /// Estimates the time of launches of one shape. The processor of the costs must be of the
    /// family of the card: otherwise `None`.
    pub fn estimate(&self, costs: &Costs, assumptions: &Assumptions) -> Option<Estimate> {
        let family = crate::Arch::from_name(&costs.arch)?.family();
        if family != self.family() || costs.launches == 0 {
            return None;
        }
        let workgroups = costs.workgroups.max(1);
        let rounds = workgroups.div_ceil(self.compute_units.max(1));
        // Per workgroup; the compute unit with most of them takes longest.
        let per_group = 1.0 / (costs.launches as f64 * workgroups as f64);
        let waves = costs.waves.max(1);
        let waves_per_simd = (rounds * waves).div_ceil(SIMDS) as f64 / waves as f64;
        let limits = Unit::ALL.into_iter().map(|unit| {
            let copies = if is_of_simd(unit) { waves_per_simd } else { rounds as f64 };
            let cycles = occupied(&costs.cycles, unit) as f64 * per_group * copies;
            (cycles / self.clock(), LaunchBound::Unit(unit))
        });
        let launches = costs.launches as f64;
        let l2 = costs.group_bytes as f64 / launches / self.l2_bandwidth();
        let memory = costs.memory_bytes as f64 / launches;
        let memory = memory / (self.memory_bandwidth() * assumptions.memory_share);
        let (seconds, bound) = limits
            .chain([(l2, LaunchBound::L2), (memory, LaunchBound::Memory)])
            .max_by(|left, right| left.0.total_cmp(&right.0))?;
        Some(Estimate { seconds: (seconds + assumptions.launch_seconds) * launches, bound })
    }
}

/// The cycles for which a unit is occupied, also by instructions of others.
fn occupied(cycles: &UnitCycles, unit: Unit) -> u64 {
    match unit {
        // Matrix instructions occupy the vector unit, transcendental ones for their first cycle.
        Unit::Vector => {
            cycles.vector + cycles.matrix + cycles.transcendental / TRANSCENDENTAL_CYCLES
        }
        unit => cycles.get(unit),
    }
}

/// True if each SIMD has its own.
fn is_of_simd(unit: Unit) -> bool {
    !matches!(unit, Unit::VectorMemory | Unit::Lds | Unit::ScalarMemory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cards;

    fn costs() -> Costs {
        let arch = "gfx1100".to_owned();
        Costs { arch, workgroups: 96, waves: 4, launches: 2, ..Costs::default() }
    }

    fn estimate(costs: &Costs) -> Option<Estimate> {
        let assumptions = Assumptions { memory_share: 0.5, launch_seconds: 1e-6 };
        Cards::known().unwrap().named("RX 7900 XTX").unwrap().estimate(costs, &assumptions)
    }

    fn microseconds(costs: &Costs) -> f64 {
        estimate(costs).unwrap().seconds * 1e6
    }

    #[test]
    fn the_busiest_of_units_and_levels_determines_the_time() {
        // 2 launches of 480 MB each at half of 960 GB/s are 2 ms.
        let mut costs = costs();
        costs.memory_bytes = 2 * 480_000_000;
        let slow = estimate(&costs).unwrap();
        assert_eq!(slow.bound, LaunchBound::Memory);
        assert!((slow.seconds - (2e-3 + 2e-6)).abs() < 1e-9);
        // 2300 cycles on each of 192 SIMDs at 2300 MHz are a microsecond, then 10 ms.
        costs.memory_bytes = 0;
        costs.cycles.vector = 2 * 192 * 2300;
        assert!((microseconds(&costs) - 4.0).abs() < 1e-6);
        costs.cycles.matrix = costs.cycles.vector;
        assert!((microseconds(&costs) - 6.0).abs() < 1e-6, "matrices use the vector unit");
        costs.cycles.lds = 2 * 96 * 23_000;
        assert_eq!(estimate(&costs).unwrap().bound, LaunchBound::Unit(Unit::Lds));
        assert!((microseconds(&costs) - 22.0).abs() < 1e-6);
    }

    #[test]
    fn workgroups_that_do_not_fill_the_card_leave_units_idle() {
        let mut costs = costs();
        costs.cycles.vector = 2 * 192 * 2300;
        let full = microseconds(&costs);
        // The same work in one workgroup runs on one compute unit.
        costs.workgroups = 1;
        assert!(microseconds(&costs) > 40.0 * full);
        // One more than fits makes a second round of all work.
        costs.workgroups = 97;
        let two_rounds = microseconds(&costs) - 2.0;
        assert!((two_rounds / (full - 2.0) - 2.0).abs() < 0.05);
    }

    #[test]
    fn code_of_another_family_has_no_estimate() {
        assert_eq!(estimate(&Costs { arch: "gfx1030".to_owned(), ..costs() }), None);
        assert_eq!(estimate(&Costs { arch: "gfx1".to_owned(), ..costs() }), None);
    }
}
