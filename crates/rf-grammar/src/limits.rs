//! Limits of grammars and schemas. Everything is measured before it is compiled.

use std::time::Duration;

use crate::Error;

/// The largest grammar, schema, regular expression or list of choices, in bytes.
pub const MAX_GRAMMAR_BYTES: usize = 256 << 10;
/// The largest parameters of all tools that a call may use, in bytes, as given and with the schemas
/// that they refer to.
pub const MAX_TOOLS_BYTES: usize = 1 << 20;
/// The largest number of choices.
pub const MAX_CHOICES: usize = 10_000;
/// The largest number of rules of a GBNF or Lark grammar.
pub const MAX_RULES: usize = 2_000;
/// The largest number of references to the rules of a GBNF or Lark grammar.
pub const MAX_REFERENCES_TO_RULES: usize = 10_000;
/// The largest number of repetitions (`*`, `+`, `?`, `{m,n}`) in a GBNF or Lark grammar.
pub const MAX_OPERATORS: usize = 5_000;
/// The largest number of repetitions of one element, as in `a?*`.
pub const MAX_OPERATORS_IN_A_ROW: usize = 16;
/// The largest number of repetitions in a regular expression, and in a pattern of a schema. The
/// memory of the matcher grows with their square.
pub const MAX_REGEX_OPERATORS: usize = 1_000;
/// The largest number of the operators `&` and `~` in a Lark grammar. The time of the matcher
/// grows exponentially with them.
pub const MAX_SET_OPERATORS: usize = 16;
/// The largest number of `pattern`s that apply to the same value of a schema, through `allOf` and
/// references. They are intersected, too.
pub const MAX_MERGED_PATTERNS: usize = 16;
/// The largest sum of the `multipleOf`s of a schema, and the largest product of those that apply to
/// the same value, as integers without their decimal point. The matcher has a state for each
/// remainder.
pub const MAX_MULTIPLES: usize = 100_000;
/// The largest number of subschemas of a schema, those of its definitions included.
pub const MAX_SUBSCHEMAS: usize = 10_000;
/// The largest number of subschemas once those that apply to the same value are merged.
pub const MAX_MERGED_SUBSCHEMAS: usize = 50_000;
/// The largest number of `$ref`s of a schema.
pub const MAX_REFERENCES: usize = 4_000;
/// The deepest nesting of a schema, through its references.
///
/// The matcher recurses over it. A level takes at most 11 KiB of the 256 MiB of stack that a
/// compilation has.
pub const MAX_SCHEMA_DEPTH: usize = 1_000;
/// The largest number of optional properties of an object. The matcher keeps four items for each of
/// them, and has at most 2,000.
pub const MAX_OPTIONAL_PROPERTIES: usize = 500;
/// The largest number of `patternProperties` of a schema. Each pair of patterns is intersected.
pub const MAX_PATTERN_PROPERTIES: usize = 100;
/// The time of the processor for compiling a grammar, after which a server may give up.
pub const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for compiling a grammar on a busy machine, after which a server may give up.
pub const COMPILE_WALL_TIMEOUT: Duration = Duration::from_secs(30);

/// The time of the processor that a constraint may take per token, on average over the tokens of
/// its output.
pub const MASK_TIME: Duration = Duration::from_millis(20);
/// The time beyond [`MASK_TIME`] that each further choice of a request adds per token. The choices
/// share their time.
pub const FORK_TIME: Duration = Duration::from_millis(2);
/// The time that a constraint may take beyond the average, and so for one token. An output whose
/// constraint takes longer ends there.
pub const MASK_CREDIT: Duration = Duration::from_millis(250);

/// An error if `found` is above `maximum`.
pub(crate) fn at_most(quantity: &'static str, found: usize, maximum: usize) -> Result<(), Error> {
    if found > maximum { Err(Error::TooLarge { quantity, maximum }) } else { Ok(()) }
}
