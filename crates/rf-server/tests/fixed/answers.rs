//! The fixed answers that the tests and the clients share.

use super::fixed::Answers;

/// Chooses the answer by the conversation: after the result of a tool, where there are tools, where
/// an editor sends its file, and any other.
pub(crate) const TEMPLATE: &str = "\
{%- set ns = namespace(edits=false) -%}
{%- for message in messages -%}
{%- if message.content and 'greeting.py' in message.content %}{% set ns.edits = true %}{% endif -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{%- if messages[-1].role == 'tool' -%}<|result|>
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

/// All answers with their control tokens.
pub(crate) fn answers<R>(run: impl FnOnce(Answers<'_>) -> R) -> R {
    let call = format!(
        "<think>\n{REASONING}\n</think>\n\n<tool_call>\n{{\"name\": \"weather\", \"arguments\": {ARGUMENTS}}}\n\
         </tool_call>"
    );
    run(&[("<|plain|>", PLAIN), ("<|call|>", &call), ("<|result|>", RESULT), ("<|edit|>", EDIT)])
}
