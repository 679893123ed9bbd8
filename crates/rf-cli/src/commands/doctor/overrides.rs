//! `HSA_OVERRIDE_GFX_VERSION`: makes ROCm treat a card as another one of its family.

use super::check::Check;

/// The facts that decide whether an override is right.
pub(super) struct Situation<'a> {
    /// Value of the variable.
    pub(super) value: Option<&'a str>,
    /// Real architectures of the cards.
    pub(super) cards: &'a [String],
    /// Version of HIP, if it is known.
    pub(super) hip: Option<(u32, u32)>,
    /// True if libhiprtc compiles code that HIP does not load.
    pub(super) has_compiler: bool,
    /// Looks up the code object for an architecture.
    pub(super) code_for: &'a dyn Fn(&str) -> Code,
}

/// Code for an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// Code for exactly this architecture, also compiled on this machine.
    Own,
    /// Code for the family, which HIP 6.4 and newer load.
    Family,
    None,
}

/// The first version of HIP that loads the code of a family.
const FAMILY_CODE_FROM: (u32, u32) = (6, 4);

/// Architectures whose code runs on others: prefix of the others, name, value of the variable. The
/// best is first.
const STAND_INS: [(&str, &str, &str); 6] = [
    ("gfx103", "gfx1030", "10.3.0"),
    ("gfx110", "gfx1100", "11.0.0"),
    ("gfx115", "gfx1151", "11.5.1"),
    ("gfx115", "gfx1100", "11.0.0"),
    ("gfx120", "gfx1201", "12.0.1"),
    ("gfx120", "gfx1200", "12.0.0"),
];

/// Checks the override. There are no findings if the variable is unset and no code is missing.
pub(super) fn check(situation: &Situation<'_>) -> Vec<Check> {
    let Some(value) = situation.value.map(str::trim).filter(|value| !value.is_empty()) else {
        return situation.cards.iter().filter_map(|card| situation.suggest(card)).collect();
    };
    let Some(taken_for) = arch(value) else {
        return vec![Check::fail(
            format!("HSA_OVERRIDE_GFX_VERSION={value} is not a version"),
            "unset it, or give it the form 10.3.0",
        )];
    };
    if situation.cards.is_empty() {
        return vec![Check::ok(format!(
            "HSA_OVERRIDE_GFX_VERSION={value}: ROCm treats every card as {taken_for}"
        ))];
    }
    situation.cards.iter().map(|card| situation.judge(card, value, &taken_for)).collect()
}

impl Situation<'_> {
    /// Suggests an override for a card without code.
    fn suggest(&self, card: &str) -> Option<Check> {
        if self.runs(card) {
            let is_compiled = (self.code_for)(card) == Code::Family && !self.loads_family_code();
            return is_compiled.then(|| {
                let (major, minor) = self.hip.unwrap_or_default();
                Check::ok(format!(
                    "HIP {major}.{minor} does not load the code for the family of {card}: libhiprtc compiles \
                     the kernels on first use, which takes minutes"
                ))
            });
        }
        let set =
            self.stand_in(card).map(|value| format!("export HSA_OVERRIDE_GFX_VERSION={value}"));
        if (self.code_for)(card) == Code::None {
            return Some(Check::warn(format!("this program has no code for {card}"), set?));
        }
        let (major, minor) = self.hip.unwrap_or_default();
        let what = format!(
            "the only code for {card} is that of its family, which HIP {major}.{minor} does not load"
        );
        let newer = "install ROCm 6.4 or newer, or libhiprtc of this one";
        Some(Check::warn(what, set.map_or(newer.to_owned(), |set| format!("{newer}, or {set}"))))
    }

    /// Checks the current value for one card.
    fn judge(&self, card: &str, value: &str, taken_for: &str) -> Check {
        let set = format!(
            "HSA_OVERRIDE_GFX_VERSION={value} makes ROCm treat the {card} as a {taken_for}"
        );
        if card == taken_for {
            return Check::ok(format!("{set}, which is correct"));
        }
        let fits = STAND_INS
            .iter()
            .any(|(others, name, _)| card.starts_with(others) && *name == taken_for);
        if self.runs(card) {
            let cure = format!("unset it: there is code for {card}");
            return if fits { Check::warn(set, cure) } else { Check::fail(set, cure) };
        }
        if fits && self.runs(taken_for) {
            return Check::ok(set);
        }
        let cure = match self.stand_in(card) {
            Some(right) => format!("export HSA_OVERRIDE_GFX_VERSION={right}"),
            None => "unset it: no other architecture replaces this card".to_owned(),
        };
        Check::fail(format!("{set}, but code for that architecture is wrong for the card"), cure)
    }

    /// Returns true if a card runs without an override.
    fn runs(&self, card: &str) -> bool {
        match (self.code_for)(card) {
            Code::Own => true,
            Code::Family => self.has_compiler || self.loads_family_code(),
            Code::None => false,
        }
    }

    fn loads_family_code(&self) -> bool {
        self.hip.is_none_or(|hip| hip >= FAMILY_CODE_FROM)
    }

    /// The override with which a card runs as another architecture.
    fn stand_in(&self, card: &str) -> Option<&'static str> {
        let of_card =
            STAND_INS.iter().filter(|(others, name, _)| card.starts_with(others) && *name != card);
        of_card.filter(|(_, name, _)| self.runs(name)).map(|(.., value)| *value).next()
    }
}

