//! The cases of the conformance table by op and format.

use rf_graph::conformance::{self, Case};
use rf_graph::{DType, KvType};

/// Cases of one op with one format.
pub(super) struct Group {
    pub(super) op: String,
    /// A format of weights or of the cache; `mixed`; or empty.
    pub(super) format: String,
    cases: Vec<Case>,
}

impl Group {
    /// Some of the cases, spread over all.
    pub(super) fn cases(&self, most: usize) -> Vec<&Case> {
        let count = self.cases.len().min(most);
        // The first, the last, and what is between in equal distances.
        let last = self.cases.len() - 1;
        let at = |i: usize| if count < 2 { 0 } else { i * last / (count - 1) };
        (0..count).map(|i| &self.cases[at(i)]).collect()
    }
}

/// Groups whose names (`matmul Q4_K`) contain a text, in the order of their first cases.
pub(super) fn groups(filter: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let filter = filter.to_lowercase();
    for case in conformance::cases() {
        let (op, format) = place(case.name());
        if !format!("{op} {format}").to_lowercase().contains(&filter) {
            continue;
        }
        match groups.iter_mut().find(|group| group.op == op && group.format == format) {
            Some(group) => group.cases.push(case),
            None => groups.push(Group { op, format, cases: vec![case] }),
        }
    }
    groups
}

/// Op and format of a case by its name: `matmul/Q4_K/37x768`, `attention/softcap/q8_0`.
fn place(name: &str) -> (String, String) {
    let mut words = name.split('/');
    let op = words.next().unwrap_or(name);
    let format = words.find_map(|word| {
        let is_format = DType::ALL.into_iter().any(|dtype| dtype.name() == word)
            || KvType::ALL.into_iter().any(|kv| kv.name() == word);
        let is_mix = op == "matmul" && word.contains('+') && !word.contains("residual");
        if is_format { Some(word) } else { is_mix.then_some("mixed") }
    });
    // Page sizes and groups of heads are cases of an f16 cache.
    let default = if op == "attention" { KvType::F16.name() } else { "" };
    (op.to_owned(), format.unwrap_or(default).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_grouped_by_op_and_format() {
        let expect = |name, op: &str, format: &str| {
            assert_eq!(place(name), (op.to_owned(), format.to_owned()), "{name}");
        };
        expect("matmul/Q4_K/37x768", "matmul", "Q4_K");
        expect("matmul/Q4_K/bias+residual", "matmul", "Q4_K");
        expect("matmul/Q4_K+Q6_K/projection-0", "matmul", "mixed");
        expect("attention/window-5/q8_0", "attention", "q8_0");
        expect("attention/long/window-100/fp8", "attention", "fp8");
        expect("attention/gqa-4/page-32", "attention", "f16");
        expect("add/itself", "add", "");
    }

    #[test]
    fn every_case_is_in_a_group_and_every_format_has_one() {
        let all = groups("");
        let cases: usize = all.iter().map(|group| group.cases.len()).sum();
        assert_eq!(cases, conformance::cases().len());
        for dtype in DType::ALL {
            assert!(all.iter().any(|group| group.op == "matmul" && group.format == dtype.name()));
        }
        for kv in KvType::ALL {
            assert!(all.iter().any(|group| group.op == "attention" && group.format == kv.name()));
        }
        assert!(all.len() < 100, "{}", all.len());
    }

    #[test]
    fn a_quick_choice_has_the_first_and_the_last() {
        let group = groups("attention f16").pop().unwrap();
        let names = |most| group.cases(most).iter().map(|case| case.name()).collect::<Vec<_>>();
        let (all, some) = (names(usize::MAX), names(3));
        assert_eq!(some.len(), 3);
        assert_eq!((some.first(), some.last()), (all.first(), all.last()));
        assert_eq!(names(1), all[..1]);
    }
}
