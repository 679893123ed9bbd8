//! The form in which a model writes tool calls and reasoning, found from its chat template.
//!
//! A format of calls is one row of the [`table`].

mod kind;
pub(crate) mod syntax;
pub(crate) mod table;

use rf_tokenizer::Tokenizer;

pub use self::kind::ToolFormat;
use self::syntax::{CallSyntax, ToolFormatRow};
use self::table::TABLE;

/// The markers around a model's reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReasoningFormat {
    /// `<think>…</think>`.
    Think,
    /// `[THINK]…[/THINK]`: Magistral, Ministral 3.
    Mistral,
    /// `<|channel>thought…<channel|>`: Gemma 4.
    Gemma,
    /// `<seed:think>…</seed:think>`: Seed-OSS.
    Seed,
    /// `<|channel|>analysis<|message|>…<|end|>`: gpt-oss.
    Harmony,
}

/// The form of a model's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutputFormat {
    /// Tool calls.
    pub tools: ToolFormat,
    /// Reasoning.
    pub reasoning: ReasoningFormat,
    /// True if the chat template shows tools to the model. If not,
    /// [`Conversation`](crate::Conversation) describes them in the system message.
    pub template_knows_tools: bool,
    /// True if the chat template mentions reasoning, so that the model may begin with it.
    pub template_knows_reasoning: bool,
}

impl OutputFormat {
    /// The form for a chat template, by the markers that its source mentions. A template that
    /// mentions none gets [`ReasoningFormat::Think`], and one that shows no tools
    /// [`ToolFormat::Object`].
    pub fn of_template(source: &str) -> Self {
        let has = |marker: &str| source.contains(marker);
        let is_harmony = has("<|channel|>") && has("<|message|>");
        // A template that shows no tools gets them as text, which asks for an object.
        let template_knows_tools = has("tools");
        let fits = |row: &&ToolFormatRow| {
            row.templates.iter().any(|texts| texts.iter().all(|text| has(text)))
        };
        let row = TABLE.iter().find(fits).filter(|_| template_knows_tools);
        let tools = row.map_or(ToolFormat::Object, |row| row.format);
        let reasoning = if is_harmony {
            ReasoningFormat::Harmony
        } else if has("<|channel>") {
            ReasoningFormat::Gemma
        } else if has("[THINK]") {
            ReasoningFormat::Mistral
        } else if has("<seed:think>") {
            ReasoningFormat::Seed
        } else {
            ReasoningFormat::Think
        };
        let (open, close) = reasoning.markers();
        Self {
            tools,
            reasoning,
            template_knows_tools,
            template_knows_reasoning: is_harmony || has(open) || has(close),
        }
    }

    /// Returns true if an answer to `prompt` begins within reasoning, because the prompt opens it.
    pub fn prompt_opens_reasoning(&self, prompt: &str) -> bool {
        prompt.trim_end().ends_with(self.reasoning.markers().0)
    }

    /// The markers that the parser looks for. Some are control tokens, whose text is normally left
    /// out: see [`rendered_tokens`](Self::rendered_tokens).
    pub fn markers(&self) -> impl Iterator<Item = &'static str> {
        let (open, close) = self.reasoning.markers();
        // The token that opens Gemma's reasoning is followed by a word.
        let open = open.strip_suffix("thought").unwrap_or(open);
        let channels = match self.reasoning {
            // The channels also hold the content.
            ReasoningFormat::Harmony => ToolFormat::Harmony.row().markers,
            _ => &[],
        };
        let markers = self.tools.row().markers.iter().chain(channels);
        markers.copied().chain([open, close])
    }

    /// The text between reasoning and content; empty if white space separates them.
    pub fn before_content(&self) -> &'static str {
        match self.reasoning {
            ReasoningFormat::Harmony => "<|channel|>final<|message|>",
            _ => "",
        }
    }

    /// The text between reasoning and calls.
    pub fn before_calls(&self) -> &'static str {
        match self.tools {
            // A call is a separate message.
            ToolFormat::Harmony => "",
            _ => self.before_content(),
        }
    }

    /// The ids of all tokens whose text the parser needs, ascending. Pass them to
    /// [`StreamDecoder::rendering`](rf_tokenizer::StreamDecoder::rendering).
    pub fn rendered_tokens(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut ids: Vec<_> = self.markers().filter_map(|text| tokenizer.id_of(text)).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

impl ToolFormat {
    /// All formats, in the order in which a template is tested for them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.format)
    }

    /// The text of calls as a model writes them.
    pub fn syntax(self) -> &'static CallSyntax {
        &self.row().syntax
    }

    pub(crate) fn row(self) -> &'static ToolFormatRow {
        &TABLE[self as usize]
    }
}

