//! Demanded calls in the form of each family: the parser finds them, and their arguments are valid.

use rf_chat::{Answer, ChatTemplate, Conversation, Message, Prompt, Tool, ToolChoice, ToolFormat};
use rf_grammar::{Error, Grammar};
use rf_testing::SplitMix64 as Random;
use serde_json::{Value, json};

use crate::sampling::{COMPILER, sample};

/// Templates of each form. The comments hold the markers.
const TEMPLATES: [(ToolFormat, &str); 18] = [
    (ToolFormat::Hermes, "{# tools <tool_call> #}"),
    (ToolFormat::Function, "{# tools <tool_call><function=<parameter= <think> #}"),
    (
        ToolFormat::Glm,
        "{# tools <tool_call><arg_key> <think> #}{{ '<think>' if add_generation_prompt }}",
    ),
    (ToolFormat::Llama, "{# tools <|python_tag|> #}"),
    (ToolFormat::MistralArray, "{# tools [TOOL_CALLS] #}"),
    (ToolFormat::Mistral, "{# tools [TOOL_CALLS] [ARGS] [THINK] #}"),
    (ToolFormat::Gemma, "{# tools <|tool_call> <|channel>thought #}"),
    (ToolFormat::FunctionGemma, "{# tools <start_function_call> #}"),
    (ToolFormat::Harmony, "{# tools <|channel|><|message|> #}"),
    (ToolFormat::DeepSeek, "{# tools <｜tool▁call▁begin｜> <think> #}"),
    (ToolFormat::DeepSeekFenced, "{# tools <｜tool▁call▁begin｜> ```json #}"),
    (ToolFormat::DeepSeekFunctionCalls, "{# tools ｜DSML｜ function_calls <think> #}"),
    (ToolFormat::DeepSeekToolCalls, "{# tools ｜DSML｜ tool_calls <think> #}"),
    (ToolFormat::Kimi, "{# tools <|tool_call_begin|> #}"),
    (ToolFormat::Lfm2, "{# tools <|tool_list_start|> #}"),
    (ToolFormat::MiniMax, "{# tools <minimax:tool_call> <think> #}"),
    (ToolFormat::Object, "{{ messages[0].content }}"),
    // The channels of gpt-oss, and calls as the prompt asks for them.
    (ToolFormat::Object, "{{ messages[0].content }}{# <|channel|><|message|> #}"),
];

fn tools() -> Vec<Tool> {
    let weather = json!({"name": "weather", "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer", "minimum": 1, "maximum": 20},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "at": {"$ref": "#/$defs/point"},
        },
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": {"point": {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}},
    }});
    let time = json!({"name": "time"});
    [weather, time].iter().map(|tool| Tool::from_json(tool).unwrap()).collect()
}

fn prompt(template: &str, tool_choice: ToolChoice) -> Prompt {
    let conversation = Conversation::default()
        .with_messages(vec![Message::new("user", "Hi")])
        .with_tools(tools())
        .with_tool_choice(tool_choice);
    conversation.prompt(&ChatTemplate::new(template, "", "").unwrap()).unwrap()
}

fn parse(prompt: &Prompt, text: &str) -> Answer {
    let mut parser = prompt.parser();
    let mut answer: Answer = parser.push(text).into_iter().collect();
    answer.extend(parser.finish());
    answer
}

#[test]
fn a_demanded_call_is_made_in_the_models_own_form() {
    let mut random = Random::new(7);
    for (format, template) in TEMPLATES {
        for choice in [ToolChoice::Required, ToolChoice::Named("weather".to_owned())] {
            let prompt = prompt(template, choice);
            assert_eq!(prompt.format.tools, format);
            for _ in 0..15 {
                let constraint = COMPILER.compile_calls(&prompt, true).unwrap().unwrap();
                let text = sample(constraint, &mut random);
                let answer = parse(&prompt, &text);
                assert!(answer.calls_tools(), "{format:?}: {text} is {answer:?}");
                assert_eq!(answer.content, "", "{format:?}: {text}");
                if prompt.tool_choice != ToolChoice::Required {
                    assert_eq!(answer.calls.len(), 1, "{format:?}: {text}");
                    assert_eq!(answer.calls[0].name, "weather", "{format:?}: {text}");
                }
                for call in &answer.calls {
                    let tool = prompt.tools.iter().find(|tool| tool.name == call.name).unwrap();
                    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                    let valid = jsonschema::validate(&tool.parameters, &arguments);
                    assert!(valid.is_ok(), "{format:?}: {valid:?} in {text}");
                }
            }
        }
        assert!(
            COMPILER.compile_calls(&prompt(template, ToolChoice::Auto), true).unwrap().is_none()
        );
    }
}

#[test]
fn references_to_the_whole_schema_resolve_in_every_form() {
    let tool = json!({"name": "t", "parameters": {
        "type": "object",
        "properties": {
            "tree": {"type": "object", "properties": {
                "left": {"anyOf": [{"type": "boolean"}, {"$ref": "#/properties/tree"}]},
                "right": {"$ref": "#/properties/tree/properties/left/anyOf/0"},
            }, "required": ["left", "right"], "additionalProperties": false},
        },
        "required": ["tree"],
        "additionalProperties": false,
    }});
    let mut random = Random::new(11);
    for (format, template) in TEMPLATES {
        let mut prompt = prompt(template, ToolChoice::Required);
        prompt.tools = vec![Tool::from_json(&tool).unwrap()];
        let constraint = COMPILER.compile_calls(&prompt, false).unwrap().unwrap();
        let answer = parse(&prompt, &sample(constraint, &mut random));
        let arguments: Value = serde_json::from_str(&answer.calls[0].arguments).unwrap();
        let valid = jsonschema::validate(&prompt.tools[0].parameters, &arguments);
        assert!(valid.is_ok(), "{format:?}: {valid:?} in {arguments}");
    }
}

