//! The matcher of one output as a constraint of the scheduler.

use std::fmt;

use llguidance::Matcher;
use rf_engine::scheduler::{Constraint, ConstraintError, TokenMask};

/// A grammar with the output so far.
pub struct GrammarConstraint {
    matcher: Matcher,
}

impl GrammarConstraint {
    pub(crate) fn new(matcher: Matcher) -> Self {
        Self { matcher }
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
        let mask = self.matcher.compute_mask_or_eos();
        let mask = mask.map_err(|error| ConstraintError(error.to_string()))?;
        Ok(TokenMask::from_words(mask.as_slice().to_vec()))
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        self.matcher.consume_token(id).map_err(|error| ConstraintError(error.to_string()))
    }

    fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    fn fork(&self) -> Box<dyn Constraint> {
        // With caches of its own, so that choices do not wait for each other.
        Box::new(Self { matcher: self.matcher.deep_clone() })
    }

    fn forced(&mut self) -> Vec<u32> {
        self.matcher.compute_ff_tokens()
    }
}
