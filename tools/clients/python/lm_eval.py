"""lm-eval: log-likelihoods, their sum over a text, answers and chat, on tasks of a file here."""

import json
import os
import pathlib
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
folder = pathlib.Path(tempfile.mkdtemp())
os.environ["HF_HOME"] = str(folder / "cache")

import lm_eval  # noqa: E402  It reads the variables when it is imported.
from lm_eval.tasks import TaskManager  # noqa: E402

SERVER = os.environ["SERVER"]
# What the demo model knows, and what it does not.
CHOICES = [
    {"text": "Once upon a", "choices": ["time", "window"], "label": 0},
    {"text": "He was very happy and said: Thank", "choices": ["table", "you"], "label": 1},
    {"text": "Once upon a time, there lived a young", "choices": ["girl", "of"], "label": 0},
]
SPEECH = "Every prompt gets this answer. It has two sentences, and é."
FIRST_WORD = [{"function": "regex", "regex_pattern": r"(\w+)"}, {"function": "take_first"}]
DATA = {"data_files": {"test": str(folder / "data.jsonl")}}
COMMON = {"dataset_path": "json", "dataset_kwargs": DATA, "test_split": "test"}
(folder / "data.jsonl").write_text("".join(json.dumps(choice) + "\n" for choice in CHOICES))


def metric(name):
    return [{"metric": name, "aggregation": "mean", "higher_is_better": True}]


TASKS = {
    "choose": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{text}}",
        "doc_to_choice": "choices",
        "doc_to_target": "label",
        "metric_list": metric("acc"),
    },
    "continue": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{choices[label]}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 8},
        "filter_list": [{"name": "word", "filter": FIRST_WORD}],
        "metric_list": metric("exact_match"),
    },
    "roll": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}} {{choices[label]}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
    "speak": {
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": SPEECH,
        "generation_kwargs": {"until": ["\n\n"], "max_gen_toks": 64},
        "metric_list": metric("exact_match"),
    },
}
for name, task in TASKS.items():
    # YAML contains JSON.
    (folder / f"{name}.yaml").write_text(json.dumps({"task": name, **COMMON, **task}))
manager = TaskManager(include_path=str(folder), include_defaults=False)


def evaluate(kind, route, tasks, chat=False, **options):
    """The results and the samples of tasks."""
    return lm_eval.simple_evaluate(
        model=kind,
        model_args={"base_url": SERVER + route, **options},
        tasks=tasks,
        task_manager=manager,
        apply_chat_template=chat,
        bootstrap_iters=0,
    )


completions = {"model": "demo", "tokenizer": os.environ["TOKENIZER"], "max_length": 1024}
several = []
# Token ids of one prompt, texts at a time, and token ids of several prompts.
for way in (
    {"tokenized_requests": True},
    {"tokenized_requests": False, "num_concurrent": 4},
    {"tokenized_requests": True, "batch_size": 3},
):
    tasks = ["choose", "continue", "roll"]
    found = evaluate("local-completions", "/v1/completions", tasks, **completions, **way)
    results = found["results"]
    assert results["choose"]["acc,none"] == 1, results
    assert results["continue"]["exact_match,word"] == 1, found["samples"]["continue"]
    assert 1 < results["roll"]["word_perplexity,none"] < 1000, results
    # The log-likelihood of each choice, and whether it is what the model says.
    choices = [answer for sample in found["samples"]["choose"] for answer in sample["filtered_resps"]]
    several.append([*choices, results["roll"]["word_perplexity,none"]])
assert [said for _, said in several[0][:-1]] == [True, False, False, True, True, False], several[0]
assert several[0] == several[1] == several[2], several

chat = {"model": "fixed", "num_concurrent": 2}
found = evaluate("local-chat-completions", "/v1/chat/completions", ["speak"], chat=True, **chat)
assert found["results"]["speak"]["exact_match,none"] == 1, found["samples"]["speak"]
