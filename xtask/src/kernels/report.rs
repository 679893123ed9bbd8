//! The resources of every kernel on every AMD target, and the requirements of `kernels.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;

use anyhow::{Context, Result, ensure};
use rf_emu::{KernelMetadata, kernel_metadata};
use rf_kernels_build::ObjectFile;

use super::catalogue::{Catalogue, matches};
use super::occupancy::waves_per_simd;
use super::params::Sizes;
use super::resources::Resources;
use crate::snapshot::Snapshot;

/// The targets in the table and in the snapshot: one per family with different resources.
/// Requirements are checked on all targets.
const REPORTED: [&str; 4] = ["gfx1030", "gfx1100", "gfx1201", "gfx90a"];

/// The targets of exceptions: an exception is unnecessary if no kernel on any of these needs it.
const ALL_RDNA: [&str; 4] = ["gfx1030", "gfx1100", "gfx11-generic", "gfx1201"];

/// A target without dot-product instructions, whose kernels have no performance requirements.
const UNOPTIMISED: &str = "gfx9-generic";

/// The kernels of all objects.
pub(super) struct KernelReport<'a> {
    catalogue: &'a Catalogue,
    sizes: &'a Sizes,
    compiled: Vec<Compiled>,
}

/// A kernel on a target.
struct Compiled {
    unit: String,
    target: &'static str,
    kernel: KernelMetadata,
    waves: u32,
}

impl<'a> KernelReport<'a> {
    /// Reads the code objects. PTX contains no resources.
    ///
    /// # Errors
    ///
    /// An object cannot be read.
    pub(super) fn of(
        objects: &[ObjectFile<'_>],
        catalogue: &'a Catalogue,
        sizes: &'a Sizes,
    ) -> Result<Self> {
        let mut compiled = Vec::new();
        for object in objects {
            let (unit, target) = (&object.unit.name, object.target.name);
            if !target.starts_with("gfx") {
                continue;
            }
            let code = fs::read(&object.path)?;
            let mut kernels =
                kernel_metadata(&code).with_context(|| format!("{unit} for {target}"))?;
            kernels.sort_by(|a, b| a.name.cmp(&b.name));
            compiled.extend(kernels.into_iter().map(|kernel| {
                let row = catalogue.row(unit, &kernel.name);
                let dynamic = row.map_or(0, |row| row.dynamic_lds_bytes);
                let waves = waves_per_simd(target, &kernel, dynamic);
                Compiled { unit: unit.clone(), target, kernel, waves }
            }));
        }
        Ok(Self { catalogue, sizes, compiled })
    }

    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        let mut by_kernel: BTreeMap<(&str, &str), Vec<&Compiled>> = BTreeMap::new();
        for compiled in self.compiled.iter().filter(|compiled| REPORTED.contains(&compiled.target))
        {
            by_kernel.entry((&compiled.unit, &compiled.kernel.name)).or_default().push(compiled);
        }
        writeln!(
            out,
            "\n{:<44} {:<8} {:>5} {:>5} {:>6} {:>7} {:>6} {:>7} {:>5} {:>5}",
            "kernel",
            "target",
            "VGPR",
            "SGPR",
            "spills",
            "scratch",
            "LDS",
            "kernarg",
            "wave",
            "waves"
        )?;
        for ((_, name), rows) in by_kernel {
            let mut name = name;
            for Compiled { target, kernel, waves, .. } in rows {
                writeln!(
                    out,
                    "{name:<44} {target:<8} {:>5} {:>5} {:>6} {:>7} {:>6} {:>7} {:>5} {waves:>5}",
                    kernel.vgprs,
                    kernel.sgprs,
                    kernel.vgpr_spills + kernel.sgpr_spills,
                    kernel.scratch_bytes,
                    kernel.lds_bytes,
                    kernel.kernarg_bytes,
                    kernel.wave_size,
                )?;
                name = "";
            }
        }
        Ok(())
    }

