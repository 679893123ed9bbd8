#!/usr/bin/env python3
"""Runs unmodified clients against a server: `run.py http://127.0.0.1:8080`.

A client that is not installed is reported as `skipped: <why>`. The exit code is 1 if one fails.
"""

import importlib
import sys
import traceback

PROMPT = "Tell me a story about a fox and a lost key."
MESSAGES = [{"role": "user", "content": PROMPT}]


def openai(base):
    client = importlib.import_module("openai").OpenAI(base_url=f"{base}/v1", api_key="none")
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

    options = {"model": model, "input": PROMPT, "max_output_tokens": 24, "temperature": 0}
    assert client.responses.create(**options).output_text == text
    with client.responses.stream(**options) as stream:
        events = [event.type for event in stream]
    assert events[0] == "response.created" and "response.output_text.delta" in events

    errors = importlib.import_module("openai")
    try:
        client.chat.completions.create(model="gpt-9", messages=MESSAGES)
        raise AssertionError("an unknown model answered")
    except errors.NotFoundError as error:
        assert error.code == "model_not_found" and error.request_id


def anthropic(base):
    module = importlib.import_module("anthropic")
    client = module.Anthropic(base_url=base, api_key="none")
    model = importlib.import_module("json").loads(get(f"{base}/v1/models"))["data"][0]["id"]
    # The newest client has no parameter for the temperature.
    extra = {"temperature": 0}
    options = {"model": model, "messages": MESSAGES, "max_tokens": 24, "extra_body": extra}
    answer = client.messages.create(**options)
    text = answer.content[0].text
    assert text and answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 24
    with client.messages.stream(**options) as stream:
        assert "".join(stream.text_stream) == text
        assert stream.get_final_message().usage.output_tokens == 24
    counted = client.messages.count_tokens(model=model, messages=MESSAGES)
    assert counted.input_tokens > 0
    try:
        client.messages.create(**{**options, "model": "claude"})
        raise AssertionError("an unknown model answered")
    except module.NotFoundError as error:
        assert "claude" in str(error)


def ollama(base):
    module = importlib.import_module("ollama")
    client = module.Client(host=base)
    model = client.list().models[0].model
    options = {"num_predict": 24, "temperature": 0}
    answer = client.chat(model=model, messages=MESSAGES, options=options)
    assert answer.eval_count == 24 and answer.done_reason == "length"
    parts = list(client.chat(model=model, messages=MESSAGES, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == answer.message.content
    assert client.generate(model=model, prompt=PROMPT, options=options).response
    assert client.show(model).details.format == "gguf"
    assert client.ps().models[0].model == model
    try:
        client.chat(model="unknown", messages=MESSAGES)
        raise AssertionError("an unknown model answered")
    except module.ResponseError as error:
        assert error.status_code == 404


def langchain_openai(base):
    module = importlib.import_module("langchain_openai")
    client = module.ChatOpenAI(
        base_url=f"{base}/v1", api_key="none", model="", max_tokens=16, stream_usage=True
    )
    assert client.invoke(PROMPT).content
    assert "".join(chunk.content for chunk in client.stream(PROMPT))


def litellm(base):
    module = importlib.import_module("litellm")
    model = importlib.import_module("json").loads(get(f"{base}/v1/models"))["data"][0]["id"]
    answer = module.completion(
        model=f"hosted_vllm/{model}", api_base=f"{base}/v1", messages=MESSAGES, max_tokens=16
    )
    assert answer.choices[0].message.content


def get(url):
    return importlib.import_module("urllib.request").urlopen(url).read()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: run.py URL")
    failed = False
    for client in [openai, anthropic, ollama, langchain_openai, litellm]:
        try:
            module = importlib.import_module(client.__name__)
        except ImportError as error:
            print(f"{client.__name__}: skipped: {error}")
            continue
        try:
            client(sys.argv[1].rstrip("/"))
            print(f"{client.__name__} {getattr(module, '__version__', '')}: ok")
        except Exception:
            failed = True
            print(f"{client.__name__}: FAILED")
            traceback.print_exc(file=sys.stdout)
    sys.exit(failed)


main()
