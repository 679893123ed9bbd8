"""guidellm: 40 requests of synthetic text, 4 at a time, half of them chats."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

REQUESTS, PROMPT, ANSWER = 20, 32, 16
TOKENIZER = os.environ["TOKENIZER"]
# The tokens of the chat template around a prompt.
TEMPLATE = 8


def benchmark(route):
    """The report on a benchmark of a route."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        backend = f"kind=openai_http,target={os.environ['SERVER']},model=demo,request_format={route}"
        command = [
            *(pathlib.Path(sys.executable).parent / "guidellm", "run", "--backend", backend),
            *("--profile", "kind=concurrent,streams=4"),
            *("--constraint", f"kind=max_requests,count={REQUESTS}"),
            *("--tokenizer", f"kind=huggingface_auto,model={TOKENIZER}"),
            *("--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={ANSWER}"),
            *("--output", f"kind=json,path={report}", "--disable-console-interactive"),
        ]
        own = {"HF_HUB_OFFLINE": "1", "HF_HOME": folder, "GUIDELLM__MAX_WORKER_PROCESSES": "1"}
        subprocess.run(command, check=True, env=os.environ | own)
        return json.loads(report.read_text())["benchmarks"][0]


for route, template in ("/v1/completions", 0), ("/v1/chat/completions", TEMPLATE):
    requests = benchmark(route)["requests"]
    assert not requests["errored"] and not requests["incomplete"], requests
    assert len(requests["successful"]) == REQUESTS, requests
    for request in requests["successful"]:
        # The server counts the tokens of the prompt as the tokenizer does, and gives each of the
        # answer by itself.
        assert request["input_metrics"]["text_tokens"] == PROMPT + template, request
        assert request["output_metrics"]["text_tokens"] == ANSWER, request
        assert request["info"]["timings"]["token_iterations"] > ANSWER / 2, request
        assert request["output"].strip(), request
