//! Chat templates by name, for files without one.
//!
//! The names are those of `llama.cpp`, and a few of families that it does not name. The formats are
//! those that the vendors publish. Like `llama.cpp`, the templates leave out the
//! beginning-of-sequence token unless it differs from what the tokenizer adds.

/// The source of the template called `name`.
pub(super) fn source(name: &str) -> Option<&'static str> {
    TEMPLATES.iter().find(|row| row.0.contains(&name)).map(|row| row.1)
}

/// Returns the names of the built-in templates.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().flat_map(|row| row.0).copied()
}

/// A part for each message `m`, and the start of an answer.
macro_rules! turns {
    ($message:literal, $answer:literal) => {
        concat!(
            "{% for m in messages %}",
            $message,
            "{% endfor %}{% if add_generation_prompt %}",
            $answer,
            "{% endif %}"
        )
    };
}

/// Llama 2 and Mistral: an instruction from `$open` to the user's text holds the system message.
macro_rules! instructions {
    ($open:literal, $system:literal, $user:literal, $assistant:literal) => {
        concat!(
            "{% for m in messages %}",
            "{% if loop.first or loop.previtem.role == 'assistant' %}",
            $open,
            "{% endif %}{% if m.role == 'system' %}",
            $system,
            "{% elif m.role == 'user' %}",
            $user,
            "{% else %}",
            $assistant,
            "{% endif %}{% endfor %}"
        )
    };
}

