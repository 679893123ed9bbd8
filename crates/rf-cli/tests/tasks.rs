//! Twenty tasks of a person at a terminal, done by keys at a pseudo terminal.
//!
//! | task | test |
//! |---|---|
//! | ask a question and read the answer | `a_question_is_answered_and_measured` |
//! | ask about a text that another program writes | `a_piped_text_is_asked_about` |
//! | continue a text instead of answering it | `a_text_is_continued_after_itself` |
//! | get an answer that a program can read | `an_answer_is_json_that_fits_a_schema` |
//! | chat over several turns, with questions that follow up | `a_follow_up_sees_the_turns_before_it` |
//! | give the model a role, and another one | `a_role_is_given_changed_and_taken_away` |
//! | stop an answer that goes wrong, and go on | `an_answer_is_stopped_and_the_chat_goes_on` |
//! | start over, and leave in any of the usual ways | `a_chat_is_begun_again_and_left_in_every_way` |
//! | find and send an earlier message again | `an_earlier_message_is_found_and_sent_again` |
//! | put the chat to sleep, and wake it | `a_chat_is_suspended_and_resumed` |
//! | download a model, stop in the middle, and go on later | `a_download_is_stopped_and_resumed` |
//! | measure the speed and see it | `a_measurement_is_drawn_on_the_terminal` |
//! | start a server, ask it, and stop it | `a_server_is_started_asked_and_stopped` |
//! | write or paste several lines | `unknown_commands_are_never_sent_and_quoted_messages_are` in `chat.rs` |
//! | answer again, change or take back a message | `turns_can_be_retried_edited_and_undone` in `chat.rs` |
//! | change temperature and length | `options_are_set_in_a_chat` in `chat.rs` |
//! | go on with another model, or show it a picture | `another_model_continues_the_conversation` in `chat.rs` |
//! | complete a command or a file by Tab | `tab_completes_commands_and_files` in `chat.rs` |
//! | wait for a long prompt, or stop it | `ctrl_c_stops_a_long_prompt_after_a_batch_and_returns_to_the_chat` in `chat.rs` |
//! | save a chat and continue it tomorrow | `a_saved_chat_continues_where_it_ended` in `strangers.rs` |

#![expect(clippy::unwrap_used, reason = "functions of tests")]

mod program;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use program::chat::{chat, questions, saved, say};
use program::terminal::Terminal;
use program::{Finished, demo_model, finish, rf_cli, shell};
use rf_testing::hub::{REPO, StandIn};
use tempfile::TempDir;

/// The screen after a command line, which must succeed.
fn screen(folder: &TempDir, arguments: &[&str]) -> String {
    let (code, screen) = Terminal::start(rf_cli(folder.path(), arguments), "xterm").finish();
    assert_eq!(code, Some(0), "{screen}");
    screen.replace("\r\n", "\n")
}

#[test]
fn a_question_is_answered_and_measured() {
    let folder = TempDir::new().unwrap();
    let arguments = ["run", "-t", "1", "--temp", "0", "-n", "12", "Tell me a story."];
    let screen = screen(&folder, &arguments);
    let answer = finish(folder.path(), &[&arguments[..], &["-q"]].concat()).stdout;
    let (shown, metrics) = screen.split_once("prompt ").unwrap();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(words(shown).starts_with(&words(&answer)), "{screen}");
    assert!(metrics.contains("generated 12 tokens"), "{screen}");
}

#[test]
fn a_piped_text_is_asked_about() {
    let folder = TempDir::new().unwrap();
    let line = "printf 'A fox and a key.' | rf-cli run -q -t 1 -n 2 --temp 0 --json 'Continue:'";
    let (code, screen) = Terminal::start(shell(folder.path(), line), "xterm").finish();
    assert_eq!(code, Some(0), "{screen}");
    let together = finish(
        folder.path(),
        &["run", "-n", "2", "--temp", "0", "--json", "Continue:\n\nA fox and a key."],
    );
    let piped: serde_json::Value = serde_json::from_str(screen.trim()).unwrap();
    assert_eq!(piped["prompt_ids"], together.json()["prompt_ids"]);
}

#[test]
fn a_text_is_continued_after_itself() {
    let folder = TempDir::new().unwrap();
    let arguments = ["run", "-q", "--raw", "-t", "1", "--temp", "0", "-n", "4", "Once upon a time"];
    let continued = finish(folder.path(), &arguments).stdout;
    let screen = screen(&folder, &arguments);
    // The text comes first, dimmed.
    assert!(screen.contains("Once upon a time") && screen.ends_with(&continued), "{screen:?}");
    assert_eq!(
        self::screen(&folder, &[&arguments[..], &["--no-display-prompt"]].concat()),
        continued
    );
}

