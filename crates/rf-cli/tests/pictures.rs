//! Pictures and sounds: the text after them is that of llama.cpp, on the command line and of the
//! server.

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use program::{finish, rf_cli};
use rf_testing::{shared, skip};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The golden models that read pictures and hear sounds.
struct Golden {
    folder: PathBuf,
    index: Value,
    /// Files that the tests write.
    written: TempDir,
}

impl Golden {
    fn open() -> Option<Self> {
        let folder = shared("golden/vision")?;
        let index = fs::read(folder.join("index.json")).unwrap();
        let written = tempfile::tempdir().unwrap();
        Some(Self { index: serde_json::from_slice(&index).unwrap(), folder, written })
    }

    /// The families of supported architectures, with their prompts of which `kind` has all files:
    /// `images` or `audio`.
    fn prompts_of(&self, kind: &str) -> Vec<(&Value, Vec<&Value>)> {
        let supported = rf_model::supported_architectures();
        let is_known = |input: &Value| self.index[kind].get(text(input)).is_some();
        let mut families = Vec::new();
        for family in self.index["families"].as_array().unwrap() {
            if !supported.contains(&text(&family["architecture"])) {
                skip!("{} is not supported", family["architecture"]);
                continue;
            }
            let prompts = family["prompts"].as_array().unwrap().iter();
            let reads = |prompt: &&Value| prompt["media"].as_array().unwrap().iter().all(is_known);
            let prompts: Vec<&Value> = prompts.filter(reads).collect();
            if !prompts.is_empty() {
                families.push((family, prompts));
            }
        }
        families
    }

    fn prompts(&self) -> Vec<(&Value, Vec<&Value>)> {
        self.prompts_of("images")
    }

    fn picture(&self, input: &Value) -> PathBuf {
        self.folder.join(text(&self.index["images"][text(input)]["png"]))
    }

    /// The file of a sound. Where the reference resampled it, the file has its samples.
    fn sound(&self, input: &Value) -> PathBuf {
        let entry = &self.index["audio"][text(input)];
        let Some(samples) = entry["resampled"].as_str() else {
            return self.folder.join(text(&entry["wav"]));
        };
        let samples = fs::read(self.folder.join(samples)).unwrap();
        let len = u32::try_from(samples.len()).unwrap();
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x03\0\x01\0".to_vec();
        file.extend([16_000_u32, 64_000].iter().flat_map(|n| n.to_le_bytes()));
        file.extend_from_slice(b"\x04\0\x20\0data");
        file.extend_from_slice(&len.to_le_bytes());
        file.extend_from_slice(&samples);
        let path = self.written.path().join(format!("{}.wav", text(input)));
        fs::write(&path, file).unwrap();
        path
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The options of a family: the model, its projector and the settings of the reference.
fn options(folder: &Path, family: &Value) -> Vec<String> {
    let file = |name: &str| folder.join(text(&family[name])).display().to_string();
    let fixed = ["--cache-type", "f32", "-c", "4096", "-t", "1"].map(str::to_owned);
    let files = ["-m".to_owned(), file("model"), "--mmproj".to_owned(), file("mmproj")];
    [&files[..], &fixed].concat()
}

#[test]
fn run_answers_what_llama_cpp_answers() {
    let Some(golden) = Golden::open() else { return };
    let mut checked = 0;
    let pictures = golden.prompts().into_iter().map(|of| ("--image", of));
    let sounds = golden.prompts_of("audio").into_iter().map(|of| ("--audio", of));
    for (option, (family, prompts)) in pictures.chain(sounds) {
        for prompt in prompts {
            let mut arguments = vec!["run".to_owned(), "--json".to_owned(), "--raw".to_owned()];
            arguments.extend(options(&golden.folder, family));
            let inputs = prompt["media"].as_array().unwrap();
            for input in inputs {
                let is_picture = option == "--image";
                let path = if is_picture { golden.picture(input) } else { golden.sound(input) };
                arguments.extend([option.to_owned(), path.display().to_string()]);
            }
            let rest = ["-n", "8", "--temp", "0", "--ignore-eos", "-p", text(&prompt["text"])];
            arguments.extend(rest.map(str::to_owned));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let json = finish(&golden.folder, &arguments).json();
            let what = format!("{}/{}", family["name"], prompt["name"]);
            assert_eq!(json["ids"], prompt["greedy"], "{what}");
            let ids = json["prompt_ids"].as_array().unwrap();
            assert!(ids.contains(&Value::Null), "{what}: no rows");
            checked += 1;
        }
    }
    eprintln!("{checked} prompts");
    assert!(checked > 0);
}

#[test]
fn a_projector_of_another_model_is_refused() {
    let Some(folder) = shared("golden/vision") else { return };
    let finished = finish(
        &folder,
        &["run", "-m", "models/qwen3vl.gguf", "--mmproj", "gemma3/mmproj.gguf", "--raw", "Hi"],
    );
    assert_eq!(finished.code, Some(2), "{}", finished.stderr);
    let error = "(gemma3) for models that read rows of 64 values";
    assert!(finished.stderr.contains(error), "{}", finished.stderr);
    let arguments =
        ["run", "-m", "models/gemma3.gguf", "--raw", "--image", "images/a_64x48.png", "Hi"];
    let finished = finish(&folder, &arguments);
    assert!(finished.stderr.contains("the model reads no pictures"), "{}", finished.stderr);
}

/// A server, which ends with this value.
struct Serve {
    child: Child,
    address: String,
}

impl Serve {
    fn start(folder: &Path, arguments: &[String]) -> Self {
        let mut all = ["serve", "--port", "0"].map(str::to_owned).to_vec();
        all.extend_from_slice(arguments);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let mut child = rf_cli(folder, &all).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the server ended");
        }
        let address = line.trim().rsplit_once("http://").unwrap().1.to_owned();
        std::thread::spawn(move || stderr.read_to_string(&mut String::new()));
        Self { child, address }
    }

    /// The status and the body of an answer.
    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, body) = self.exchange(method, path, "application/json", body.as_bytes());
        (status, serde_json::from_str(&body).unwrap())
    }

    /// The status and the body of the answer to a form with a file and fields.
    fn send_form(&self, path: &str, file: &[u8], fields: &[(&str, &str)]) -> (u16, String) {
        let mut body = Vec::new();
        let mut part = |name: &str, data: &[u8]| {
            let head = format!("--cut\r\ncontent-disposition: form-data; name={name}\r\n\r\n");
            body.extend([head.as_bytes(), data, b"\r\n"].concat());
        };
        for (name, value) in fields {
            part(name, value.as_bytes());
        }
        part("\"file\"; filename=\"a.wav\"", file);
        body.extend(b"--cut--\r\n");
        self.exchange("POST", path, "multipart/form-data; boundary=cut", &body)
    }

    fn exchange(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> (u16, String) {
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (word >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit > chunk.len() { '=' } else { DIGITS[value].into() });
        }
    }
    text
}

