//! The checks that go beyond the bounds of memory.

pub(crate) mod global;
pub(crate) mod hazards;
mod moved;
pub(crate) mod operands;
pub(crate) mod race;
pub(crate) mod unwritten;
pub(crate) mod waits;

use std::str::FromStr;

/// The checks of a launch. Bounds, and the liveness of memory, are always checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each check is a switch of its own")]
pub struct Checks {
    /// Uses of registers, LDS and memory that were never written. Memory needs
    /// [`MemoryOptions::track_initialised`](crate::MemoryOptions::track_initialised).
    pub uninitialised: bool,
    /// Results that are used before a wait covers them.
    pub waits: bool,
    /// Accesses of LDS by two waves without a barrier between them.
    pub lds_races: bool,
    /// Accesses of global memory by two workgroups that no release and acquire order. Together with
    /// `uninitialised`, a load that races is a fault only if its value is used.
    pub global_races: bool,
    /// Waves at different barriers, or ended while others wait.
    pub barriers: bool,
    /// Addresses that are not multiples of what the access needs.
    pub alignment: bool,
    /// Matrix instructions without all lanes, and values from inactive lanes.
    pub lanes: bool,
    /// Sequences of instructions that the family executes wrongly, which compilers separate.
    pub hazards: bool,
    /// Reads of scalar registers on RDNA 4 that need `s_wait_alu sa_sdst(0)`. Not among
    /// [`ALL`](Self::ALL): clang 19 leaves the wait out, later versions do not.
    pub sgpr_hazards: bool,
}

impl Checks {
    /// Every check is on except `sgpr_hazards`.
    pub const ALL: Self = Self {
        uninitialised: true,
        waits: true,
        lds_races: true,
        global_races: true,
        barriers: true,
        alignment: true,
        lanes: true,
        hazards: true,
        sgpr_hazards: false,
    };

    /// No check but those of bounds.
    pub const NONE: Self = Self {
        uninitialised: false,
        waits: false,
        lds_races: false,
        global_races: false,
        barriers: false,
        alignment: false,
        lanes: false,
        hazards: false,
        sgpr_hazards: false,
    };
}

/// A name of a check that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown check '{0}': choose from all, none, {list}", list = Checks::NAMES.join(", "))]
pub struct UnknownCheck(String);

impl Checks {
    /// The names by which checks are chosen.
    pub const NAMES: [&str; 9] = [
        "uninitialised",
        "waits",
        "lds-races",
        "global-races",
        "barriers",
        "alignment",
        "lanes",
        "hazards",
        "sgpr-hazards",
    ];

    fn switch(&mut self, name: &str) -> Option<&mut bool> {
        Some(match name {
            "uninitialised" => &mut self.uninitialised,
            "waits" => &mut self.waits,
            "lds-races" => &mut self.lds_races,
            "global-races" => &mut self.global_races,
            "barriers" => &mut self.barriers,
            "alignment" => &mut self.alignment,
            "lanes" => &mut self.lanes,
            "hazards" => &mut self.hazards,
            "sgpr-hazards" => &mut self.sgpr_hazards,
            _ => return None,
        })
    }
}

impl FromStr for Checks {
    type Err = UnknownCheck;

    /// Names with commas between, `all` or `none`; `races` stands for both kinds of races.
    fn from_str(names: &str) -> Result<Self, UnknownCheck> {
        let mut checks = Self::NONE;
        for name in names.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "all" => checks = Self::ALL,
                "none" => checks = Self::NONE,
                "races" => (checks.lds_races, checks.global_races) = (true, true),
                _ => {
                    let unknown = || UnknownCheck(name.to_owned());
                    *checks.switch(name).ok_or_else(unknown)? = true;
                }
            }
        }
        Ok(checks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_chosen_by_name() {
        assert_eq!("all".parse(), Ok(Checks::ALL));
        let races = Checks { lds_races: true, global_races: true, ..Checks::NONE };
        assert_eq!("races".parse(), Ok(races));
        let each = Checks { sgpr_hazards: true, ..Checks::ALL };
        assert_eq!(Checks::NAMES.join(",").parse(), Ok(each));
        let error = "waits, cache".parse::<Checks>().unwrap_err().to_string();
        assert!(
            error.starts_with("unknown check 'cache': choose from all, none, uninit"),
            "{error}"
        );
    }
}
