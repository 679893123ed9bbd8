//! The fixed answers that the tests and the clients share.

use super::fixed::Answers;

/// Chooses the answer by the conversation: a step of a task where an agent has a shell, after the
/// result of another tool, where there are other tools, where an editor sends its file, and any
/// other. A step follows each result since the last answer without a call.
pub(crate) const TEMPLATE: &str = "\
{%- set ns = namespace(edits=false, results=0, shell='') -%}
{%- for tool in tools or [] -%}
{%- if tool.function.name in ['exec_command', 'Bash'] %}{% set ns.shell = tool.function.name %}{% endif -%}
{%- endfor -%}
{%- for message in messages -%}
{%- if message.role == 'tool' %}{% set ns.results = ns.results + 1 %}
{%- elif message.role == 'assistant' and not message.tool_calls %}{% set ns.results = 0 %}{% endif -%}
{%- if message.content and 'greeting.py' in message.content %}{% set ns.edits = true %}{% endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if ns.shell and ns.results > 2 -%}<|finished|>
{%- elif ns.shell == 'exec_command' -%}
{%- if ns.results == 0 -%}<|codex 1|>{%- elif ns.results == 1 -%}<|codex 2|>{%- else -%}<|codex 3|>{%- endif -%}
{%- elif ns.shell -%}
{%- if ns.results == 0 -%}<|claude 1|>{%- elif ns.results == 1 -%}<|claude 2|>{%- else -%}<|claude 3|>{%- endif -%}
{%- elif messages[-1].role == 'tool' -%}<|result|>
{%- elif tools -%}<|call|>
{%- elif ns.edits -%}<|edit|>
{%- else -%}<|plain|>
{%- endif -%}
{#- The form of the calls and of the reasoning: <tool_call> <think> </think> -#}";

pub(crate) const PLAIN: &str = "Every prompt gets this answer. It has two sentences, and é.";
pub(crate) const REASONING: &str = "The user asks for the weather.";
pub(crate) const ARGUMENTS: &str = r#"{"city": "Oslo", "days": 2}"#;
pub(crate) const RESULT: &str = "It will be sunny in Oslo.";
/// A whole file, in the form that aider asks for.
pub(crate) const EDIT: &str = "\
Here is the new version.

greeting.py
```
def greet():
    print(\"Hello from the model\")
```
";

/// The answer of an agent whose commands have run.
const FINISHED: &str = "The file has one line: sunny.";

/// All answers with their control tokens.
pub(crate) fn answers<R>(run: impl FnOnce(Answers<'_>) -> R) -> R {
    let call = |reasoning: &str, name: &str, arguments: &str| {
        format!(
            "<think>\n{reasoning}\n</think>\n\n<tool_call>\n{{\"name\": \"{name}\", \
             \"arguments\": {arguments}}}\n</tool_call>"
        )
    };
    let weather = call(REASONING, "weather", ARGUMENTS);
    // An agent runs these commands with the tool and the argument that it has for them.
    let commands = [
        ("The file must be written.", "echo sunny > weather.txt"),
        ("What does it say?", "cat weather.txt"),
        ("It must have one line.", "wc -l < weather.txt > lines.txt"),
    ];
    let codex = commands.map(|(reasoning, command)| {
        call(reasoning, "exec_command", &format!("{{\"cmd\": \"{command}\"}}"))
    });
    let claude = commands.map(|(reasoning, command)| {
        let arguments = format!("{{\"command\": \"{command}\", \"description\": \"A step\"}}");
        call(reasoning, "Bash", &arguments)
    });
    run(&[
        ("<|plain|>", PLAIN),
        ("<|call|>", &weather),
        ("<|result|>", RESULT),
        ("<|edit|>", EDIT),
        ("<|codex 1|>", &codex[0]),
        ("<|codex 2|>", &codex[1]),
        ("<|codex 3|>", &codex[2]),
        ("<|claude 1|>", &claude[0]),
        ("<|claude 2|>", &claude[1]),
        ("<|claude 3|>", &claude[2]),
        ("<|finished|>", FINISHED),
    ])
}