    /// The violated requirements.
    pub(super) fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for compiled in &self.compiled {
            let place = format!("{} for {}", compiled.kernel.name, compiled.target);
            let found = self.findings_of(compiled);
            findings.extend(found.into_iter().map(|what| format!("{place}: {what}")));
        }
        findings.extend(self.missing());
        findings.extend(self.unneeded_exceptions());
        findings
    }

    fn findings_of(&self, compiled: &Compiled) -> Vec<String> {
        let Compiled { unit, target, kernel, waves } = compiled;
        let Some(row) = self.catalogue.row(unit, &kernel.name) else {
            return vec!["no row in kernels/kernels.toml".to_owned()];
        };
        let mut found = Vec::new();
        let newer = !target.starts_with("gfx9");
        if newer && kernel.wave_size != 32 {
            found.push(format!("waves of {} lanes, expected 32", kernel.wave_size));
        }
        match (params_bytes(kernel), self.sizes.get(&row.params)) {
            (Err(error), _) => found.push(error.to_string()),
            (_, None) => found.push(format!("no header defines Rf{}", row.params)),
            (Ok(bytes), Some(&expected)) if bytes != expected => {
                found.push(format!("takes {bytes} bytes, but Rf{} has {expected}", row.params));
            }
            (Ok(_), Some(_)) => {}
        }
        if row.hot && *target != UNOPTIMISED {
            // On gfx9 64-lane masks fill the scalar registers, and spills go to vector lanes, not
            // memory.
            let scalar_spills = if newer { row.scalar_spills } else { u32::MAX };
            for (count, allowed, what) in [
                (kernel.vgpr_spills, 0, "vector registers spilled"),
                (kernel.sgpr_spills, scalar_spills, "scalar registers spilled"),
                (kernel.scratch_bytes, 0, "bytes of scratch memory per lane"),
            ] {
                if count > allowed {
                    found.push(format!("hot, but {count} {what}"));
                }
            }
            if newer && *waves < row.required_waves() {
                found.push(format!(
                    "hot, but {waves} waves per SIMD, {} required ({} VGPRs, {} bytes of LDS)",
                    row.required_waves(),
                    kernel.vgprs,
                    kernel.lds_bytes + row.dynamic_lds_bytes
                ));
            }
        }
        found
    }

    /// Rows without a kernel on a target that should have it.
    fn missing(&self) -> Vec<String> {
        let targets: BTreeSet<_> = self.compiled.iter().map(|compiled| compiled.target).collect();
        let mut found = Vec::new();
        for row in self.catalogue.rows() {
            for target in targets.iter().filter(|target| row.exists_on(target)) {
                let there = self.compiled.iter().any(|compiled| {
                    compiled.target == *target
                        && matches(&row.unit, &compiled.unit)
                        && matches(&row.name, &compiled.kernel.name)
                });
                if !there {
                    found
                        .push(format!("{} for {target}: in kernels.toml, but not built", row.name));
                }
            }
        }
        found
    }

    /// Exceptions that no kernel needs.
    fn unneeded_exceptions(&self) -> Vec<String> {
        let mut found = Vec::new();
        let built = |target| self.compiled.iter().any(|compiled| compiled.target == target);
        if !ALL_RDNA.into_iter().all(built) {
            return found;
        }
        for row in self.catalogue.rows().iter().filter(|row| row.is_exception()) {
            let covered: Vec<_> = self
                .compiled
                .iter()
                .filter(|compiled| !compiled.target.starts_with("gfx9"))
                .filter(|compiled| {
                    let counts = self.catalogue.row(&compiled.unit, &compiled.kernel.name);
                    counts.is_some_and(|counts| std::ptr::eq(counts, row))
                })
                .collect();
            if covered.is_empty() {
                continue;
            }
            if let Some(least) = row.min_waves
                && covered.iter().all(|compiled| compiled.waves > least)
            {
                found.push(format!(
                    "{}: min_waves = {least} is below the waves of every target",
                    row.name
                ));
            }
            let most = row.scalar_spills;
            if covered.iter().all(|compiled| compiled.kernel.sgpr_spills < most) {
                found.push(format!(
                    "{}: scalar_spills = {most} is above the spills of every target",
                    row.name
                ));
            }
        }
        found
    }

    pub(super) fn snapshot(&self, compiler: &str) -> Snapshot {
        let mut snapshot = Snapshot::new(compiler);
        for Compiled { target, kernel, waves, .. } in &self.compiled {
            if REPORTED.contains(target) {
                snapshot.insert(target, &kernel.name, Resources::of(kernel, *waves).numbers());
            }
        }
        snapshot
    }
}

/// The size of the struct that a kernel takes by value.
///
/// # Errors
///
/// The kernel has other arguments, or the compiler added hidden ones.
fn params_bytes(kernel: &KernelMetadata) -> Result<u32> {
    let kinds: Vec<_> = kernel.arguments.iter().map(|argument| &*argument.kind).collect();
    ensure!(kinds == ["by_value"], "takes [{}], not one struct by value", kinds.join(", "));
    Ok(kernel.arguments[0].bytes)
}