#[test]
fn requests_of_every_api_have_the_same_pictures() {
    let Some(golden) = Golden::open() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let template = temporary.path().join("plain.jinja");
    fs::write(&template, "{% for m in messages %}{{ m.content }}{% endfor %}").unwrap();
    for (family, prompts) in golden.prompts() {
        let name = text(&family["name"]);
        if !["qwen3vl", "gemma3"].contains(&name) {
            continue;
        }
        let mut arguments = options(&golden.folder, family);
        arguments.extend(["--chat-template".to_owned(), template.display().to_string()]);
        let server = Serve::start(temporary.path(), &arguments);
        let (_, models) = server.send("GET", "/v1/models", &Value::Null);
        let modalities = &models["data"][0]["architecture"]["input_modalities"];
        assert_eq!(*modalities, json!(["text", "image"]));
        let (_, props) = server.send("GET", "/props", &Value::Null);
        assert_eq!(props["modalities"]["vision"], true);

        let prompt = prompts.iter().find(|prompt| prompt["name"] == "one").unwrap();
        let (before, after) = text(&prompt["text"]).split_once("<__media__>").unwrap();
        let data = base64(&fs::read(golden.picture(&prompt["media"][0])).unwrap());
        let url = format!("data:image/png;base64,{data}");
        let request = |image: Value| {
            json!({
                "temperature": 0, "max_tokens": 8, "ignore_eos": true, "logprobs": true,
                "messages": [{ "role": "user", "content": [
                    { "type": "text", "text": before }, image, { "type": "text", "text": after },
                ]}],
            })
        };
        let image = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
        let mut contents = Vec::new();
        for turn in 0..2 {
            let (status, answer) =
                server.send("POST", "/v1/chat/completions", &request(image(&url)));
            assert_eq!(status, 200, "{answer}");
            let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
            let ids: Vec<&Value> = tokens.iter().map(|token| &token["id"]).collect();
            let greedy: Vec<&Value> = prompt["greedy"].as_array().unwrap().iter().collect();
            assert_eq!(ids, greedy, "{name}, turn {turn}");
            contents.push(answer["choices"][0]["message"]["content"].clone());
            // The second time the cache has pages of the picture.
            let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            assert_eq!(cached.as_u64().unwrap() > 0, turn == 1, "{answer}");
        }
        let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
        let (status, answer) = server.send(
            "POST",
            "/v1/messages",
            &json!({ "max_tokens": 8, "temperature": 0, "ignore_eos": true, "messages": [
                { "role": "user", "content": [
                    { "type": "text", "text": before },
                    { "type": "image", "source": source },
                    { "type": "text", "text": after },
                ] },
            ]}),
        );
        assert_eq!(status, 200, "{answer}");
        let item = |image: &str| {
            json!({ "role": "user", "content": [
                { "type": "input_text", "text": before },
                { "type": "input_image", "image_url": image, "detail": "auto" },
                { "type": "input_text", "text": after },
            ]})
        };
        let respond = |previous: &Value, item: Value| {
            let body = json!({ "temperature": 0, "max_output_tokens": 8, "ignore_eos": true,
                "input": [item], "previous_response_id": previous });
            server.send("POST", "/v1/responses", &body)
        };
        let (status, answer) = respond(&Value::Null, item(&url));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["output"][0]["content"][0]["text"], contents[0], "{name}");
        // The next turn has the picture, too.
        let first = &answer["usage"]["input_tokens"];
        let more = json!({ "role": "user", "content": "more" });
        let (status, second) = respond(&answer["id"], more);
        assert_eq!(status, 200, "{second}");
        assert!(second["usage"]["input_tokens"].as_u64() > first.as_u64(), "{second}");

        let start = prompts.iter().find(|prompt| prompt["name"] == "start").unwrap();
        let data = base64(&fs::read(golden.picture(&start["media"][0])).unwrap());
        let (status, answer) = server.send(
            "POST",
            "/api/chat",
            &json!({ "stream": false, "logprobs": true,
                "options": { "temperature": 0, "num_predict": 8, "ignore_eos": true },
                "messages": [{ "role": "user", "content": "Hello there", "images": [data] }],
            }),
        );
        assert_eq!(status, 200, "{answer}");

        for (image, expected) in [
            (image("https://example.com/a.png"), "fetches no pictures"),
            (image("data:image/png;base64,AAAA"), "PNG, JPEG, WebP, GIF or BMP"),
            (json!({ "type": "input_audio", "input_audio": { "data": "AQID" } }), "does not hear"),
        ] {
            let (status, answer) = server.send("POST", "/v1/chat/completions", &request(image));
            assert_eq!(status, 400, "{answer}");
            assert!(answer.to_string().contains(expected), "{answer}");
        }
    }
}