#[test]
fn an_answer_is_json_that_fits_a_schema() {
    let folder = TempDir::new().unwrap();
    // Sampled digits may go on beyond every type of integer.
    let schema = r#"{"type":"object","required":["age"],"additionalProperties":false,
        "properties":{"age":{"type":"integer","minimum":0,"maximum":120}}}"#;
    let answer = screen(&folder, &["run", "-q", "--json-schema", schema, "How old is the fox?"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["age"].as_u64().is_some_and(|age| age <= 120), "{answer}");
}

#[test]
fn a_follow_up_sees_the_turns_before_it() {
    let folder = TempDir::new().unwrap();
    let mut chat = Terminal::start(
        {
            let mut command = rf_cli(folder.path(), &["run", "-t", "1", "-n", "2", "--temp", "0"]);
            command.env("XDG_STATE_HOME", folder.path());
            command
        },
        "xterm",
    );
    chat.wait_for(">>> ");
    chat.press(b"There was a fox.\r");
    let first = chat.wait_for_line("prompt ");
    assert!(!first.contains("from the cache"), "{first}");
    chat.wait_for(">>> ");
    chat.press(b"What did it find?\r");
    // The first turn is in the prompt, already computed.
    let second = chat.wait_for_line("prompt ");
    assert!(second.contains("from the cache"), "{second}");
    chat.wait_for(">>> ");
    let messages = saved(&folder, chat);
    let roles: Vec<_> = messages.iter().map(|(role, _)| &**role).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

#[test]
fn a_role_is_given_changed_and_taken_away() {
    let folder = TempDir::new().unwrap();
    let system = |chat| {
        let messages: Vec<(String, String)> = saved(&folder, chat);
        let system = messages.into_iter().filter(|(role, _)| role == "system");
        system.map(|(_, text)| text).collect::<Vec<_>>()
    };
    let given = ["--system", "You are a fox."];
    let mut chat = chat(&folder, &given);
    say(&mut chat, "Who are you?", "");
    assert_eq!(system(chat), ["You are a fox."]);
    let mut chat = program::chat::chat(&folder, &given);
    say(&mut chat, "/system You are a key.", "");
    say(&mut chat, "Who are you?", "");
    assert_eq!(system(chat), ["You are a key."]);
}

#[test]
fn an_answer_is_stopped_and_the_chat_goes_on() {
    let folder = TempDir::new().unwrap();
    // Endless, so that only the key ends it.
    let arguments = ["--ignore-eos", "--context-shift", "-c", "256"];
    let mut chat = chat(&folder, &arguments);
    say(&mut chat, "/set predict -1", "set for");
    chat.press(b"Tell me a story.\r");
    chat.wait_for(" the ");
    chat.wait_for(" the ");
    chat.interrupt();
    chat.wait_for(">>> ");
    say(&mut chat, "/set predict 2", "set for");
    say(&mut chat, "And then?", "");
    let messages = saved(&folder, chat);
    assert_eq!(messages.len(), 4);
    // The part that was shown stays.
    assert!(messages[1].0 == "assistant" && messages[1].1.contains(" the "), "{messages:?}");
}

#[test]
fn a_chat_is_begun_again_and_left_in_every_way() {
    let folder = TempDir::new().unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "one", "");
    say(&mut chat, "/clear", "the conversation is forgotten");
    say(&mut chat, "two", "");
    say(&mut chat, "/stats", "tokens");
    assert_eq!(questions(&folder, chat), ["two"]);
    for way in [&b"/bye\r"[..], b"/exit\r", b"/quit\r", b"\x04"] {
        let mut chat = program::chat::chat(&folder, &[]);
        say(&mut chat, "one", "");
        chat.press(way);
        let (code, screen) = chat.finish();
        assert_eq!(code, Some(0), "{screen}");
    }
}

#[test]
fn an_earlier_message_is_found_and_sent_again() {
    let folder = TempDir::new().unwrap();
    let mut chat = chat(&folder, &[]);
    say(&mut chat, "Where is the key?", "");
    say(&mut chat, "Who is the fox?", "");
    // Ctrl-R searches backwards.
    chat.press(b"\x12key");
    chat.wait_for("reverse-i-search");
    chat.wait_for("Where is the ");
    chat.press(b"\r");
    chat.wait_for(">>> ");
    assert_eq!(
        questions(&folder, chat),
        ["Where is the key?", "Who is the fox?", "Where is the key?"]
    );
}

