//! `rf-cli launch`: starts a client with the settings that it needs, and a server for it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::failure::bad_input;
use crate::{state, terminal};

/// Arguments of `rf-cli launch`.
#[derive(Debug, Args)]
#[command(after_help = "\
Uses the server at --port if one runs there. Else it starts one, with the model and the options after -s, and \
ends it when the client ends. Arguments after -- go to the client.

Examples:
  rf-cli launch claude -m qwen3-coder
  rf-cli launch aider -m model.gguf -- --no-git
  rf-cli launch open-webui                       on a server that runs already
  rf-cli launch codex -m gpt-oss:20b -s=--ctx-size -s=32768")]
pub(crate) struct LaunchArgs {
    /// Start this client
    #[arg(value_name = "CLIENT", value_enum)]
    client: Client,
    /// Serve this model: a file, or a name of `rf-cli list --all`
    #[arg(short, long, value_name = "FILE")]
    model: Option<OsString>,
    /// Use the server at this port of the machine, or start one there
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Pass this argument to `rf-cli serve` (repeatable)
    #[arg(short, long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    serve: Vec<OsString>,
    /// Print the settings and the command line of the client, and start nothing
    #[arg(long)]
    dry_run: bool,
    /// Pass these arguments to the client
    #[arg(last = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// A client that can be started.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Client {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// opencode
    Opencode,
    /// aider
    Aider,
    #[value(help = "Zed, with a folder of its own for settings and data")]
    Zed,
    #[value(help = "Open WebUI")]
    OpenWebui,
}

/// The name under which a server of this command serves the model.
const MODEL: &str = "local";

/// The context that is assumed if the server does not name one.
const CONTEXT_TOKENS: u64 = 32_768;

/// A model of the server.
struct ServedModel {
    name: String,
    context_tokens: u64,
}

/// Runs `rf-cli launch`.
pub(crate) fn launch(arguments: &LaunchArgs) -> Result<()> {
    let address = SocketAddr::from(([127, 0, 0, 1], arguments.port));
    if arguments.dry_run {
        let model = ServedModel { name: MODEL.to_owned(), context_tokens: CONTEXT_TOKENS };
        let setting = Setting::of(arguments.client, arguments.port, &model)?;
        return setting.print(&arguments.arguments);
    }
    let runs_already = is_ready(address);
    let server = if runs_already {
        if arguments.model.is_some() || !arguments.serve.is_empty() {
            return Err(bad_input!(
                "a server runs at {address} already: leave out -m and -s to use it, or give another --port"
            ));
        }
        None
    } else {
        Some(Server::start(address, arguments)?)
    };
    let mut model = first_model(address)
        .with_context(|| format!("the server at {address} names no model: give another --port"))?;
    if runs_already {
        terminal::note(format_args!("using {} of the server at http://{address}", model.name));
    } else {
        MODEL.clone_into(&mut model.name);
    }
    let setting = Setting::of(arguments.client, arguments.port, &model)?;
    setting.write()?;
    let mut client = Command::new(setting.program);
    client.args(&setting.arguments).args(&arguments.arguments).envs(setting.variables.clone());
    let ended = client.status();
    drop(server);
    let status = ended.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            bad_input!("{} is not installed: {}", setting.program, setting.installation)
        }
        _ => anyhow::Error::new(error).context(format!("cannot start {}", setting.program)),
    })?;
    if status.success() {
        return Ok(());
    }
    Err(anyhow::anyhow!("{} ended with {status}", setting.program))
}

/// The program, arguments and environment that start a client.
struct Setting {
    program: &'static str,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// The file with the settings of a client that reads them from one only, and its text.
    file: Option<(PathBuf, String)>,
    installation: &'static str,
}