/// A server of a model that hears, whose prompts are the texts of messages alone.
fn hearing(golden: &Golden, folder: &Path) -> (Serve, Value) {
    let template = folder.join("plain.jinja");
    // As tokenizers do with the golden prompts, the text has the token of its beginning.
    fs::write(&template, "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
        .unwrap();
    let families = golden.prompts_of("audio");
    let (family, prompts) = families.iter().find(|(f, _)| f["name"] == "ultravox").unwrap();
    let mut arguments = options(&golden.folder, family);
    arguments.extend(["--chat-template".to_owned(), template.display().to_string()]);
    let prompt = prompts.iter().find(|prompt| prompt["name"] == "short").unwrap();
    (Serve::start(folder, &arguments), (*prompt).clone())
}

#[test]
fn a_transcription_is_the_answer_to_a_chat_with_the_sound() {
    let Some(golden) = Golden::open() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (server, prompt) = hearing(&golden, folder.path());
    let sound = fs::read(golden.sound(&prompt["media"][0])).unwrap();
    let chat = |text: &str| {
        let body = json!({ "temperature": 0, "max_tokens": 8, "ignore_eos": true,
            "messages": [{ "role": "user", "content": [
                { "type": "text", "text": text },
                { "type": "input_audio", "input_audio": { "data": base64(&sound) } },
            ]}],
        });
        let (status, answer) = server.send("POST", "/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        (answer["choices"][0]["message"]["content"].clone(), answer["usage"].clone())
    };
    let fields = [("max_tokens", "8"), ("ignore_eos", "true")];
    let path = "/v1/audio/transcriptions";
    let (status, body) = server.send_form(path, &sound, &fields);
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    let (text, usage) = chat("Transcribe audio to text");
    assert_eq!(answer["text"], text);
    assert_eq!(answer["usage"]["input_tokens"], usage["prompt_tokens"]);
    assert_eq!(answer["usage"]["output_tokens"], 8);

    let with = |more: &[(&'static str, &'static str)]| [&fields, more].concat();
    let german =
        with(&[("language", "de"), ("prompt", "Write it down"), ("response_format", "text")]);
    let (status, body) = server.send_form(path, &sound, &german);
    assert_eq!((status, json!(body)), (200, chat("Write it down (language: de)").0));

    let (status, body) = server.send_form(path, &sound, &with(&[("stream", "true")]));
    assert_eq!(status, 200, "{body}");
    let events = body.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events = events.map(|event| serde_json::from_str(&format!("{{{event}")).unwrap());
    let events: Vec<Value> = events.collect();
    let (done, deltas) = events.split_last().unwrap();
    assert_eq!((&done["type"], &done["text"]), (&json!("transcript.text.done"), &text));
    let deltas: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(json!(deltas), text);

    let (status, body) = server.send_form(path, b"fLaC....", &fields);
    assert!(status == 400 && body.contains("FLAC is not supported"), "{body}");
}

#[test]
fn a_chat_hears_the_sounds_of_its_messages() {
    let Some(golden) = Golden::open() else { return };
    let temporary = tempfile::tempdir().unwrap();
    let (server, prompt) = hearing(&golden, temporary.path());
    let (_, models) = server.send("GET", "/v1/models", &Value::Null);
    let modalities = &models["data"][0]["architecture"]["input_modalities"];
    assert_eq!(*modalities, json!(["text", "audio"]));
    let (_, props) = server.send("GET", "/props", &Value::Null);
    assert_eq!(props["modalities"], json!({ "vision": false, "audio": true }));

    let (before, after) = text(&prompt["text"]).split_once("<__media__>").unwrap();
    let data = base64(&fs::read(golden.sound(&prompt["media"][0])).unwrap());
    let request = |part: Value| {
        json!({
            "temperature": 0, "max_tokens": 8, "ignore_eos": true, "logprobs": true,
            "messages": [{ "role": "user", "content": [
                { "type": "text", "text": before }, part, { "type": "text", "text": after },
            ]}],
        })
    };
    let sound = |data: &str| json!({ "type": "input_audio", "input_audio": { "data": data, "format": "wav" } });
    let (status, answer) = server.send("POST", "/v1/chat/completions", &request(sound(&data)));
    assert_eq!(status, 200, "{answer}");
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let ids: Vec<&Value> = tokens.iter().map(|token| &token["id"]).collect();
    assert_eq!(ids, prompt["greedy"].as_array().unwrap().iter().collect::<Vec<_>>());
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } });
    for (part, expected) in [
        (image, "reads no pictures"),
        (sound("AAAA"), "no WAV or MP3"),
        (sound(&base64(b"fLaC....")), "FLAC is not supported"),
        (json!({ "type": "input_audio", "input_audio": {} }), "expected base64"),
    ] {
        let (status, answer) = server.send("POST", "/v1/chat/completions", &request(part));
        assert_eq!(status, 400, "{answer}");
        assert!(answer.to_string().contains(expected), "{answer}");
    }
}