#[test]
fn a_chat_is_suspended_and_resumed() {
    // The shell needs the terminal as its own for job control.
    let tools = ["/bin/bash", "/usr/bin/setsid"];
    if let Some(tool) = tools.iter().find(|tool| !Path::new(tool).exists()) {
        rf_testing::skip!("no {tool}");
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut command = shell(folder.path(), "exec setsid -c bash --norc -i");
    command.env("XDG_STATE_HOME", folder.path()).env("PS1", "ready# ");
    let mut shell = Terminal::start(command, "xterm");
    shell.wait_for("ready# ");
    shell.press(b"rf-cli run -q -t 1 -n 2 --temp 0\r");
    shell.wait_for(">>> ");
    say(&mut shell, "one", "");
    shell.press(b"\x1a");
    shell.wait_for("Stopped");
    shell.wait_for("ready# ");
    shell.press(b"echo back$((1 + 1))\r");
    shell.wait_for("back2");
    shell.wait_for("ready# ");
    shell.press(b"fg\r");
    shell.wait_for(">>> ");
    say(&mut shell, "two", "");
    shell.press(b"/save chat.json\r/exit\r");
    shell.wait_for("4 messages saved");
    shell.wait_for("ready# ");
    shell.press(b"exit\r");
    assert_eq!(shell.finish().0, Some(0));
}

#[test]
fn a_download_is_stopped_and_resumed() {
    let folder = TempDir::new().unwrap();
    let model = fs::read(demo_model()).unwrap();
    let server = StandIn::start(&[("m-Q8_0.gguf", model.clone())]);
    let pull = || {
        let mut command = rf_cli(folder.path(), &["pull", REPO]);
        command.env("HF_ENDPOINT", server.url()).env("HF_HUB_CACHE", folder.path().join("hub"));
        command
            .env_remove("HF_HUB_OFFLINE")
            .env_remove("HF_TOKEN")
            .env("NO_PROXY", "127.0.0.1,localhost");
        Terminal::of_width(command, "xterm", 80)
    };
    // Silent after a part of it.
    server.behaviour().cuts = vec![1_000_000];
    server.behaviour().silence = Some(Duration::from_mins(1));
    let mut first = pull();
    first.wait_for("downloading owner/model-GGUF (7.");
    first.wait_for("976.56 KiB/7.58 MiB");
    server.requests();
    first.interrupt();
    let (code, screen) = first.finish();
    // The signal ended the program.
    assert_eq!(code, None, "{screen}");
    let (code, screen) = pull().finish();
    assert_eq!(code, Some(0), "{screen}");
    let requests = server.requests();
    let stored = requests.iter().filter(|request| request.path.starts_with("/storage/"));
    let resumed = stored.filter(|request| request.header("range").is_some()).count();
    assert_eq!(resumed, 1, "{requests:?}");
    let mut run = rf_cli(folder.path(), &["run", "-q", "-hf", REPO, "-n", "2", "hi"]);
    run.env("HF_HUB_CACHE", folder.path().join("hub")).env("HF_HUB_OFFLINE", "1");
    let ran = Finished::of(run.output().unwrap());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_measurement_is_drawn_on_the_terminal() {
    let folder = TempDir::new().unwrap();
    let arguments = ["bench", "-t", "1", "-p", "8", "-n", "2", "-r", "2", "--plot", "-"];
    let command = rf_cli(folder.path(), &arguments);
    let (code, screen) = Terminal::of_width(command, "xterm", 72).finish();
    assert_eq!(code, Some(0), "{screen}");
    let bars: Vec<&str> = screen.lines().filter(|line| line.contains('█')).collect();
    assert_eq!(bars.len(), 2, "{screen}");
    let fits = |line: &&str| line.trim_end().chars().count() <= 72;
    assert!(bars.iter().all(fits), "{screen}");
}

#[test]
fn a_server_is_started_asked_and_stopped() {
    let folder = TempDir::new().unwrap();
    let command = rf_cli(folder.path(), &["serve", "-t", "1", "--port", "0"]);
    let mut server = Terminal::start(command, "xterm");
    let address = server.wait_for_line("http://");
    let address = address.split(['/', ' ', '\r']).next().unwrap().to_owned();
    let mut client = TcpStream::connect(&address).unwrap();
    let body = r#"{"prompt": "Once", "max_tokens": 2}"#;
    write!(
        client,
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"text\""), "{answer}");
    server.interrupt();
    let (code, screen) = server.finish();
    assert!(matches!(code, Some(0 | 130)), "{code:?} {screen}");
    assert!(!screen.contains("panicked"), "{screen}");
}
