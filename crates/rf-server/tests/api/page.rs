//! The chat page, driven in headless Chromium.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::fixed;
use crate::server::{Setup, TestServer, send};
use rf_server::{ApiKeys, ServerOptions};
use serde_json::{Value, json};

/// Keys of the `WebDriver` protocol.
const SHIFT: char = '\u{e008}';
const ENTER: char = '\u{e007}';

/// Chromium under the control of chromedriver, by the few commands of the `WebDriver` protocol that
/// the tests need: client crates bring 60 packages for them. Both programs end when it is dropped.
struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// Starts a browser with an empty profile; `None` on a machine without one.
    fn start() -> Option<Self> {
        Self::start_as(&Value::Null)
    }

    /// As [`Self::start`], with the screen of another device.
    fn start_as(device: &Value) -> Option<Self> {
        let (Some(chromium), Some(driver)) = (program("chromium"), program("chromedriver")) else {
            rf_testing::skip!("chromium and chromedriver are not installed");
            return None;
        };
        let mut driver =
            Command::new(driver).arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        // "ChromeDriver was started successfully on port 12345."
        let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let port = line.rsplit_once(" successfully on port ")?.1;
            port.trim_end_matches('.').parse().ok()
        });
        // The driver must not block on a full pipe.
        thread::spawn(move || lines.for_each(drop));
        let mut options = json!({
            "binary": chromium,
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--no-first-run", "--window-size=1000,800",
            ],
        });
        if !device.is_null() {
            options["mobileEmulation"] = device.clone();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let mut browser = Self { driver, address, session: String::new() };
        let capabilities = json!({ "alwaysMatch": { "goog:chromeOptions": options } });
        let session = browser.command("", &json!({ "capabilities": capabilities }));
        browser.session = format!("/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// Sends a command and returns its value.
    fn command(&self, name: &str, parameters: &Value) -> Value {
        let path = format!("/session{}{name}", self.session);
        let headers = [("content-type", "application/json")];
        let mut answer = send(self.address, "POST", &path, &headers, &parameters.to_string()).ok();
        answer["value"].take()
    }

    fn open(&self, server: &TestServer) {
        self.command("/url", &json!({ "url": format!("http://{}/", server.address) }));
    }

    fn reload(&self) {
        self.command("/refresh", &json!({}));
    }

    /// The path of the first element that an `XPath` expression finds.
    fn element(&self, xpath: &str) -> String {
        let found = self.command("/element", &json!({ "using": "xpath", "value": xpath }));
        let id = found.as_object().unwrap().values().next().unwrap();
        format!("/element/{}", id.as_str().unwrap())
    }

    /// Types into a field.
    fn type_into(&self, xpath: &str, keys: &str) {
        self.command(&format!("{}/value", self.element(xpath)), &json!({ "text": keys }));
    }

    /// Types into the message field.
    fn type_message(&self, keys: &str) {
        self.type_into("//textarea[@id='input']", keys);
    }

    /// Clicks the button of this text or label.
    fn click(&self, name: &str) {
        let button = format!(
            "//button[(normalize-space()='{name}' or @aria-label='{name}') and not(@hidden)]"
        );
        self.command(&format!("{}/click", self.element(&button)), &json!({}));
    }

    /// Runs a script with `arguments` and returns its result.
    fn run(&self, script: &str, arguments: &[Value]) -> Value {
        self.command("/execute/sync", &json!({ "script": script, "args": arguments }))
    }

    fn evaluate(&self, expression: &str) -> Value {
        self.run(&format!("return {expression}"), &[])
    }

    /// Waits until an expression is true.
    fn wait_for(&self, condition: &str) {
        let start = Instant::now();
        while self.evaluate(condition) != json!(true) {
            assert!(start.elapsed() < Duration::from_mins(1), "never true: {condition}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the page has the list of models, and shows a conversation.
    fn wait_for_model(&self, name: &str) {
        self.wait_for(&format!("document.querySelector('.model-name')?.textContent === '{name}'"));
        self.wait_for("!document.body.classList.contains('starting')");
    }

    /// Sets parameters of new conversations, and loads the page again.
    fn set_parameters(&self, parameters: &Value) {
        let script =
            "localStorage.setItem('rocmforge.settings', JSON.stringify({ params: arguments[0] }))";
        self.run(script, std::slice::from_ref(parameters));
        self.reload();
    }

    /// The text of the last answer, when it is complete.
    fn answer(&self) -> String {
        self.wait_for(
            "document.querySelector('article:last-child.assistant[aria-busy=false]') !== null",
        );
        let text =
            self.evaluate("document.querySelector('article:last-child .markdown').innerText");
        text.as_str().unwrap().to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !thread::panicking() {
            let path = format!("/session{}", self.session);
            send(self.address, "DELETE", &path, &[], "");
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A server whose model always gives this answer.
fn answering(answer: &str) -> (TestServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fixed.gguf");
    fixed::write(&model, "<|answer|>", &[("<|answer|>", answer)]).unwrap();
    (TestServer::with(Setup { model, ..Setup::default() }), folder)
}

#[test]
fn a_conversation_is_answered_kept_and_regenerated() {
    let Some(browser) = Browser::start() else { return };
    let server = TestServer::start();
    browser.open(&server);
    browser.set_parameters(&json!({ "max_tokens": 30 }));
    browser.wait_for_model("demo");

    // Shift+Enter breaks the line, Enter sends.
    browser.type_message(&format!("Tell me a story{SHIFT}{ENTER}{SHIFT}about a fox.{ENTER}"));
    let answer = browser.answer();
    assert!(answer.len() > 20, "{answer}");
    let question = browser.evaluate("document.querySelector('.user .bubble').innerText");
    assert_eq!(question, "Tell me a story\nabout a fox.");
    let note = browser.evaluate("document.querySelector('.assistant footer').innerText");
    assert!(note.as_str().unwrap().contains("30 tokens"), "{note}");
    assert!(note.as_str().unwrap().contains("tokens/s"), "{note}");
    // A screen reader hears the answer sentence by sentence.
    let announced = browser.evaluate("document.querySelector('[aria-live=polite]').textContent");
    let beginning = &answer[..12];
    assert!(announced.as_str().unwrap().contains(beginning), "{announced}, {answer}");

    browser.reload();
    assert_eq!(browser.answer(), answer);
    // The model is greedy in tests, so it gives the same answer again, as a branch.
    browser.wait_for_model("demo");
    browser.click("Regenerate");
    browser.wait_for("document.querySelector('.branches')?.innerText.trim() === '2/2'");
    assert_eq!(browser.answer(), answer);
    assert_eq!(browser.evaluate("document.querySelectorAll('article').length"), 2);

    browser.click("New conversation");
    browser.wait_for("document.querySelectorAll('article').length === 0");
    assert_eq!(browser.evaluate("document.querySelectorAll('#conversations li').length"), 1);
}

#[test]
fn stop_ends_the_request_and_keeps_the_text() {
    let Some(browser) = Browser::start() else { return };
    let server = TestServer::start();
    browser.open(&server);
    // Without end-of-text tokens the answer fills the context unless it is stopped, which this does
    // at the first text: a command from outside could come too late.
    browser.set_parameters(&json!({ "ignore_eos": true }));
    browser.wait_for_model("demo");
    let script = "new MutationObserver(() => { \
                    const text = document.querySelector('.assistant .markdown')?.textContent; \
                    if (text) document.getElementById('stop').click(); \
                  }).observe(document.body, { childList: true, characterData: true, subtree: true })";
    browser.run(script, &[]);
    browser.type_message(&format!("Tell me a story.{ENTER}"));
    let answer = browser.answer();
    assert!(!answer.is_empty());
    let note = browser.evaluate("document.querySelector('.assistant footer').innerText");
    assert!(note.as_str().unwrap().contains("stopped"), "{note}");
    assert_eq!(browser.evaluate("document.getElementById('stop').hidden"), true);
    server.wait_for("the request ends", |stats| stats.running == 0);
    browser.reload();
    assert_eq!(browser.answer(), answer);
}

#[test]
fn text_of_a_model_never_becomes_markup() {
    let text = "<img src=x onerror=\"window.ran = 1\"> [a](javascript:window.ran=1) **b** `<i>`\n\n\
                <script>window.ran = 2</script>\n\n```html\n<b>c</b>\n```\n\n| h |\n|---|\n| <u>d</u> |\n\n\
                1. e\n   - f\n\n[g](https://example.org/)";
    let Some(browser) = Browser::start() else { return };
    let (server, _folder) = answering(text);
    browser.open(&server);
    browser.wait_for_model("demo");
    browser.type_message(&format!("Write{ENTER}"));
    browser.answer();
    let count = "['img', 'script', 'i', 'u', 'pre b', 'strong', 'code', 'table', 'ol ul', 'a']\
                 .map(name => document.querySelectorAll('.markdown ' + name).length)";
    assert_eq!(browser.evaluate(count), json!([0, 0, 0, 0, 0, 1, 2, 1, 1, 1]));
    assert_eq!(browser.evaluate("window.ran ?? null"), Value::Null);
    // Even markup that got into the page would not run.
    let inject = "try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 3\">') } \
                  catch { window.refused = true }";
    browser.run(inject, &[]);
    thread::sleep(Duration::from_millis(200));
    assert_eq!(browser.evaluate("window.ran ?? null"), Value::Null);
    assert_eq!(browser.evaluate("window.refused"), true);

    // The streamed answer looks as if it came at once.
    let html = "document.querySelector('.assistant .markdown').innerHTML";
    let streamed = browser.evaluate(html);
    browser.reload();
    browser.answer();
    assert_eq!(browser.evaluate(html), streamed);
}

#[test]
fn a_phone_needs_no_sideways_scrolling() {
    let phone = json!({ "deviceMetrics": { "width": 360, "height": 700, "pixelRatio": 1 } });
    let Some(browser) = Browser::start_as(&phone) else { return };
    let long: String = (100..250).map(|number| number.to_string()).collect();
    let (server, _folder) =
        answering(&format!("```\nlong {long}\n```\n\nword{long}.\n\n| a | b{long} |\n|---|---|\n"));
    browser.open(&server);
    browser.wait_for_model("demo");
    browser.type_message(&format!("Write{ENTER}"));
    assert!(browser.answer().contains(&long));
    assert_eq!(browser.evaluate("window.innerWidth"), 360);
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth"), 360);
    assert_eq!(browser.evaluate("document.getElementById('messages').scrollWidth"), 360);
}

#[test]
fn a_missing_key_is_asked_for() {
    let Some(browser) = Browser::start() else { return };
    let keys = ApiKeys::new(["secret".to_owned()]);
    let options = ServerOptions::default().with_keys(keys);
    let server = TestServer::with(Setup { server: options, ..Setup::default() });
    browser.open(&server);
    browser.wait_for("document.getElementById('notices').innerText.includes('API key')");
    browser.click("Settings");
    browser.type_into("//input[@name='apiKey']", "secret");
    browser.click("Save");
    browser.wait_for_model("demo");
    assert_eq!(browser.evaluate("document.getElementById('notices').innerText"), "");
}