impl Setting {
    fn of(client: Client, port: u16, model: &ServedModel) -> Result<Self> {
        let base = format!("http://127.0.0.1:{port}");
        let openai = format!("{base}/v1");
        let text = str::to_owned;
        let context_tokens = model.context_tokens;
        let model = &*model.name;
        Ok(match client {
            Client::Claude => Self {
                program: "claude",
                arguments: Vec::new(),
                variables: vec![
                    ("ANTHROPIC_BASE_URL", base),
                    ("ANTHROPIC_AUTH_TOKEN", text("none")),
                    ("ANTHROPIC_MODEL", text(model)),
                    ("ANTHROPIC_SMALL_FAST_MODEL", text(model)),
                ],
                file: None,
                installation: "npm install -g @anthropic-ai/claude-code",
            },
            Client::Codex => {
                let provider = format!(
                    "model_providers.rocmforge={{name=\"ROCmForge\",base_url=\"{openai}\",wire_api=\"responses\"}}"
                );
                let set = |setting: String| [text("-c"), setting];
                let arguments = [
                    set(provider),
                    set(text("model_provider=\"rocmforge\"")),
                    set(format!("model={}", serde_json::json!(model))),
                ];
                Self {
                    program: "codex",
                    arguments: arguments.into_iter().flatten().collect(),
                    variables: Vec::new(),
                    file: None,
                    installation: "npm install -g @openai/codex",
                }
            }
            Client::Opencode => {
                let config = serde_json::json!({
                    "model": format!("rocmforge/{model}"),
                    "provider": { "rocmforge": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": { "baseURL": openai },
                        "models": { model: {} },
                    } },
                });
                Self {
                    program: "opencode",
                    arguments: Vec::new(),
                    variables: vec![("OPENCODE_CONFIG_CONTENT", config.to_string())],
                    file: None,
                    installation: "npm install -g opencode-ai",
                }
            }
            Client::Aider => Self {
                program: "aider",
                arguments: vec![text("--model"), format!("openai/{model}")],
                variables: vec![("OPENAI_API_BASE", openai), ("OPENAI_API_KEY", text("none"))],
                file: None,
                installation: "pip install aider-chat",
            },
            Client::OpenWebui => Self {
                program: "open-webui",
                arguments: vec![text("serve"), text("--port"), text("3000")],
                variables: vec![
                    ("OPENAI_API_BASE_URL", openai),
                    ("OPENAI_API_KEY", text("none")),
                    ("WEBUI_AUTH", text("False")),
                ],
                file: None,
                installation: "pip install open-webui",
            },
            Client::Zed => {
                // A provider's key is in the variable that has its name.
                let settings = serde_json::json!({
                    "language_models": { "openai_compatible": { "rocmforge": {
                        "api_url": openai,
                        "available_models": [
                            { "name": model, "display_name": model, "max_tokens": context_tokens },
                        ],
                    } } },
                    "agent": { "default_model": { "provider": "rocmforge", "model": model } },
                });
                let folder =
                    state::folder().context("no folder for the settings of Zed: set HOME")?;
                let folder = folder.join("zed");
                Self {
                    program: "zed",
                    // In the foreground, so that the server ends with Zed and not before.
                    arguments: vec![
                        text("--foreground"),
                        text("--user-data-dir"),
                        folder.display().to_string(),
                    ],
                    variables: vec![("ROCMFORGE_API_KEY", text("none"))],
                    file: Some((folder.join("config/settings.json"), settings.to_string())),
                    installation: "see https://zed.dev/download",
                }
            }
        })
    }

    /// Writes the file of the settings.
    fn write(&self) -> Result<()> {
        let Some((path, text)) = &self.file else { return Ok(()) };
        let write = || {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(path, text)
        };
        write().with_context(|| format!("cannot write '{}'", path.display()))
    }

    /// Prints a line for a shell of Unix, below the file of the settings.
    fn print(&self, more: &[OsString]) -> Result<()> {
        let quoted = |text: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=".contains(c);
            if !text.is_empty() && text.chars().all(is_plain) {
                text.to_owned()
            } else {
                format!("'{}'", text.replace('\'', r"'\''"))
            }
        };
        let mut out = io::stdout().lock();
        if let Some((path, text)) = &self.file {
            writeln!(out, "# {}: {text}", path.display())?;
        }
        let variables =
            self.variables.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
        let program = std::iter::once(self.program.to_owned());
        let arguments = self.arguments.iter().map(|text| quoted(text));
        let more = more.iter().map(|text| quoted(&text.to_string_lossy()));
        let words: Vec<String> = variables.chain(program).chain(arguments).chain(more).collect();
        writeln!(out, "{}", words.join(" "))?;
        Ok(())
    }
}

