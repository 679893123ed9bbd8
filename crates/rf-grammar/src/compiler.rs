//! The vocabulary of a model, and grammars compiled for it.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use rf_chat::Prompt;
use rf_tokenizer::{EncodeOptions, Tokenizer};
use serde_json::Value;

use crate::check::{check, check_tools};
use crate::constraint::GrammarConstraint;
use crate::schema::{Purpose, prepared};
use crate::stack::with_large_stack;
use crate::{Error, Grammar, answer, schema};

/// Compiles grammars for a model. Build it once per model and share it: it holds the vocabulary as
/// a tree.
///
/// What is compiled is within the [limits](crate::limits). The matcher recurses over grammars, so
/// each compilation runs on a new thread with a large stack, and the caller waits for it.
pub struct GrammarCompiler {
    factory: ParserFactory,
    tokenizer: Arc<Tokenizer>,
}

/// The most items of a parser per token. Unambiguous grammars have some hundred. 20,000 take 20 ms
/// to 100 ms, as long as a row has few of them.
const STEP_MAX_ITEMS: usize = 20_000;
/// The most work of a lexer per token, of which a millisecond does 14,000.
const STEP_LEXER_FUEL: u64 = 200_000;
/// The most work for the lexer of a grammar before its first token. It counts nodes of expressions,
/// which take longer the wider they are.
const INITIAL_LEXER_FUEL: u64 = 200_000;
/// The most symbols of a parser.
const MAX_SYMBOLS: usize = 100_000;
/// Parts of the messages of errors at these limits.
const MATCHER_LIMITS: [&str; 4] = [
    "grammar size (number of symbols) too big",
    "initial lexer configuration (grammar) too big",
    "lexer precomputation failed",
    "fuel exhausted when checking relevance",
];
/// The bytes of texts in UTF-8.
const UTF8_BYTES: [RangeInclusive<u8>; 2] = [0..=0xbf, 0xc2..=0xf4];

impl fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GrammarCompiler").finish_non_exhaustive()
    }
}

impl GrammarCompiler {
    /// Indexes the vocabulary.
    ///
    /// # Errors
    ///
    /// If the vocabulary does not fit the matcher.
    pub fn new(tokenizer: &Arc<Tokenizer>) -> Result<Self, Error> {
        let vocabulary = Vocabulary::new(Arc::clone(tokenizer))?;
        let env: TokEnv = Arc::new(vocabulary);
        let mut factory = ParserFactory::new_simple(&env)
            .map_err(|error| Error::Vocabulary(error.to_string()))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.step_max_items = STEP_MAX_ITEMS;
        limits.step_lexer_fuel = STEP_LEXER_FUEL;
        limits.initial_lexer_fuel = INITIAL_LEXER_FUEL;
        limits.max_grammar_size = MAX_SYMBOLS;
        Ok(Self { factory, tokenizer: Arc::clone(tokenizer) })
    }

    /// A constraint at the start of an output.
    ///
    /// # Errors
    ///
    /// If the grammar is malformed, contradictory, or too large. The error names the place.
    pub fn compile(&self, grammar: &Grammar) -> Result<GrammarConstraint, Error> {
        check(grammar)?;
        with_large_stack(|| self.constraint(grammar, grammar.top_level()?))?
    }

    /// A constraint for the answer to a prompt whose content must fit `grammar`. The model may
    /// reason first, where its template does.
    ///
    /// # Errors
    ///
    /// The errors of [`compile`](Self::compile).
    pub fn compile_answer(
        &self,
        prompt: &Prompt,
        grammar: &Grammar,
    ) -> Result<GrammarConstraint, Error> {
        check(grammar)?;
        with_large_stack(|| {
            let top_level = match answer::content(prompt, &self.tokenizer, grammar)? {
                Some(lark) => TopLevelGrammar::from_lark(lark),
                None => grammar.top_level()?,
            };
            self.constraint(grammar, top_level)
        })?
    }

    /// A constraint for the answer to a prompt that demands a call
    /// ([`ToolChoice::Required`](rf_chat::ToolChoice::Required) or
    /// [`ToolChoice::Named`](rf_chat::ToolChoice::Named)); `None` if it demands none. The call has
    /// the model's own form. With `parallel`, further calls may follow a required one, where that
    /// form allows them.
    ///
    /// # Errors
    ///
    /// If the parameters of a tool are not supported.
    pub fn compile_calls(
        &self,
        prompt: &Prompt,
        parallel: bool,
    ) -> Result<Option<GrammarConstraint>, Error> {
        let tools = answer::demanded(prompt);
        if tools.is_empty() {
            return Ok(None);
        }
        check_tools(tools.iter().map(|tool| &tool.parameters))?;
        let compiled = with_large_stack(|| {
            let lark = answer::calls(prompt, &tools, &self.tokenizer, parallel)?;
            let compiled =
                self.constraint(&Grammar::Lark(String::new()), TopLevelGrammar::from_lark(lark));
            // An error of the parameters is more useful than one of the rules made of them.
            let Err(error) = compiled else { return compiled };
            for tool in &tools {
                if let Some(problem) = self.problem(&tool.parameters, Purpose::Arguments) {
                    let source = self.schema_error(&tool.parameters, Purpose::Arguments, problem);
                    return Err(Error::Tool { name: tool.name.clone(), source: Box::new(source) });
                }
            }
            Err(error)
        });
        compiled?.map(Some)
    }