/// Converts `10.3.0` to `gfx1030`.
fn arch(version: &str) -> Option<String> {
    let numbers: Option<Vec<u32>> = version.split('.').map(|number| number.parse().ok()).collect();
    match numbers?.as_slice() {
        &[major, minor, stepping] if minor < 16 && stepping < 16 => {
            Some(format!("gfx{major}{minor:x}{stepping:x}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Level;
    use super::*;

    /// A program with code for gfx1030 and gfx1100 and for the family gfx10-3.
    fn code_for(arch: &str) -> Code {
        match arch {
            "gfx1030" | "gfx1100" => Code::Own,
            _ if arch.starts_with("gfx103") => Code::Family,
            _ => Code::None,
        }
    }

    fn checks(value: Option<&str>, card: &str, hip: (u32, u32)) -> Vec<Check> {
        let cards = [card.to_owned()];
        let (hip, has_compiler) = (Some(hip), false);
        check(&Situation { value, cards: &cards, hip, has_compiler, code_for: &code_for })
    }

    #[test]
    fn nothing_is_said_of_a_card_that_runs() {
        assert_eq!(checks(None, "gfx1100", (5, 7)), []);
        assert_eq!(checks(None, "gfx1031", (6, 4)), []);
        assert_eq!(checks(Some(""), "gfx1031", (7, 0)), []);
    }

    #[test]
    fn the_exact_value_is_named_where_one_helps() {
        let cure = |card, hip| checks(None, card, hip).pop().and_then(|check| check.cure);
        let set = |value| Some(format!("export HSA_OVERRIDE_GFX_VERSION={value}"));
        // HIP 6.3 does not load a family's code.
        let newer = cure("gfx1031", (6, 3)).unwrap();
        assert!(newer.starts_with("install ROCm 6.4"), "{newer}");
        assert!(newer.ends_with("export HSA_OVERRIDE_GFX_VERSION=10.3.0"), "{newer}");
        assert_eq!(cure("gfx1102", (7, 0)), set("11.0.0"));
        assert_eq!(cure("gfx1151", (7, 0)), set("11.0.0"));
        assert_eq!(cure("gfx1201", (7, 0)), None);
        assert_eq!(cure("gfx90a", (7, 0)), None);
    }

    #[test]
    fn code_that_hip_does_not_load_is_compiled_if_that_is_possible() {
        let cards = ["gfx1031".to_owned()];
        let (value, hip) = (None, Some((6, 1)));
        let situation =
            Situation { value, cards: &cards, hip, has_compiler: true, code_for: &code_for };
        let checks = check(&situation);
        assert!(checks[0].level == Level::Ok && checks[0].what.contains("on first use"));
    }

    #[test]
    fn a_value_that_is_set_is_judged() {
        let level = |value, card| checks(Some(value), card, (6, 4))[0].level;
        assert_eq!(level("11.0.0", "gfx1102"), Level::Ok);
        assert_eq!(level("11.0.0", "gfx1100"), Level::Ok);
        assert_eq!(level("10.3.0", "gfx1031"), Level::Warn);
        assert_eq!(level("10.3.0", "gfx1100"), Level::Fail);
        assert_eq!(level("10.3.0", "gfx1102"), Level::Fail);
        assert_eq!(level("gfx1030", "gfx1031"), Level::Fail);
        assert_eq!(level("9.0.10", "gfx90a"), Level::Ok);
    }
}