/// A server that ends with this value.
struct Server(Child);

impl Server {
    /// Starts a server, and waits until it takes requests.
    fn start(address: SocketAddr, arguments: &LaunchArgs) -> Result<Self> {
        // Another program at the port would answer instead of the server.
        TcpListener::bind(address).with_context(|| {
            format!(
                "another program uses {address}, and it is no server of models: give another --port"
            )
        })?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg("serve").args(["--port", &address.port().to_string(), "--alias"]);
        // Clients ask for models of their own names, too.
        command.arg(format!("{MODEL},*"));
        if let Some(model) = &arguments.model {
            command.arg("-m").arg(model);
        }
        command.args(&arguments.serve).stdin(Stdio::null()).stdout(Stdio::null());
        // The client draws on the terminal, so of the log only warnings may be shown.
        command.env("RUST_LOG", "warn");
        let mut server = Self(command.spawn().context("cannot start the server")?);
        terminal::note(format_args!("starting a server at http://{address}"));
        let started = Instant::now();
        while !is_ready(address) {
            if let Some(status) = server.0.try_wait()? {
                return Err(anyhow::anyhow!("the server ended with {status}"));
            }
            // Downloads and loading take as long as they take.
            let pause = if started.elapsed() < Duration::from_secs(5) { 50 } else { 500 };
            std::thread::sleep(Duration::from_millis(pause));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has no other clients whose requests could be cut off.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns true if a server of this program, or one like it, is ready at the address.
fn is_ready(address: SocketAddr) -> bool {
    get(address, "/ready").is_ok()
}

/// The first model of a server.
fn first_model(address: SocketAddr) -> Result<ServedModel> {
    let list: serde_json::Value = serde_json::from_str(&get(address, "/v1/models")?)?;
    let model = &list["data"][0];
    let name = model["id"].as_str().context("its list of models is empty")?.to_owned();
    Ok(ServedModel {
        name,
        context_tokens: model["max_model_len"].as_u64().unwrap_or(CONTEXT_TOKENS),
    })
}

/// The body of an answer with status 200.
fn get(address: SocketAddr, path: &str) -> Result<String> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    // HTTP/1.0 has no chunked bodies.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let is_good = head.starts_with("HTTP/1.") && head.split(' ').nth(1) == Some("200");
    if is_good { Ok(body.to_owned()) } else { Err(anyhow::anyhow!("the answer is no success")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_sent_to_the_port() {
        let model = ServedModel { name: "its-name".to_owned(), context_tokens: 4096 };
        for client in Client::value_variants() {
            let setting = Setting::of(*client, 4711, &model).unwrap();
            let file = setting.file.iter().map(|(_, text)| text);
            let values = setting.variables.iter().map(|(_, value)| value).chain(file);
            let has_port = |text: &String| text.contains("127.0.0.1:4711");
            assert!(values.clone().chain(&setting.arguments).any(has_port), "{client:?}");
            let names_model =
                values.chain(&setting.arguments).any(|text| text.contains("its-name"));
            // Open WebUI asks the server for its models.
            assert_eq!(names_model, !matches!(client, Client::OpenWebui), "{client:?}");
        }
    }

    #[test]
    fn another_program_at_a_port_is_no_server() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"220 mail.example.org\r\n").unwrap();
        });
        assert!(!is_ready(address));
        other.join().unwrap();
        assert!(!is_ready(address), "nothing listens there now");
    }
}
