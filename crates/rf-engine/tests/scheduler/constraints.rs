//! Constraints: masks, forced tokens, and their failures.

use std::collections::BTreeSet;

use rf_engine::StopReason;
use rf_engine::scheduler::{Constraint, ConstraintError, RequestError, TokenMask};

use crate::support::{
    Answer, ENGINE, SCHEDULER, VOCAB_SIZE, alone, ask, end, engine, greedy, prompt, sampled, start,
    submit, tiny,
};

/// The call in which a [`Phrases`] panics or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    PanicInAllowed,
    PanicInAccept,
    PanicInForced,
    ErrorInAllowed,
    ErrorInAccept,
    NothingAllowed,
    ForcesUnknownToken,
    GivesUpInAllowed,
    GivesUpInAccept,
}

/// Allows one of several outputs.
#[derive(Clone, Debug)]
pub(crate) struct Phrases {
    choices: Vec<Vec<u32>>,
    output: Vec<u32>,
    forces: bool,
    fault: Fault,
}

impl Phrases {
    pub(crate) fn boxed(phrases: &[Vec<u32>], forces: bool, fault: Fault) -> Box<dyn Constraint> {
        Box::new(Self { choices: phrases.to_vec(), output: Vec::new(), forces, fault })
    }

    fn next(&self) -> BTreeSet<u32> {
        let at = self.output.len();
        let matching = self.choices.iter().filter(|phrase| phrase.starts_with(&self.output));
        matching.filter_map(|phrase| phrase.get(at).copied()).collect()
    }

    /// Returns true if this call must fail.
    fn fails(&self, fault: Fault) -> bool {
        self.fault == fault && self.output.len() == 2
    }
}

impl Constraint for Phrases {
    fn allowed(&mut self) -> Result<TokenMask, ConstraintError> {
        assert!(!self.fails(Fault::PanicInAllowed), "a bug in allowed");
        if self.fails(Fault::ErrorInAllowed) || self.fails(Fault::GivesUpInAllowed) {
            return Err(ConstraintError("no mask".into()));
        }
        let mut mask = TokenMask::new(VOCAB_SIZE);
        if !self.fails(Fault::NothingAllowed) {
            self.next().into_iter().for_each(|id| mask.allow(id));
        }
        Ok(mask)
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        assert!(!self.fails(Fault::PanicInAccept), "a bug in accept");
        let fails = self.fails(Fault::ErrorInAccept) || self.fails(Fault::GivesUpInAccept);
        if fails || !self.next().contains(&id) {
            return Err(ConstraintError(format!("{id} is not allowed")));
        }
        self.output.push(id);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.next().is_empty()
    }

    fn gave_up(&self) -> bool {
        matches!(self.fault, Fault::GivesUpInAllowed | Fault::GivesUpInAccept)
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }

    fn forced(&mut self) -> Vec<u32> {
        assert!(!self.fails(Fault::PanicInForced), "a bug in forced");
        if self.fails(Fault::ForcesUnknownToken) {
            return vec![u32::MAX];
        }
        let mut ahead = self.clone();
        let mut forced = Vec::new();
        while self.forces && ahead.next().len() == 1 {
            let id = ahead.next().into_iter().next().unwrap();
            ahead.output.push(id);
            forced.push(id);
        }
        forced
    }
}

/// Four outputs of 12 tokens that begin alike in pairs.
pub(crate) fn phrases() -> Vec<Vec<u32>> {
    (0..4).map(|i: u32| [prompt(i / 2, 5), vec![250 + i], prompt(i + 10, 6)].concat()).collect()
}

#[test]
fn the_output_is_one_that_is_allowed_with_and_without_forced_tokens() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let mut seen = BTreeSet::new();
    for seed in 0..12 {
        let ask = |forces| {
            let (steps, ids) = (handle.stats().steps, prompt(1, 20));
            let (_, events) = submit(&handle, &ids, &sampled(seed, 100), |request| {
                request.constraint = Some(Phrases::boxed(&phrases(), forces, Fault::None));
            });
            (events.answer(), handle.stats().steps - steps)
        };
        let (answer, steps) = ask(true);
        assert!(phrases().contains(&answer.ids), "{:?}", answer.ids);
        assert_eq!(answer.end, Some(StopReason::Constraint));
        // Sampled are the first token, where the pairs part, and where the outputs do.
        assert_eq!(steps, 2);
        assert_eq!(ask(false).1, 12);
        seen.insert(answer.ids);
    }
    assert!(seen.len() > 1, "there was a choice");
    end(scheduler);
}

