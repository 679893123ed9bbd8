// Checks of schemas, grammars and other texts as one types. The server has the last word.
import { jsonProblem } from "./json";

/** Why a text is no JSON, with line and column; null for JSON. */
export function checkJson(text: string): string | null {
  return problemOf(text, (value) => (isObject(value) ? null : "expected an object"));
}

/** Why a text is no JSON schema. */
export function checkSchema(text: string): string | null {
  return problemOf(text, (value) => schemaProblem(value, "the schema"));
}

/** Why a text is no list of tools. */
export function checkTools(text: string): string | null {
  return problemOf(text, (value) => {
    if (!Array.isArray(value)) return "expected a list of tools";
    for (const [index, tool] of value.entries()) {
      const made: unknown = isObject(tool) ? tool.function : undefined;
      if (!isObject(made) || typeof made.name !== "string" || !made.name) {
        return `tool ${index + 1} has no function with a name`;
      }
      if (made.parameters !== undefined) {
        const problem = schemaProblem(made.parameters, `the parameters of ${made.name}`);
        if (problem) return problem;
      }
    }
    return null;
  });
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function problemOf(text: string, check: (value: unknown) => string | null): string | null {
  if (!text.trim()) return null;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return jsonProblem(text);
  }
  return check(value);
}

const TYPES = ["null", "boolean", "object", "array", "number", "integer", "string"];
const SCHEMAS_BY_NAME = ["properties", "patternProperties", "$defs", "definitions"];
const SCHEMA_LISTS = ["anyOf", "oneOf", "allOf", "prefixItems"];
const SINGLE_SCHEMAS = ["items", "additionalProperties"];

function schemaProblem(schema: unknown, place: string): string | null {
  if (typeof schema === "boolean") return null;
  if (!isObject(schema)) return `${place} is no object`;
  const types = schema.type === undefined ? [] : [schema.type].flat();
  const unknown = types.find((type) => !TYPES.includes(String(type)));
  if (unknown !== undefined) return `${place} has the unknown type ${JSON.stringify(unknown)}`;
  if (schema.required !== undefined && !isTexts(schema.required)) return `required of ${place} is no list of names`;
  if (schema.enum !== undefined && !Array.isArray(schema.enum)) return `enum of ${place} is no list`;
  if (typeof schema.pattern === "string") {
    try {
      new RegExp(schema.pattern, "u");
    } catch {
      return `pattern of ${place} is no regular expression`;
    }
  }
  for (const key of SCHEMAS_BY_NAME) {
    const members = schema[key];
    if (members === undefined) continue;
    if (!isObject(members)) return `${key} of ${place} is no object`;
    for (const [name, member] of Object.entries(members)) {
      const problem = schemaProblem(member, `${place}.${name}`);
      if (problem) return problem;
    }
  }
  for (const key of SCHEMA_LISTS) {
    const members = schema[key];
    if (members === undefined) continue;
    if (!Array.isArray(members) || members.length === 0) return `${key} of ${place} is no list of schemas`;
    for (const [index, member] of members.entries()) {
      const problem = schemaProblem(member, `${place}.${key}[${index}]`);
      if (problem) return problem;
    }
  }
  for (const key of SINGLE_SCHEMAS) {
    const problem = schema[key] === undefined ? null : schemaProblem(schema[key], `${place}.${key}`);
    if (problem) return problem;
  }
  return null;
}

const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every((item) => typeof item === "string");

type Token = { kind: string; text: string; line: number };

// The tokens of GBNF. A name is not followed by an escape, so that each alternative is linear.
const GBNF =
  /(#[^\n]*)|(\n)|[ \t\r]+|("(?:[^"\\\n]|\\.)*")|(\[(?:[^\]\\\n]|\\.)*\])|(::=)|([A-Za-z][\w-]*)|(\{\d*,?\d*\})|([|()?*+.])|(<\[?[^>\n]*>)|([^])/gy;
const KINDS = ["comment", "break", "text", "set", "is", "name", "count", "mark", "token", "other"];

/** Why a text is no grammar in GBNF, with the line. Grammars in Lark are left to the server. */
export function checkGrammar(text: string): string | null {
  if (!text.trim() || /^\s*(%llguidance|start\s*:)/m.test(text)) return null;
  const tokens: Token[] = [];
  let line = 1;
  for (const match of text.matchAll(GBNF)) {
    const index = KINDS.findIndex((_, i) => match[i + 1] !== undefined);
    const kind = KINDS[index];
    if (kind === "break") line += 1;
    else if (kind === "other") {
      const cause =
        match[0] === '"'
          ? "a text without its closing quote"
          : match[0] === "["
            ? "a set without ]"
            : `${match[0]} is not expected`;
      return `line ${line}: ${cause}`;
    } else if (kind && kind !== "comment") tokens.push({ kind, text: match[0], line });
  }
  return rulesProblem(tokens);
}

function rulesProblem(tokens: Token[]): string | null {
  const defined = new Set<string>();
  const used: Token[] = [];
  let depth = 0;
  let operand = false;
  for (const [index, token] of tokens.entries()) {
    const at = `line ${token.line}:`;
    if (token.kind === "name" && tokens[index + 1]?.kind === "is") {
      if (depth > 0) return `${at} a parenthesis is not closed before ${token.text}`;
      defined.add(token.text);
      operand = false;
      continue;
    }
    if (token.kind === "is") {
      if (tokens[index - 1]?.kind !== "name") return `${at} ::= without the name of a rule`;
      continue;
    }
    if (defined.size === 0) return `${at} expected NAME ::=`;
    if (token.kind === "name") used.push(token);
    if (token.text === "(") depth += 1;
    if (token.text === ")" && --depth < 0) return `${at} ) without (`;
    const repeats = token.kind === "count" || ["?", "*", "+"].includes(token.text);
    if (repeats && !operand) return `${at} ${token.text} has nothing to repeat`;
    operand = token.text !== "(" && token.text !== "|";
  }
  if (depth > 0) return "a parenthesis is not closed";
  const missing = used.find((token) => !defined.has(token.text));
  if (missing) return `line ${missing.line}: there is no rule ${missing.text}`;
  return defined.has("root") ? null : "there is no rule root";
}
