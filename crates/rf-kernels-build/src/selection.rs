//! The targets of one build.

use std::str::FromStr;

use crate::{
    Error, Target,
    targets::{DefaultIn, TARGETS},
};

/// The targets to build, parsed from `all`, `none`, `default` or names separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The default targets of the build profile.
    Default,
    /// Every target that the compiler supports.
    All,
    /// No target.
    None,
    /// These targets, all of which the compiler must support.
    Named(Vec<&'static Target>),
}

impl FromStr for Selection {
    type Err = Error;

    /// Parses a selection; an empty text means [`Selection::Default`].
    ///
    /// # Errors
    ///
    /// [`Error::UnknownTarget`]
    fn from_str(text: &str) -> Result<Self, Error> {
        match text.trim() {
            "" | "default" => Ok(Self::Default),
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
    /// The selected targets; those of [`Selection::Default`] depend on whether the build is
    /// `optimised`.
    pub fn targets(&self, optimised: bool) -> Vec<&'static Target> {
        let is_default = |target: &&Target| match target.default_in {
            DefaultIn::EveryBuild => true,
            DefaultIn::OptimisedBuilds => optimised,
            DefaultIn::NoBuild => false,
        };
        match self {
            Self::Default => TARGETS.iter().filter(is_default).collect(),
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

    fn names(text: &str, optimised: bool) -> Vec<&'static str> {
        let selection: Selection = text.parse().unwrap();
        selection.targets(optimised).iter().map(|target| target.name).collect()
    }

    #[test]
    fn defaults_depend_on_the_profile() {
        assert_eq!(names("", false), ["gfx1100", "sm_80"]);
        // Without gfx9, which has no target by default.
        let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        let is_default = |name: &&str| !name.starts_with("gfx9");
        assert_eq!(names("default", true), all.into_iter().filter(is_default).collect::<Vec<_>>());
        assert_eq!(names("all", false).len(), TARGETS.len());
        assert_eq!(names("none", true), [""; 0]);
    }

    #[test]
    fn lists_keep_their_order_and_ignore_spaces_and_empty_items() {
        assert_eq!(names(" sm_80 , gfx1030,, ", true), ["sm_80", "gfx1030"]);
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