#[test]
fn choices_and_other_requests_have_constraints_of_their_own() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(1, 20);
    let (_, free) = submit(&handle, &ids, &greedy(20), |_| ());
    let (_, constrained) = submit(&handle, &ids, &sampled(4, 100), |request| {
        request.num_choices = 8;
        request.logprobs = Some(1);
        request.constraint = Some(Phrases::boxed(&phrases(), true, Fault::None));
    });
    let answers = constrained.answers().unwrap();
    // With log probabilities every token is sampled.
    assert!(answers.iter().all(|answer| answer.logprobs.len() == 12));
    assert!(answers.iter().all(|answer| phrases().contains(&answer.ids)));
    let distinct: BTreeSet<&Vec<u32>> = answers.iter().map(|answer| &answer.ids).collect();
    assert!(distinct.len() > 1);
    assert_eq!(free.answer().ids, alone(&mut engine(&tiny(), ENGINE), &ids, &greedy(20)).ids);
    assert_eq!(end(scheduler).finished.constraint, 8);
}

#[test]
fn complete_output_ends_as_such_with_its_last_token_and_is_cut_before() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    for forces in [false, true] {
        let ask = |max_tokens| -> Answer {
            let (_, events) = submit(&handle, &[1], &greedy(max_tokens), |request| {
                request.constraint = Some(Phrases::boxed(&phrases(), forces, Fault::None));
            });
            events.answer()
        };
        assert_eq!(ask(12).end, Some(StopReason::Constraint));
        let cut = ask(9);
        assert_eq!((cut.ids.len(), cut.end), (9, Some(StopReason::Length)));
    }
    end(scheduler);
}

#[test]
fn a_fault_of_a_constraint_fails_only_its_request() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    let ids = prompt(3, 40);
    let expected = ask(&handle, &ids, &greedy(30)).ids;
    let faults = [
        Fault::PanicInAllowed,
        Fault::PanicInAccept,
        Fault::PanicInForced,
        Fault::ErrorInAllowed,
        Fault::ErrorInAccept,
        Fault::NothingAllowed,
        Fault::ForcesUnknownToken,
    ];
    let (_, other) = submit(&handle, &ids, &greedy(30), |_| ());
    for fault in faults {
        let (_, events) = submit(&handle, &ids, &greedy(100), |request| {
            request.num_choices = 3;
            request.constraint = Some(Phrases::boxed(&phrases(), false, fault));
        });
        let error = events.answers().unwrap_err();
        match fault {
            Fault::PanicInAllowed | Fault::PanicInAccept | Fault::PanicInForced => {
                assert!(matches!(&error, RequestError::Panicked(m) if m.starts_with("a bug in")));
            }
            Fault::NothingAllowed => assert!(matches!(error, RequestError::Sampling(_))),
            _ => assert!(matches!(error, RequestError::Constraint(_)), "{error}"),
        }
    }
    assert_eq!(other.answer().ids, expected);
    assert_eq!(ask(&handle, &ids, &greedy(30)).ids, expected);
    assert_eq!(end(scheduler).finished.failed, 7 * 3);
}

#[test]
fn a_constraint_that_gives_up_ends_its_choice_with_the_text_so_far() {
    let scheduler = start(ENGINE, SCHEDULER);
    let handle = scheduler.handle();
    for (fault, tokens) in [(Fault::GivesUpInAllowed, 2), (Fault::GivesUpInAccept, 3)] {
        let (_, events) = submit(&handle, &prompt(3, 40), &greedy(100), |request| {
            request.num_choices = 2;
            request.constraint = Some(Phrases::boxed(&phrases(), false, fault));
        });
        for answer in events.answers().unwrap() {
            assert_eq!(answer.end, Some(StopReason::ConstraintLimit), "{fault:?}");
            assert_eq!(answer.ids.len(), tokens, "{fault:?}");
        }
    }
    assert_eq!(end(scheduler).finished.constraint_limit, 4);
}
