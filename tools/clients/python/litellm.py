"""litellm: the providers openai, hosted_vllm, anthropic and ollama_chat."""

import os

import litellm

base = os.environ["SERVER"]
USER = [{"role": "user", "content": "Hello"}]
for model, url in [
    ("openai/fixed", base + "/v1"),
    ("hosted_vllm/fixed", base + "/v1"),
    ("anthropic/fixed", base),
    ("ollama_chat/fixed", base),
]:
    options = {"model": model, "api_base": url, "api_key": "none", "messages": USER}
    answer = litellm.completion(**options, max_tokens=64)
    assert answer.choices[0].message.content.startswith("Every prompt"), model
    parts = litellm.completion(**options, max_tokens=64, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts)
    assert text.startswith("Every prompt"), model
vectors = litellm.embedding(
    model="openai/demo",
    api_base=os.environ["EMBEDDINGS"] + "/v1",
    api_key="none",
    input=["one", "two"],
)
assert len(vectors.data) == 2
