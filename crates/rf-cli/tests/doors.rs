//! Every way into the engine gives the same answer: the library, `rf-cli run`, and the server, with
//! and without drafts, for one model of each kind.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

#[path = "../../rf-server/tests/fixed/mod.rs"]
mod fixed;
mod program;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

use program::chat::{saved, say};
use program::terminal::Terminal;
use program::{finish, rf_cli, transcripts};
use rocmforge::device::{Device, DeviceOptions};
use rocmforge::{Answer, Drafts, GenerateOptions, Loader, SamplerConfig, Tool, ToolChoice};
use serde_json::{Value, json};
use snapbox::{assert_data_eq, str};

/// A dense model, one with windows, one with experts, a recurrent one, one with latent attention.
const MODELS: [&str; 5] =
    ["smollm3", "gemma3_linear", "gptoss_mxfp4", "granitehybrid", "deepseek2_mla"];
const PROMPT: &str = "abcabcabcabc";
const TOKENS: usize = 24;

/// A server on a free port, which ends with this value.
struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let all = [&["serve", "--port", "0"], arguments].concat();
        let mut child = rf_cli(folder, &all).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        }
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        // A pipe that nobody reads would block the log.
        std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
        Self { child, address }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{reply}");
        serde_json::from_str(body).unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn loader(path: &Path) -> Loader {
    Loader::new(path).device(DeviceOptions::default().with_device(Device::Cpu))
}

/// The log probabilities of tokens in the form of `OpenAI`'s API, each with those of the most
/// probable tokens.
fn printed_scores(logprobs: &Value) -> Vec<(f32, Vec<f32>)> {
    let number = |token: &Value| token["logprob"].as_f64().unwrap() as f32;
    let entries = logprobs["content"].as_array().unwrap().iter();
    let top =
        |entry: &Value| entry["top_logprobs"].as_array().unwrap().iter().map(number).collect();
    entries.map(|entry| (number(entry), top(entry))).collect()
}

fn scores(answer: &Answer) -> Vec<(f32, Vec<f32>)> {
    // JSON has no infinity.
    let finite = |logprob: f32| logprob.max(-9999.0);
    let tokens = answer.tokens.iter();
    tokens
        .map(|token| (finite(token.logprob), token.top.iter().map(|top| finite(top.1)).collect()))
        .collect()
}

/// Drafts, by their names on the command line.
const DRAFTS: [(Drafts, &str); 2] = [(Drafts::Off, "off"), (Drafts::Ngram, "ngram")];

#[test]
fn greedy_text_and_log_probabilities_are_the_same_at_every_door() {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = rf_testing::golden_model(name);
        let file = path.to_str().unwrap();
        let mut texts = Vec::new();
        for (drafts, spec) in DRAFTS {
            let options = GenerateOptions::default()
                .with_sampler(SamplerConfig::default().with_temperature(0.0))
                .with_max_tokens(TOKENS)
                .with_ignore_eos(true);
            let model = loader(&path).drafts(drafts).load().unwrap();
            let answer = model.complete(PROMPT).options(options).logprobs(2).answer().unwrap();
            assert_eq!(answer.tokens.len(), TOKENS, "{name}");
            let library: Vec<f32> = answer.tokens.iter().map(|token| token.logprob).collect();

            let one = ["run", "-m", file, "--raw", "--json", "--temp", "0", "-n", "24"];
            let more = ["--logprobs", "2", "--ignore-eos", "--spec", spec, PROMPT];
            let run = finish(folder.path(), &[&one[..], &more].concat()).json();
            let ids: Vec<u64> = answer.tokens.iter().map(|token| u64::from(token.id)).collect();
            assert_eq!(run["ids"], json!(ids), "{name} {spec}");
            assert_eq!(run["text"], answer.content, "{name} {spec}");
            assert_eq!(printed_scores(&run["logprobs"]), scores(&answer), "{name} {spec}");
            assert_eq!(run["logprobs"]["content"][0]["top_logprobs"].as_array().unwrap().len(), 2);

            let server = Serve::start(folder.path(), &["-m", file, "--spec", spec]);
            let reply = server.post(
                "/v1/completions",
                &json!({
                    "prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": true,
                    "logprobs": 2,
                }),
            );
            let choice = &reply["choices"][0];
            assert_eq!(choice["text"], answer.content, "{name} {spec}");
            let served = choice["logprobs"]["token_logprobs"].as_array().unwrap();
            let served: Vec<f32> =
                served.iter().map(|number| number.as_f64().unwrap() as f32).collect();
            assert_eq!(served, library, "{name} {spec}");
            texts.push(answer.content);
        }
        assert_eq!(texts[0], texts[1], "{name}: drafts change the text");
    }
}

