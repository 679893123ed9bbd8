//! The targets of one build.

use std::str::FromStr;

use crate::targets::TARGETS;
use crate::{Error, Target, machine};

/// The targets to build, parsed from `machine`, `release`, `all`, `none` or names separated by
/// commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The cards of the machine that builds, so that a build from a checkout is short.
    Machine,
    /// Every target of RDNA 2 to 4 and of NVIDIA, for a program that runs on other machines.
    Release,
    /// Every target that the compiler supports.
    All,
    /// No target.
    None,
    /// These targets, all of which the compiler must support.
    Named(Vec<&'static Target>),
}

impl FromStr for Selection {
    type Err = Error;

    /// Parses a selection; an empty text means [`Selection::Machine`].
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTarget`]
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "" | "machine" => Ok(Self::Machine),
            "release" => Ok(Self::Release),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            list => {
                let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
                names.map(find).collect::<Result<_, _>>().map(Self::Named)
            }
        }
    }
}

impl Selection {
    /// The selected targets.
    pub fn targets(&self) -> Vec<&'static Target> {
        match self {
            Self::Machine => machine::targets(),
            Self::Release => TARGETS.iter().filter(|target| target.in_release).collect(),
            Self::All => TARGETS.iter().collect(),
            Self::None => Vec::new(),
            Self::Named(targets) => targets.clone(),
        }
    }
}

fn find(name: &str) -> Result<&'static Target, Error> {
    let target = TARGETS.iter().find(|target| target.name == name);
    target.ok_or_else(|| Error::UnknownTarget { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        let selection: Selection = text.parse().unwrap();
        selection.targets().iter().map(|target| target.name).collect()
    }

    #[test]
    fn words_select_targets() {
        // Without gfx9, which is built on request only.
        let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        let is_released = |name: &&str| !name.starts_with("gfx9");
        assert_eq!(names("release"), all.into_iter().filter(is_released).collect::<Vec<_>>());
        assert_eq!(names("all").len(), TARGETS.len());
        assert_eq!(names("none"), [""; 0]);
        assert_eq!("".parse::<Selection>().unwrap(), Selection::Machine);
        assert_eq!(names("machine"), names(""));
    }

    #[test]
    fn lists_keep_their_order_and_ignore_spaces_and_empty_items() {
        assert_eq!(names(" sm_80 , gfx1030,, "), ["sm_80", "gfx1030"]);
    }

    #[test]
    fn unknown_names_are_reported_with_the_known_ones() {
        let error = "gfx1100,gfx803".parse::<Selection>().unwrap_err().to_string();
        assert!(error.starts_with("unknown kernel target \"gfx803\""), "{error}");
        assert!(error.contains("gfx9-generic, gfx90a, "), "{error}");
        // Keywords cannot be part of a list.
        assert!("all,gfx1100".parse::<Selection>().is_err());
    }
}
