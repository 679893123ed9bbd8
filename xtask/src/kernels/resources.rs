//! `kernels/resources.toml`: the accepted resources of every kernel.
//!
//! The file has what the gate compares. Register counts change with every edit and matter through
//! occupancy and spills only; `cargo xtask kernels --report` prints them.

use std::fmt;

use rf_emu::KernelMetadata;

use crate::snapshot::{Pair, Snapshot};

pub(super) const FILE: &str = "kernels/resources.toml";

pub(super) const HEADER: &str = "\
# The resources of every kernel: [waves that fit on a SIMD, bytes of LDS, spilled registers, bytes of
# scratch memory per lane], without zeros at the end. `*` stands for the formats of a template.
# `cargo xtask kernels --report --bless` writes this file; `--report --check` fails if a kernel is
# worse, new or missing. kernels/README.md explains the choice.
";

/// The resources of a kernel on a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resources {
    waves: u64,
    lds_bytes: u64,
    spills: u64,
    scratch_bytes: u64,
}

impl Resources {
    pub(super) fn of(kernel: &KernelMetadata, waves: u32) -> Self {
        Self {
            waves: waves.into(),
            lds_bytes: kernel.lds_bytes.into(),
            spills: (kernel.vgpr_spills + kernel.sgpr_spills).into(),
            scratch_bytes: kernel.scratch_bytes.into(),
        }
    }

    /// The numbers of the snapshot.
    pub(super) fn numbers(self) -> Vec<u64> {
        let mut numbers = vec![self.waves, self.lds_bytes, self.spills, self.scratch_bytes];
        while numbers.len() > 1 && numbers.last() == Some(&0) {
            numbers.pop();
        }
        numbers
    }

    fn read(numbers: &[u64]) -> Self {
        let number = |index| numbers.get(index).copied().unwrap_or(0);
        Self { waves: number(0), lds_bytes: number(1), spills: number(2), scratch_bytes: number(3) }
    }

    fn is_worse_than(self, other: Self) -> bool {
        self.waves < other.waves
            || self.lds_bytes > other.lds_bytes
            || self.spills > other.spills
            || self.scratch_bytes > other.scratch_bytes
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waves, lds_bytes, spills, scratch_bytes } = self;
        write!(
            f,
            "{waves} waves, {lds_bytes} bytes of LDS, {spills} spills, {scratch_bytes} bytes of \
             scratch"
        )
    }
}

/// The kernels that are worse, new or missing in `current`, on the targets of its build.
pub(super) fn differences(committed: &Snapshot, current: &Snapshot) -> Vec<String> {
    let difference = |Pair { target, name, was, is }: Pair<'_>| match (was, is) {
        (Some(was), Some(is)) => {
            let (was, is) = (Resources::read(was), Resources::read(is));
            is.is_worse_than(was).then(|| format!("{name} for {target}: was {was}; is {is}"))
        }
        (Some(_), None) => Some(format!("{name} for {target}: missing")),
        (None, is) => {
            Some(format!("{name} for {target}: new, {}", Resources::read(is.unwrap_or_default())))
        }
    };
    let mut differences: Vec<_> =
        committed.pairs(current).into_iter().filter_map(difference).collect();
    if !differences.is_empty() {
        differences.push(format!(
            "{FILE} differs: review the changes, then run `cargo xtask kernels --report --bless`"
        ));
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Resources = Resources { waves: 16, lds_bytes: 512, spills: 0, scratch_bytes: 0 };

    fn snapshot(kernels: &[(&str, Resources)]) -> Snapshot {
        let mut snapshot = Snapshot::new("clang");
        for (kernel, resources) in kernels {
            snapshot.insert("gfx1030", kernel, resources.numbers());
        }
        snapshot
    }

    #[test]
    fn numbers_are_read_back() {
        for resources in [GOOD, Resources { lds_bytes: 0, ..GOOD }, Resources { spills: 3, ..GOOD }]
        {
            assert_eq!(Resources::read(&resources.numbers()), resources);
        }
        assert_eq!(Resources { lds_bytes: 0, ..GOOD }.numbers(), [16]);
    }

    #[test]
    fn changes_are_reported_by_name() {
        let was = snapshot(&[("a", GOOD), ("b", GOOD)]);
        let is = snapshot(&[("a", Resources { waves: 12, ..GOOD }), ("c", GOOD)]);
        let differences = differences(&was, &is);
        assert!(differences[0].starts_with("a for gfx1030: was 16 waves, "), "{differences:?}");
        assert!(differences[0].contains("; is 12 waves, "), "{differences:?}");
        assert_eq!(differences[1], "b for gfx1030: missing");
        assert!(differences[2].starts_with("c for gfx1030: new, 16 waves"), "{differences:?}");
        assert_eq!(differences.len(), 4);
    }

    #[test]
    fn each_resource_is_compared_and_improvements_are_ignored() {
        let was = snapshot(&[("a", GOOD)]);
        let found = |is: Resources| differences(&was, &snapshot(&[("a", is)])).len();
        assert_eq!(found(GOOD), 0);
        assert_eq!(found(Resources { lds_bytes: 0, ..GOOD }), 0);
        assert_eq!(found(Resources { waves: 15, ..GOOD }), 2);
        assert_eq!(found(Resources { lds_bytes: 516, ..GOOD }), 2);
        assert_eq!(found(Resources { spills: 1, ..GOOD }), 2);
        assert_eq!(found(Resources { scratch_bytes: 4, ..GOOD }), 2);
    }
}