    /// A constraint for the answer to `prompt`, or for a text without one; `None` if the answer may
    /// be anything. A call that the prompt demands ([`compile_calls`](Self::compile_calls)) comes
    /// before `grammar`, which is that of the answer after the call.
    ///
    /// # Errors
    ///
    /// The errors of [`compile_calls`](Self::compile_calls) if the prompt demands a call, and else
    /// of [`compile`](Self::compile).
    pub fn compile_output(
        &self,
        prompt: Option<&Prompt>,
        grammar: Option<&Grammar>,
        parallel: bool,
    ) -> Result<Option<GrammarConstraint>, Error> {
        let calls = prompt.map_or(Ok(None), |prompt| self.compile_calls(prompt, parallel))?;
        match (calls, grammar, prompt) {
            (Some(calls), ..) => Ok(Some(calls)),
            (None, None, _) => Ok(None),
            (None, Some(grammar), Some(prompt)) => self.compile_answer(prompt, grammar).map(Some),
            (None, Some(grammar), None) => self.compile(grammar).map(Some),
        }
    }

    fn constraint(
        &self,
        grammar: &Grammar,
        top_level: TopLevelGrammar,
    ) -> Result<GrammarConstraint, Error> {
        let mut matcher = Matcher::new(self.factory.create_parser(top_level));
        match matcher.get_error() {
            None => {
                // The `oneOf` of an answer is checked, so its warning is void.
                if !matches!(grammar, Grammar::JsonSchema(_)) {
                    matcher.grammar_warnings().iter().for_each(|text| schema::name_warning(text));
                }
                Ok(GrammarConstraint::new(matcher))
            }
            Some(problem) => Err(self.error(grammar, first_lines(&problem))),
        }
    }

    fn error(&self, grammar: &Grammar, problem: String) -> Error {
        match grammar {
            Grammar::JsonSchema(schema) => self.schema_error(schema, Purpose::Answer, problem),
            Grammar::JsonObject => Error::Schema { pointer: "#".to_owned(), problem },
            Grammar::Regex(_) => Error::Regex(problem),
            Grammar::Choice(_) | Grammar::Lark(_) | Grammar::Gbnf(_) => Error::Lark(problem),
        }
    }

    fn schema_error(&self, schema: &Value, purpose: Purpose, problem: String) -> Error {
        let (pointer, problem) = schema::locate(schema, problem, |s| self.problem(s, purpose));
        Error::Schema { pointer, problem }
    }

    /// Why a schema does not compile.
    fn problem(&self, schema: &Value, purpose: Purpose) -> Option<String> {
        let grammar = TopLevelGrammar::from_json_schema(prepared(schema, purpose));
        let problem = Matcher::new(self.factory.create_parser(grammar)).get_error()?;
        Some(first_lines(&problem))
    }
}

/// The message of an error, on one line and without its context.
fn first_lines(problem: &str) -> String {
    // Its tables have 16-bit indices, which it asserts. Its errors at the limits name their fields.
    if problem.starts_with("panic:") || MATCHER_LIMITS.iter().any(|text| problem.contains(text)) {
        return "it is too large for the matcher".to_owned();
    }
    let problem = problem.replace("<non-verbose/>", "");
    let problem = problem.replace("Unimplemented keys:", "keywords that are not supported:");
    let lines: Vec<_> = problem.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ").chars().take(500).collect()
}

/// A tokenizer for llguidance.
struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
    /// True if encoding a part of a text gives the ids of that part within the text.
    is_canonical: bool,
}

impl Vocabulary {
    fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, Error> {
        let vocab_size = tokenizer.vocab_size();
        let mut words = Vec::with_capacity(vocab_size as usize + 1);
        for id in 0..vocab_size {
            let piece =
                tokenizer.piece(id).map_err(|error| Error::Vocabulary(error.to_string()))?;
            // Only a grammar that names a control token allows it: a text never contains one.
            let is_special = tokenizer.is_control(id) || tokenizer.is_eog(id);
            words.push(if is_special { special(&piece) } else { piece });
        }
        let mut ends = tokenizer.eog_ids().to_vec();
        if ends.is_empty() {
            // The matcher needs one. No model generates this.
            ends.push(vocab_size);
            words.push(special(b"<end of generation>"));
        }
        let info = TokRxInfo::new(words.len() as u32, ends[0]);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        // SPM adds a space in front of each text.
        let plain = tokenizer.encode("a", EncodeOptions::PLAIN);
        let plain: Option<Vec<u8>> = plain
            .iter()
            .map(|id| tokenizer.piece(*id).ok())
            .collect::<Option<Vec<_>>>()
            .map(|p| p.concat());
        // Encoding leaves out a byte without a token, so a forced text would lack it.
        let has_bytes =
            UTF8_BYTES.into_iter().flatten().all(|byte| trie.token_id_at_bytes(&[byte]).is_some());
        let is_canonical = has_bytes && plain.as_deref() == Some(b"a");
        Ok(Self { tokenizer, trie, is_canonical })
    }
}

/// A word that no text contains.
fn special(name: &[u8]) -> Vec<u8> {
    let mut word = vec![TokTrie::SPECIAL_TOKEN_MARKER];
    word.extend_from_slice(name);
    word
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        if self.is_canonical {
            self.tokenizer.encode_bytes(text, EncodeOptions::PLAIN)
        } else {
            self.trie.greedy_tokenize(text)
        }
    }

    fn tokenize_is_canonical(&self) -> bool {
        self.is_canonical
    }
}