#[test]
fn content_fits_after_the_reasoning() {
    let grammar =
        Grammar::JsonSchema(json!({"type": "object", "properties": {"a": {"type": "integer"}},
        "required": ["a"], "additionalProperties": false}));
    let mut random = Random::new(9);
    for (format, template) in TEMPLATES {
        let prompt = prompt(template, ToolChoice::None);
        let mut reasoned = false;
        for _ in 0..15 {
            let text = sample(COMPILER.compile_answer(&prompt, &grammar).unwrap(), &mut random);
            let answer = parse(&prompt, &text);
            let value: Result<Value, _> = serde_json::from_str(&answer.content);
            assert!(
                value.is_ok_and(|value| value["a"].is_number()),
                "{format:?}: {text} is {answer:?}"
            );
            reasoned |= !answer.reasoning.is_empty();
        }
        assert_eq!(reasoned, prompt.format.template_knows_reasoning, "{format:?}");
    }
}

#[test]
fn a_tool_with_bad_parameters_is_named() {
    let mut prompt = prompt(TEMPLATES[0].1, ToolChoice::Required);
    prompt.tools[1].parameters = json!({"properties": {"x": {"type": "strin"}}});
    let error = COMPILER.compile_calls(&prompt, false).unwrap_err();
    assert!(matches!(&error, Error::Tool { name, .. } if name == "time"), "{error}");
    assert!(error.to_string().contains("#/properties/x"), "{error}");
}

/// The arguments of demanded calls of a tool with `parameters`, in each form.
fn arguments(parameters: &Value, check: impl Fn(ToolFormat, &Value)) {
    let mut random = Random::new(11);
    for (format, template) in TEMPLATES {
        let mut prompt = prompt(template, ToolChoice::Required);
        let tool = json!({"name": "t", "parameters": parameters});
        prompt.tools = vec![Tool::from_json(&tool).unwrap()];
        for _ in 0..5 {
            let constraint = COMPILER.compile_calls(&prompt, false).unwrap().unwrap();
            let text = sample(constraint, &mut random);
            let answer = parse(&prompt, &text);
            assert_eq!(answer.calls.len(), 1, "{format:?}: {text}");
            check(format, &serde_json::from_str(&answer.calls[0].arguments).unwrap());
        }
    }
}

#[test]
fn references_to_other_parts_of_the_parameters_resolve() {
    let parameters = json!({"type": "object", "properties": {"tree": {
        "type": "object",
        "properties": {
            "left": {"anyOf": [{"enum": ["x", "y"]}, {"$ref": "#/properties/tree"}]},
            "right": {"anyOf": [
                {"enum": ["x", "y"]}, {"$ref": "#/properties/tree/properties/left/anyOf/1"},
            ]},
        },
        "required": ["left", "right"],
        "additionalProperties": false,
    }}, "required": ["tree"], "additionalProperties": false});
    arguments(&parameters, |format, arguments| {
        let valid = jsonschema::validate(&parameters, arguments);
        assert!(valid.is_ok(), "{format:?}: {valid:?} for {arguments}");
    });
}

#[test]
fn keywords_of_tools_that_are_not_supported_are_left_out() {
    let parameters = json!({"type": "object", "properties": {
        "tags": {"type": "array", "items": {"type": "integer"}, "maxItems": 3, "uniqueItems": true},
        "m": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"},
              "additionalProperties": {"type": "null"}, "maxProperties": 0},
        "n": {"type": "integer", "format": "int32", "not": {"const": 3}},
    }, "required": ["tags", "n"], "additionalProperties": false,
    "dependentRequired": {"m": ["n"]}, "if": {"required": ["m"]}, "then": {}});
    arguments(&parameters, |format, arguments| {
        let fits = arguments["tags"].as_array().is_some_and(|tags| tags.len() <= 3)
            && arguments["n"].as_f64().is_some_and(|number| number.fract() == 0.0);
        assert!(fits, "{format:?}: {arguments}");
    });
}

#[test]
fn patterns_and_references_of_tools_that_are_not_supported_are_left_out() {
    let parameters = json!({"type": "object", "properties": {
        "mail": {"type": "string", "maxLength": 8,
            "pattern": r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([a-z]*\.)+[a-z]{2,}$"},
        "labels": {"type": "object", "patternProperties": {"^(?!x-)": {"type": "null"}},
            "additionalProperties": false, "maxProperties": 0},
        "next": {"type": "array", "items": {"$ref": "https://example.com/a.json"}, "maxItems": 0},
        "last": {"type": "array", "items": {"$ref": "#/$defs/none"}, "maxItems": 0},
        "kind": {"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 2}]},
    }, "required": ["mail", "labels", "next", "last", "kind"], "additionalProperties": false});
    arguments(&parameters, |format, arguments| {
        assert!(arguments["mail"].is_string(), "{format:?}: {arguments}");
        assert!(arguments["kind"].as_f64().is_some(), "{format:?}: {arguments}");
    });
    for schema in parameters["properties"].as_object().unwrap().values() {
        assert!(COMPILER.compile(&Grammar::JsonSchema(schema.clone())).is_err(), "{schema}");
    }
}