#[test]
fn contexts_shift_at_every_door() {
    const MORE_TOKENS: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let path = rf_testing::golden_model(name);
        let file = path.to_str().unwrap();
        let device = DeviceOptions::default().with_device(Device::Cpu);
        let model = Loader::new(path.as_path()).device(device).context_tokens(64).load().unwrap();
        let options = GenerateOptions::default()
            .with_sampler(SamplerConfig::default().with_temperature(0.0))
            .with_max_tokens(MORE_TOKENS)
            .with_ignore_eos(true)
            .with_context_shift(true);
        let answer = model.complete(PROMPT).options(options).answer().unwrap();
        assert_eq!(answer.usage.completion_tokens, MORE_TOKENS, "{name}");

        for spec in ["off", "ngram"] {
            let common = ["-m", file, "-c", "64", "--spec", spec, "--context-shift"];
            let one = ["--raw", "--json", "--temp", "0", "-n", "100", "--ignore-eos", PROMPT];
            let run = finish(folder.path(), &[&["run"], &common[..], &one].concat()).json();
            assert_eq!(run["text"], answer.content, "{name} {spec}");

            let server = Serve::start(folder.path(), &common);
            let body = json!({
                "prompt": PROMPT, "temperature": 0, "max_tokens": MORE_TOKENS, "ignore_eos": true,
            });
            let reply = server.post("/v1/completions", &body);
            assert_eq!(reply["choices"][0]["text"], answer.content, "{name} {spec}");
            assert_eq!(reply["choices"][0]["finish_reason"], "length", "{name} {spec}");
            assert_eq!(reply["usage"]["completion_tokens"], MORE_TOKENS, "{name} {spec}");
            let reply = server.post("/completion", &body);
            assert_eq!(reply["content"], answer.content, "{name} {spec}");
            assert_eq!((&reply["truncated"], &reply["stop_type"]), (&json!(true), &json!("limit")));
            // An answer without a limit ends at the trained context.
            let body = json!({ "prompt": PROMPT, "temperature": 0, "ignore_eos": true });
            let reply = server.post("/v1/completions", &body);
            let trained = model.file().config().context_length;
            assert_eq!(reply["usage"]["total_tokens"], trained, "{name} {spec}");
            assert_eq!(reply["choices"][0]["finish_reason"], "length", "{name} {spec}");
        }
        // Without the flag, the context ends the answer.
        let server = Serve::start(folder.path(), &["-m", file, "-c", "64"]);
        let body = json!({ "prompt": PROMPT, "max_tokens": MORE_TOKENS, "ignore_eos": true });
        let reply = server.post("/v1/completions", &body);
        assert_eq!(reply["usage"]["total_tokens"], 65, "{name}");
        assert_eq!(reply["choices"][0]["finish_reason"], "length", "{name}");
    }
}

