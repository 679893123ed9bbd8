//! Hardware counters by purpose and GPU generation.
//!
//! The names come from rocprofiler's counter definitions (`counter_defs.yaml`, ROCm 6.2), which
//! list the targets of each counter. They do not cover gfx12 yet, which uses the counters that
//! gfx10 and gfx11 share.

use std::collections::BTreeMap;

/// A purpose of hardware counters.
///
/// # Examples
///
/// ```
/// use rf_profile::tools::{CounterGroup, GpuGeneration};
///
/// let rdna3 = GpuGeneration::of("gfx1100").unwrap();
/// assert_eq!(CounterGroup::Cache.counters(rdna3), ["GL2C_HIT_sum", "GL2C_MISS_sum"]);
/// let cdna = GpuGeneration::of("gfx90a:sramecc+").unwrap();
/// assert_eq!(CounterGroup::Cache.counters(cdna), ["TCC_HIT_sum", "TCC_MISS_sum"]);
/// assert_eq!(GpuGeneration::of("sm_90"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CounterGroup {
    /// Executed instructions by kind.
    Instructions,
    /// Launched waves and occupancy.
    Waves,
    /// Bytes read from and written to memory.
    Memory,
    /// Hits and misses of the L2 cache.
    Cache,
    /// Utilisation of the compute units.
    ComputeUnit,
    /// LDS accesses and bank conflicts.
    Lds,
    /// Cycles in which waves wait.
    Stalls,
}

impl CounterGroup {
    /// Every group, in the order of declaration.
    pub const ALL: [Self; 7] = [
        Self::Instructions,
        Self::Waves,
        Self::Memory,
        Self::Cache,
        Self::ComputeUnit,
        Self::Lds,
        Self::Stalls,
    ];

    /// The counters of this group on a GPU generation.
    pub const fn counters(self, generation: GpuGeneration) -> &'static [&'static str] {
        use GpuGeneration::{Cdna, Gcn, Rdna, Rdna3};
        match (self, generation) {
            (Self::Instructions, Cdna | Gcn) => &[
                "SQ_WAVES",
                "SQ_INSTS_VALU",
                "SQ_INSTS_SALU",
                "SQ_INSTS_SMEM",
                "SQ_INSTS_LDS",
                "SQ_INSTS_FLAT",
                "SQ_INSTS_VMEM_RD",
                "SQ_INSTS_VMEM_WR",
            ],
            (Self::Instructions, Rdna) => &[
                "SQ_WAVES",
                "SQ_INSTS_VALU",
                "SQ_INSTS_SALU",
                "SQ_INSTS_SMEM",
                "SQ_INSTS_LDS",
                "SQ_INSTS_FLAT",
            ],
            (Self::Instructions, Rdna3) => &[
                "SQ_WAVES",
                "SQ_INSTS_VALU",
                "SQ_INSTS_SALU",
                "SQ_INSTS_SMEM",
                "SQ_INSTS_LDS",
                "SQ_INSTS_FLAT",
                "SQ_INSTS_TEX_LOAD",
                "SQ_INSTS_TEX_STORE",
            ],
            (Self::Waves, Gcn) => &["SQ_WAVES", "GRBM_GUI_ACTIVE"],
            (Self::Waves, _) => {
                &["SQ_WAVES", "SQ_WAVE_CYCLES", "GRBM_GUI_ACTIVE", "OccupancyPercent"]
            }
            (Self::Memory, _) => &["FETCH_SIZE", "WRITE_SIZE"],
            (Self::Cache, Cdna | Gcn) => &["TCC_HIT_sum", "TCC_MISS_sum"],
            (Self::Cache, Rdna | Rdna3) => &["GL2C_HIT_sum", "GL2C_MISS_sum"],
            (Self::ComputeUnit, Cdna | Gcn) => {
                &["SQ_WAVES", "GRBM_GUI_ACTIVE", "VALUBusy", "SALUBusy", "VALUUtilization"]
            }
            (Self::ComputeUnit, Rdna | Rdna3) => {
                &["SQ_WAVES", "SQ_BUSY_CYCLES", "GRBM_GUI_ACTIVE", "OccupancyPercent"]
            }
            (Self::Lds, Cdna) => &["SQ_INSTS_LDS", "SQ_LDS_BANK_CONFLICT", "SQ_LDS_IDX_ACTIVE"],
            (Self::Lds, Gcn) => &["SQ_INSTS_LDS", "SQ_LDS_BANK_CONFLICT"],
            (Self::Lds, Rdna | Rdna3) => {
                &["SQ_INSTS_LDS", "SQC_LDS_BANK_CONFLICT", "SQC_LDS_IDX_ACTIVE"]
            }
            (Self::Stalls, Gcn) => &["SQ_WAVES", "SQ_WAIT_INST_LDS"],
            (Self::Stalls, _) => {
                &["SQ_WAVES", "SQ_WAIT_ANY", "SQ_WAIT_INST_ANY", "SQ_WAIT_INST_LDS"]
            }
        }
    }
}

/// A GPU generation with its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuGeneration {
    /// gfx900 to gfx908: Vega, MI50, MI100.
    Gcn,
    /// gfx90a, gfx94x, gfx950: MI200 and later.
    Cdna,
    /// gfx10 and gfx12: RDNA 1, 2 and 4.
    Rdna,
    /// gfx11: RDNA 3.
    Rdna3,
}

