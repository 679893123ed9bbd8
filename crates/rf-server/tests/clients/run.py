#!/usr/bin/env python3
"""Runs unmodified clients against servers that it starts.

    cargo build -p rf-cli
    cargo run -p rf-server --example fixed_answers -- fixed.gguf
    python crates/rf-server/tests/clients/run.py target/debug/rf-cli fixed.gguf

Python clients are those of this interpreter: pip install openai anthropic ollama langchain-openai
litellm. Programs are found in PATH: aider, smg, vllm-router (each wants a virtual environment of
its own), and node with the packages ai, @ai-sdk/openai-compatible and @ai-sdk/anthropic in
NODE_PATH. A client that is not there is reported as `skipped: <why>`. The exit code is 1 if one
fails.
"""

import concurrent.futures
import contextlib
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import typing
import urllib.request

PROMPT = "Tell me a story about a fox and a lost key."
MESSAGES = [{"role": "user", "content": PROMPT}]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
}
ARGUMENTS = {"city": "Oslo", "days": 2}
CLIENTS = os.path.dirname(os.path.abspath(__file__))


class Skipped(Exception):
    """A client is not installed."""


def module(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skipped(error) from error


def program(name):
    path = shutil.which(name)
    if path is None:
        raise Skipped(f"no {name} in PATH")
    return path


# --- Libraries ---


def openai(servers):
    base = servers.demo
    library = module("openai")
    client = library.OpenAI(base_url=f"{base}/v1", api_key="none")
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model

    options = {"model": model, "messages": MESSAGES, "max_tokens": 24, "temperature": 0}
    answer = client.chat.completions.create(**options)
    text = answer.choices[0].message.content
    assert text and answer.usage.completion_tokens == 24
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert chunks[-1].usage.completion_tokens == 24

    logprobs = client.chat.completions.create(**options, logprobs=True, top_logprobs=2)
    assert len(logprobs.choices[0].logprobs.content) == 24
    completion = client.completions.create(model=model, prompt="Once", max_tokens=8, n=2)
    assert len(completion.choices) == 2
    echoed = client.completions.create(
        model=model, prompt="Once", max_tokens=0, echo=True, logprobs=1
    )
    assert echoed.choices[0].logprobs.token_logprobs[0] is None

    options = {"model": model, "input": PROMPT, "max_output_tokens": 24, "temperature": 0}
    assert client.responses.create(**options).output_text == text
    with client.responses.stream(**options) as stream:
        events = [event.type for event in stream]
    assert events[0] == "response.created" and "response.output_text.delta" in events

    try:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
        raise AssertionError("an unknown model answered")
    except library.NotFoundError as error:
        assert error.code == "model_not_found" and error.request_id


def openai_structured_output(servers):
    client = module("openai").OpenAI(base_url=f"{servers.demo}/v1", api_key="none")
    pydantic = module("pydantic")
    animal = pydantic.create_model(
        "Animal", name=(typing.Literal["fox", "owl"], ...), legs=(typing.Literal[2, 4], ...)
    )
    answer = client.beta.chat.completions.parse(
        model="demo", messages=MESSAGES, response_format=animal, max_tokens=100
    )
    parsed = answer.choices[0].message.parsed
    assert parsed.name in ["fox", "owl"] and parsed.legs in [2, 4]


def openai_tools(servers):
    client = module("openai").OpenAI(base_url=f"{servers.fixed}/v1", api_key="none")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}]
    messages = [{"role": "user", "content": "Weather?"}]
    options = {"model": "fixed", "tools": tools}
    answer = client.chat.completions.create(messages=messages, **options)
    call = answer.choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == ARGUMENTS
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    with client.chat.completions.stream(messages=messages, **options) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "weather"
    messages += [
        answer.choices[0].message,
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    answer = client.chat.completions.create(messages=messages, **options)
    assert answer.choices[0].message.content == "It will be sunny in Oslo."


def openai_embeddings(servers):
    client = module("openai").OpenAI(base_url=f"{servers.vectors}/v1", api_key="none")
    answer = client.embeddings.create(model="demo", input=["a fox", "an owl"])
    assert len(answer.data) == 2 and answer.usage.prompt_tokens > 0
    assert abs(sum(x * x for x in answer.data[0].embedding) - 1) < 1e-3


def anthropic(servers):
    library = module("anthropic")
    client = library.Anthropic(base_url=servers.demo, api_key="none")
    # The newest client has no parameter for the temperature.
    extra = {"temperature": 0}
    options = {"model": "demo", "messages": MESSAGES, "max_tokens": 24, "extra_body": extra}
    answer = client.messages.create(**options)
    text = answer.content[0].text
    assert text and answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 24
    with client.messages.stream(**options) as stream:
        assert "".join(stream.text_stream) == text
        assert stream.get_final_message().usage.output_tokens == 24
    counted = client.messages.count_tokens(model="demo", messages=MESSAGES)
    assert counted.input_tokens > 0
    stopped = client.messages.create(**options, stop_sequences=[text[10:14]])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == text[10:14]
    try:
        client.messages.create(**{**options, "model": "claude"})
        raise AssertionError("an unknown model answered")
    except library.NotFoundError as error:
        assert "claude" in str(error)


def anthropic_tools(servers):
    client = module("anthropic").Anthropic(base_url=servers.fixed, api_key="none")
    options = {
        "model": "fixed",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [{"name": "weather", "input_schema": WEATHER}],
        "max_tokens": 200,
    }
    with client.messages.stream(**options) as stream:
        answer = stream.get_final_message()
    assert answer.stop_reason == "tool_use"
    assert [block.type for block in answer.content] == ["thinking", "tool_use"]
    assert answer.content[1].input == ARGUMENTS


def ollama(servers):
    library = module("ollama")
    client = library.Client(host=servers.demo)
    model = client.list().models[0].model
    options = {"num_predict": 24, "temperature": 0}
    answer = client.chat(model=model, messages=MESSAGES, options=options)
    assert answer.eval_count == 24 and answer.done_reason == "length"
    parts = list(client.chat(model=model, messages=MESSAGES, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == answer.message.content
    assert client.generate(model=model, prompt=PROMPT, options=options, keep_alive="5m").response
    assert client.show(model).details.format == "gguf"
    assert client.ps().models[0].model == model
    try:
        client.chat(model="unknown", messages=MESSAGES)
        raise AssertionError("an unknown model answered")
    except library.ResponseError as error:
        assert error.status_code == 404


def langchain_openai(servers):
    client = module("langchain_openai").ChatOpenAI(
        base_url=f"{servers.demo}/v1",
        api_key="none",
        model="demo",
        max_tokens=16,
        stream_usage=True,
    )
    assert client.invoke(PROMPT).content
    assert "".join(chunk.content for chunk in client.stream(PROMPT))


def litellm(servers):
    answer = module("litellm").completion(
        model="hosted_vllm/demo",
        api_base=f"{servers.demo}/v1",
        messages=MESSAGES,
        max_tokens=16,
    )
    assert answer.choices[0].message.content


# --- Programs ---


def aider(servers):
    """One edit of a file, by the answer that the model has for it."""
    command = [
        program("aider"),
        *("--model", "openai/fixed", "--edit-format", "whole", "--yes-always", "--no-git"),
        *("--no-show-model-warnings", "--no-check-update", "--analytics-disable"),
        *("--no-pretty", "--no-detect-urls", "--map-tokens", "0"),
        *("--message", "Greet from the model.", "greeting.py"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "greeting.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write('def greet():\n    print("Hello")\n')
        environment = {
            **os.environ,
            "OPENAI_API_BASE": f"{servers.fixed}/v1",
            "OPENAI_API_KEY": "none",
            "HOME": folder,
        }
        finish(command, env=environment, cwd=folder)
        with open(path, encoding="utf-8") as file:
            text = file.read()
    assert text == 'def greet():\n    print("Hello from the model")\n', text


def ai_sdk_openai_compatible(servers):
    ai_sdk("openai-compatible", servers)


def ai_sdk_anthropic(servers):
    ai_sdk("anthropic", servers)


def ai_sdk(name, servers):
    node = program("node")
    found = subprocess.run(
        [node, "-e", f"require('ai'); require('@ai-sdk/{name}')"], capture_output=True, check=False
    )
    if found.returncode != 0:
        raise Skipped(f"no packages ai and @ai-sdk/{name} in NODE_PATH")
    finish([node, os.path.join(CLIENTS, "ai_sdk.cjs"), name, servers.fixed, "fixed"])


def smg(servers):
    command = [program("smg"), "launch", "--policy", "cache_aware", "--host", "127.0.0.1"]
    gateway(servers, command, ["--prometheus-port", str(free_port())])


def vllm_router(servers):
    command = [program("vllm-router"), "--policy", "cache_aware", "--host", "127.0.0.1"]
    # It looks at the load only from a threshold on, which is for more requests than these.
    balance = ["--balance-abs-threshold", "1", "--balance-rel-threshold", "1"]
    gateway(servers, command, [*balance, "--prometheus-port", str(free_port())])


def gateway(servers, command, options):
    """Chats through a gateway before two workers, and checks that the workers share the load."""
    port = free_port()
    workers = [servers.demo, servers.second]
    command = [*command, "--port", str(port), *options, "--worker-urls", *workers]
    before = [requests(worker) for worker in workers]
    with running(command):
        base = f"http://127.0.0.1:{port}"
        wait_for(lambda: chat(base, "Hello"))
        # Prompts with nothing in common, of several pages each.
        prompts = [f"{word} " * 100 for word in ["fox", "owl", "key", "sun", "sea", "tree"]]
        with concurrent.futures.ThreadPoolExecutor() as threads:
            answers = [answer for answer, _ in threads.map(lambda text: chat(base, text), prompts)]
        for prompt, answer in zip(prompts, answers):
            again, cached_tokens = chat(base, prompt)
            assert again == answer
            assert cached_tokens > 0, "the gateway chose the other worker"
        body = {"model": "demo", "messages": MESSAGES, "max_tokens": 8, "stream": True}
        text = post(f"{base}/v1/chat/completions", body)
        assert text.rstrip().endswith("data: [DONE]"), text[-200:]
    counts = [requests(worker) - old for worker, old in zip(workers, before)]
    assert sum(counts) >= 14 and min(counts) > 0, f"one worker got all: {counts}"


def chat(base, text):
    """The answer, and the tokens of the prompt that the worker had in its cache."""
    body = {
        "model": "demo",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 8,
        "temperature": 0,
    }
    answer = json.loads(post(f"{base}/v1/chat/completions", body))
    cached_tokens = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"][0]["message"]["content"], cached_tokens


def requests(worker):
    """The requests that a worker has answered."""
    lines = get(f"{worker}/metrics").splitlines()
    name = "vllm:e2e_request_latency_seconds_count"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


# --- Servers ---


class Servers:
    """The addresses of the servers."""

    def __init__(self, stack, rf_cli, fixed):
        self.demo = stack.enter_context(server([rf_cli, "serve"]))
        self.second = stack.enter_context(server([rf_cli, "serve"]))
        self.vectors = stack.enter_context(server([rf_cli, "serve", "--embedding"]))
        command = [rf_cli, "serve", "-m", fixed, "--alias", "fixed", "-c", "32768"]
        self.fixed = stack.enter_context(server(command))


@contextlib.contextmanager
def server(command):
    port = free_port()
    with running([*command, "--port", str(port), "-t", "1"]) as process:
        base = f"http://127.0.0.1:{port}"
        wait_for(lambda: process.poll() is not None or get(f"{base}/health"))
        assert process.poll() is None, "the server ended"
        yield base


@contextlib.contextmanager
def running(command):
    """Runs a program until the end of the block. Its output is printed if the block fails."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        except BaseException:
            log.seek(0)
            print(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.terminate()
            process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(attempt):
    deadline = time.monotonic() + 60
    while True:
        try:
            return attempt()
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def get(url):
    with urllib.request.urlopen(url) as response:
        return response.read().decode()


def post(url, body):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def finish(command, **options):
    """Runs a program to its end, which must be a good one."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, **options
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


CLIENTS_TO_RUN = [
    openai,
    openai_structured_output,
    openai_tools,
    openai_embeddings,
    anthropic,
    anthropic_tools,
    ollama,
    langchain_openai,
    litellm,
    aider,
    ai_sdk_openai_compatible,
    ai_sdk_anthropic,
    smg,
    vllm_router,
]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rf_cli, fixed, *names = sys.argv[1:]
    failed = False
    with contextlib.ExitStack() as stack:
        servers = Servers(stack, os.path.abspath(rf_cli), os.path.abspath(fixed))
        for client in CLIENTS_TO_RUN:
            name = client.__name__
            if names and name not in names:
                continue
            try:
                client(servers)
                print(f"{name}: ok")
            except Skipped as why:
                print(f"{name}: skipped: {why}")
            except Exception:
                failed = True
                print(f"{name}: FAILED")
                traceback.print_exc(file=sys.stdout)
    sys.exit(failed)


main()
