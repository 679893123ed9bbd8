// The parameters of a request: one row per field, from which the form and the request are made.
import { checkGrammar, checkJson, checkSchema, checkTools } from "./structure";
import type { Params } from "./conversation";

export interface Field {
  name: string;
  label: string;
  kind: "number" | "integer" | "choice" | "list" | "words" | "json" | "text" | "switch";
  min?: number;
  max?: number;
  step?: number;
  /** Values and their labels. */
  choices?: [string, string][];
  help?: string;
  /** Why a text is not valid; null for a valid one. */
  check?: (text: string) => string | null;
}

export interface Section {
  title: string;
  fields: Field[];
}

const number = (name: string, label: string, min?: number, max?: number, help?: string, step = 0.05): Field => ({
  name,
  label,
  kind: "number",
  min,
  max,
  step,
  help,
});
const integer = (name: string, label: string, min?: number, help?: string): Field => ({
  name,
  label,
  kind: "integer",
  min,
  step: 1,
  help,
});

export const SECTIONS: Section[] = [
  {
    title: "Answer",
    fields: [
      integer("max_tokens", "Most tokens", 1, "The answer ends after so many tokens."),
      integer("seed", "Seed", undefined, "The same seed gives the same answer."),
      {
        name: "thinking",
        label: "Reasoning",
        kind: "choice",
        choices: [
          ["", "as the model does"],
          ["on", "on"],
          ["off", "off"],
        ],
      },
      {
        name: "reasoning_effort",
        label: "Effort",
        kind: "choice",
        choices: [
          ["", "default"],
          ["low", "low"],
          ["medium", "medium"],
          ["high", "high"],
        ],
      },
      integer("thinking_token_budget", "Reasoning tokens", 0, "The content begins after so many tokens of reasoning."),
      integer("min_tokens", "Fewest tokens", 0),
      { name: "stop", label: "Stop at", kind: "list", help: "One text per line; each ends the answer." },
      { name: "logprobs", label: "Keep log probabilities of tokens", kind: "switch" },
      { name: "ignore_eos", label: "Go on after the end of the text", kind: "switch" },
    ],
  },
  {
    title: "Sampling",
    fields: [
      number("temperature", "Temperature", 0, undefined, "0 always takes the most probable token."),
      integer("top_k", "Top K", 0),
      number("top_p", "Top P", 0, 1),
      number("min_p", "Min P", 0, 1, undefined, 0.01),
      number("typical_p", "Typical P", 0, 1),
      number("top_n_sigma", "Top n sigma", -1, undefined, undefined, 0.1),
      number("xtc_probability", "XTC probability", 0, 1),
      number("xtc_threshold", "XTC threshold", 0, 1),
      number("dynatemp_range", "Dynamic temperature range", 0),
      number("dynatemp_exponent", "Dynamic temperature exponent", 0),
      {
        name: "mirostat",
        label: "Mirostat",
        kind: "choice",
        choices: [
          ["", "default"],
          ["0", "off"],
          ["1", "1"],
          ["2", "2"],
        ],
      },
      number("mirostat_tau", "Mirostat target", 0, undefined, undefined, 0.1),
      number("mirostat_eta", "Mirostat rate", 0, undefined, undefined, 0.01),
      {
        name: "samplers",
        label: "Order of samplers",
        kind: "words",
        help: "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature",
      },
    ],
  },
  {
    title: "Repetition",
    fields: [
      number("repeat_penalty", "Repeat penalty", 0),
      integer("repeat_last_n", "Tokens looked at", -1),
      number("presence_penalty", "Presence penalty", -2, 2),
      number("frequency_penalty", "Frequency penalty", -2, 2),
      number("dry_multiplier", "DRY multiplier", 0),
      number("dry_base", "DRY base", 0),
      integer("dry_allowed_length", "DRY allowed length", 0),
      integer("dry_penalty_last_n", "DRY tokens looked at", -1),
      { name: "dry_sequence_breakers", label: "DRY breakers", kind: "list", help: "One text per line." },
      { name: "bad_words", label: "Words left out", kind: "list", help: "One text per line." },
      {
        name: "logit_bias",
        label: "Logit bias",
        kind: "json",
        help: 'Ids of tokens and biases: {"15043": -1.5}',
        check: checkJson,
      },
    ],
  },
  {
    title: "Structure",
    fields: [
      {
        name: "json_schema",
        label: "JSON schema",
        kind: "json",
        help: "The answer is JSON that fits the schema.",
        check: checkSchema,
      },
      {
        name: "grammar",
        label: "Grammar",
        kind: "text",
        help: "GBNF with the rule root. Either a schema or a grammar.",
        check: checkGrammar,
      },
    ],
  },
  {
    title: "Tools and other fields",
    fields: [
      {
        name: "tools",
        label: "Tools",
        kind: "json",
        help: "A list of functions in OpenAI's form. You give their results.",
        check: checkTools,
      },
      {
        name: "custom",
        label: "Further fields of the request",
        kind: "json",
        help: "An object; its fields replace those above.",
        check: checkJson,
      },
    ],
  },
];

const FIELDS = new Map(SECTIONS.flatMap((section) => section.fields).map((field) => [field.name, field]));

/** The first parameter that is not valid, as a sentence. */
export function firstProblem(params: Params): string | null {
  for (const [name, value] of Object.entries(params)) {
    const field = FIELDS.get(name);
    const problem = field?.check?.(String(value));
    if (problem) return `${field?.label}: ${problem}`;
  }
  if (params.json_schema && params.grammar) return "An answer cannot have both a schema and a grammar.";
  return null;
}

/** The fields of a request. Texts must be valid. */
export function requestFields(params: Params): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(params)) {
    const field = FIELDS.get(name);
    if (!field || value === "" || value === false || name === "custom") continue;
    const text = String(value);
    if (name === "thinking") fields.chat_template_kwargs = { enable_thinking: value === "on" };
    else if (name === "mirostat") fields.mirostat = Number(value);
    else if (name === "logprobs") Object.assign(fields, { logprobs: true, top_logprobs: 5 });
    else if (name === "json_schema") {
      fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(text) } };
    } else if (field.kind === "json") fields[name] = JSON.parse(text);
    else if (field.kind === "list") fields[name] = text.split("\n").filter((line) => line !== "");
    else if (field.kind === "words") fields[name] = text.split(/[\s,;]+/).filter(Boolean);
    else fields[name] = value;
  }
  if (params.custom) Object.assign(fields, JSON.parse(String(params.custom)));
  return fields;
}