impl ReasoningFormat {
    /// The texts that open and close reasoning.
    pub fn markers(self) -> (&'static str, &'static str) {
        match self {
            Self::Think => ("<think>", "</think>"),
            Self::Mistral => ("[THINK]", "[/THINK]"),
            Self::Gemma => ("<|channel>thought", "<channel|>"),
            Self::Seed => ("<seed:think>", "</seed:think>"),
            Self::Harmony => ("<|channel|>analysis<|message|>", "<|end|>"),
        }
    }

    /// The text after closed reasoning; empty if it is white space.
    pub fn after(self) -> &'static str {
        match self {
            Self::Harmony => "<|start|>assistant",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_tells_the_form_by_its_markers() {
        use ReasoningFormat as R;
        use ToolFormat as T;
        for (source, tools, reasoning) in [
            ("tools <tool_call> {\"name\": <function-name>} </tool_call>", T::Hermes, R::Think),
            ("tools <tool_call>\n<function=x>\n<parameter=y>", T::Function, R::Think),
            ("tools <seed:think> <seed:tool_call><function=x><parameter=y>", T::Function, R::Seed),
            ("tools <tool_call>{name}<arg_key>", T::Glm, R::Think),
            ("[AVAILABLE_TOOLS] tools [TOOL_CALLS] [", T::MistralArray, R::Think),
            ("tools [TOOL_CALLS] name [ARGS] [THINK]", T::Mistral, R::Mistral),
            ("tools <|tool_call>call: <|channel>thought", T::Gemma, R::Gemma),
            ("tools <start_function_call>call:", T::FunctionGemma, R::Think),
            ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + name tools", T::DeepSeek, R::Think),
            (
                "tools <｜tool▁call▁begin｜>function<｜tool▁sep｜>```json",
                T::DeepSeekFenced,
                R::Think,
            ),
            ("tools ｜DSML｜ 'function_calls>'", T::DeepSeekFunctionCalls, R::Think),
            ("tools ｜DSML｜ 'tool_calls>'", T::DeepSeekToolCalls, R::Think),
            ("tools <|tool_call_begin|>{{ id }}", T::Kimi, R::Think),
            ("tools <|tool_list_start|>[{{ tool }}]", T::Lfm2, R::Think),
            ("tools <minimax:tool_call> <invoke name=", T::MiniMax, R::Think),
            ("<|start|>assistant<|channel|>final<|message|> tools", T::Harmony, R::Harmony),
            ("<|start_header_id|> tools \"parameters\"", T::Llama, R::Think),
            ("<|start_header_id|>{{ content }}", T::Object, R::Think),
            ("{{ messages }}", T::Object, R::Think),
            // The prompt asks for an object then, whatever the template writes for past calls.
            ("<think> <｜tool▁call▁begin｜>function```json", T::Object, R::Think),
            ("<|start|>assistant<|channel|>final<|message|>", T::Object, R::Harmony),
        ] {
            let format = OutputFormat::of_template(source);
            assert_eq!((format.tools, format.reasoning), (tools, reasoning), "{source}");
            assert_eq!(format.template_knows_tools, source.contains("tools"));
        }
    }

    #[test]
    fn a_prompt_may_open_the_reasoning() {
        let format = OutputFormat::of_template("<think>");
        assert!(format.prompt_opens_reasoning("<|im_start|>assistant\n<think>\n"));
        assert!(!format.prompt_opens_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
        assert!(!format.prompt_opens_reasoning("<|im_start|>assistant\n"));
    }
}