#[test]
fn demanded_tool_calls_are_the_same_at_every_door() {
    // Without the tools, so that prompts stay within what the models were trained for.
    const TEMPLATE: &str =
        "{% for message in messages %}{{ message.content }}{% endfor %}{# tools <tool_call> #}";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("template.jinja"), TEMPLATE).unwrap();
    let town = json!({ "enum": ["Oslo", "Rome"] });
    let parameters = json!({
        "type": "object", "properties": { "town": town }, "required": ["town"],
        "additionalProperties": false,
    });
    let function = json!({ "name": "weather", "parameters": parameters });
    let tools = json!([{ "type": "function", "function": function }]);
    std::fs::write(folder.path().join("tools.json"), tools.to_string()).unwrap();
    let tool = Tool::from_json(&tools[0]).unwrap();
    let named = json!({ "type": "function", "function": { "name": "weather" } });
    for name in MODELS {
        let path = rf_testing::golden_model(name);
        let file = path.to_str().unwrap();
        let mut all = Vec::new();
        for (drafts, spec) in DRAFTS {
            let model = loader(&path).drafts(drafts).chat_template(TEMPLATE).context_tokens(512);
            let model = model.load().unwrap();
            let common =
                ["-m", file, "-c", "512", "--spec", spec, "--chat-template", "template.jinja"];
            let server = Serve::start(folder.path(), &common);
            for (word, choice, sent) in [
                ("required", ToolChoice::Required, json!("required")),
                ("weather", ToolChoice::Named("weather".to_owned()), named.clone()),
            ] {
                let what = format!("{name} {spec} {word}");
                let options = GenerateOptions::default()
                    .with_sampler(SamplerConfig::default().with_temperature(0.0))
                    .with_max_tokens(200);
                let chat = model.chat().user(PROMPT).tool(tool.clone()).tool_choice(choice);
                let answer = chat.options(options).logprobs(1).answer().unwrap();
                // A required call may be followed by others, of which the last one may be cut off.
                let calls = answer.calls.iter().filter(|call| call.complete);
                let calls: Vec<Value> = calls
                    .map(|call| json!({ "name": call.name, "arguments": call.arguments }))
                    .collect();
                assert_eq!(calls.first().unwrap()["name"], "weather", "{what}");
                let town: Value =
                    serde_json::from_str(calls[0]["arguments"].as_str().unwrap()).unwrap();
                assert!(["Oslo", "Rome"].contains(&town["town"].as_str().unwrap()), "{what}");

                let offer = ["--tools", "tools.json", "--tool-choice", word];
                let one = ["--json", "--logprobs", "1", "--temp", "0", "-n", "200", PROMPT];
                let run = [&["run"], &common[..], &offer, &one].concat();
                let run = finish(folder.path(), &run).json();
                // The library leaves out the marker after the last piece of a message.
                let count = answer.tokens.len();
                let ids: Vec<Value> = answer.tokens.iter().map(|token| json!(token.id)).collect();
                assert_eq!(run["ids"].as_array().unwrap()[..count], ids, "{what}");
                let printed = printed_scores(&run["logprobs"]);
                assert_eq!(printed[..count], scores(&answer), "{what}");
                let functions = |list: &Value| -> Vec<Value> {
                    let calls = list.as_array().unwrap().iter();
                    calls.map(|call| call["function"].clone()).collect()
                };
                assert_eq!(functions(&run["tool_calls"]), calls, "{what}");

                let body = json!({
                    "messages": [{ "role": "user", "content": PROMPT }], "tools": tools,
                    "tool_choice": sent, "temperature": 0, "max_tokens": 200,
                });
                let reply = server.post("/v1/chat/completions", &body);
                let served = functions(&reply["choices"][0]["message"]["tool_calls"]);
                assert_eq!(served[..calls.len()], calls, "{what}");
                all.push(calls);
            }
        }
        assert_eq!(all[..2], all[2..], "{name}: drafts change the calls");
    }
}

/// A model that reasons, says a sentence, and calls a tool. Its template leaves the reasoning of
/// earlier turns out, unless `keep_reasoning` is set, and the answer to a later turn says so.
fn reasoner(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("fixed.gguf");
    let template = "{% set seen = namespace(text='') %}{% for message in messages %}\
        {% set seen.text = seen.text ~ message.content %}{% if keep_reasoning %}\
        {% set seen.text = seen.text ~ (message.reasoning_content or '') %}{% endif %}{% endfor %}\
        {{ seen.text }}{{ tools }}{% if messages | length == 1 %}<|answer|>\
        {% elif 'Hm.' in seen.text %}<|kept|>{% else %}<|left_out|>{% endif %}\
        {# <tool_call> <think> #}";
    let answer = "<think>\nHm.\n</think>\nLet me look.\n<tool_call>\n{\"name\": \"weather\", \
        \"arguments\": {\"town\": \"Oslo\"}}\n</tool_call>";
    let answers =
        [("<|answer|>", answer), ("<|kept|>", "I recall."), ("<|left_out|>", "I forgot.")];
    fixed::write(&path, template, &answers).unwrap();
    path
}

