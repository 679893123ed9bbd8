//! Rules for the tokens of an answer, besides its structure: tokens that end it, a least length,
//! words that it must not have, the only tokens that it may have, and a budget of reasoning.

use std::collections::VecDeque;
use std::sync::Arc;

use rocmforge::engine::{EncodeOptions, Model, Tokenizer};
use rocmforge::grammar::{Constraint, ConstraintError, TokenMask};
use rocmforge::messages::{OutputFormat, Prompt};

use crate::error::{ApiError, check_count};
use crate::generation_defaults::GenerationDefaults;

/// The fields of a request, with vLLM's names. What each means is said where they are read.
#[derive(Debug, Default)]
pub(crate) struct TokenRuleFields {
    pub(crate) stop_token_ids: Option<Vec<u32>>,
    pub(crate) min_tokens: Option<usize>,
    pub(crate) bad_words: Option<Vec<String>>,
    pub(crate) allowed_token_ids: Option<Vec<u32>>,
    pub(crate) thinking_token_budget: Option<i64>,
}

/// The most entries of each list.
const MAX_ENTRIES: usize = 1024;
/// The longest text that an answer must not have, in bytes.
const MAX_WORD_BYTES: usize = 256;

/// The rules of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenRules {
    lists: Arc<Lists>,
    min_tokens: usize,
    pub(crate) reasoning_budget: Option<usize>,
}

#[derive(Debug, Default)]
struct Lists {
    stop: Vec<u32>,
    /// The tokens of texts that must not appear.
    bad: Vec<Vec<u32>>,
    allowed: Option<TokenMask>,
}

impl TokenRuleFields {
    /// The fields, of which absent ones have these defaults.
    pub(crate) fn or(self, defaults: &GenerationDefaults) -> Self {
        let budget = defaults.thinking_token_budget.and_then(|budget| i64::try_from(budget).ok());
        Self {
            stop_token_ids: self.stop_token_ids.or_else(|| Some(defaults.stop_token_ids.clone())),
            min_tokens: Some(self.min_tokens.unwrap_or(defaults.min_tokens)),
            bad_words: self.bad_words.or_else(|| Some(defaults.bad_words.clone())),
            allowed_token_ids: self.allowed_token_ids,
            thinking_token_budget: self.thinking_token_budget.or(budget),
        }
    }

    /// Checks the lengths of the lists and of the texts.
    pub(crate) fn check_lists(&self) -> Result<(), ApiError> {
        let count = self.stop_token_ids.as_ref().map_or(0, Vec::len);
        check_count("stop_token_ids", count, MAX_ENTRIES)?;
        let words = self.bad_words.as_deref().unwrap_or_default();
        check_count("bad_words", words.len(), MAX_ENTRIES)?;
        match words.iter().position(|word| !(1..=MAX_WORD_BYTES).contains(&word.len())) {
            Some(index) => {
                let message = format!("expected 1 to {MAX_WORD_BYTES} bytes");
                Err(ApiError::field(format!("bad_words[{index}]"), message))
            }
            None => Ok(()),
        }
    }

    /// Checks the rules for a model.
    pub(crate) fn rules(self, model: &Model) -> Result<TokenRules, ApiError> {
        self.check_lists()?;
        let tokenizer = model.tokenizer();
        let ids = |name: &'static str, ids: Option<Vec<u32>>| {
            let ids = ids.unwrap_or_default();
            let vocab_size = tokenizer.vocab_size();
            match ids.iter().find(|id| **id >= vocab_size) {
                Some(id) => {
                    let message = format!("token {id} is not in the vocabulary of {vocab_size}");
                    Err(ApiError::field(name, message))
                }
                None => Ok(ids),
            }
        };
        let stop = ids("stop_token_ids", self.stop_token_ids)?;
        let words = self.bad_words.unwrap_or_default();
        let bad = words.iter().flat_map(|word| tokens_of_word(tokenizer, word)).collect();
        let allowed = match self.allowed_token_ids {
            None => None,
            Some(list) if list.is_empty() => {
                return Err(ApiError::field("allowed_token_ids", "the list is empty"));
            }
            Some(list) => Some(mask_of(tokenizer, &ids("allowed_token_ids", Some(list))?)),
        };
        Ok(TokenRules {
            lists: Arc::new(Lists { stop, bad, allowed }),
            min_tokens: self.min_tokens.unwrap_or(0),
            // A negative budget is none, as in llama.cpp.
            reasoning_budget: self.thinking_token_budget.and_then(|n| usize::try_from(n).ok()),
        })
    }
}