#[rustfmt::skip] // one row per template, its parts below each other
const TEMPLATES: &[(&[&str], &str)] = &[
    (&["chatml"], turns!(
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}",
        "{{ '<|im_start|>assistant\n' }}")),
    (&["command-r"], turns!(
        "{{ '<|START_OF_TURN_TOKEN|><|' + {'system': 'SYSTEM', 'user': 'USER'}[m.role] | default('CHATBOT') + '_TOKEN|>' + m.content | trim + '<|END_OF_TURN_TOKEN|>' }}",
        "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}")),
    (&["command-r7b"], turns!(
        "{{ '<|START_OF_TURN_TOKEN|><|' + {'system': 'SYSTEM', 'user': 'USER'}[m.role] | default('CHATBOT') + '_TOKEN|>' }}{{ '<|START_RESPONSE|>' + m.content + '<|END_RESPONSE|>' if m.role == 'assistant' else m.content | trim }}{{ '<|END_OF_TURN_TOKEN|>' }}",
        "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_RESPONSE|>' }}")),
    (&["chatglm4", "glm4"], concat!("[gMASK]<sop>", turns!(
        "{{ '<|' + m.role + '|>\n' + m.content }}",
        "{{ '<|assistant|>\n' }}"))),
    (&["glm4.5"], concat!("[gMASK]<sop>", turns!(
        "{{ '<|' + m.role + '|>\n' }}{{ '<think></think>\n' + m.content | trim if m.role == 'assistant' else m.content }}",
        "{{ '<|assistant|>' }}"))),
    (&["deepseek3"], turns!(
        "{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}{% else %}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}{% endif %}",
        "{{ '<｜Assistant｜>' }}")),
    (&["ernie4.5"], concat!("<|begin_of_sentence|>", turns!(
        "{% if m.role == 'system' %}{{ m.content + '\n' }}{% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n' }}{% else %}{{ 'Assistant: ' + m.content + '<|end_of_sentence|>' }}{% endif %}",
        "{{ 'Assistant: ' }}"))),
    (&["exaone4"], turns!(
        "{{ '[|' + m.role + '|]\n' }}{{ '<think>\n\n</think>\n\n' if m.role == 'assistant' }}{{ m.content + '[|endofturn|]\n' }}",
        "{{ '[|assistant|]\n' + ('<think>\n' if enable_thinking else '<think>\n\n</think>\n\n') }}")),
    (&["falcon3"], turns!(
        "{{ '<|' + m.role + '|>\n' + m.content + '\n' }}",
        "{{ '<|assistant|>\n' }}")),
    (&["gemma"], concat!("{% set ns = namespace(system='') %}", turns!(
        "{% if m.role == 'system' %}{% set ns.system = m.content | trim + '\n\n' %}{% elif m.role == 'assistant' %}{{ '<start_of_turn>model\n' + m.content | trim + '<end_of_turn>\n' }}{% else %}{{ '<start_of_turn>' + m.role + '\n' + ns.system + m.content | trim + '<end_of_turn>\n' }}{% set ns.system = '' %}{% endif %}",
        "{{ '<start_of_turn>model\n' }}"))),
    (&["gemma4"], turns!(
        "{{ '<|turn>' + ('model' if m.role == 'assistant' else m.role) + '\n' + ('<|think|>' if loop.first and m.role == 'system' and enable_thinking else '') + m.content | trim + '<turn|>\n' }}",
        "{{ '<|turn>model\n' + ('' if enable_thinking else '<|channel>thought\n<channel|>') }}")),
    (&["gpt-oss"], concat!(
        "{{ '<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: ' + strftime_now('%Y-%m-%d') + '\n\nReasoning: ' + reasoning_effort | default('medium') + '\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.<|end|>' }}",
        turns!(
            "{% if m.role == 'system' %}{{ '<|start|>developer<|message|># Instructions\n\n' + m.content + '\n\n<|end|>' }}{% elif m.role == 'assistant' %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{% else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{% endif %}",
            "{{ '<|start|>assistant' }}"))),
    (&["granite"], turns!(
        "{{ '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\n' }}",
        "{{ '<|start_of_role|>assistant<|end_of_role|>' }}")),
    (&["hunyuan-dense"], concat!("<｜hy_begin▁of▁sentence｜>", turns!(
        "{% if m.role == 'system' %}{{ m.content + '<｜hy_place▁holder▁no▁3｜>' }}{% elif m.role == 'user' %}{{ '<｜hy_User｜>' + m.content }}{% else %}{{ '<｜hy_Assistant｜>' + m.content + '<｜hy_place▁holder▁no▁2｜>' }}{% endif %}",
        "{{ '<｜hy_Assistant｜>' }}"))),
    (&["llama2"], instructions!(
        "{{ '[INST] ' }}", "{{ m.content + '\n' }}",
        "{{ m.content + ' [/INST]' }}", "{{ m.content + '</s>' }}")),
    (&["llama2-sys"], instructions!(
        "{{ '[INST] ' }}", "{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}",
        "{{ m.content + ' [/INST]' }}", "{{ m.content + '</s>' }}")),
    (&["llama2-sys-bos"], instructions!(
        "{{ '[INST] ' if loop.first else '<s>[INST] ' }}", "{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}",
        "{{ m.content + ' [/INST]' }}", "{{ m.content + '</s>' }}")),
    (&["llama2-sys-strip"], instructions!(
        "{{ '[INST] ' }}", "{{ '<<SYS>>\n' + m.content | trim + '\n<</SYS>>\n\n' }}",
        "{{ m.content | trim + ' [/INST]' }}", "{{ m.content | trim + '</s>' }}")),
    (&["llama3"], turns!(
        "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}",
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")),
    (&["llama4"], turns!(
        "{{ '<|header_start|>' + m.role + '<|header_end|>\n\n' + m.content | trim + '<|eot|>' }}",
        "{{ '<|header_start|>assistant<|header_end|>\n\n' }}")),
    (&["minicpm"], turns!(
        "{{ '<用户>' + m.content | trim + '<AI>' if m.role == 'user' else m.content | trim }}", "")),
    (&["mistral-v1"], instructions!(
        "{{ ' [INST] ' }}", "{{ m.content + '\n\n' }}",
        "{{ m.content + ' [/INST]' }}", "{{ ' ' + m.content + '</s>' }}")),
    (&["mistral-v3"], instructions!(
        "{{ '[INST] ' }}", "{{ m.content + '\n\n' }}",
        "{{ m.content + '[/INST]' }}", "{{ ' ' + m.content | trim + '</s>' }}")),
    (&["mistral-v3-tekken"], instructions!(
        "{{ '[INST]' }}", "{{ m.content + '\n\n' }}",
        "{{ m.content + '[/INST]' }}", "{{ m.content + '</s>' }}")),
    (&["mistral-v7"], turns!(
        "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT] ' + m.content + '[/SYSTEM_PROMPT]' }}{% elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}{% else %}{{ ' ' + m.content + '</s>' }}{% endif %}", "")),
    (&["mistral-v7-tekken"], turns!(
        "{% if m.role == 'system' %}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}{% elif m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}{% else %}{{ m.content + '</s>' }}{% endif %}", "")),
    (&["olmo2"], concat!("<|endoftext|>", turns!(
        "{{ '<|' + m.role + '|>\n' + m.content + ('<|endoftext|>\n' if m.role == 'assistant' else '\n') }}",
        "{{ '<|assistant|>\n' }}"))),
    (&["phi3"], turns!(
        "{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}",
        "{{ '<|assistant|>\n' }}")),
    (&["phi4"], turns!(
        "{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content + '<|im_end|>' }}",
        "{{ '<|im_start|>assistant<|im_sep|>' }}")),
    (&["phi4-mini"], turns!(
        "{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}",
        "{{ '<|assistant|>' }}")),
    (&["seed_oss"], turns!(
        "{{ '<seed:bos>' + m.role + '\n' + (m.content | trim if m.role == 'assistant' else m.content) + '<seed:eos>' }}",
        "{{ '<seed:bos>assistant\n' }}")),
    (&["smollm3"], concat!(
        "{% set mode = '/no_think' if enable_thinking is defined and not enable_thinking else '/think' %}",
        "{% set think = '<think>\n\n</think>\n' if mode == '/no_think' else '' %}",
        "{% set system = messages[0].content if messages[0].role == 'system' else 'You are a helpful AI assistant named SmolLM, trained by Hugging Face.' %}",
        "{{ '<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: ' + strftime_now('%d %B %Y') + '\nReasoning Mode: ' + mode + '\n\n## Custom Instructions\n\n' + system + '\n\n' }}",
        turns!(
            "{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' + think + m.content + '<|im_end|>\n' }}{% elif m.role != 'system' %}{{ '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}{% endif %}",
            "{{ '<|im_start|>assistant\n' + think }}"))),
    (&["vicuna"], turns!(
        "{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}{% else %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}",
        "{{ 'ASSISTANT:' }}")),
    (&["zephyr"], turns!(
        "{{ '<|' + m.role + '|>\n' + m.content + '<|endoftext|>\n' }}",
        "{{ '<|assistant|>\n' }}")),
];
