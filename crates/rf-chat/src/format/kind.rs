//! The names of the formats.

/// The syntax of a model's tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolFormat {
    /// `<|channel|>commentary to=functions.f<|message|>{…}<|call|>`: gpt-oss.
    Harmony,
    /// `<|tool_call>call:f{key:value}<tool_call|>`: Gemma 4.
    Gemma,
    /// `<start_function_call>call:f{key:value}<end_function_call>`: `FunctionGemma`.
    FunctionGemma,
    /// `<｜DSML｜invoke name="f"><｜DSML｜parameter name="key" string="true">value`, with end tags
    /// and within `<｜DSML｜function_calls>`: `DeepSeek` V3.2.
    DeepSeekFunctionCalls,
    /// The form of [`Self::DeepSeekFunctionCalls`] within `<｜DSML｜tool_calls>`: `DeepSeek` V4.
    DeepSeekToolCalls,
    /// `<｜tool▁call▁begin｜>function<｜tool▁sep｜>f`, a line break and the arguments in a fence of
    /// Markdown: `DeepSeek` V3 and R1.
    DeepSeekFenced,
    /// `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`: `DeepSeek` V3.1.
    DeepSeek,
    /// `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`: Kimi K2.
    Kimi,
    /// `<|tool_call_start|>[f(key="value")]<|tool_call_end|>`: LFM2.
    Lfm2,
    /// `<minimax:tool_call><invoke name="f"><parameter name="key">value</parameter></invoke>`, and
    /// the end of the first tag: `MiniMax` M2.
    MiniMax,
    /// `<tool_call>f<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`: GLM-4.5 on.
    Glm,
    /// `<tool_call><function=f><parameter=key>value</parameter></function></tool_call>`:
    /// Qwen3-Coder, Qwen3.5, Nemotron 3, Seed-OSS.
    Function,
    /// `[TOOL_CALLS]f[ARGS]{…}`: Mistral, Devstral and Magistral since.
    Mistral,
    /// `[TOOL_CALLS][{"name": "f", "arguments": {…}}]`: Mistral before 2025.
    MistralArray,
    /// `<tool_call>{"name": "f", "arguments": {…}}</tool_call>`: Hermes, Qwen2.5, Qwen3, Granite.
    Hermes,
    /// `<|python_tag|>{"name": "f", "parameters": {…}}`, or the object alone: Llama 3.
    Llama,
    /// `{"name": "f", "arguments": {…}}` alone, for models without their own form.
    Object,
}