/// A word at the beginning of a text and after a space.
fn tokens_of_word(tokenizer: &Tokenizer, word: &str) -> Vec<Vec<u32>> {
    let mut found = vec![tokenizer.encode(word, EncodeOptions::PLAIN)];
    if !word.starts_with(' ') {
        found.push(tokenizer.encode(&format!(" {word}"), EncodeOptions::PLAIN));
    }
    found.retain(|ids| !ids.is_empty());
    found.dedup();
    found
}

fn mask_of(tokenizer: &Tokenizer, ids: &[u32]) -> TokenMask {
    let mut mask = TokenMask::new(tokenizer.vocab_size() as usize);
    for id in ids {
        mask.allow(*id);
    }
    mask
}

impl TokenRules {
    /// The constraint of an answer with these rules and a structure, if there are any.
    pub(crate) fn constraint(
        &self,
        model: &Model,
        chat: Option<&Prompt>,
        structure: Option<Box<dyn Constraint>>,
    ) -> Option<Box<dyn Constraint>> {
        let reasoning = self.reasoning_budget.zip(chat);
        let reasoning =
            reasoning.map(|(budget, chat)| Reasoning::new(budget, chat, model.tokenizer()));
        let Lists { stop, bad, allowed } = &*self.lists;
        let has_lists = !stop.is_empty() || !bad.is_empty() || allowed.is_some();
        if !has_lists && self.min_tokens == 0 && reasoning.is_none() {
            return structure;
        }
        Some(Box::new(RuledAnswer {
            rules: self.clone(),
            tokenizer: Arc::clone(model.tokenizer()),
            structure,
            reasoning,
            generated: 0,
            recent: VecDeque::new(),
            is_stopped: false,
        }))
    }
}

/// An answer so far.
struct RuledAnswer {
    rules: TokenRules,
    tokenizer: Arc<Tokenizer>,
    structure: Option<Box<dyn Constraint>>,
    reasoning: Option<Reasoning>,
    generated: usize,
    /// The latest tokens, as many as a text that must not appear has before its last one.
    recent: VecDeque<u32>,
    is_stopped: bool,
}

impl RuledAnswer {
    /// The tokens that would complete a text that must not appear.
    fn completes_bad(&self) -> impl Iterator<Item = u32> {
        self.rules.lists.bad.iter().filter_map(|ids| {
            let (last, before) = ids.split_last()?;
            let recent = self.recent.iter().rev();
            let is_next = before.len() <= self.recent.len()
                && before.iter().rev().zip(recent).all(|(bad, found)| bad == found);
            is_next.then_some(*last)
        })
    }
}

