//! Conversations as clients send them, in templates as models have them.

use rf_chat::{
    Answer, ChatTemplate, Conversation, Error, Message, MessageCall, Tool, ToolChoice, ToolFormat,
};
use rf_tokenizer::{Tokenizer, VocabConfig};
use serde_json::{Value, json};

fn conversation(messages: Vec<Message>) -> Conversation {
    Conversation::default().with_messages(messages)
}

fn prompt(source: &str, conversation: &Conversation) -> Result<String, Error> {
    let template = ChatTemplate::new(source, "", "")?;
    conversation.prompt(&template).map(|prompt| prompt.text)
}

fn call(arguments: Value) -> Message {
    let call = MessageCall { id: "1".into(), name: "lookup".into(), arguments };
    Message { tool_calls: vec![call], ..Message::new("assistant", "") }
}

fn lookup() -> Tool {
    Tool { name: "lookup".into(), description: None, parameters: json!({"type": "object"}) }
}

/// The rules of strict templates: a system message comes first, and a result follows a call.
const STRICT: &str = "\
{%- for m in messages %}
    {%- if m.role == 'system' and not loop.first %}
        {{- raise_exception('System message must be at the beginning.') }}
    {%- elif m.role == 'tool' and not (loop.previtem.tool_calls or loop.previtem.role == 'tool') %}
        {{- raise_exception('a result without a call') }}
    {%- endif %}
    {{- '<' + m.role + '>' + m.content }}
    {%- for c in m.tool_calls or [] %}{{ '[' + c.function.name + ']' }}{% endfor %}
{%- endfor %}";

/// The rules of Gemma 2: no system messages, and roles that take turns.
const ALTERNATING: &str = "\
{%- for m in messages %}
    {%- if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}
    {{- '<' + m.role + '>' + m.content }}
{%- endfor %}";