impl GpuGeneration {
    /// The generation of a target such as `gfx1100`, or `None` if its counters are unknown.
    pub fn of(gfx: &str) -> Option<Self> {
        let number = gfx.strip_prefix("gfx")?.split([':', '-']).next()?;
        match number {
            "900" | "906" | "908" => Some(Self::Gcn),
            "90a" | "940" | "941" | "942" | "950" => Some(Self::Cdna),
            // A generic target names only its family: gfx11-generic, gfx10-3-generic.
            "11" => Some(Self::Rdna3),
            "10" | "12" => Some(Self::Rdna),
            _ if number.len() == 4 && number.starts_with("11") => Some(Self::Rdna3),
            _ if number.len() == 4 && (number.starts_with("10") || number.starts_with("12")) => {
                Some(Self::Rdna)
            }
            _ => None,
        }
    }
}

/// Distributes counters over passes, which are runs of the program. A pass holds at most as many
/// counters of a hardware block as the block counts at once. A derived metric combines several
/// counters and takes a pass of its own. Duplicates are dropped.
///
/// # Examples
///
/// ```
/// let counters = ["GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_WAVES", "OccupancyPercent", "SQ_WAVES"];
/// let runs = rf_profile::tools::passes(&counters);
/// assert_eq!(runs, [vec!["GRBM_COUNT", "GRBM_GUI_ACTIVE", "SQ_WAVES"], vec!["OccupancyPercent"]]);
/// ```
pub fn passes(counters: &[&str]) -> Vec<Vec<String>> {
    let mut passes: Vec<(BTreeMap<String, usize>, Vec<String>)> = Vec::new();
    let mut derived = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for &counter in counters {
        if seen.contains(&counter) {
            continue;
        }
        seen.push(counter);
        let Some((block, limit)) = block(counter) else {
            derived.push(vec![counter.to_owned()]);
            continue;
        };
        let has_room = |used: &BTreeMap<String, usize>| used.get(block).is_none_or(|n| *n < limit);
        let place = passes.iter().position(|(used, _)| has_room(used)).unwrap_or(passes.len());
        if place == passes.len() {
            passes.push((BTreeMap::new(), Vec::new()));
        }
        let (used, pass) = &mut passes[place];
        *used.entry(block.to_owned()).or_default() += 1;
        pass.push(counter.to_owned());
    }
    passes.into_iter().map(|(_, pass)| pass).chain(derived).collect()
}

/// The hardware block of a counter, and the number of counters that it supports at once on every
/// target. `None` for derived metrics.
fn block(counter: &str) -> Option<(&'static str, usize)> {
    const BLOCKS: [(&str, usize); 7] =
        [("SQC_", 4), ("SQ_", 4), ("GRBM_", 2), ("GL2C_", 4), ("TCC_", 4), ("TCP_", 2), ("TA_", 2)];
    let is_counter =
        counter.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            || counter.ends_with("_sum");
    let found = BLOCKS.into_iter().find(|(prefix, _)| counter.starts_with(prefix));
    // The SQ block counts the SQC counters.
    found.filter(|_| is_counter).map(|(prefix, limit)| match prefix {
        "SQC_" => ("SQ_", limit),
        prefix => (prefix, limit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_map_to_generations() {
        for (gfx, generation) in [
            ("gfx1100", Some(GpuGeneration::Rdna3)),
            ("gfx1151", Some(GpuGeneration::Rdna3)),
            ("gfx11-generic", Some(GpuGeneration::Rdna3)),
            ("gfx1030", Some(GpuGeneration::Rdna)),
            ("gfx1201", Some(GpuGeneration::Rdna)),
            ("gfx90a:sramecc+:xnack-", Some(GpuGeneration::Cdna)),
            ("gfx942", Some(GpuGeneration::Cdna)),
            ("gfx906", Some(GpuGeneration::Gcn)),
            ("sm_90", None),
            ("gfx803", None),
            ("gfx", None),
        ] {
            assert_eq!(GpuGeneration::of(gfx), generation, "{gfx}");
        }
    }

    #[test]
    fn no_pass_exceeds_the_counters_of_a_block() {
        for generation in
            [GpuGeneration::Gcn, GpuGeneration::Cdna, GpuGeneration::Rdna, GpuGeneration::Rdna3]
        {
            let all: Vec<&str> = CounterGroup::ALL
                .iter()
                .flat_map(|group| group.counters(generation))
                .copied()
                .collect();
            let passes = passes(&all);
            for pass in &passes {
                let derived = pass.iter().filter(|counter| block(counter).is_none()).count();
                assert!(derived == 0 || pass.len() == 1, "{pass:?}");
                for prefix in ["SQ", "GRBM_", "GL2C_", "TCC_"] {
                    let limit = if prefix == "GRBM_" { 2 } else { 4 };
                    assert!(pass.iter().filter(|c| c.starts_with(prefix)).count() <= limit);
                }
            }
            let mut counted: Vec<&str> = passes.iter().flatten().map(String::as_str).collect();
            let mut expected = all.clone();
            counted.sort_unstable();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(counted, expected);
        }
    }

    #[test]
    fn rdna_and_cdna_differ_in_cache_and_lds_counters() {
        assert!(CounterGroup::Cache.counters(GpuGeneration::Rdna3)[0].starts_with("GL2C"));
        assert!(CounterGroup::Cache.counters(GpuGeneration::Cdna)[0].starts_with("TCC"));
        assert!(CounterGroup::Lds.counters(GpuGeneration::Rdna)[1].starts_with("SQC"));
        assert!(CounterGroup::Lds.counters(GpuGeneration::Cdna)[1].starts_with("SQ_"));
    }
}
