//! Chat templates in the styles of well-known model families.

use std::collections::BTreeMap;

use chrono::{Local, TimeZone};
use rf_chat::{ChatTemplate, Error, Message, MessageCall, RenderOptions};
use serde_json::json;

fn conversation() -> Vec<Message> {
    vec![
        Message::new("system", "Be brief."),
        Message::new("user", " Hi <b>there</b> & \"you\" "),
        Message::new("assistant", "Hello."),
        Message::new("user", "Bye"),
    ]
}

fn render(source: &str, messages: &[Message], options: &RenderOptions) -> Result<String, Error> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(messages, options)
}

#[expect(clippy::unwrap_used, reason = "for templates that are to render")]
fn prompt(source: &str) -> String {
    let options = RenderOptions::default().with_add_generation_prompt(true);
    render(source, &conversation(), &options).unwrap()
}

#[test]
fn chatml() {
    // Line breaks and indentation around blocks are trimmed, as transformers does.
    let source = "\
{% if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nDefault<|im_end|>\\n' -}}
{% endif %}
{% for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' -}}
{% endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' -}}
{% endif %}";
    assert_eq!(
        prompt(source),
        "<|im_start|>system\nBe brief.<|im_end|>\n\
         <|im_start|>user\nHi <b>there</b> & \"you\"<|im_end|>\n\
         <|im_start|>assistant\nHello.<|im_end|>\n\
         <|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn llama_3() {
    let source = "\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now(\"%d %b %Y\") %}
    {%- else %}
        {%- set date_string = \"26 Jul 2024\" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = \"\" %}
{%- endif %}
{{- \"<|start_header_id|>system<|end_header_id|>\\n\\n\" }}
{%- if tools is not none and tools is defined %}
    {{- \"Tools: \" + (tools | tojson(indent=4)) + \"\\n\" }}
{%- endif %}
{{- \"Today Date: \" + date_string + \"\\n\\n\" }}
{{- system_message }}
{{- \"<|eot_id|>\" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
";
    let mut options = RenderOptions::default()
        .with_add_generation_prompt(true)
        .with_now(Local.with_ymd_and_hms(2025, 3, 7, 12, 0, 0).single())
        .with_variables(BTreeMap::from([(
            "tools".to_owned(),
            json!([{"name": "f<g>", "n": [1, 2]}]),
        )]));
    let text = render(source, &conversation(), &options).unwrap();
    assert_eq!(
        text,
        "<s><|start_header_id|>system<|end_header_id|>\n\n\
         Tools: [\n    {\n        \"name\": \"f<g>\",\n        \"n\": [\n            1,\n            2\n        ]\n    }\n]\n\
         Today Date: 07 Mar 2025\n\nBe brief.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nHi <b>there</b> & \"you\"<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\nHello.<|eot_id|>\
         <|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>\
         <|start_header_id|>assistant<|end_header_id|>\n\n"
    );
    options.variables.insert("tools".to_owned(), serde_json::Value::Null);
    options.variables.insert("date_string".to_owned(), json!("1 Jan 2000"));
    let text = render(source, &conversation(), &options).unwrap();
    assert!(text.contains("<|end_header_id|>\n\nToday Date: 1 Jan 2000\n\nBe brief."), "{text}");
}

#[test]
fn mistral_refuses_roles_that_do_not_alternate() {
    let source = "\
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate user/assistant') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {{- ' ' + message['content'] + eos_token }}
    {%- else %}
        {{- raise_exception('only user and assistant') }}
    {%- endif %}
{%- endfor %}";
    assert_eq!(
        prompt(source),
        "<s> [INST] Be brief.\n\n Hi <b>there</b> & \"you\"  [/INST] Hello.</s> [INST] Bye [/INST]"
    );
    let twice = [Message::new("user", "a"), Message::new("user", "b")];
    let error = render(source, &twice, &RenderOptions::default()).unwrap_err();
    assert!(
        matches!(&error, Error::TemplateRefused(text) if text == "roles must alternate user/assistant")
    );
}

#[test]
fn qwen_3_drops_the_reasoning_of_earlier_turns() {
    let source = "\
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == \"assistant\" %}
        {%- set reasoning_content = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}";
    let messages = [
        Message::new("user", "One?"),
        Message::new("assistant", "<think>\nhm\n</think>\n\nTwo."),
        Message::new("user", "Three?"),
    ];
    let expected = "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nTwo.<|im_end|>\n\
                    <|im_start|>user\nThree?<|im_end|>\n<|im_start|>assistant\n";
    let mut options = RenderOptions::default().with_add_generation_prompt(true);
    assert_eq!(render(source, &messages, &options).unwrap(), expected);
    options.variables.insert("enable_thinking".to_owned(), json!(false));
    let text = render(source, &messages, &options).unwrap();
    assert_eq!(text, format!("{expected}<think>\n\n</think>\n\n"));
    let text = render(source, &messages[..2], &RenderOptions::default()).unwrap();
    assert!(text.ends_with("assistant\n<think>\nhm\n</think>\n\nTwo.<|im_end|>\n"), "{text}");
}

#[test]
fn gemma() {
    let source = "\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = \"\" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = \"model\" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else \"\") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {{ raise_exception('no parts here') }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}";
    assert_eq!(
        prompt(source),
        "<s><start_of_turn>user\nBe brief.\n\nHi <b>there</b> & \"you\"<end_of_turn>\n\
         <start_of_turn>model\nHello.<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n\
         <start_of_turn>model\n"
    );
}

#[test]
fn phi_3_and_training_marks() {
    let source = "{% for message in messages %}{% if message['role'] == 'assistant' %}{% generation %}{{ '<|assistant|>\\n' ~ message['content'] ~ '<|end|>\\n' }}{% endgeneration %}{% else %}{{ '<|' ~ message['role'] ~ '|>\\n' ~ message['content'] ~ '<|end|>\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}";
    let text = render(source, &conversation()[2..], &RenderOptions::default()).unwrap();
    assert_eq!(text, "<|assistant|>\nHello.<|end|>\n<|user|>\nBye<|end|>\n</s>");
}

#[test]
fn tools_are_none_unless_given() {
    let source = "{% if tools is not none or tools is iterable %}tools{% else %}none{% endif %}\
                  {{ documents is none }}{{ other is defined }}{{ other | length }}";
    let none = RenderOptions::default();
    assert_eq!(render(source, &[], &none).unwrap(), "noneTrueFalse0");
    let error = render("{{ tools | length }}", &[], &none).unwrap_err();
    assert!(matches!(error, Error::TemplateFailed(_)), "{error}");
}

/// The constructs of gpt-oss, Gemma 4 and Command R7B: recursive macros with default arguments,
/// sorted mappings, namespaces, slices, `break` and tests of types.
#[test]
fn macros_describe_tools() {
    let source = "\
{%- macro kind(spec, level=0) -%}
    {%- if spec.type == 'array' -%}
        {{- kind(spec['items'], level=level + 1) + '[]' -}}
    {%- elif spec.type is sequence and spec.type is not string -%}
        {{- spec.type | map('upper') | join(' | ') -}}
    {%- else -%}
        {{- spec.type | upper ~ level -}}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(comma=false) -%}
{%- for tool in tools if tool is mapping -%}
    {%- set f = tool.function -%}
    {{- f.name + '{' -}}
    {%- for key, spec in f.parameters.properties | dictsort -%}
        {{- ', ' if ns.comma }}{% set ns.comma = true -%}
        {{- key ~ ('' if key in f.parameters.required | default([]) else '?') + ': ' + kind(spec) -}}
    {%- endfor -%}
    {{- '}' -}}
    {%- for key in f.keys() | list %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ key }}{% endfor -%}
{%- endfor -%}
{{- (messages | selectattr('role', 'equalto', 'user') | list)[-1].content.split('y')[0] -}}
{{- messages[1:3] | map(attribute='role') | join('+') -}}
";
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {
        "required": ["b"],
        "properties": {
            "b": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            "a": {"type": ["integer", "null"]},
        },
    }}}]);
    let variables = BTreeMap::from([("tools".to_owned(), tools)]);
    let options = RenderOptions::default().with_variables(variables);
    let text = render(source, &conversation(), &options).unwrap();
    assert_eq!(text, "f{a?: INTEGER | NULL, b: STRING2[][]}nameBuser+assistant");
}

#[test]
fn json_is_pythons() {
    let variables =
        BTreeMap::from([("v".to_owned(), json!({"b": [1, "é<&'>"], "a": null, "c": 1.5}))]);
    let options = RenderOptions::default().with_variables(variables);
    let text = render("{{ v | tojson }}", &[], &options).unwrap();
    assert_eq!(text, r#"{"b": [1, "é<&'>"], "a": null, "c": 1.5}"#);
    let variables = BTreeMap::from([("v".to_owned(), json!(["é🦙"]))]);
    let options = RenderOptions::default().with_variables(variables);
    let text = render("{{ v | tojson(ensure_ascii=True) }}", &[], &options).unwrap();
    assert_eq!(text, r#"["\u00e9\ud83e\udd99"]"#);
}

#[test]
fn bad_templates_are_errors() {
    let none = RenderOptions::default();
    for source in
        ["{% for", "{{ a.b.c }", "{% endif %}", "{{ 'x' | nofilter", "{% if %}{% endif %}"]
    {
        assert!(
            matches!(ChatTemplate::new(source, "", ""), Err(Error::TemplateSyntax(_))),
            "{source}"
        );
    }
    for source in [
        "{{ messages[0].content.nonsense() }}",
        "{{ undefined.field }}",
        "{{ strftime_now('%Q') }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ a * b }}{% endfor %}{% endfor %}",
    ] {
        let result = render(source, &conversation(), &none);
        assert!(matches!(result, Err(Error::TemplateFailed(_))), "{source}: {result:?}");
    }
}

#[test]
fn templates_of_real_files_render() {
    for (file, expected) in [
        (
            "vocabs/ggml-vocab-qwen2.gguf",
            "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
        ),
        ("vocabs/ggml-vocab-phi-3.gguf", "<|user|>\nBye<|end|>\n<|assistant|>\n"),
        ("models/stories-7m-Q4_0.gguf", "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"),
    ] {
        let Some(path) = rf_testing::shared(file) else { continue };
        let gguf = rf_gguf::Gguf::open(&path).unwrap();
        let text = prompt(gguf.metadata().str("tokenizer.chat_template").unwrap().unwrap());
        assert!(text.ends_with(expected), "{file}: {text}");
    }
}

/// A question, a call with reasoning, and the tool's answer.
fn tool_conversation() -> Vec<Message> {
    let call = MessageCall {
        id: "call_1".to_owned(),
        name: "weather".to_owned(),
        arguments: json!({"city": "Oslo"}),
    };
    vec![
        Message::new("user", "Weather?"),
        Message {
            reasoning: Some("Look.".to_owned()),
            tool_calls: vec![call],
            ..Message::new("assistant", "")
        },
        Message {
            tool_call_id: Some("call_1".to_owned()),
            name: Some("weather".to_owned()),
            ..Message::new("tool", "Rain")
        },
    ]
}

#[test]
fn tool_calls_and_their_answers_reach_the_template() {
    let source = "{% for m in messages %}{{ m.role }}:\
        {% if m.tool_calls %}{% for c in m.tool_calls %}{{ m.reasoning_content }}/{{ m.thinking }}/\
        {{ c.id }}/{{ c.function.name }}/{{ c.function.arguments | tojson }}{% endfor %}\
        {% else %}{{ m.name }}/{{ m.tool_call_id }}/{{ m.content }}{% endif %};{% endfor %}";
    let text = render(source, &tool_conversation(), &RenderOptions::default()).unwrap();
    assert_eq!(
        text,
        "user://Weather?;assistant:Look./Look./call_1/weather/{\"city\": \"Oslo\"};\
         tool:weather/call_1/Rain;"
    );
    // A template that adds strings gets the arguments as text.
    let source = "{% for m in messages %}{% for c in m.tool_calls %}\
        {{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
    let text = render(source, &tool_conversation(), &RenderOptions::default()).unwrap();
    assert_eq!(text, "<{\"city\":\"Oslo\"}>");
}

#[test]
fn the_last_message_can_be_continued() {
    let source = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</{{ m.role }}>\
        {% endfor %}{{ 'end' if add_generation_prompt }}";
    let options = RenderOptions::default().with_continue_final_message(true);
    let continued = |text: &str| {
        let messages = [Message::new("user", "Once"), Message::new("assistant", text)];
        render(source, &messages, &options)
    };
    assert_eq!(continued(" Once upon ").unwrap(), "<user>Once</user><assistant>Once upon ");
    assert!(matches!(continued(" "), Err(Error::NothingToContinue)));
    let hidden = render("{{ messages[0].role }}", &[Message::new("user", "Hi")], &options);
    assert!(matches!(hidden, Err(Error::NothingToContinue)));
}