impl Constraint for RuledAnswer {
    fn allowed(&mut self) -> Result<TokenMask, ConstraintError> {
        if let Some(next) = self.reasoning.as_ref().and_then(|reasoning| reasoning.closing.front())
        {
            return Ok(mask_of(&self.tokenizer, &[*next]));
        }
        let vocab_words = (self.tokenizer.vocab_size() as usize).div_ceil(32);
        let mut words = match &mut self.structure {
            Some(structure) => structure.allowed()?.words().to_vec(),
            None => vec![u32::MAX; vocab_words],
        };
        if let Some(allowed) = &self.rules.lists.allowed {
            words.truncate(allowed.words().len());
            words.iter_mut().zip(allowed.words()).for_each(|(word, allowed)| *word &= allowed);
        }
        let mut forbid = |id: u32| {
            if let Some(word) = words.get_mut(id as usize / 32) {
                *word &= !(1 << (id % 32));
            }
        };
        self.completes_bad().for_each(&mut forbid);
        if self.generated < self.rules.min_tokens {
            self.tokenizer.eog_ids().iter().copied().for_each(&mut forbid);
            self.rules.lists.stop.iter().copied().for_each(&mut forbid);
        }
        Ok(TokenMask::from_words(words))
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        if let Some(structure) = &mut self.structure {
            structure.accept(id)?;
        }
        self.generated += 1;
        self.recent.push_back(id);
        let kept = self.rules.lists.bad.iter().map(Vec::len).max().unwrap_or(0);
        while self.recent.len() > kept {
            self.recent.pop_front();
        }
        if let Some(reasoning) = &mut self.reasoning {
            reasoning.accept(id, &self.tokenizer);
        }
        self.is_stopped |= self.rules.lists.stop.contains(&id);
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.is_stopped || self.structure.as_ref().is_some_and(|structure| structure.is_finished())
    }

    fn gave_up(&self) -> bool {
        self.structure.as_ref().is_some_and(|structure| structure.gave_up())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            rules: self.rules.clone(),
            tokenizer: Arc::clone(&self.tokenizer),
            structure: self.structure.as_ref().map(|structure| structure.fork()),
            reasoning: self.reasoning.clone(),
            generated: self.generated,
            recent: self.recent.clone(),
            is_stopped: self.is_stopped,
        })
    }

    fn forced(&mut self) -> Vec<u32> {
        match &self.reasoning {
            Some(reasoning) if !reasoning.closing.is_empty() => {
                reasoning.closing.iter().copied().collect()
            }
            _ => self.structure.as_mut().map_or_else(Vec::new, |structure| structure.forced()),
        }
    }
}

/// Ends reasoning when its budget is used up.
#[derive(Clone, Debug)]
struct Reasoning {
    budget: usize,
    format: OutputFormat,
    /// Tokens so far, if the answer is within reasoning.
    tokens: Option<usize>,
    /// The end of the text so far, as long as a marker.
    tail: Vec<u8>,
    /// The tokens that come next, to end the reasoning.
    closing: VecDeque<u32>,
}

impl Reasoning {
    fn new(budget: usize, prompt: &Prompt, tokenizer: &Tokenizer) -> Self {
        let mut reasoning = Self {
            budget,
            format: prompt.format,
            tokens: prompt.in_reasoning.then_some(0),
            tail: Vec::new(),
            closing: VecDeque::new(),
        };
        reasoning.close_if_over(tokenizer);
        reasoning
    }

    fn accept(&mut self, id: u32, tokenizer: &Tokenizer) {
        // The marker that ends the reasoning is in the closing itself.
        self.closing.pop_front();
        self.tail.extend(tokenizer.piece(id).unwrap_or_default());
        let (open, close) = self.format.reasoning.markers();
        if let Some(tokens) = &mut self.tokens {
            *tokens += 1;
            if contains(&self.tail, close) {
                self.tokens = None;
                self.tail.clear();
                return;
            }
        } else if contains(&self.tail, open) {
            self.tokens = Some(0);
            self.tail.clear();
        }
        let kept = self.tail.len().saturating_sub(open.len().max(close.len()));
        self.tail.drain(..kept);
        self.close_if_over(tokenizer);
    }

    fn close_if_over(&mut self, tokenizer: &Tokenizer) {
        if self.closing.is_empty() && self.tokens.is_some_and(|tokens| tokens >= self.budget) {
            let reasoning = self.format.reasoning;
            let text = format!("{}{}", reasoning.markers().1, reasoning.after());
            let options = EncodeOptions::PLAIN.with_parse_special(true);
            self.closing = tokenizer.encode(&text, options).into();
        }
    }
}

fn contains(text: &[u8], marker: &str) -> bool {
    text.windows(marker.len()).any(|window| window == marker.as_bytes())
}
