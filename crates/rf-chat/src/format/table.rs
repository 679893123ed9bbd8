//! The table of formats: one row for each, in the order in which templates are tested.

use super::kind::ToolFormat;
use super::syntax::{CallPiece, CallSyntax, IdForm, Opener, Section, Tags, ToolFormatRow};

use self::CallPiece::{Arguments, Digit, Keywords, LineBreak, Name, QuotedName, Tagged, Text};

/// The row of each format, by its number.
pub(crate) const TABLE: [ToolFormatRow; 17] = [
    ToolFormatRow {
        format: ToolFormat::Harmony,
        templates: &[&["<|channel|>", "<|message|>"]],
        markers: &[
            "<|start|>",
            "<|channel|>",
            "<|constrain|>",
            "<|message|>",
            "<|end|>",
            "<|call|>",
            "<|return|>",
        ],
        syntax: CallSyntax {
            call: &[
                Text("<|channel|>commentary to=functions."),
                Name,
                Text(" <|constrain|>json<|message|>"),
                Arguments,
            ],
            between: None,
            ..ALONE
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::Gemma,
        templates: &[&["<|tool_call>"]],
        markers: &["<|tool_call>", "<tool_call|>", "<|\"|>"],
        openers: &[("<|tool_call>", Opener::Gemma("<|\"|>"))],
        frames: &["<tool_call|>"],
        syntax: CallSyntax {
            // The reader takes JSON instead of Gemma's notation.
            call: &[Text("<|tool_call>call:"), Name, Arguments, Text("<tool_call|>")],
            ..ALONE
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::FunctionGemma,
        templates: &[&["<start_function_call>"]],
        markers: &["<start_function_call>", "<end_function_call>", "<escape>"],
        openers: &[("<start_function_call>", Opener::Gemma("<escape>"))],
        frames: &["<end_function_call>"],
        syntax: CallSyntax {
            call: &[
                Text("<start_function_call>call:"),
                Name,
                Arguments,
                Text("<end_function_call>"),
            ],
            ..ALONE
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::DeepSeekFunctionCalls,
        templates: &[&["｜DSML｜", "function_calls"]],
        syntax: CallSyntax {
            first: "<｜DSML｜function_calls>\n",
            last: "\n</｜DSML｜function_calls>",
            ..DSML.syntax
        },
        ..DSML
    },
    ToolFormatRow { format: ToolFormat::DeepSeekToolCalls, templates: &[&["｜DSML｜"]], ..DSML },
    ToolFormatRow {
        format: ToolFormat::DeepSeekFenced,
        templates: &[&["<｜tool▁call▁begin｜>", "```json"]],
        frames: &["```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
        syntax: CallSyntax {
            call: &[
                Text("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
                Name,
                Text("\n```json\n"),
                Arguments,
                Text("\n```<｜tool▁call▁end｜>"),
            ],
            ..DEEP_SEEK.syntax
        },
        ..DEEP_SEEK
    },
    DEEP_SEEK,
    ToolFormatRow {
        format: ToolFormat::Kimi,
        templates: &[&["<|tool_call_begin|>"]],
        markers: &[
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ],
        openers: &[
            ("<|tool_calls_section_begin|>", Opener::Section(&KIMI_SECTION)),
            ("<|tool_call_begin|>", Opener::Section(&KIMI_SECTION)),
        ],
        frames: &["<|tool_call_end|>", "<|tool_calls_section_end|>"],
        ids: IdForm::Named,
        syntax: CallSyntax {
            first: "<|tool_calls_section_begin|>",
            call: &[
                Text("<|tool_call_begin|>functions."),
                Name,
                Text(":"),
                Digit,
                Text("<|tool_call_argument_begin|>"),
                Arguments,
                Text("<|tool_call_end|>"),
            ],
            last: "<|tool_calls_section_end|>",
            ..ALONE
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::Lfm2,
        templates: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"]],
        markers: &["<|tool_call_start|>", "<|tool_call_end|>"],
        openers: &[("<|tool_call_start|>", Opener::Python)],
        frames: &["<|tool_call_end|>"],
        syntax: CallSyntax {
            first: "<|tool_call_start|>[",
            call: &[Name, Text("("), Keywords, Text(")")],
            between: Some(Text(", ")),
            last: "]<|tool_call_end|>",
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::MiniMax,
        templates: &[&["<minimax:tool_call>"]],
        markers: &["<minimax:tool_call>", "</minimax:tool_call>"],
        openers: &[
            ("<minimax:tool_call>", Opener::Tag { names: false, tags: &INVOKE_TAGS }),
            ("<invoke name=\"", Opener::Name(&INVOKE_TAGS)),
        ],
        frames: &["</invoke>", "</minimax:tool_call>"],
        syntax: CallSyntax {
            first: "<minimax:tool_call>\n",
            call: &[
                Text("<invoke name=\""),
                Name,
                Text("\">\n"),
                Tagged(&INVOKE_TAGS),
                Text("</invoke>"),
            ],
            between: Some(Text("\n")),
            last: "\n</minimax:tool_call>",
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::Glm,
        templates: &[&["<arg_key>"]],
        markers: &[
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
        ],
        openers: &[("<tool_call>", Opener::Tag { names: true, tags: &FUNCTION_TAGS })],
        syntax: CallSyntax {
            call: &[Text("<tool_call>"), Name, Text("\n"), Tagged(&GLM_TAGS), Text("</tool_call>")],
            ..ALONE
        },
        ..HERMES
    },
    ToolFormatRow {
        format: ToolFormat::Function,
        templates: &[&["<function=", "<parameter="]],
        syntax: CallSyntax {
            call: &[
                Text("<tool_call>\n<function="),
                Name,
                Text(">\n"),
                Tagged(&FUNCTION_TAGS),
                Text("</function>\n</tool_call>"),
            ],
            ..ALONE
        },
        ..HERMES
    },
    MISTRAL,
    ToolFormatRow {
        format: ToolFormat::MistralArray,
        templates: &[&["[TOOL_CALLS]"]],
        syntax: CallSyntax {
            first: "[TOOL_CALLS][",
            call: OBJECT,
            between: Some(Text(", ")),
            last: "]",
        },
        ..MISTRAL
    },
    HERMES,
    ToolFormatRow {
        format: ToolFormat::Llama,
        templates: &[&["<|python_tag|>"], &["<|start_header_id|>"]],
        markers: &["<|python_tag|>"],
        openers: &[("<|python_tag|>", Opener::Object)],
        is_bare: true,
        syntax: CallSyntax {
            call: &[
                Text("{\"name\": "),
                QuotedName,
                Text(", \"parameters\": "),
                Arguments,
                Text("}"),
            ],
            between: Some(Text("; ")),
            ..ALONE
        },
        ..PLAIN
    },
    ToolFormatRow {
        format: ToolFormat::Object,
        templates: &[&[]],
        is_bare: true,
        syntax: CallSyntax { between: None, ..ALONE },
        ..PLAIN
    },
];

const _: () = {
    let mut number = 0;
    while number < TABLE.len() {
        assert!(TABLE[number].format as usize == number, "the rows are in the order of the enum");
        number += 1;
    }
};

/// The object of [`Opener::Object`].
const OBJECT: &[CallPiece] =
    &[Text("{\"name\": "), QuotedName, Text(", \"arguments\": "), Arguments, Text("}")];

/// Calls without anything around all of them.
const ALONE: CallSyntax =
    CallSyntax { first: "", call: OBJECT, between: Some(LineBreak), last: "" };

/// The defaults of rows: an object alone.
const PLAIN: ToolFormatRow = ToolFormatRow {
    format: ToolFormat::Object,
    templates: &[],
    markers: &[],
    openers: &[],
    frames: &[],
    is_bare: false,
    ids: IdForm::Long,
    syntax: ALONE,
};

const HERMES: ToolFormatRow = ToolFormatRow {
    format: ToolFormat::Hermes,
    templates: &[&["<tool_call>"]],
    markers: &["<tool_call>", "</tool_call>", "<seed:tool_call>", "</seed:tool_call>"],
    openers: &[
        ("<tool_call>", Opener::Tag { names: false, tags: &FUNCTION_TAGS }),
        ("<seed:tool_call>", Opener::Tag { names: false, tags: &FUNCTION_TAGS }),
        // Qwen3-Coder sometimes leaves out the outer tag.
        ("<function=", Opener::Name(&FUNCTION_TAGS)),
    ],
    frames: &["</tool_call>", "</seed:tool_call>", "</function>"],
    syntax: CallSyntax {
        call: &[
            Text("<tool_call>\n{\"name\": "),
            QuotedName,
            Text(", \"arguments\": "),
            Arguments,
            Text("}\n</tool_call>"),
        ],
        ..ALONE
    },
    ..PLAIN
};

const MISTRAL: ToolFormatRow = ToolFormatRow {
    format: ToolFormat::Mistral,
    templates: &[&["[TOOL_CALLS]", "[ARGS]"]],
    markers: &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
    openers: &[("[TOOL_CALLS]", Opener::Mistral)],
    ids: IdForm::Short,
    syntax: CallSyntax { call: &[Text("[TOOL_CALLS]"), Name, Text("[ARGS]"), Arguments], ..ALONE },
    ..PLAIN
};

const DEEP_SEEK: ToolFormatRow = ToolFormatRow {
    format: ToolFormat::DeepSeek,
    templates: &[&["<｜tool▁call▁begin｜>"]],
    markers: &[
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ],
    openers: &[
        ("<｜tool▁calls▁begin｜>", Opener::Section(&DEEP_SEEK_SECTION)),
        ("<｜tool▁call▁begin｜>", Opener::Section(&DEEP_SEEK_SECTION)),
    ],
    frames: &["<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"],
    syntax: CallSyntax {
        first: "<｜tool▁calls▁begin｜>",
        call: &[
            Text("<｜tool▁call▁begin｜>"),
            Name,
            Text("<｜tool▁sep｜>"),
            Arguments,
            Text("<｜tool▁call▁end｜>"),
        ],
        last: "<｜tool▁calls▁end｜>",
        ..ALONE
    },
    ..PLAIN
};

const DSML: ToolFormatRow = ToolFormatRow {
    format: ToolFormat::DeepSeekToolCalls,
    // A part of each tag.
    markers: &["｜DSML｜"],
    openers: &[
        ("<｜DSML｜function_calls>", Opener::Tag { names: false, tags: &DSML_TAGS }),
        ("<｜DSML｜tool_calls>", Opener::Tag { names: false, tags: &DSML_TAGS }),
        ("<｜DSML｜invoke name=\"", Opener::Name(&DSML_TAGS)),
    ],
    frames: &["</｜DSML｜invoke>", "</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"],
    syntax: CallSyntax {
        first: "<｜DSML｜tool_calls>\n",
        call: &[
            Text("<｜DSML｜invoke name=\""),
            Name,
            Text("\">\n"),
            Tagged(&DSML_TAGS),
            Text("</｜DSML｜invoke>"),
        ],
        between: Some(Text("\n")),
        last: "\n</｜DSML｜tool_calls>",
    },
    ..PLAIN
};

const FUNCTION_TAGS: Tags = Tags {
    name_open: "<function=",
    name_close: ">",
    key_open: "<parameter=",
    key_close: ">",
    text_flag: "",
    value_open: "",
    value_close: "</parameter>",
    lines: true,
    written_gaps: ("\n", "\n"),
    end: "</function>",
};

const INVOKE_TAGS: Tags = Tags {
    name_open: "<invoke name=\"",
    name_close: "\">",
    key_open: "<parameter name=\"",
    key_close: "\">",
    written_gaps: ("", ""),
    end: "</invoke>",
    ..FUNCTION_TAGS
};

const DSML_TAGS: Tags = Tags {
    name_open: "<｜DSML｜invoke name=\"",
    name_close: "\">",
    key_open: "<｜DSML｜parameter name=\"",
    key_close: "\">",
    text_flag: "\" string=\"",
    value_open: "",
    value_close: "</｜DSML｜parameter>",
    lines: false,
    written_gaps: ("", ""),
    end: "</｜DSML｜invoke>",
};

/// The name follows the opening marker itself.
pub(crate) const GLM_TAGS: Tags = Tags {
    name_open: "",
    name_close: "",
    key_open: "<arg_key>",
    key_close: "</arg_key>",
    text_flag: "",
    value_open: "<arg_value>",
    value_close: "</arg_value>",
    lines: false,
    written_gaps: ("\n", ""),
    end: "</tool_call>",
};

/// V3.1 writes the name before the separator. Before, the word `function` stood there, and the name
/// followed it with a line break and a fence around the arguments.
const DEEP_SEEK_SECTION: Section = Section {
    open: "<｜tool▁call▁begin｜>",
    separator: "<｜tool▁sep｜>",
    fence: "```json",
    kind: "function",
    is_numbered: false,
};

const KIMI_SECTION: Section = Section {
    open: "<|tool_call_begin|>",
    separator: "<|tool_call_argument_begin|>",
    fence: "",
    kind: "",
    is_numbered: true,
};
