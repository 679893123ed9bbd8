//! Whole answers in the form of each model family, as the models write them.

use rf_chat::ToolFormat;

use crate::parsing::{self, Expected, call, format, parse, tools};

/// Parses `text` whole and in single characters.
fn check(tools_format: ToolFormat, text: &str, expected: &Expected) {
    for in_reasoning in [false, true] {
        if in_reasoning != expected.in_reasoning {
            continue;
        }
        let whole = parse(format(tools_format), &tools(), in_reasoning, [text]);
        expected.assert(&whole, text);
        let pieces = text.split_inclusive(|_| true);
        let split = parse(format(tools_format), &tools(), in_reasoning, pieces);
        assert_eq!(split, whole, "{text}");
    }
}

fn expect() -> Expected {
    Expected::default()
}

#[test]
fn hermes() {
    let format = ToolFormat::Hermes;
    check(
        format,
        "<think>\nLook it up.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"weather\", \
         \"arguments\": {\"city\": \"Oslo\", \"days\": 2}}\n</tool_call>\n<tool_call>\n\
         {\"arguments\": {}, \"name\": \"time\"}\n</tool_call>",
        &expect()
            .reasoning("Look it up.")
            .content("One moment.")
            .call(call("weather", r#"{"city": "Oslo", "days": 2}"#))
            .call(call("time", "{}")),
    );
    // Tags within a string are text; a raw line break in one is escaped.
    check(
        format,
        "<tool_call>{\"name\": \"note\", \"arguments\": {\"text\": \"</tool_call>\n\\\"}\"}}</tool_call>",
        &expect().call(call("note", r#"{"text": "</tool_call>\n\"}"}"#)),
    );
    // Arguments as a string, no arguments, other keys.
    check(
        format,
        r#"<tool_call>{"id": 7, "name": "time", "arguments": "{\"zone\": 1}"}</tool_call><tool_call>{"name": "time"}</tool_call><tool_call>{"name": "time", "arguments": null}"#,
        &expect()
            .call(call("time", r#"{"zone": 1}"#))
            .call(call("time", "{}"))
            .call(call("time", "{}")),
    );
}

#[test]
fn text_that_is_no_call_is_content() {
    for text in [
        "<tool_call>",
        "<tool_call>\n",
        "Use <tool_call> and </tool_call> tags.",
        "<tool_call>[1]</tool_call>",
        r#"<tool_call>{"name": 5, "arguments": {}}</tool_call>"#,
        r#"<tool_call>{"nam": "time"}</tool_call>"#,
        r#"<tool_call>{"name": "", "arguments": {}}</tool_call>"#,
        r#"<tool_call>{"name": "time", "arguments": 5}"#,
        r#"<tool_call>{"name": "ti"#,
        "<function=",
        "  two spaces <thin",
        "\n",
    ] {
        check(ToolFormat::Hermes, text, &expect().content(text));
    }
    // A broken call does not hide the next one.
    check(
        ToolFormat::Hermes,
        r#"<tool_call>{oops<tool_call>{"name": "time"}</tool_call>!"#,
        &expect().content("<tool_call>{oops!").call(call("time", "{}")),
    );
}

#[test]
fn a_call_that_is_cut_off_or_broken_keeps_its_deltas() {
    let open = r#"<tool_call>{"name": "weather", "arguments": {"city": "Os"#;
    check(
        ToolFormat::Hermes,
        open,
        &expect().call(call("weather", r#"{"city": "Os"#).incomplete()),
    );
    check(
        ToolFormat::Hermes,
        r#"<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call> Done."#,
        &expect()
            .content("Oslo}}</tool_call> Done.")
            .call(call("weather", r#"{"city": "#).incomplete()),
    );
    check(
        ToolFormat::Function,
        "<tool_call><function=weather><parameter=city>\nOs</par",
        &expect().call(call("weather", r#"{"city": "Os</par"#).incomplete()),
    );
    check(
        ToolFormat::Function,
        "<tool_call><function=weather>\n<parameter=days>\n1",
        &expect().call(call("weather", r#"{"days": 1"#).incomplete()),
    );
    check(
        ToolFormat::Function,
        "<function=weather><bold>",
        &expect().content("<bold>").call(call("weather", "").incomplete()),
    );
    check(
        ToolFormat::Gemma,
        "<|tool_call>call:weather{city:<|\"|>Os<|",
        &expect().call(call("weather", r#"{"city": "Os<|"#).incomplete()),
    );
}

#[test]
fn reasoning() {
    let format = ToolFormat::Hermes;
    // The template opened the tag.
    check(
        format,
        "Let me see.\n</think>\n\nHi.",
        &expect().within_reasoning().reasoning("Let me see.").content("Hi."),
    );
    check(format, "No end", &expect().within_reasoning().reasoning("No end"));
    // A tag within the answer is text, unless it follows a call.
    check(format, "Write <think> first.", &expect().content("Write <think> first."));
    check(
        format,
        "<think>a</think><tool_call>{\"name\": \"time\"}</tool_call>\n<think>b</think>c",
        &expect().reasoning("ab").content("c").call(call("time", "{}")),
    );
    // A call that the model makes before it closes the tag.
    check(
        format,
        "Hm <tool_call> is a tag.\n<tool_call>{\"name\": \"time\"}</tool_call>\n</think>\nDone",
        &expect()
            .within_reasoning()
            .reasoning("Hm <tool_call> is a tag.")
            .content("Done")
            .call(call("time", "{}")),
    );
    check(format, "</think>\nHi", &expect().content("Hi"));
    check(ToolFormat::Mistral, "[THINK]a[/THINK]b", &expect().reasoning("a").content("b"));
    check(
        ToolFormat::Gemma,
        "<|channel>thought\na\nb<channel|>c",
        &expect().reasoning("a\nb").content("c"),
    );
}

#[test]
fn qwen3_coder() {
    let format = ToolFormat::Function;
    let text = "Let me check.\n\n<tool_call>\n<function=weather>\n<parameter=city>\nSão \"Paulo\"\n\
        </parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=tags>\n[\"a\", 1]\n</parameter>\n\
        </function>\n</tool_call>";
    let weather = call("weather", r#"{"city": "São \"Paulo\"", "days": 3, "tags": ["a", 1]}"#);
    check(format, text, &expect().content("Let me check.").call(weather.clone()));
    // Without the outer tag, in the frame of Seed-OSS, without line breaks, without arguments.
    check(
        format,
        "<function=time></function><seed:tool_call><function=note><parameter=text>a\n\n</parameter>\
         <parameter=new>5</parameter></function></seed:tool_call>",
        &expect().call(call("time", "{}")).call(call("note", r#"{"text": "a\n", "new": "5"}"#)),
    );
    // The templates of some models of the family write JSON.
    check(
        format,
        r#"<tool_call>{"name": "time", "arguments": {}}</tool_call>"#,
        &expect().call(call("time", "{}")),
    );
    check(
        format,
        "<tool_call><function=note><parameter=text>\nif a < b && \"<tag>\" {\n\t1\n}\n</parameter></function></tool_call>",
        &expect().call(call("note", r#"{"text": "if a < b && \"<tag>\" {\n\t1\n}"}"#)),
    );
}

#[test]
fn glm() {
    let format = ToolFormat::Glm;
    check(
        format,
        "<think>x</think>\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n\
         <arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>time</tool_call>",
        &expect()
            .reasoning("x")
            .call(call("weather", r#"{"city": "Oslo", "days": 2}"#))
            .call(call("time", "{}")),
    );
    check(
        format,
        "<tool_call>note<arg_key>text</arg_key><arg_value> a\n</arg_value></tool_call>",
        &expect().call(call("note", r#"{"text": " a\n"}"#)),
    );
    check(format, "<tool_call>is a tag.", &expect().content("<tool_call>is a tag."));
    check(
        format,
        "<tool_call> and </tool_call>",
        &expect().content("<tool_call> and </tool_call>"),
    );
}

#[test]
fn llama() {
    let format = ToolFormat::Llama;
    let object = r#"{"name": "weather", "parameters": {"city": "Oslo"}}"#;
    let weather = call("weather", r#"{"city": "Oslo"}"#);
    check(format, object, &expect().call(weather.clone()));
    check(format, &format!("<|python_tag|>{object}"), &expect().call(weather.clone()));
    check(
        format,
        &format!("{object}; {object}\n"),
        &expect().call(weather.clone()).call(weather.clone()),
    );
    check(
        format,
        &format!("{object}; and more"),
        &expect().content("; and more").call(weather.clone()),
    );
    // Answers in JSON, unknown tools, and code for an interpreter are content.
    for text in [
        r#"{"answer": 5}"#,
        r#"{"name": "Ada", "parameters": {}}"#,
        r#"Say {"name": "time", "parameters": {}}"#,
        "<|python_tag|>print(1)",
        "{",
    ] {
        check(format, text, &expect().content(text));
    }
}

#[test]
fn mistral() {
    for format in [ToolFormat::Mistral, ToolFormat::MistralArray] {
        let weather = call("weather", r#"{"city": "Oslo"}"#);
        let array = r#"[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo"}, "id": "abcdefghi"}, {"name": "time", "arguments": {}}]"#;
        check(format, array, &expect().call(weather.clone()).call(call("time", "{}")));
        for text in [
            r#"[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}[TOOL_CALLS]time[ARGS]{}"#,
            r#"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "Oslo"}[TOOL_CALLS]time[ARGS]{}"#,
            r#"[TOOL_CALLS]weather{"city": "Oslo"}[TOOL_CALLS]time{}"#,
            r#"[TOOL_CALLS]weather [ARGS] {"city": "Oslo"} [TOOL_CALLS] time[ARGS]{}"#,
        ] {
            check(format, text, &expect().call(weather.clone()).call(call("time", "{}")));
        }
        check(format, "[TOOL_CALLS]is a marker {", &expect().content("[TOOL_CALLS]is a marker {"));
        let answer = parse(parsing::format(format), &tools(), false, [array]);
        assert!(answer.calls.iter().all(|call| call.id.len() == 9), "{answer:?}");
    }
}

#[test]
fn gemma() {
    check(
        ToolFormat::Gemma,
        "I'll look.\n<|tool_call>call:weather{city:<|\"|>O\"s,{lo}<|\"|>,days:2,tags:[<|\"|>a<|\"|>,true,],\
         at:{x:-1.5e3,y:null,}}<tool_call|><|tool_call>call:time{}<tool_call|>",
        &expect()
            .content("I'll look.")
            .call(call(
                "weather",
                r#"{"city": "O\"s,{lo}", "days": 2, "tags": ["a", true], "at": {"x": -1.5e3, "y": null}}"#,
            ))
            .call(call("time", "{}")),
    );
    // JSON, or words without quotes.
    check(
        ToolFormat::Gemma,
        r#"<|tool_call>call:weather{"city" : "Os\"lo", <|"|>days<|"|>: 3, note: as is}<tool_call|>"#,
        &expect().call(call("weather", r#"{"city": "Os\"lo", "days": 3, "note": "as is"}"#)),
    );
    // Python's quotes, with apostrophes as they are, and without commas.
    for (text, arguments) in [
        ("{tags:['ds_1']}", r#"{"tags": ["ds_1"]}"#),
        ("{tags:[ 'a' , 'it's', 'q\"\\'' ]}", r#"{"tags": ["a", "it's", "q\"'"]}"#),
        ("{at:{'x': 'a, b', \"y\": \"c\"}}", r#"{"at": {"x": "a, b", "y": "c"}}"#),
        ("{city:<|\"|>Oslo<|\"|> days:2}", r#"{"city": "Oslo", "days": 2}"#),
        ("{tags:['a' 'b']}", r#"{"tags": ["a' 'b"]}"#),
    ] {
        let text = format!("<|tool_call>call:weather{text}<tool_call|>");
        check(ToolFormat::Gemma, &text, &expect().call(call("weather", arguments)));
    }
    // Cut off within a quote.
    check(
        ToolFormat::Gemma,
        "<|tool_call>call:weather{tags:['a",
        &expect().call(call("weather", r#"{"tags": ["a"#).incomplete()),
    );
    check(
        ToolFormat::FunctionGemma,
        "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:1}<end_function_call>",
        &expect().call(call("weather", r#"{"city": "Oslo", "days": 1}"#)),
    );
}

#[test]
fn a_namespace_before_the_name_of_a_tool_is_left_out() {
    for (format, text) in [
        (
            ToolFormat::Hermes,
            r#"<tool_call>{"name": "functions.time", "arguments": {}}</tool_call>"#,
        ),
        (ToolFormat::Mistral, "[TOOL_CALLS]default_api:time[ARGS]{}"),
        (ToolFormat::Lfm2, "<|tool_call_start|>[tools.time()]<|tool_call_end|>"),
        (ToolFormat::Object, r#"{"name": "functions.time", "arguments": {}}"#),
    ] {
        check(format, text, &expect().call(call("time", "{}")));
    }
    // A name that no tool has stays as it is.
    let text = r#"<tool_call>{"name": "functions.other", "arguments": {}}</tool_call>"#;
    check(ToolFormat::Hermes, text, &expect().call(call("functions.other", "{}")));
}

#[test]
fn harmony() {
    let format = ToolFormat::Harmony;
    check(
        format,
        "<|channel|>analysis<|message|>Need the weather.<|end|><|start|>assistant<|channel|>commentary \
         to=functions.weather <|constrain|>json<|message|>{\"city\": \"Oslo\"}<|call|>",
        &expect().reasoning("Need the weather.").call(call("weather", r#"{"city": "Oslo"}"#)),
    );
    // The recipient before the channel, a preamble, two calls; the end token is not in the text.
    check(
        format,
        "<|channel|>commentary<|message|>I'll look.<|end|><|start|>assistant to=functions.time\
         <|channel|>commentary<|message|>{}<|end|><|start|>assistant to=functions.weather<|channel|>\
         commentary json<|message|>{\"days\": 1}",
        &expect()
            .content("I'll look.")
            .call(call("time", "{}"))
            .call(call("weather", r#"{"days": 1}"#)),
    );
    check(
        format,
        " to=functions.time<|channel|>commentary<|message|><|call|>",
        &expect().call(call("time", "{}")),
    );
    check(
        format,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
         <|start|>assistant<|channel|>final<|message|> Hi. <|return|>",
        &expect().reasoning("a\n\nb").content(" Hi. "),
    );
    check(
        format,
        "<|channel|>commentary to=functions.weather<|message|>{\"city\": \"Os",
        &expect().call(call("weather", r#"{"city": "Os"#).incomplete()),
    );
    check(
        format,
        "<|channel|>commentary to=functions.note<|message|>{\"text\": \"<|end|>\"}<|call|>",
        &expect().call(call("note", r#"{"text": "<|end|>"}"#)),
    );
    check(
        format,
        "<|channel|>commentary to=functions.note<|message|>{\"days\": 1<|end|><|start|>assistant\
         <|channel|>final<|message|>Hi",
        &expect().content("Hi").call(call("note", r#"{"days": 1"#).incomplete()),
    );
    // An answer without channels, and a call that is none.
    check(format, " to be or not", &expect().content(" to be or not"));
    check(
        format,
        "<|channel|>commentary to=functions.time<|message|>now<|end|>",
        &expect().content("<|channel|>commentary to=functions.time<|message|>now"),
    );
    check(format, "<|message|>Hi", &expect().content("Hi"));
    check(format, "<|channel|>ana", &expect());
    check(format, "<|channel|>analysis<|mess", &expect().content("<|channel|>analysis<|mess"));
}

#[test]
fn deep_seek() {
    let weather = || call("weather", r#"{"city": "Oslo"}"#);
    for format in [ToolFormat::DeepSeek, ToolFormat::DeepSeekFenced] {
        check(
            format,
            "<think>Hm</think>I'll look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>\
             {\"city\": \"Oslo\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            &expect()
                .reasoning("Hm")
                .content("I'll look.")
                .call(weather())
                .call(call("time", "{}")),
        );
        check(
            format,
            "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Os",
            &expect().call(call("weather", r#"{"city": "Os"#).incomplete()),
        );
        for text in [
            "<｜tool▁calls▁begin｜>none",
            "<｜tool▁call▁begin｜>two words<｜tool▁sep｜>{}",
            "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>5",
        ] {
            let answer = parse(parsing::format(format), &tools(), false, [text]);
            assert!(answer.calls.iter().all(|call| !call.complete), "{text}: {answer:?}");
        }
    }
    let fenced = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n\
        {\"city\": \"Oslo\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n\
        ```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    check(ToolFormat::DeepSeekFenced, fenced, &expect().call(weather()).call(call("time", "{}")));
    // A fence that is none of a call is content.
    let code = "```\nlet x = 1;\n```";
    check(ToolFormat::DeepSeekFenced, code, &expect().content(code));
}

#[test]
fn kimi() {
    let format = ToolFormat::Kimi;
    let text = "One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0\
        <|tool_call_argument_begin|>{\"city\": \"Oslo\"}<|tool_call_end|><|tool_call_begin|>functions.time:1\
        <|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>";
    check(
        format,
        text,
        &expect()
            .content("One moment.")
            .call(call("weather", r#"{"city": "Oslo"}"#))
            .call(call("time", "{}")),
    );
    let answer = parse(parsing::format(format), &tools(), false, [text]);
    let ids: Vec<_> = answer.calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["functions.weather:0", "functions.time:1"]);
    check(
        format,
        "<|tool_calls_section_begin|> <|tool_call_begin|>time<|tool_call_argument_begin|>{}",
        &expect().call(call("time", "{}")),
    );
    let text = "<|tool_calls_section_begin|>is a marker";
    check(format, text, &expect().content(text));
}

#[test]
fn lfm2() {
    let format = ToolFormat::Lfm2;
    check(
        format,
        "Checking.<|tool_call_start|>[weather(city=\"O'slo\", days=2, tags=['a\\'b', True, None, -1.5e3, {'x': [1,], \
         'y': {'z': 0, },}]), time(), note(text='line\\nbreak \\\\ \\d \" \\u00e9\\ud83d\\ude00\\u1')]<|tool_call_end|>Done.",
        &expect()
            .content("Checking.Done.")
            .call(call(
                "weather",
                r#"{"city": "O'slo", "days": 2, "tags": ["a'b", true, null, -1.5e3, {"x": [1], "y": {"z": 0}}]}"#,
            ))
            .call(call("time", "{}"))
            .call(call("note", r#"{"text": "line\nbreak \\ \\d \" é😀\\u1"}"#)),
    );
    check(
        format,
        "<|tool_call_start|>[weather(city='Os",
        &expect().call(call("weather", r#"{"city": "Os"#).incomplete()),
    );
    check(
        format,
        "<|tool_call_start|>[weather(days=1",
        &expect().call(call("weather", r#"{"days": 1"#).incomplete()),
    );
    for text in ["<|tool_call_start|>", "<|tool_call_start|>[1]", "<|tool_call_start|>weather()"] {
        check(format, text, &expect().content(text));
    }
}

#[test]
fn mini_max() {
    let format = ToolFormat::MiniMax;
    check(
        format,
        "<think>\nHm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">\
         O\"slo\"</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"time\">\n\
         </invoke>\n</minimax:tool_call>",
        &expect()
            .reasoning("Hm")
            .call(call("weather", r#"{"city": "O\"slo\"", "days": 2}"#))
            .call(call("time", "{}")),
    );
    check(
        format,
        "<minimax:tool_call><invoke name=\"note\"><parameter name=\"text\">a < b",
        &expect().call(call("note", r#"{"text": "a < b"#).incomplete()),
    );
    let text = "<minimax:tool_call>is a tag";
    check(format, text, &expect().content(text));
}

#[test]
fn deep_seek_since_v3_2() {
    for (format, wrapper) in [
        (ToolFormat::DeepSeekFunctionCalls, "function_calls"),
        (ToolFormat::DeepSeekToolCalls, "tool_calls"),
    ] {
        let text = format!(
            "Hm</think>One moment.\n\n<｜DSML｜{wrapper}>\n<｜DSML｜invoke name=\"weather\">\n\
             <｜DSML｜parameter name=\"city\" string=\"true\">\nO\"slo </｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"days\" string=\"false\">2</｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"id\" string=\"true\">7</｜DSML｜parameter>\n\
             <｜DSML｜parameter name=\"at\" string=\"false\">[1, true]</｜DSML｜parameter>\n\
             </｜DSML｜invoke>\n<｜DSML｜invoke name=\"time\">\n</｜DSML｜invoke>\n\
             </｜DSML｜{wrapper}>"
        );
        // White space belongs to a text, and the model knows whether an unknown argument is one.
        let arguments = r#"{"city": "\nO\"slo ", "days": 2, "id": "7", "at": [1, true]}"#;
        check(
            format,
            &text,
            &expect()
                .within_reasoning()
                .reasoning("Hm")
                .content("One moment.")
                .call(call("weather", arguments))
                .call(call("time", "{}")),
        );
    }
    let format = ToolFormat::DeepSeekFunctionCalls;
    check(
        format,
        "<｜DSML｜invoke name=\"note\"><｜DSML｜parameter name=\"text\" string=\"true\">a </｜DSML",
        &expect().call(call("note", r#"{"text": "a </｜DSML"#).incomplete()),
    );
    let text = "<｜DSML｜function_calls>is a tag";
    check(format, text, &expect().content(text));
}

#[test]
fn without_tools_no_text_is_a_call() {
    let text = r#"<tool_call>{"name": "time"}</tool_call>"#;
    let answer = parse(format(ToolFormat::Hermes), &[], false, [text]);
    expect().content(text).assert(&answer, text);
    let answer = parse(format(ToolFormat::Llama), &[], false, [r#"{"name": "time"}"#]);
    assert_eq!(answer.content, r#"{"name": "time"}"#);
}
