"""Open WebUI's backend: models and chat by both its connections, tools, and a text found again."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

SERVER, EMBEDDINGS = os.environ["SERVER"], os.environ["EMBEDDINGS"]
SECONDS = 400
SPEECH = "Every prompt gets this answer. It has two sentences, and é."
CHAT = {"model": "fixed", "messages": [{"role": "user", "content": "What is the weather in Oslo?"}]}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]


@contextlib.contextmanager
def webui(folder):
    """A backend without users and network, and its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": folder,
        "DATA_DIR": folder,
        "OFFLINE_MODE": "True",
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "a key of this check, which has 32 bytes",
        "OPENAI_API_BASE_URL": SERVER + "/v1",
        "OPENAI_API_KEY": "none",
        "OLLAMA_BASE_URL": SERVER,
        # Else it would load a model of the hub.
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_EMBEDDING_MODEL": "demo",
        "RAG_OPENAI_API_BASE_URL": EMBEDDINGS + "/v1",
        "RAG_OPENAI_API_KEY": "none",
    }
    program = pathlib.Path(sys.executable).parent / "open-webui"
    command = [program, "serve", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, cwd=folder, env=environment)
    try:
        base, deadline = f"http://127.0.0.1:{port}", time.monotonic() + SECONDS
        while True:
            try:
                get(base + "/health")
                break
            except OSError:
                assert process.poll() is None, "the backend ended"
                assert time.monotonic() < deadline, "the backend did not start"
                time.sleep(0.5)
        yield base
    finally:
        process.terminate()
        process.wait()


def get(url, body=None, **headers):
    """The text of an answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code}: {error.read().decode()}") from error


def main(base):
    user = json.loads(get(base + "/api/v1/auths/signin", {"email": "", "password": ""}))
    bearer = {"authorization": f"Bearer {user['token']}"}

    def ask(path, body=None):
        return get(base + path, body, **bearer)

    both = {"demo", "fixed"}
    assert {model["id"] for model in json.loads(ask("/api/models"))["data"]} == both
    assert {model["id"] for model in json.loads(ask("/openai/models"))["data"]} == both
    assert {model["model"] for model in json.loads(ask("/ollama/api/tags"))["models"]} == both

    # The first route takes the connection to Ollama's API, which has the same names.
    for path in "/api/chat/completions", "/openai/chat/completions":
        answer = json.loads(ask(path, CHAT))
        assert answer["choices"][0]["message"]["content"] == SPEECH, (path, answer)
        assert answer["usage"]["completion_tokens"] > 0, (path, answer)
        lines = ask(path, {**CHAT, "stream": True}).splitlines()
        parts = [line.removeprefix("data: ") for line in lines if line]
        assert parts.pop() == "[DONE]", (path, lines)
        choices = [json.loads(part)["choices"] for part in parts]
        assert text(choice["delta"] for some in choices for choice in some) == SPEECH, (path, lines)
        answer = json.loads(ask(path, {**CHAT, "tools": TOOLS}))
        call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert call["name"] == "weather" and json.loads(call["arguments"])["city"] == "Oslo", answer

    answer = json.loads(ask("/ollama/api/chat", {**CHAT, "stream": False}))
    assert answer["message"]["content"] == SPEECH and answer["done_reason"] == "stop", answer
    parts = [json.loads(line) for line in ask("/ollama/api/chat", CHAT).splitlines()]
    assert text(part["message"] for part in parts) == SPEECH and parts[-1]["done"], parts
    answer = json.loads(ask("/api/v1/messages", {**CHAT, "max_tokens": 64}))
    assert answer["content"][0]["text"] == SPEECH, answer
    answer = json.loads(ask("/openai/responses", {"model": "fixed", "input": "Hello"}))
    assert answer["output"][0]["content"][0]["text"] == SPEECH, answer

    # It embeds two texts, and finds each by its own words.
    texts = {"fox": "The fox lost a key.", "rain": "It rains in the mountains."}
    for name, content in texts.items():
        kept = {"name": name, "content": content, "collection_name": name}
        assert json.loads(ask("/api/v1/retrieval/process/text", kept))["status"]
    for content in texts.values():
        question = {"collection_names": list(texts), "query": content, "k": 1}
        found = json.loads(ask("/api/v1/retrieval/query/collection", question))
        assert found["documents"] == [[content]], found


def text(parts):
    return "".join(part.get("content") or "" for part in parts)


with tempfile.TemporaryDirectory() as folder, webui(folder) as base:
    main(base)