#[test]
fn a_picture_of_a_url_comes_from_the_public_web_only() {
    let Some(golden) = Golden::open() else { return };
    let families = golden.prompts();
    let (family, _) = &families[0];
    let folder = tempfile::tempdir().unwrap();
    let mut arguments = options(&golden.folder, family);
    arguments.push("--allow-url-images".to_owned());
    let server = Serve::start(folder.path(), &arguments);
    let own = format!("http://{}/health", server.address);
    for (url, expected) in [
        (&*own, "the host is not on the public internet"),
        ("http://169.254.169.254/latest/meta-data", "the host is not on the public internet"),
        ("file:///etc/passwd", "a URL that begins with https:// or http://"),
    ] {
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        let body = json!({ "messages": [{ "role": "user", "content": [image] }] });
        let (status, answer) = server.send("POST", "/v1/chat/completions", &body);
        assert_eq!(status, 400, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(expected), "{answer}");
    }
}

#[test]
fn a_model_of_texts_refuses_pictures_and_names_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let server = Serve::start(folder.path(), &["-t".to_owned(), "1".to_owned()]);
    let body = json!({ "messages": [{ "role": "user", "content": [
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAAA" } },
    ]}]});
    let (status, answer) = server.send("POST", "/v1/chat/completions", &body);
    assert_eq!(status, 400, "{answer}");
    assert!(answer.to_string().contains("mmproj"), "{answer}");
}