#[test]
fn empty_arguments_are_an_empty_object() {
    let source = "{% for m in messages %}{% for c in m.tool_calls or [] %}({% for k, v in \
        c.function.arguments|items %}{{ k }}={{ v }};{% endfor %}){% endfor %}{% endfor %}";
    for (arguments, expected) in [
        (json!(""), "()"),
        (json!("  "), "()"),
        (json!("null"), "()"),
        (json!("{}"), "()"),
        (Value::Null, "()"),
        (json!(r#"{"a": 1}"#), "(a=1;)"),
        (json!({"a": 1}), "(a=1;)"),
    ] {
        let text = prompt(source, &conversation(vec![call(arguments.clone())]));
        assert_eq!(text.unwrap(), expected, "{arguments}");
    }
    for arguments in [json!("[1]"), json!("not json"), json!([1])] {
        let messages = vec![Message::new("user", "x"), call(arguments)];
        let error = prompt(source, &conversation(messages)).unwrap_err();
        assert!(matches!(error, Error::CallArguments { message: 1, call: 0, .. }), "{error}");
        assert!(error.to_string().contains("of the call of `lookup` are not a JSON object"));
    }
    // A template that shows them as they are needs no object.
    let source = "{% for m in messages %}{{ m.tool_calls[0].function.arguments }}{% endfor %}";
    assert_eq!(prompt(source, &conversation(vec![call(json!("not json"))])).unwrap(), "not json");
}

#[test]
fn system_messages_are_merged_where_the_template_refuses_them() {
    let late = conversation(vec![
        Message::new("system", "a"),
        Message::new("system", "b"),
        Message::new("user", "x"),
        Message::new("system", "c"),
    ]);
    assert_eq!(prompt(STRICT, &late).unwrap(), "<system>a\n\nb\n\nc<user>x");
    assert_eq!(prompt(ALTERNATING, &late).unwrap(), "<user>a\n\nb\n\nc\n\nx");
    // A template that takes them where they are gets them there.
    let lenient = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    assert_eq!(prompt(lenient, &late).unwrap(), "<system>a<system>b<user>x<system>c");
    // The refusal of what no form helps is the first one.
    let never = "{{ raise_exception('never: ' ~ messages | length) }}";
    let error = prompt(never, &late).unwrap_err();
    assert!(matches!(&error, Error::TemplateRefused(text) if text == "never: 4"), "{error}");
}

#[test]
fn a_text_between_a_call_and_its_result_joins_the_call() {
    let result = || Message { tool_call_id: Some("1".into()), ..Message::new("tool", "ok") };
    let messages = vec![
        Message::new("user", "x"),
        call(json!({})),
        Message::new("assistant", "I look it up."),
        call(json!({})),
        result(),
        result(),
        Message::new("user", "y"),
    ];
    let expected = "<user>x<assistant>I look it up.[lookup][lookup]<tool>ok<tool>ok<user>y";
    assert_eq!(prompt(STRICT, &conversation(messages)).unwrap(), expected);
}

#[test]
fn fields_of_parts_reach_the_templates_that_read_them() {
    let part = json!({"type": "text", "source_lang_code": "cs", "target_lang_code": "de-DE", "text": "Ahoj"});
    let message = Message { parts: vec![part], ..Message::new("user", "Ahoj") };
    let conversation = conversation(vec![message]);
    let translate = "{% for m in messages %}{{ m.content[0].source_lang_code }}>\
        {{ m.content[0].target_lang_code }}:{{ m.content[0].text }}{% endfor %}";
    assert_eq!(prompt(translate, &conversation).unwrap(), "cs>de-DE:Ahoj");
    // Others get the text, even if they contain the name of a field.
    for source in
        ["{{ messages[0].content }}{# source_lang_code #}", "{{ '' + messages[0].content }}"]
    {
        assert_eq!(prompt(source, &conversation).unwrap(), "Ahoj", "{source}");
    }
    // A template for lists only gets a list for every text.
    let lists = "{% for m in messages %}{% for part in m.content %}\
        {% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}";
    let plain = conversation.clone().with_messages(vec![Message::new("user", "Hi")]);
    assert_eq!(prompt(lists, &plain).unwrap(), "Hi");
}

#[test]
fn a_call_as_the_prompt_asks_for_it_is_a_call() {
    // These format past calls, but do not show the tools.
    for source in [
        "{% for m in messages %}{{ m.content }}{% endfor %}{# <｜tool▁call▁begin｜>function```json #}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{# <tool_call> #}",
        "{% for m in messages %}{{ m.content }}{% endfor %}{# <|channel|> <|message|> #}",
    ] {
        let conversation = Conversation::default()
            .with_messages(vec![Message::new("user", "x")])
            .with_tools(vec![lookup()]);
        let template = ChatTemplate::new(source, "", "").unwrap();
        let prompt = conversation.prompt(&template).unwrap();
        assert_eq!(prompt.format.tools, ToolFormat::Object, "{source}");
        assert!(prompt.text.contains("answer with nothing but a JSON object"), "{}", prompt.text);
        let object = r#"{"name": "lookup", "arguments": {"a": 1}}"#;
        let message = prompt.format.before_calls().to_owned() + object;
        for text in [object, message.as_str()] {
            let mut parser = prompt.parser();
            let mut answer: Answer = parser.push(text).into_iter().collect();
            answer.extend(parser.finish());
            assert!(parser.calls_tools() && answer.calls_tools(), "{source}: {answer:?}");
            assert_eq!(answer.calls[0].arguments, r#"{"a": 1}"#);
            assert_eq!(answer.content, "");
        }
        let mut parser = prompt.parser();
        let mut answer: Answer = parser.push(r#"{"name": "Ada"}"#).into_iter().collect();
        answer.extend(parser.finish());
        assert_eq!((answer.content.as_str(), parser.calls_tools()), (r#"{"name": "Ada"}"#, false));
    }
}

#[test]
fn a_prompt_has_the_ids_of_its_model() {
    let tokens = ["<s>", "</s>", "<tool_call>", "a", "b", "ab", "</think>"];
    let tokenizer = Tokenizer::new(
        VocabConfig::default()
            .with_model("gpt2")
            .with_pre(Some("gpt-2".into()))
            .with_tokens(tokens.map(String::from).into())
            .with_token_types(vec![3, 3, 3, 1, 1, 1, 3])
            .with_merges(vec!["a b".into()])
            .with_bos_token_id(Some(0))
            .with_eos_token_id(Some(1))
            .with_add_bos_token(Some(true)),
    )
    .unwrap();
    for (source, ids) in [
        ("{{ messages[0].content }}{# tools <tool_call> #}", [0, 5, 1].as_slice()),
        ("{{ bos_token }}{{ messages[0].content }}{# tools <tool_call> #}", &[0, 5, 1]),
    ] {
        let template = ChatTemplate::of_tokenizer(source, &tokenizer).unwrap();
        let conversation = Conversation::default()
            .with_messages(vec![Message::new("user", "ab</s>")])
            .with_tools(vec![lookup()])
            .with_tool_choice(ToolChoice::Auto);
        let prompt = conversation.prompt(&template).unwrap().tokenized(&tokenizer);
        assert_eq!(prompt.ids, ids, "{source}");
        assert_eq!(prompt.rendered_tokens, [2, 6]);
    }
}
