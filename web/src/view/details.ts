// The raw view of an answer: its text, its numbers, the request, and the probabilities of its tokens.
import { copyButton, h } from "../dom";
import { requests } from "../runs";
import type { Message, ScoredToken } from "../conversation";
import { openDialog } from "./dialog";

export function showDetails(message: Message): void {
  const request = requests.get(message.id);
  const content: HTMLElement[] = [numbers(message)];
  if (message.logprobs?.length) content.push(probabilities(message.logprobs));
  else
    content.push(
      section(
        "Log probabilities",
        h("p", {
          class: "muted",
          text: "Turn on “Keep log probabilities of tokens” in the parameters, then compute the answer again.",
        }),
      ),
    );
  if (message.reasoning) content.push(textSection("Reasoning", message.reasoning));
  if (message.content) content.push(textSection("Raw text", message.content));
  if (message.calls?.length) content.push(textSection("Calls", JSON.stringify(message.calls, null, 2)));
  if (request) content.push(textSection("Request", JSON.stringify(request, shortened, 2)));
  openDialog("Details of the answer", content, { isWide: true });
}

/** Images are long and say nothing as text. */
const shortened = (_: string, value: unknown): unknown =>
  typeof value === "string" && value.startsWith("data:") && value.length > 200
    ? `${value.slice(0, 60)}… (${value.length} characters)`
    : value;

function section(title: string, ...content: HTMLElement[]): HTMLElement {
  return h("section", { class: "detail" }, h("h3", { text: title }), ...content);
}

function textSection(title: string, text: string): HTMLElement {
  const made = section(
    title,
    h("pre", { class: "raw", text, attributes: { dir: "auto", tabindex: 0, role: "region", "aria-label": title } }),
  );
  made.querySelector("h3")?.append(copyButton(`Copy: ${title}`, () => text));
  return made;
}

function numbers({ stats = {}, model, state, reasoningMs, created }: Message): HTMLElement {
  const rows: [string, string | undefined][] = [
    ["Model", model],
    ["Time", new Date(created).toLocaleString()],
    ["End", state],
    [
      "Prompt",
      stats.promptTokens === undefined
        ? undefined
        : `${stats.promptTokens.toLocaleString()} tokens, ${(stats.cachedTokens ?? 0).toLocaleString()} of them cached`,
    ],
    ["Speed of the prompt", stats.promptPerSecond ? `${stats.promptPerSecond.toFixed(0)} tokens/s` : undefined],
    ["First token after", stats.firstTokenMs === undefined ? undefined : `${stats.firstTokenMs.toFixed(0)} ms`],
    ["Answer", stats.tokens === undefined ? undefined : `${stats.tokens.toLocaleString()} tokens`],
    ["Speed of the answer", stats.tokensPerSecond ? `${stats.tokensPerSecond.toFixed(1)} tokens/s` : undefined],
    ["Reasoning", reasoningMs ? `${(reasoningMs / 1000).toFixed(1)} s` : undefined],
  ];
  const list = h("dl", { class: "numbers" });
  for (const [name, value] of rows)
    if (value) list.append(h("div", {}, h("dt", { text: name }), h("dd", { text: value })));
  return list;
}

/** Tokens in the colours of their probabilities; one shows its alternatives. */
function probabilities(tokens: ScoredToken[]): HTMLElement {
  const shown = h("p", {
    class: "alternatives",
    attributes: { "aria-live": "polite" },
    text: "Choose a token to see its alternatives.",
  });
  const text = h("div", { class: "tokens", attributes: { dir: "auto" } });
  const most = 2000;
  for (const token of tokens.slice(0, most)) {
    const probability = Math.exp(token.logprob);
    const level = probability > 0.9 ? 0 : probability > 0.6 ? 1 : probability > 0.3 ? 2 : probability > 0.1 ? 3 : 4;
    text.append(
      h("button", {
        class: `token level-${level}`,
        text: token.token,
        attributes: { type: "button", title: percent(token.logprob) },
        on: {
          click: () =>
            (shown.textContent = [
              `${visible(token.token)} ${percent(token.logprob)}`,
              ...token.top.map((other) => `${visible(other.token)} ${percent(other.logprob)}`),
            ].join("  ·  ")),
        },
      }),
    );
  }
  if (tokens.length > most) text.append(h("span", { text: `… and ${tokens.length - most} more` }));
  return section("Log probabilities", shown, text);
}

const percent = (logprob: number): string => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
const visible = (token: string): string => JSON.stringify(token);
