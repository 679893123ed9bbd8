//! The matcher of one output as a constraint of the scheduler.

use std::fmt;

use llguidance::Matcher;
use rf_engine::scheduler::{Constraint, ConstraintError, TokenMask};

use crate::budget::Budget;

/// A grammar with the output so far.
pub struct GrammarConstraint {
    matcher: Matcher,
    budget: Budget,
    gave_up: bool,
}

impl GrammarConstraint {
    pub(crate) fn new(matcher: Matcher) -> Self {
        let matcher = matcher.into_cancellable();
        let budget = Budget::new(matcher.cancellation_handle().unwrap_or_default());
        Self { matcher, budget, gave_up: false }
    }

    fn error(&self, error: &dyn fmt::Display) -> ConstraintError {
        if self.matcher.is_cancelled() {
            return ConstraintError(
                "the grammar is too ambiguous: the tokens that may follow take too long to find"
                    .to_owned(),
            );
        }
        // The lines after the first one are about the matcher.
        let error = error.to_string();
        if error.contains("NoExtensionBias") {
            return ConstraintError(
                "no token may follow: a rule of the grammar contradicts itself, or refers to itself \
                 without an end"
                    .to_owned(),
            );
        }
        ConstraintError(error.lines().next().unwrap_or_default().to_owned())
    }
}

impl fmt::Debug for GrammarConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarConstraint")
            .field("stop_reason", &self.matcher.stop_reason())
            .finish_non_exhaustive()
    }
}

impl Constraint for GrammarConstraint {
    fn allowed(&mut self) -> Result<TokenMask, ConstraintError> {
        self.budget.add_token();
        match self.budget.run(|| self.matcher.compute_mask_or_eos()) {
            Ok(mask) => Ok(TokenMask::from_words(mask.as_slice().to_vec())),
            Err(error) => {
                // It fails at a limit only: the output so far fits the grammar.
                self.gave_up = true;
                Err(self.error(&error))
            }
        }
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let accepted = self.budget.run(|| self.matcher.consume_token(id));
        accepted.map_err(|error| {
            let message = error.to_string();
            self.gave_up =
                self.matcher.is_cancelled() || LIMITS.iter().any(|limit| message.contains(limit));
            if self.gave_up {
                return self.error(&message);
            }
            // The message has the text of the token, which must not get into a log.
            ConstraintError(format!("the token {id} does not fit the grammar"))
        })
    }

    fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    fn gave_up(&self) -> bool {
        self.gave_up
    }

    fn fork(&self) -> Box<dyn Constraint> {
        // Each choice has its caches, so that choices do not wait for each other. They share the
        // time of the request, so that it does not grow with their number.
        let matcher = self.matcher.deep_clone().into_cancellable();
        let budget = self.budget.fork(matcher.cancellation_handle().unwrap_or_default());
        Box::new(Self { matcher, budget, gave_up: false })
    }

    fn forced(&mut self) -> Vec<u32> {
        self.budget.run(|| self.matcher.compute_ff_tokens())
    }
}

/// Parts of the messages of errors at the limits of the matcher.
const LIMITS: [&str; 3] = ["Current row has", "Too many items", "fuel"];