#[test]
fn a_chat_leaves_reasoning_out_of_later_turns_as_the_template_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = reasoner(folder.path());
    let file = path.to_str().unwrap();
    for (variables, answer) in [("{}", "I forgot."), (r#"{"keep_reasoning": true}"#, "I recall.")] {
        let arguments = ["run", "-m", file, "--chat-template-kwargs", variables];
        let mut command = rf_cli(folder.path(), &arguments);
        command.env("XDG_STATE_HOME", folder.path());
        let mut chat = Terminal::start(command, "xterm");
        chat.wait_for(">>> ");
        say(&mut chat, "Hi", "Let me look.");
        say(&mut chat, "And then?", answer);
        let messages = saved(&folder, chat);
        assert!(messages[1].1.trim().starts_with("Let me look."), "{messages:?}");
        assert!(messages.iter().all(|(_, content)| !content.contains("Hm.")), "{messages:?}");
        assert_eq!(messages[3].1, answer);
    }
}

fn weather() -> Value {
    let town = json!({ "type": "object", "properties": { "town": { "type": "string" } } });
    json!({ "type": "function", "function": { "name": "weather", "parameters": town } })
}

#[test]
fn reasoning_and_tool_calls_are_the_same_at_every_door() {
    let folder = tempfile::tempdir().unwrap();
    let path = reasoner(folder.path());
    let file = path.to_str().unwrap();
    std::fs::write(folder.path().join("tools.json"), json!([weather()]).to_string()).unwrap();

    let model = loader(&path).load().unwrap();
    let tool = Tool::from_json(&weather()).unwrap();
    let answer = model.chat().user("Hi").tool(tool).answer().unwrap();
    assert_eq!(answer.reasoning.trim(), "Hm.");
    assert_eq!(answer.content.trim(), "Let me look.");
    let [call] = &answer.calls[..] else { panic!("{answer:?}") };
    assert_eq!((call.name.as_str(), call.complete), ("weather", true));

    let tools = ["run", "-m", file, "--tools", "tools.json", "Hi"];
    let shown = finish(folder.path(), &tools);
    let lines: Vec<&str> = shown.stdout.lines().filter(|line| !line.is_empty()).collect();
    let [content, printed] = lines[..] else { panic!("{}", shown.stdout) };
    assert_eq!(content.trim(), "Let me look.");
    let printed: Value = serde_json::from_str(printed).unwrap();
    assert_eq!(printed["function"]["name"], "weather");
    assert_eq!(printed["function"]["arguments"], call.arguments);
    assert!(shown.stderr.contains("Hm."), "{}", shown.stderr);
    let json = finish(folder.path(), &[&tools[..], &["--json"]].concat()).json();
    assert_eq!(json["tool_calls"][0]["function"], printed["function"]);
    assert_eq!(json["reasoning"], answer.reasoning);

    let server = Serve::start(folder.path(), &["-m", file]);
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let body = json!({ "messages": messages, "tools": [weather()] });
    let message = server.post("/v1/chat/completions", &body)["choices"][0]["message"].take();
    assert_eq!(message["tool_calls"][0]["function"], printed["function"]);
    assert_eq!(message["reasoning_content"], answer.reasoning);
    assert_eq!(message["content"], answer.content);
}

#[test]
fn bad_files_of_tools_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let printed = ["{", "{}", r#"[{"type": "function"}]"#].map(|text| {
        std::fs::write(folder.path().join("tools.json"), text).unwrap();
        transcripts(folder.path(), &[&["run", "--tools", "tools.json", "Hi"]])
    });
    std::fs::write(folder.path().join("tools.json"), json!([weather()]).to_string()).unwrap();
    let choice = ["run", "--tools", "tools.json", "--tool-choice", "time", "Hi"];
    let printed = printed.concat() + &transcripts(folder.path(), &[&choice]);
    assert_data_eq!(
        printed,
        str![[r#"
$ rf-cli run --tools tools.json Hi
error: --tools tools.json is not JSON: EOF while parsing an object at line 1 column 1
? 2
$ rf-cli run --tools tools.json Hi
error: --tools tools.json is not a list: write [{"type": "function", "function": {"name": …}}]
? 2
$ rf-cli run --tools tools.json Hi
error: --tools: tool 1: name must be a string
? 2
$ rf-cli run --tools tools.json --tool-choice time Hi
error: tool_choice names the tool `time`, which is not among the tools: weather
? 2

"#]]
    );
}
